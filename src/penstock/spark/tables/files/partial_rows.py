"""Folds partial changes into whole rows (pure).

    row of the table    id 1  name Ada    note long
    changes of a batch  id 1  name Bea              a change without the note
                        id 1              note null
    row afterwards      id 1  name Bea    note null

Guarantees: the changes of a key apply in the order of their arrival: topic, partition, offset. A
change sets the columns that it carries, also to null, and keeps all others. A deletion removes the
row, and a change after it starts from an empty row, whose columns are null; so does a change of a
key without a row. Columns that no change carries, such as those of other writers, are kept.

With `_sequence` a change that is older than its row, than a remembered deletion of its key, or than
a change of its key that arrived before it, is left out as a whole: the row has one order, not one
for each column, so nothing says which of its columns are older. So it is the same for any division
into batches, as long as the changes of a key are in one partition.

It decides about places and moves no values: `Fold` names the change or row of each value.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.tables.files.upsert import (
    CHANGE_COLUMNS,
    DELETED,
    distinct_keys,
    newest_of_each,
    places_among,
)
from penstock.spark.tables.values.cdc.carried_columns import CARRIED
from penstock.spark.tables.values.cdc.sequence import SEQUENCE

_ARRIVAL: Final = tuple(CHANGE_COLUMNS.names[1:])
_KEY: Final = "_change_key"
_RANK: Final = "_change_rank"


@dataclass(frozen=True, slots=True)
class Fold:
    """The values of the changed rows, one for each key with a change that applies."""

    keys: pa.Table
    last: pa.Array
    """The number of each key's last change, which has its kind, its order and its record."""
    sources: Mapping[str, pa.Array]
    """For each column that may be kept: the number of the change that sets it, or null."""
    starts_empty: pa.Array
    """Whether a deletion of this batch applies before, or as the last change."""

    def needs_row(self) -> pa.Array:
        """Return for each key whether a value of its row in the table is kept."""
        is_kept = pa.repeat(pa.scalar(value=False), len(self.last))
        for one in self.sources.values():
            is_kept = pc.or_(is_kept, one.is_null())
        return pc.and_not(is_kept, self.starts_empty)


def fold(
    changes: pa.Table,
    key: tuple[str, ...],
    kept: tuple[str, ...],
    orders: pa.Table | None = None,
) -> Fold:
    """Return the fold of all changes of a batch, which have key, kind, arrival and flags.

    `orders` has keys with the `_sequence` of their row or of their deletion; None: changes have
    none.
    """
    keys = distinct_keys(changes, key)
    ids = places_among(changes, keys)
    arrived = pc.sort_indices(changes, [(name, "ascending") for name in _ARRIVAL])
    ids = ids.take(arrived)
    applies = pa.repeat(pa.scalar(value=True), len(ids))
    if orders is not None:
        applies = _not_older(changes[SEQUENCE].take(arrived), ids, _newest(orders, keys))
    count = keys.num_rows
    is_deletion = _flat(changes[DELETED]).take(arrived)
    last = _last(ids, applies, count)
    deleted = _last(ids, pc.and_(applies, is_deletion), count)
    is_after = pc.greater(pa.arange(0, len(ids)), pc.fill_null(deleted, -1).take(ids))
    sets = pc.and_not(pc.and_(applies, is_after), is_deletion)
    flags = _flat(changes[CARRIED])
    names = [one.name for one in flags.type]
    columns = dict(zip(names, flags.flatten(), strict=True))
    live = pc.indices_nonzero(last.is_valid())
    sources = {}
    for name in kept:
        is_carried = columns.get(name)
        if is_carried is None:  # a column of another writer
            sources[name] = pa.nulls(len(live), pa.int64())
            continue
        is_carried = pc.fill_null(is_carried, fill_value=False).take(arrived)
        found = _last(ids, pc.and_(sets, is_carried), count)
        sources[name] = _numbers(arrived, found.take(live))
    return Fold(
        keys.take(live).combine_chunks(),
        _numbers(arrived, last.take(live)),
        sources,
        deleted.take(live).is_valid(),
    )


def _newest(orders: pa.Table, keys: pa.Table) -> pa.Array:
    """Return the newest order of each key; null without one."""
    names = keys.schema.names
    orders = newest_of_each(orders.cast(pa.schema([*keys.schema, (SEQUENCE, pa.string())])), names)
    return _flat(orders[SEQUENCE]).take(places_among(keys, orders.select(names)))


def _not_older(sequences: pa.Array, ids: pa.Array, held: pa.Array) -> pa.Array:
    """Return for each change, in their arrival, whether no order of its key before is newer."""
    both = pa.concat_arrays([held, _flat(sequences)])
    known = both.unique()
    known = known.take(pc.sort_indices(known))
    ranks = pc.fill_null(pc.index_in(both, value_set=known.drop_null()), -1).cast(pa.int64())
    count = len(held)
    every = pa.table(
        {
            _KEY: pa.concat_arrays([pa.arange(0, count), ids]),
            _RANK: ranks,
            "place": pa.arange(0, len(both)),
        }
    )
    order = pc.sort_indices(every, [(_KEY, "ascending"), ("place", "ascending")])
    # The key comes first in the number, so that the greatest one so far is of the same key.
    width = len(both) + 1
    numbers = pc.add(pc.multiply(every[_KEY], width), pc.add(every[_RANK], 1)).take(order)
    numbers = _flat(numbers)
    is_newest = pc.equal(numbers, pc.cumulative_max(numbers))
    back = pc.sort_indices(order)
    return is_newest.take(back).slice(count)


def _last(ids: pa.Array, mask: pa.Array, count: int) -> pa.Array:
    """Return for each key the last place where the mask is true; null without one."""
    places = pc.indices_nonzero(mask).cast(pa.int64())
    found = pa.table({_KEY: ids.take(places), _RANK: places}).group_by(_KEY)
    last = found.aggregate([(_RANK, "max")]).combine_chunks()
    at = pc.index_in(pa.arange(0, count), value_set=_flat(last[_KEY]))
    return _flat(last[f"{_RANK}_max"]).take(at)


def _numbers(arrived: pa.Array, places: pa.Array) -> pa.Array:
    return arrived.take(places).cast(pa.int64())


def _flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column
