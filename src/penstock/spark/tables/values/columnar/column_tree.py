"""The fields of a schema with their numbers and levels, for the columns of a kernel (pure).

Guarantees: field 0 is the row. The columns have the next numbers in their order, and the children
of a field follow each other. `can_hold` is true for the types that a tree can have.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from penstock.spark.tables.values.columnar import columns as kinds

_ROW: Final = pa.struct([])
_SCALARS: Final[Mapping[pa.DataType, tuple[int, int]]] = {
    pa.bool_(): (kinds.BOOLEAN, 0),
    pa.int8(): (kinds.INT8, 1),
    pa.int16(): (kinds.INT16, 2),
    pa.int32(): (kinds.INT32, 4),
    pa.int64(): (kinds.INT64, 8),
    pa.float32(): (kinds.FLOAT, 4),
    pa.float64(): (kinds.DOUBLE, 8),
    pa.string(): (kinds.BINARY, 4),
    pa.binary(): (kinds.BINARY, 4),
    pa.date32(): (kinds.INT32, 4),
    pa.timestamp("us", tz="UTC"): (kinds.INT64, 8),
    pa.timestamp("us"): (kinds.INT64, 8),
}
"""By the column's type: its kind, and the bytes of each entry; 0 is a bit."""


@dataclass(slots=True)
class ColumnNode:
    """One field of a schema."""

    number: int
    name: str
    type: pa.DataType
    level: int
    kind: int
    width: int
    is_required: bool = False
    children: "list[ColumnNode]" = field(default_factory=list)
    """The fields of a struct, the items of a list, the keys and the items of a map."""
    inner_level: int = 0
    """The level of the items of a list or map."""


class ColumnTree:
    """All fields of one schema, for which `can_hold` is true."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.row = ColumnNode(0, "", _ROW, 0, kinds.STRUCT, 0)
        self.nodes: list[ColumnNode] = [self.row]
        """By their numbers."""
        self.levels = 1
        self._add(self.row, list(schema), 0)
        for node in self.row.children:
            self._grow(node)

    def _grow(self, node: ColumnNode) -> None:
        inner = children_of(node.type)
        if not inner:
            return
        level = node.level
        if node.kind == kinds.LIST:
            level = node.inner_level = self.levels
            self.levels += 1
        self._add(node, inner, level)
        for child in node.children:
            self._grow(child)

    def _add(self, parent: ColumnNode, fields: list[pa.Field], level: int) -> None:
        for one in fields:
            kind, width = storage_of(one.type)
            node = ColumnNode(
                len(self.nodes), one.name, one.type, level, kind, width, not one.nullable
            )
            self.nodes.append(node)
            parent.children.append(node)


def children_of(kind: pa.DataType) -> list[pa.Field]:
    """Return the fields of a struct, the item of a list, or the key and the item of a map."""
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.value_field] if pa.types.is_list(kind) else []


def storage_of(kind: pa.DataType) -> tuple[int, int]:
    """Return the kind of a type, and the bytes of an entry."""
    if pa.types.is_struct(kind):
        return kinds.STRUCT, 0
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return kinds.LIST, 4
    if pa.types.is_decimal128(kind):
        return kinds.DECIMAL, 16
    return _SCALARS[kind]


def can_hold(kind: pa.DataType) -> bool:
    """Return whether a tree can have this type."""
    inner = children_of(kind)
    if inner:
        return all(can_hold(one.type) for one in inner)
    return kind in _SCALARS or pa.types.is_decimal128(kind)
