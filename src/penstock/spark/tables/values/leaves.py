"""The plain columns inside of a column: of structs, lists and maps, at any depth (pure).

Columns of floats are searched for NaN, which is not ordered: readers that sort it above all numbers
must not skip it because of the bounds of a file.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

Wanted = Callable[[pa.DataType], bool]


def leaves(name: str, column: pa.Array, wanted: Wanted) -> Iterator[tuple[str, pa.Array]]:
    """Return the plain columns of these types, by their paths in Parquet.

    Values under a null are null or left out, so the values of a list have no row numbers.
    """
    kind = column.type
    if not has_leaf(kind, wanted):
        return
    if pa.types.is_struct(kind):
        for field, child in zip(kind, column.flatten(), strict=True):
            yield from leaves(f"{name}.{field.name}", child, wanted)
    elif pa.types.is_map(kind):
        # Use the map as a list: the keys and items of a map slice are those of the whole map.
        pair = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        yield from leaves(f"{name}.key_value", column.cast(pa.list_(pair)).flatten(), wanted)
    elif pa.types.is_list(kind):
        yield from leaves(f"{name}.list.element", column.flatten(), wanted)
    else:
        yield name, column


def has_leaf(kind: pa.DataType, wanted: Wanted) -> bool:
    """Return whether a type is or contains one of these types."""
    if pa.types.is_struct(kind):
        return any(has_leaf(one.type, wanted) for one in kind)
    if pa.types.is_map(kind):
        return has_leaf(kind.key_type, wanted) or has_leaf(kind.item_type, wanted)
    if pa.types.is_list(kind):
        return has_leaf(kind.value_type, wanted)
    return wanted(kind)


def nan_counts(rows: pa.RecordBatch) -> dict[str, int]:
    """Return the number of NaN values in each plain column of floats."""
    return {
        path: pc.sum(pc.is_nan(values), min_count=0).as_py()
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
        for path, values in leaves(name, column, pa.types.is_floating)
    }


def float_paths(schema: pa.Schema) -> list[str]:
    """Return the plain columns of floats."""
    return list(nan_counts(_empty(schema)))


def paths_of(schema: pa.Schema) -> set[str]:
    """Return all plain columns."""
    return {
        path
        for name, column in zip(schema.names, _empty(schema).columns, strict=True)
        for path, _ in leaves(name, column, lambda _kind: True)
    }


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], one.type) for one in schema], schema.names)
