"""The plain columns inside of a column: of structs, lists and maps, at any depth (pure).

Columns of floats are searched for NaN, which has no place in an order: readers that sort it above
all numbers must not skip it because of the bounds of a file.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

Wanted = Callable[[pa.DataType], bool]


def leaves(name: str, column: pa.Array, wanted: Wanted) -> Iterator[tuple[str, pa.Array]]:
    """The plain columns of wanted types, by their paths in Parquet.

    Values under a null are null or left out, so a list's values have no row numbers of their own.
    """
    kind = column.type
    if not has_leaf(kind, wanted):
        return
    if pa.types.is_struct(kind):
        for field, child in zip(kind, column.flatten(), strict=True):
            yield from leaves(f"{name}.{field.name}", child, wanted)
    elif pa.types.is_map(kind):
        # As a list: the keys and items of a map are not those of a slice of it alone.
        pair = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        yield from leaves(f"{name}.key_value", column.cast(pa.list_(pair)).flatten(), wanted)
    elif pa.types.is_list(kind):
        yield from leaves(f"{name}.list.element", column.flatten(), wanted)
    else:
        yield name, column


def has_leaf(kind: pa.DataType, wanted: Wanted) -> bool:
    """Whether a type has a wanted one inside, or is one."""
    if pa.types.is_struct(kind):
        return any(has_leaf(one.type, wanted) for one in kind)
    if pa.types.is_map(kind):
        return has_leaf(kind.key_type, wanted) or has_leaf(kind.item_type, wanted)
    if pa.types.is_list(kind):
        return has_leaf(kind.value_type, wanted)
    return wanted(kind)


def nan_counts(rows: pa.RecordBatch) -> dict[str, int]:
    """How many values are NaN, for each plain column of floats."""
    return {
        path: pc.sum(pc.is_nan(values), min_count=0).as_py()
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
        for path, values in leaves(name, column, pa.types.is_floating)
    }


def float_paths(schema: pa.Schema) -> list[str]:
    """The plain columns of floats."""
    return list(nan_counts(_empty(schema)))


def paths_of(schema: pa.Schema) -> set[str]:
    """All plain columns."""
    return {
        path
        for name, column in zip(schema.names, _empty(schema).columns, strict=True)
        for path, _ in leaves(name, column, lambda _kind: True)
    }


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], one.type) for one in schema], schema.names)
