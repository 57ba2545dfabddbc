"""Counts rows of columns that no longer have values, for a note (pure).

If a producer renames a field, its column becomes empty, and no record is bad. So each commit
reports the value columns that are NULL in all its rows, and the note counts the rows since a column
became empty. A column that never had a value is recorded as `NEVER`: it does not indicate a change
of a producer.

The note lists empty columns only, so it costs nothing where every column has values. A pipeline
with more than `EMPTY_COLUMNS_MAX` empty columns is not watched.
"""

from collections.abc import Iterator, Mapping
from typing import Final

NEVER: Final = -1
"""The column has had no value in any commit of the pipeline."""
EMPTY_COLUMNS_MAX: Final = 50
"""The maximum number of names in a note, which Iceberg keeps for each snapshot: about 1 kB. More
empty columns mean a sparse schema."""
EMPTY_ROWS_LOGGED: Final = 100
"""Log a column after this number of rows without a value. Optional fields often have fewer."""


def empty_after(
    before: Mapping[str, int] | None, come: Mapping[str, bool] | None, rows: int
) -> Mapping[str, int] | None:
    """Return the next note's counts; `come` are a commit's empty columns and whether they are new.

    None for `before`: no commit had rows so far. None for `come`: this commit has none.
    """
    if come is None:
        return before
    if len(come) > EMPTY_COLUMNS_MAX:
        return None
    return {
        name: _rows_since(before, name, rows, is_new=is_new)
        for name, is_new in sorted(come.items())
    }


def _rows_since(before: Mapping[str, int] | None, name: str, rows: int, *, is_new: bool) -> int:
    if before is None or is_new or before.get(name) == NEVER:
        return NEVER
    return before.get(name, 0) + rows


def emptied(columns: Mapping[str, int] | None) -> dict[str, int]:
    """Return the columns that once had values, and the number of rows since without a value."""
    return {name: rows for name, rows in (columns or {}).items() if rows != NEVER}


def newly_emptied(
    before: Mapping[str, int] | None, after: Mapping[str, int] | None
) -> Iterator[tuple[str, int]]:
    """Return the columns that need a warning after a commit, each of them once."""
    known = emptied(before)
    for name, rows in emptied(after).items():
        if known.get(name, 0) < EMPTY_ROWS_LOGGED <= rows:
            yield name, rows
