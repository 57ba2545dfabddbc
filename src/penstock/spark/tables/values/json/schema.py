"""Converts a JSON Schema to the columns of a table (pure).

Guarantees: only references inside the document are followed, to a bounded depth; a schema that no
table can hold is a `SchemaError` that names the place. It is not a validator: rules on values, such
as `minimum` and `pattern`, are expectations here.

| JSON Schema | column |
| --- | --- |
| integer, number, boolean | bigint, double, boolean |
| string | string; timestamp or date by its `format`, binary by `contentEncoding: base64` |
| object with `properties` | struct; in `required` and not null: NOT NULL |
| object with `additionalProperties` alone | map<string, ...> |
| array with `items` | array |
| `enum`, `const` | what all its values are |
| `anyOf`, `oneOf` of one type and null | that type |
| `allOf` of objects | all their properties |
| no type, or several types | string, which holds the JSON text |
"""

import json
from collections.abc import Mapping
from typing import Final, NoReturn

import pyarrow as pa

from penstock.spark.option_values import shown
from penstock.spark.tables.definition.ddl import COLUMNS_MAX, NESTING_MAX
from penstock.spark.tables.definition.errors import SchemaError

CHARACTERS_MAX: Final = 4_194_304
REFERENCES_MAX: Final = 32
"""The maximum number of consecutive references."""

_SCALARS: Final[Mapping[str, pa.DataType]] = {
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}
_FORMATS: Final[Mapping[str, pa.DataType]] = {
    "date-time": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
}
_KINDS: Final[tuple[tuple[type, str], ...]] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)


def parse_json_schema(text: str, what: str) -> pa.Schema:
    """Return the columns; `what` names the schema in errors."""
    if len(text) > CHARACTERS_MAX:
        raise SchemaError(
            what, f"it has {len(text)} characters.", f"At most {CHARACTERS_MAX} are read."
        )
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(what, f"it is not JSON: {error}.", "Correct it.") from None
    reader = _Reader(what, document)
    kind = reader.type_of(document, "#", 0)[0]
    if not pa.types.is_struct(kind):
        raise SchemaError(
            what, "it does not describe an object.", 'Its type must be "object", with properties.'
        )
    return pa.schema(list(kind))


class _Reader:
    """Walks the document; returns each type with its nullability."""

    def __init__(self, what: str, document: object) -> None:
        self._what = what
        self._document = document
        self._columns = 0

    def type_of(self, schema: object, place: str, depth: int) -> tuple[pa.DataType, bool]:
        """Return the type at this place, and whether null is allowed there."""
        if depth > NESTING_MAX:
            self._fail(place, f"it is nested deeper than {NESTING_MAX}, or refers to itself.")
        node = self._resolved(schema, place)
        if node is None:
            return pa.string(), True
        choices = node.get("anyOf", node.get("oneOf"))
        if isinstance(choices, list):
            return self._one_of(choices, place, depth)
        if isinstance(node.get("allOf"), list):
            node = self._all_of(node, place)
        names, is_nullable = self._types(node)
        if names != ["number"] and len(names) != 1:
            return pa.string(), is_nullable
        return self._single(names[0], node, place, depth), is_nullable

    def _single(self, name: str, node: Mapping[str, object], place: str, depth: int) -> pa.DataType:
        if name in _SCALARS:
            return _SCALARS[name]
        if name == "array":
            items = node.get("items", True)
            return pa.list_(self.type_of(items, f"{place}/items", depth + 1)[0])
        if name == "object":
            return self._object(node, place, depth)
        if name != "string":
            self._fail(place, f"there is no type {shown(name)}.")
        if node.get("contentEncoding") == "base64":
            return pa.binary()
        return _FORMATS.get(str(node.get("format")), pa.string())

    def _object(self, node: Mapping[str, object], place: str, depth: int) -> pa.DataType:
        properties = node.get("properties")
        if not isinstance(properties, Mapping) or not properties:
            extra = node.get("additionalProperties")
            if isinstance(extra, Mapping) and extra:
                value = self.type_of(extra, f"{place}/additionalProperties", depth + 1)[0]
                return pa.map_(pa.string(), value)
            return pa.string()
        self._columns += len(properties)
        if self._columns > COLUMNS_MAX:
            self._fail(place, f"there are more than {COLUMNS_MAX} columns.")
        required = node.get("required")
        given = required if isinstance(required, list) else []
        names = {one for one in given if isinstance(one, str)}
        fields, seen = [], set()
        for name, inner in properties.items():
            if not name:
                self._fail(place, "a property without a name has no column.")
            if name.lower() in seen:
                self._fail(place, f"{shown(name)} is there twice; to Spark the case is the same.")
            seen.add(name.lower())
            kind, is_nullable = self.type_of(inner, f"{place}/properties/{name}", depth + 1)
            fields.append(pa.field(name, kind, nullable=is_nullable or name not in names))
        return pa.struct(fields)

    def _one_of(self, choices: list[object], place: str, depth: int) -> tuple[pa.DataType, bool]:
        kinds, may_be_null = [], False
        for number, choice in enumerate(choices[:COLUMNS_MAX]):
            node = self._resolved(choice, place)
            if node is not None and node.get("type") == "null":
                may_be_null = True
                continue
            kind, is_nullable = self.type_of(choice, f"{place}/anyOf/{number}", depth + 1)
            may_be_null = may_be_null or is_nullable
            kinds.append(kind)
        return (kinds[0] if len(set(kinds)) == 1 else pa.string()), may_be_null

    def _all_of(self, node: Mapping[str, object], place: str) -> Mapping[str, object]:
        properties: dict[str, object] = {}
        required: list[object] = []
        parts = node["allOf"]
        assert isinstance(parts, list), "the caller looked"
        for part in [node, *parts[:COLUMNS_MAX]]:
            resolved = self._resolved(part, place) if part is not node else node
            inner = (resolved or {}).get("properties")
            if isinstance(inner, Mapping):
                properties.update(inner)
            more = (resolved or {}).get("required")
            required += more if isinstance(more, list) else []
        return {"type": node.get("type", "object"), "properties": properties, "required": required}

    def _types(self, node: Mapping[str, object]) -> tuple[list[str], bool]:
        given = node.get("type")
        if given is None:
            values = node.get("enum", [node["const"]] if "const" in node else None)
            if isinstance(values, list) and values:
                given = [_kind(value) for value in values]
            else:
                given = "object" if "properties" in node else []
        names = [str(one) for one in given] if isinstance(given, list) else [str(given)]
        found = [name for name in dict.fromkeys(names) if name != "null"]
        if set(found) == {"integer", "number"}:
            found = ["number"]
        return found, "null" in names or not names

    def _resolved(self, schema: object, place: str) -> Mapping[str, object] | None:
        """Return the schema after following its reference; None if everything is allowed."""
        for _ in range(REFERENCES_MAX):
            if isinstance(schema, bool):
                return None
            if not isinstance(schema, Mapping):
                self._fail(place, "it is no schema.")
            reference = schema.get("$ref")
            if reference is None:
                return schema
            schema = self._target(str(reference), place)
        return self._fail(place, "its references lead nowhere.")

    def _target(self, reference: str, place: str) -> object:
        if not reference.startswith("#"):
            self._fail(place, f"{shown(reference)} is in another document, which is not read.")
        found = self._document
        for part in reference.removeprefix("#").split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                self._fail(place, f"{shown(reference)} is not there.")
            found = found[name]
        return found

    def _fail(self, place: str, problem: str) -> NoReturn:
        raise SchemaError(
            self._what, f"at {place}: {problem}", "Change it, or write the schema as Spark's DDL."
        )


def _kind(value: object) -> str:
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "null")
