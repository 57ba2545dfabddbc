"""The versions of rows in a table of history, SCD type 2 (pure).

    id  name  _sequence   _valid_from  _valid_to  _is_current  _is_deleted
    1   Ada   b10a1       10:00        10:05      false        false
    1   null  b12a1       10:05        null       false        true

Guarantees: a table has one row for each change of a key: for each value of `_sequence`, which here
has the fields of `sequence_by` alone, so an event that is sent again is the same version. A version
ends when the next one of its key begins, in the order of `_sequence`, in any order of arrival. So a
table depends on the set of changes alone. A deletion is a version too, with its key alone: without
it an older change that arrives later would have no end.

`_valid_from` is the database's time of the change (`source.ts_ms`), or the record's timestamp, the
earliest one of an event that is sent again. It does not order versions: clocks are set back, and
changes of one transaction share their time.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.option_values import shown
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.values.cdc.sequence import SEQUENCE

VALID_FROM: Final = "_valid_from"
VALID_TO: Final = "_valid_to"
IS_CURRENT: Final = "_is_current"
IS_DELETED: Final = "_is_deleted"
_TIME: Final = pa.timestamp("us", tz="UTC")
HISTORY_COLUMNS: Final = pa.schema(
    [
        pa.field(VALID_FROM, _TIME),
        pa.field(VALID_TO, _TIME),
        pa.field(IS_CURRENT, pa.bool_()),
        pa.field(IS_DELETED, pa.bool_()),
    ]
)
_ROW: Final = "_change_row"
_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999, the last one that tables can show."""


class Versions(NamedTuple):
    """The versions that a batch adds or changes."""

    ends: pa.Table
    """The times and `_is_current` of the new versions, in the order of their input."""
    amended: pa.Table
    """Key, `_sequence`, and the new `_valid_to` and `_is_current` of versions of the table."""


def require_history(key: Sequence[str], rows: pa.Schema) -> None:
    """Raise `SchemaError` if a deletion cannot be a row with these columns."""
    for one in rows:
        if not one.nullable and one.name not in key:
            raise SchemaError(
                "table.history",
                f"column {shown(one.name)} is NOT NULL, and the version of a deletion has only "
                "the key.",
                "Remove NOT NULL from value.schema.",
            )
    missing = [name for name in (SEQUENCE, *HISTORY_COLUMNS.names) if name not in rows.names]
    if missing:
        raise SchemaError(
            "the rows of the function",
            f"they lack the columns {', '.join(missing)} of a history.",
            "Let the function keep them.",
        )


def as_versions(rows: pa.RecordBatch, times: pa.Array, *, deleted: bool) -> pa.RecordBatch:
    """Return the rows with the columns of history, as if each were its key's last version."""
    count = rows.num_rows
    arrays = [
        times,
        pa.nulls(count, _TIME),
        pa.repeat(pa.scalar(not deleted), count),
        pa.repeat(pa.scalar(deleted), count),
    ]
    return pa.RecordBatch.from_arrays(
        [*rows.columns, *arrays], schema=pa.schema([*rows.schema, *HISTORY_COLUMNS])
    )


def times_of(changed_ms: pa.Array, timestamps: pa.Array) -> pa.Array:
    """Return the times of changes: the database's if there is a possible one, else the record's."""
    is_possible = pc.and_(pc.greater_equal(changed_ms, 0), pc.less_equal(changed_ms, _MS_MAX))
    found = pc.if_else(is_possible, changed_ms, pa.scalar(None, pa.int64()))
    return pc.coalesce(pc.multiply(found, 1_000).view(_TIME), timestamps.cast(_TIME))


def versions_after(held: pa.Table, come: pa.Table, key: Sequence[str]) -> Versions:
    """Return the versions after new ones, each once by key and `_sequence`.

    `held` has all versions of these keys in the table. Both have the key, `_sequence` and the
    columns of history; `_valid_to` and `_is_current` have no effect in `come`.
    """
    names = [*key, SEQUENCE]
    columns = [*names, *HISTORY_COLUMNS.names]
    numbered = come.select(columns).append_column(_ROW, pa.arange(0, come.num_rows))
    kept = held.select(columns).cast(come.select(columns).schema)
    kept = kept.append_column(_ROW, pa.repeat(pa.scalar(-1, pa.int64()), held.num_rows))
    both = pa.concat_tables([kept, numbered])
    # Of one version the new one, which sorts last, replaces that of the table, and begins with it.
    order = pc.sort_indices(both, [(name, "ascending") for name in [*names, _ROW]])
    both = _once(both.take(order).combine_chunks(), names)
    has_next = _is_next_same(both, key)
    begins = _column(both, VALID_FROM)
    following = pa.concat_arrays([begins.slice(1), pa.nulls(min(1, both.num_rows), _TIME)])
    ends = pc.if_else(has_next, following, pa.scalar(None, _TIME))
    is_current = pc.invert(pc.or_(has_next, _column(both, IS_DELETED)))
    is_new = pc.greater_equal(_column(both, _ROW), 0)
    is_changed = pc.or_(
        _differ(_column(both, VALID_TO), ends), _differ(_column(both, IS_CURRENT), is_current)
    )
    found = both.select([*names, VALID_FROM, _ROW]).append_column(VALID_TO, ends)
    found = found.append_column(IS_CURRENT, is_current)
    new = found.filter(is_new).sort_by(_ROW)
    amended = found.filter(pc.and_not(is_changed, is_new))
    return Versions(
        new.select([VALID_FROM, VALID_TO, IS_CURRENT]),
        amended.select([*names, VALID_TO, IS_CURRENT]),
    )


def _once(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the last row of each group of equal neighbours, with the group's earliest time."""
    is_last = pc.invert(_is_next_same(rows, names))
    found = rows.filter(is_last).combine_chunks()
    if found.num_rows == rows.num_rows:
        return found
    ended = pc.cumulative_sum(is_last.cast(pa.int64()))
    number = pc.subtract(ended, is_last.cast(pa.int64()))
    groups = pa.table({"group": number, "time": _column(rows, VALID_FROM)}).group_by("group")
    earliest = groups.aggregate([("time", "min")]).sort_by("group")["time_min"].combine_chunks()
    return found.set_column(found.schema.get_field_index(VALID_FROM), VALID_FROM, earliest)


def _is_next_same(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """Return for each row whether the next one has the same values."""
    count = rows.num_rows
    if not count:
        return pa.array([], pa.bool_())
    found = pa.repeat(pa.scalar(value=True), count - 1)
    for name in names:
        column = _column(rows, name)
        found = pc.and_(found, pc.equal(column.slice(0, count - 1), column.slice(1)))
    return pa.concat_arrays([found, pa.array([False])])


def _differ(one: pa.Array, other: pa.Array) -> pa.Array:
    both_null = pc.and_(one.is_null(), other.is_null())
    return pc.invert(pc.fill_null(pc.or_kleene(pc.equal(one, other), both_null), fill_value=False))


def _column(rows: pa.Table, name: str) -> pa.Array:
    found = rows[name].combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found
