"""Arrow's structs, lists and maps with other values inside; which of them are null stays (pure).

Guarantees: whoever changes what is inside changes nothing else. A null list stays null and does not
become an empty one, whether the array is a slice, a large one or one of fixed size, and whatever
lies below its nulls.

This is not a cast: who calls says how the values inside become others.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

Change = Callable[[pa.Array], pa.Array]


def struct_of(column: pa.Array, kind: pa.DataType, children: Sequence[pa.Array]) -> pa.Array:
    """The structs with these fields, one for each of `kind`."""
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=_nulls(column))


def list_of(column: pa.Array, kind: pa.DataType, change: Change) -> pa.Array:
    """The lists as of `kind`, with their values changed."""
    values = change(column.flatten())
    return pa.ListArray.from_arrays(_offsets(column), values, type=kind, mask=_nulls(column))


def map_of(column: pa.Array, kind: pa.DataType, of_keys: Change, of_items: Change) -> pa.Array:
    """The maps as of `kind`, with their keys and items changed."""
    # A map is a list of entries, which Arrow has more functions for.
    entry = pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])
    entries = column.cast(pa.list_(entry))
    values = entries.flatten()
    keys, items = values.field(0), values.field(1)
    return pa.MapArray.from_arrays(
        _offsets(entries), of_keys(keys), of_items(items), type=kind, mask=_nulls(column)
    )


def _offsets(column: pa.Array) -> pa.Array:
    """From lengths: a slice has offsets that do not begin at zero, and a null may have values."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum_checked(lengths)])


def _nulls(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None
