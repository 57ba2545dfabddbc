"""Replaces the values in Arrow's structs, lists and maps; nulls stay nulls (pure).

Guarantees: only the inner values change. A null list stays null and does not become an empty one,
whether the array is a slice, a large one or one of fixed size, and whatever the values below its
nulls.

This is not a cast: the caller passes the function that changes the inner values.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

Change = Callable[[pa.Array], pa.Array]


def struct_of(column: pa.Array, kind: pa.DataType, children: Sequence[pa.Array]) -> pa.Array:
    """Return the structs with these fields, one for each of `kind`."""
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=_nulls(column))


def list_of(column: pa.Array, kind: pa.DataType, change: Change) -> pa.Array:
    """Return the lists with the type `kind` and changed values."""
    values = change(column.flatten())
    return pa.ListArray.from_arrays(_offsets(column), values, type=kind, mask=_nulls(column))


def map_of(column: pa.Array, kind: pa.DataType, of_keys: Change, of_items: Change) -> pa.Array:
    """Return the maps with the type `kind` and changed keys and items."""
    # A map is a list of entries; Arrow has more functions for lists.
    entry = pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])
    entries = column.cast(pa.list_(entry))
    values = entries.flatten()
    keys, items = values.field(0), values.field(1)
    return pa.MapArray.from_arrays(
        _offsets(entries), of_keys(keys), of_items(items), type=kind, mask=_nulls(column)
    )


def has_required_leaves(kind: pa.DataType) -> bool:
    """Return whether a struct in it has a plain field that may not be null."""
    if pa.types.is_struct(kind):
        return any(
            has_required_leaves(one.type) if pa.types.is_nested(one.type) else not one.nullable
            for one in kind
        )
    if pa.types.is_map(kind):
        return has_required_leaves(kind.key_type) or has_required_leaves(kind.item_type)
    return pa.types.is_list(kind) and has_required_leaves(kind.value_type)


def for_parquet(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the same values; required fields have no null below a null struct.

    Arrow has no value there, so both are the same to every reader. Arrow's Parquet writer rejects
    the null anyway. A null that is not below a null struct stays, and is rejected.
    """
    if not has_required_leaves(kind):
        return column
    if pa.types.is_struct(kind):
        children = [
            _required_leaf(column.field(number), column)
            if not one.nullable and not pa.types.is_nested(one.type)
            else for_parquet(column.field(number), one.type)
            for number, one in enumerate(kind)
        ]
        return struct_of(column, kind, children)
    if pa.types.is_map(kind):
        return map_of(
            column,
            kind,
            lambda keys: for_parquet(keys, kind.key_type),
            lambda items: for_parquet(items, kind.item_type),
        )
    return list_of(column, kind, lambda values: for_parquet(values, kind.value_type))


def _required_leaf(leaf: pa.Array, parent: pa.Array) -> pa.Array:
    if not leaf.null_count or pc.any(pc.and_(leaf.is_null(), parent.is_valid())).as_py():
        return leaf
    if isinstance(leaf, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(leaf.type, _required_leaf(leaf.storage, parent))
    buffers = [None, *leaf.buffers()[1:]]
    return pa.Array.from_buffers(leaf.type, len(leaf), buffers, 0, leaf.offset)


def _offsets(column: pa.Array) -> pa.Array:
    """Return offsets from lengths: a slice has other offsets, and a null may have values."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum_checked(lengths)])


def _nulls(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None
