"""Random Avro schemas as producers make them over time, and values of them.

`Evolution` changes one record's schema step by step, or leaps aside: fields are added, removed,
widened, narrowed or get another type, are renamed, clash with others by name or case, and have
reserved names. A value comes with the required value in a table.
"""

import io
from copy import deepcopy
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

import fastavro

NAMES = ("a", "b", "c", "d", "A", "value", "key", "element", "name")
RESERVED = (
    "_kafka",
    "_KAFKA_KEY",
    "_file",
    "_value",
    "_change_offset",
    "_Change_deleted",
    "ts_day",
    "TS_Month",
)
PLAIN: tuple[Any, ...] = (
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "string",
    "bytes",
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3},
)
ODD: tuple[Any, ...] = (["int", "long"], ["float", "double"], ["int", "string"], "null")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BASE: dict[str, Any] = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "region", "type": ["null", "string"]},
        {
            "name": "s",
            "type": {
                "type": "record",
                "name": "inner",
                "fields": [{"name": "a", "type": ["null", "int"]}],
            },
        },
    ],
}


class Evolution:
    """Schemas that follow each other."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._types = 0
        self.schema = deepcopy(BASE)

    def next(self) -> dict[str, Any]:
        """The next schema; most of them are the last one with a change or two."""
        random = self._random
        schema = deepcopy(BASE if random.random() < 0.2 else self.schema)
        for _ in range(random.choice((1, 1, 2, 3))):
            self._change(random.choice(self._records(schema)))
        if random.random() < 0.7:
            self.schema = schema
        return schema

    def _change(self, record: dict[str, Any]) -> None:
        random, fields = self._random, record["fields"]
        place = random.randrange(len(fields))
        match random.randrange(10):
            case 0 if len(fields) > 1:
                del fields[place]
            case 1:
                fields[place]["type"] = self._type(0)
            case 2:
                fields[place]["type"] = _turned(fields[place]["type"], random)
            case 3:
                fields[place]["name"] = fields[place]["name"].swapcase()
            case 4:
                fields[place]["name"] = random.choice(NAMES)
            case 5 if random.random() < 0.4:
                fields.insert(place, self._field(random.choice(RESERVED)))
            case _:
                fields.insert(random.randrange(len(fields) + 1), self._field(random.choice(NAMES)))

    def _field(self, name: str) -> dict[str, Any]:
        kind = self._type(0)
        if self._random.random() < 0.5 and not isinstance(kind, list):
            kind = ["null", kind] if kind != "null" else kind
        return {"name": name, "type": kind}

    def _type(self, depth: int) -> Any:  # noqa: ANN401 - a schema is any JSON
        random = self._random
        choice = random.randrange(12 if depth < 3 else 7)
        self._types += 1
        name = f"t{self._types}"
        match choice:
            case 7:
                return {"type": "array", "items": self._type(depth + 1)}
            case 8:
                return {"type": "map", "values": self._type(depth + 1)}
            case 9 | 10:
                fields = [
                    {"name": one, "type": self._type(depth + 1)}
                    for one in random.sample(NAMES[:4], random.randrange(1, 4))
                ]
                if random.random() < 0.1:
                    fields.append({"name": "again", "type": ["null", name]})
                return {"type": "record", "name": name, "fields": fields}
            case 11:
                return random.choice(ODD)
            case 6 if random.random() < 0.5:
                return {"type": "enum", "name": name, "symbols": ["RED", "BLUE"]}
            case 6:
                return {"type": "fixed", "name": name, "size": 3}
        return random.choice(PLAIN)

    def _records(self, node: object) -> list[dict[str, Any]]:
        """All records inside, the outermost twice as likely as another."""
        found = []
        if isinstance(node, dict):
            if node.get("type") == "record":
                found = [node, *(node,) * (node is self.schema)]
            for one in node.values():
                found += self._records(one)
        elif isinstance(node, list):
            for one in node:
                found += self._records(one)
        return found


def _turned(kind: object, random: Random) -> object:
    """Wider, narrower, or nullable."""
    pairs = {"int": "long", "long": "int", "float": "double", "double": "float", "bytes": "string"}
    match kind:
        case str() if kind in pairs and random.random() < 0.7:
            return pairs[kind]
        case ["null", other]:
            return other
        case list() | "null":
            return kind
        case {"logicalType": "decimal"}:
            return random.choice(PLAIN[-3:])
        case {"type": "array", "items": items}:
            return {"type": "array", "items": _turned(items, random)}
        case {"type": "map", "values": values}:
            return {"type": "map", "values": _turned(values, random)}
    return ["null", kind]


class Values:
    """Values of a schema, each beside its value in a table."""

    def __init__(self, random: Random, schema: dict[str, Any]) -> None:
        self._random = random
        self._schema = schema
        self._parsed = fastavro.parse_schema(deepcopy(schema))

    def next(self) -> tuple[bytes, dict[str, Any]]:
        given, shown = self._value(self._schema, 0)
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, self._parsed, given)
        return stream.getvalue(), shown

    def _value(self, kind: Any, depth: int) -> tuple[Any, Any]:  # noqa: ANN401 - any JSON
        random = self._random
        if isinstance(kind, list):
            # fastavro takes the first choice that fits, so that a long has to be a small one.
            kind = random.choice(kind) if depth < 8 and kind != ["int", "long"] else kind[0]
        match kind:
            case str():
                return _plain(kind, random) if kind in _PLAIN_NAMES else (None, None)
            case {"type": "array", "items": items}:
                found = [self._value(items, depth + 1) for _ in range(random.randrange(3))]
                return [given for given, _ in found], [shown for _, shown in found]
            case {"type": "map", "values": values}:
                pairs = {
                    name: self._value(values, depth + 1)
                    for name in random.sample(("p", "q", "ä"), random.randrange(3))
                }
                return (
                    {name: given for name, (given, _) in pairs.items()},
                    {name: shown for name, (_, shown) in pairs.items()},
                )
            case {"type": "record", "fields": fields}:
                inner = {one["name"]: self._value(one["type"], depth + 1) for one in fields}
                return (
                    {name: given for name, (given, _) in inner.items()},
                    {name: shown for name, (_, shown) in inner.items()},
                )
            case {"type": "enum", "symbols": symbols}:
                return (random.choice(symbols),) * 2
            case {"type": "fixed", "size": size}:
                return (random.randbytes(size),) * 2
        return _logical(kind, random)


_PLAIN_NAMES = {one for one in PLAIN if isinstance(one, str)} | {"null"}


def _plain(kind: str, random: Random) -> tuple[Any, Any]:
    match kind:
        case "boolean":
            value: Any = random.random() < 0.5
        case "int":
            value = random.choice((0, 1, 2, -(2**31), 2**31 - 1))
        case "long":
            value = random.choice((0, 1, 2, -(2**63), 2**63 - 1))
        case "float":
            value = random.choice((0.0, -0.5, 2.0**100))
        case "double":
            value = random.choice((0.0, -0.1, 1e300, float("inf")))
        case "string":
            value = random.choice(("", "x", "ä" * 40, "2026-01-01"))
        case "bytes":
            value = random.randbytes(random.randrange(4))
        case _:
            value = None
    return value, value


def _logical(kind: dict[str, Any], random: Random) -> tuple[Any, Any]:
    days = random.randrange(-1_000, 20_000)
    match kind["logicalType"]:
        case "date":
            return (date(1970, 1, 1) + timedelta(days=days),) * 2
        case "time-millis":
            plain = random.randrange(86_400_000)
            return (EPOCH + timedelta(milliseconds=plain)).time(), plain
        case "timestamp-millis":
            return (EPOCH + timedelta(days=days, milliseconds=7),) * 2
        case "timestamp-micros":
            return (EPOCH + timedelta(days=days, microseconds=7),) * 2
        case "local-timestamp-micros":
            return (datetime(1970, 1, 1) + timedelta(days=days, microseconds=7),) * 2  # noqa: DTZ001
        case "uuid":
            found = UUID(int=random.getrandbits(128))
            return found, str(found)
    value = Decimal(random.randrange(-(10**6) + 1, 10**6)).scaleb(-kind["scale"])
    return value, value
