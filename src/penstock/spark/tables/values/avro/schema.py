"""Converts an Avro schema to the columns of a table (pure).

Guarantees: the types are those of Spark's `from_avro`, except for the differences below; a schema
that no table can hold is a `SchemaError` that names the field.

| Avro | column |
| --- | --- |
| boolean, int, long, float, double | boolean, int, bigint, float, double |
| bytes, fixed | binary |
| string, enum, and uuid | string |
| record, array, map | struct, array, map<string, ...> |
| decimal | decimal(p, s) |
| date | date |
| timestamp-millis, timestamp-micros | timestamp |
| local-timestamp-millis, local-timestamp-micros | timestamp_ntz |
| time-millis, time-micros, any other logical type | its plain type |
| union with null | the other type, nullable |
| union of int and long, of float and double | the wider one |

Differences from Spark: any other union is rejected, and a type that contains itself, as in Spark.
Fields that are not a union with null are NOT NULL, as in Avro.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeAlias

import pyarrow as pa

from penstock.spark.option_values import shown
from penstock.spark.tables.definition.ddl import COLUMNS_MAX, DECIMAL_DIGITS_MAX, NESTING_MAX
from penstock.spark.tables.definition.errors import SchemaError

CHARACTERS_MAX: Final = 4_194_304
FIXED_BYTES_MAX: Final = 2**31 - 1

Schema: TypeAlias = "str | list[Any] | dict[str, Any]"
"""A schema as JSON: a name, a union, or anything else."""

_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_WIDER: Final[Mapping[frozenset[str], str]] = {
    frozenset({"int", "long"}): "long",
    frozenset({"float", "double"}): "double",
}


def load_avro(text: str, what: str) -> Schema:
    """Return the schema as JSON; `what` names it in errors."""
    if len(text) > CHARACTERS_MAX:
        raise SchemaError(
            what, f"it has {len(text)} characters.", f"At most {CHARACTERS_MAX} are read."
        )
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(what, f"it is not JSON: {error}.", "Give an Avro schema.") from None
    if not isinstance(found, str | list | dict):
        raise SchemaError(what, "it is no type.", "Give an Avro schema.")
    return found


def avro_columns(
    document: object, what: str, named: Mapping[str, object] | None = None
) -> pa.Schema:
    """Return the columns of a record; `named` has its referenced types, by their full names."""
    reader = _Reader(what, named or {})
    kind, _ = reader.type_of(document, "", "", 0)
    if not pa.types.is_struct(kind):
        raise SchemaError(
            what, "it does not describe a record.", "The value of a table's row is a record."
        )
    return pa.schema(list(kind))


class _Reader:
    """Walks the schema; returns each type with its nullability."""

    def __init__(self, what: str, named: Mapping[str, object]) -> None:
        self._what = what
        self._named: dict[str, tuple[object, str]] = {
            name: (node, name.rpartition(".")[0]) for name, node in named.items()
        }
        self._columns = 0

    def type_of(self, node: object, space: str, path: str, depth: int) -> tuple[pa.DataType, bool]:
        """Return the type of this node, in this namespace."""
        if depth > NESTING_MAX:
            self._fail(path, f"it is nested deeper than {NESTING_MAX}, or contains itself.")
        if isinstance(node, list):
            return self._union(node, space, path, depth)
        if isinstance(node, str):
            if node in _PLAIN:
                return _PLAIN[node], False
            if node == "null":
                # fastavro takes the name for itself, even if the schema has a type "null".
                self._fail(path, "it is null, and has no column.")
            return self.type_of(*self._reference(node, space, path), path, depth + 1)
        if not isinstance(node, Mapping):
            self._fail(path, "it is no type.")
        return self._complex(node, space, path, depth), False

    def _complex(self, node: Mapping[str, Any], space: str, path: str, depth: int) -> pa.DataType:
        name = self._name(node, path)
        if name in {"record", "error", "enum", "fixed"}:
            space = self._define(node, space)
        if name == "fixed":
            self._check_size(node, path)
        if node.get("logicalType") == "decimal" and name in {"bytes", "fixed"}:
            return self._decimal(node, path)
        if name in {"record", "error"}:
            return self._record(node, space, path, depth)
        if name == "enum":
            return pa.string()
        if name == "fixed":
            return pa.binary()
        if name == "array":
            return pa.list_(self._inner(node.get("items"), space, f"{path}[]", depth))
        if name == "map":
            inner = self._inner(node.get("values"), space, f"{path}{{}}", depth)
            return pa.map_(pa.string(), inner)
        if name in _PLAIN:
            return _LOGICAL.get((name, str(node.get("logicalType"))), _PLAIN[name])
        return self.type_of(name, space, path, depth + 1)[0]

    def _name(self, node: Mapping[str, Any], path: str) -> str:
        """Return the name of the kind of a type."""
        name = node.get("type")
        if not isinstance(name, str):
            self._fail(path, "its type is not a name. Write a type without another one around it.")
        return name

    def _check_size(self, node: Mapping[str, Any], path: str) -> None:
        size = node.get("size")
        # Not a bool, which is an int to Python.
        if type(size) is not int or not 0 < size <= FIXED_BYTES_MAX:
            # A list of values without bytes could claim an unlimited number.
            self._fail(path, f"a fixed type has 1 to {FIXED_BYTES_MAX} bytes.")

    def _inner(self, node: object, space: str, path: str, depth: int) -> pa.DataType:
        if node == "null":
            # An element has no bytes, so a short record could claim an unlimited number.
            self._fail(path, "a list of nothing.")
        return self.type_of(node, space, path, depth + 1)[0]

    def _record(self, node: Mapping[str, Any], space: str, path: str, depth: int) -> pa.DataType:
        fields = node.get("fields")
        if not isinstance(fields, list) or not fields:
            self._fail(path, "a record without fields.")
        self._columns += len(fields)
        if self._columns > COLUMNS_MAX:
            self._fail(path, f"there are more than {COLUMNS_MAX} columns.")
        found, seen = [], set()
        for field in fields:
            if not isinstance(field, Mapping):
                self._fail(path, "one of its fields is not an object.")
            name = str(field.get("name"))
            inner = f"{path}.{name}" if path else name
            if name.lower() in seen:
                self._fail(inner, "it is there twice; to Spark the case is the same.")
            seen.add(name.lower())
            kind, is_nullable = self.type_of(field.get("type"), space, inner, depth + 1)
            found.append(pa.field(name, kind, nullable=is_nullable))
        return pa.struct(found)

    def _union(
        self, choices: list[object], space: str, path: str, depth: int
    ) -> tuple[pa.DataType, bool]:
        others = [one for one in choices if one != "null"]
        is_nullable = len(others) < len(choices)
        if len(others) == 1:
            kind, is_inner_nullable = self.type_of(others[0], space, path, depth + 1)
            return kind, is_nullable or is_inner_nullable
        names = frozenset(one for one in others if isinstance(one, str))
        if len(names) == len(others) and names in _WIDER:
            return _PLAIN[_WIDER[names]], is_nullable
        return self._fail(path, "a union of several types has no column.")

    def _decimal(self, node: Mapping[str, Any], path: str) -> pa.DataType:
        precision, scale = node.get("precision"), node.get("scale", 0)
        is_known = isinstance(precision, int) and isinstance(scale, int)
        if not is_known or not 0 < precision <= DECIMAL_DIGITS_MAX or not 0 <= scale <= precision:  # type: ignore[operator]
            self._fail(path, f"a decimal has 1 to {DECIMAL_DIGITS_MAX} digits.")
        return pa.decimal128(precision, scale)

    def _define(self, node: Mapping[str, Any], space: str) -> str:
        """Record a named type; return the namespace inside it."""
        name = str(node.get("name"))
        if "." in name:
            space = name.rpartition(".")[0]
        elif isinstance(node.get("namespace"), str):
            space = node["namespace"]
        full = name if "." in name or not space else f"{space}.{name}"
        self._named[full] = (node, space)
        return space

    def _reference(self, name: str, space: str, path: str) -> tuple[object, str]:
        full = name if "." in name or not space else f"{space}.{name}"
        found = self._named.get(full, self._named.get(name))
        if found is None:
            self._fail(path, f"there is no type {shown(name)}.")
        return found

    def _fail(self, path: str, problem: str) -> NoReturn:
        place = f"field '{path}': " if path else ""
        raise SchemaError(self._what, f"{place}{problem}", "Change it, or read the values as raw.")
