"""Columns that had values and have none any more, as a note counts them (pure).

A producer that renames a field empties its column, and no record is bad. So each commit reports the
columns of values that are NULL in all its rows, and the note counts for how many rows a column has
been empty. A column that never had a value is recorded as `NEVER`: it shows no change of a
producer.

The note lists empty columns only, so it costs nothing where every column has values. A pipeline
with more than `EMPTY_COLUMNS_MAX` empty columns is not watched.
"""

from collections.abc import Iterator, Mapping
from typing import Final

NEVER: Final = -1
"""The column has had no value in any commit of the pipeline."""
EMPTY_COLUMNS_MAX: Final = 50
"""Names in a note, which Iceberg keeps for each snapshot: some 1 kB. More are a sparse schema."""
EMPTY_ROWS_LOGGED: Final = 100
"""Rows without a value after which it is logged. Fewer happen wherever a field is optional."""


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
    """The columns that had values once, and for how many rows they have had none."""
    return {name: rows for name, rows in (columns or {}).items() if rows != NEVER}


def newly_emptied(
    before: Mapping[str, int] | None, after: Mapping[str, int] | None
) -> Iterator[tuple[str, int]]:
    """Return the columns that need a warning after a commit, each of them once."""
    known = emptied(before)
    for name, rows in emptied(after).items():
        if known.get(name, 0) < EMPTY_ROWS_LOGGED <= rows:
            yield name, rows
