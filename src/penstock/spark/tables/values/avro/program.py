"""Turns an Avro schema into the nodes that a kernel follows.

Guarantees: a program reads what the schema says into columns of the types in `avro.schema`. A
schema with anything else has no program, and its values are read by the reference.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from penstock.spark.tables.values.avro import kernel as operations
from penstock.spark.tables.values.avro.kernel import AvroKernel
from penstock.spark.tables.values.avro.schema import Schema
from penstock.spark.tables.values.columnar.column_tree import ColumnNode, ColumnTree, can_hold
from penstock.spark.tables.values.columnar.memory import ColumnMemory

_KEYWORDS: Final = frozenset(
    {
        *("null", "boolean", "int", "long", "float", "double", "bytes", "string"),
        *("record", "error", "enum", "fixed", "array", "map", "union", "error_union", "request"),
    }
)
"""fastavro takes these names for themselves, even if a schema defines a type with such a name."""
NODES_MAX: Final = 16_384
"""A name stands for its type, so a short schema may have more nodes than columns."""
SYMBOL_BYTES_MAX: Final = 256
"""One byte of a value may become as many bytes of a column."""
SYMBOLS_MAX: Final = 65_536
"""Of all enums."""
_HALF: Final = 2**64
_TIME: Final = pa.timestamp("us", tz="UTC")
_LOCAL_TIME: Final = pa.timestamp("us")
_PLAIN: Final[Mapping[tuple[str, pa.DataType], int]] = {
    ("boolean", pa.bool_()): operations.BOOLEAN,
    ("int", pa.int32()): operations.INT,
    ("int", pa.int64()): operations.LONG,
    ("long", pa.int64()): operations.LONG,
    ("float", pa.float32()): operations.FLOAT,
    ("float", pa.float64()): operations.WIDE_FLOAT,
    ("double", pa.float64()): operations.DOUBLE,
    ("bytes", pa.binary()): operations.BYTES,
    ("string", pa.string()): operations.TEXT,
}
_LOGICAL: Final[Mapping[tuple[str, str, pa.DataType], int]] = {
    ("int", "date", pa.date32()): operations.DATE,
    ("long", "timestamp-millis", _TIME): operations.MILLISECONDS,
    ("long", "timestamp-micros", _TIME): operations.MICROSECONDS,
    ("long", "local-timestamp-millis", _LOCAL_TIME): operations.MILLISECONDS,
    ("long", "local-timestamp-micros", _LOCAL_TIME): operations.MICROSECONDS,
}


class _NoProgramError(Exception):
    """The schema has something that the kernel does not read."""


@dataclass(slots=True)
class _Node:
    operation: int = operations.NULL
    field: int = 0
    first_child: int = 0
    child_count: int = 0
    size: int = 0
    level: int = 0
    limit: int = 0


@dataclass(slots=True)
class _Program:
    """The nodes so far."""

    types: Mapping[str, Any]
    """The named types of the schema, by their full names."""
    nodes: list[_Node] = field(default_factory=list)
    symbols: list[bytes] = field(default_factory=list)
    enums: dict[int, int] = field(default_factory=dict)
    """The first symbol of each enum, by the identity of its list of symbols, which is in `types`:
    all uses of an enum share them."""

    def reserve(self, count: int) -> int:
        """Add nodes that follow each other; return the number of the first one."""
        first = len(self.nodes)
        if first + count > NODES_MAX:
            raise _NoProgramError
        self.nodes += [_Node() for _ in range(count)]
        return first

    def fill(self, number: int, schema: Schema, column: ColumnNode) -> None:
        """Fill a node with what this schema says about this column."""
        node = self.nodes[number]
        node.field = column.number
        if isinstance(schema, list):
            self._children(node, operations.UNION, [(one, column) for one in schema])
            return
        if isinstance(schema, str) and schema not in _KEYWORDS:
            schema = self.types[schema]
        document = schema if isinstance(schema, dict) else {"type": schema}
        kind = document["type"]
        if isinstance(kind, str) and kind in _KEYWORDS:
            self._fill(node, kind, document, column)
        else:
            self.fill(number, kind, column)

    def _fill(
        self, node: _Node, kind: str, document: Mapping[str, Any], column: ColumnNode
    ) -> None:
        if kind in {"record", "error"}:
            fields = document["fields"]
            if [one["name"] for one in fields] != [one.name for one in column.children]:
                raise _NoProgramError
            children = zip((one["type"] for one in fields), column.children, strict=True)
            self._children(node, operations.RECORD, list(children))
        elif kind in {"array", "map"}:
            self._items(node, kind, document, column)
        elif kind == "enum" and pa.types.is_string(column.type):
            self._symbols(node, document["symbols"])
        elif kind in {"bytes", "fixed"} and pa.types.is_decimal128(column.type):
            self._decimal(node, kind, document, column.type)
        elif kind == "fixed" and pa.types.is_binary(column.type):
            node.operation, node.size = operations.FIXED, document["size"]
        elif kind != "null":
            logical = _LOGICAL.get((kind, str(document.get("logicalType")), column.type))
            operation = _PLAIN.get((kind, column.type)) if logical is None else logical
            if operation is None:
                raise _NoProgramError
            node.operation = operation

    def _children(
        self, node: _Node, operation: int, children: list[tuple[Schema, ColumnNode]]
    ) -> None:
        node.operation, node.child_count = operation, len(children)
        node.first_child = self.reserve(len(children))
        for number, (schema, column) in enumerate(children, start=node.first_child):
            self.fill(number, schema, column)

    def _items(
        self, node: _Node, kind: str, document: Mapping[str, Any], column: ColumnNode
    ) -> None:
        is_list = kind == "array"
        if len(column.children) != (1 if is_list else 2) or not column.inner_level:
            raise _NoProgramError
        items = document["items"] if is_list else document["values"]
        keys: list[Schema] = [] if is_list else ["string"]
        node.level = column.inner_level
        self._children(
            node,
            operations.ARRAY if is_list else operations.MAP,
            list(zip([*keys, items], column.children, strict=True)),
        )

    def _symbols(self, node: _Node, symbols: list[str]) -> None:
        first = self.enums.get(id(symbols))
        if first is None:
            texts = [one.encode() for one in symbols]
            is_long = max(map(len, texts), default=0) > SYMBOL_BYTES_MAX
            if is_long or len(self.symbols) + len(texts) > SYMBOLS_MAX:
                raise _NoProgramError
            first = self.enums[id(symbols)] = len(self.symbols)
            self.symbols += texts
        node.operation = operations.ENUM
        node.first_child, node.child_count = first, len(symbols)

    def _decimal(
        self, node: _Node, kind: str, document: Mapping[str, Any], column: pa.DataType
    ) -> None:
        node.operation, node.limit = operations.DECIMAL, 10**column.precision
        if document.get("logicalType") != "decimal":
            raise _NoProgramError
        if kind == "fixed":
            node.operation, node.size = operations.FIXED_DECIMAL, document["size"]


def avro_kernel(
    schema: Schema, types: Mapping[str, Any], columns: pa.Schema
) -> tuple[AvroKernel, ColumnMemory] | None:
    """Return the kernel of a schema as fastavro parsed it; None if the kernel does not read it."""
    if not all(can_hold(one.type) for one in columns):
        return None
    tree = ColumnTree(columns)
    program = _Program(types)
    try:
        program.fill(program.reserve(1), schema, tree.row)
        return _kernel_of(program, tree)
    except (_NoProgramError, LookupError, OverflowError, RecursionError, TypeError, ValueError):
        return None


def _kernel_of(program: _Program, tree: ColumnTree) -> tuple[AvroKernel, ColumnMemory]:
    memory = ColumnMemory(tree)
    kernel = AvroKernel(memory.columns, len(program.nodes))
    for number, node in enumerate(program.nodes):
        kernel.operations[number] = node.operation
        kernel.fields[number] = node.field
        kernel.first_children[number] = node.first_child
        kernel.child_counts[number] = node.child_count
        kernel.sizes[number] = node.size
        kernel.levels[number] = node.level
        kernel.limits_high[number], kernel.limits_low[number] = divmod(node.limit, _HALF)
    kernel.set_symbols(program.symbols)
    return kernel, memory
