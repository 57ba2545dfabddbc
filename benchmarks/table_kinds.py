"""The values of the comparison by format: each kind has its records, and its schema for all sides.

The kinds are flat JSON, the same packed with lz4, nested JSON, Avro with the id of a registry's
schema, and Protobuf. A record has about 200 bytes as JSON; Avro and Protobuf carry the same ten
fields. Every kind begins with a column `id`, so that parsed rows can be counted.

Pure, and without imports of Penstock: the environments of other engines use it, too. Encoders are
imported by the process that fills the topics only.
"""

import dataclasses
import io
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.table_events import SCHEMA as FLAT_SCHEMA
from benchmarks.table_events import event

SCHEMA_ID: Final = 7
"""The id of the Avro schema in the registry."""
FRAME_BYTES: Final = 5
"""A registry's frame before an Avro value: a zero byte and the id."""
NESTED_SCHEMA: Final = (
    "id bigint, "
    "user struct<name: string, address: struct<country: string, zip: string>>, "
    "items array<struct<sku: string, count: int, price: double>>, "
    "tags array<string>, paid boolean, created bigint"
)
AVRO_FIELDS: Final = (
    ("id", "long"),
    ("user", "string"),
    ("event", "string"),
    ("amount", "double"),
    ("quantity", "int"),
    ("country", "string"),
    ("paid", "boolean"),
    ("created", "long"),
    ("session", "string"),
    ("note", "string"),
)
AVRO_SCHEMA: Final = json.dumps(
    {
        "type": "record",
        "name": "Event",
        "namespace": "shop",
        "fields": [{"name": name, "type": type_} for name, type_ in AVRO_FIELDS],
    }
)
PROTOBUF_MESSAGE: Final = "shop.Event"
_PROTOBUF_TYPES: Final = {
    "long": "int64",
    "int": "int32",
    "string": "string",
    "double": "double",
    "boolean": "bool",
}
PROTOBUF_FILE: Final = (
    'syntax = "proto3";\npackage shop;\nmessage Event {\n'
    + "".join(
        f"  {_PROTOBUF_TYPES[type_]} {name} = {number};\n"
        for number, (name, type_) in enumerate(AVRO_FIELDS, start=1)
    )
    + "}\n"
)


@dataclasses.dataclass(frozen=True)
class Kind:
    """A format of values."""

    name: str
    text: str
    """Its name in a row."""
    schema: str
    """The columns, as Spark writes them."""
    values: Callable[[int], list[bytes]]
    in_task_min: float
    """The goal of the in-task mode, as a multiple of Spark's connector."""
    compression: str = "none"


def _fields(number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(event(number))
    return found


def nested_event(number: int) -> bytes:
    """Return an order with structs and lists, about 200 bytes."""
    fields = {
        "id": number,
        "user": {
            "name": f"user-{number * 7919 % 100_000:06d}",
            "address": {"country": ("CH", "DE", "FR", "IT", "AT")[number % 5], "zip": "8000"},
        },
        "items": [
            {"sku": f"{(number + one) % 10_000:05d}", "count": one + 1, "price": number % 500 / 4}
            for one in range(number % 3 + 1)
        ],
        "tags": ["new", "sale"][: number % 3],
        "paid": number % 3 == 0,
        "created": 1_790_000_000_000 + number * 37,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def avro_events(count: int) -> list[bytes]:
    """Return events in Avro, each with the frame of a registry."""
    import fastavro

    schema = fastavro.parse_schema(json.loads(AVRO_SCHEMA))
    frame = struct.pack(">bI", 0, SCHEMA_ID)

    def encoded(number: int) -> bytes:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, schema, _fields(number))
        return frame + buffer.getvalue()

    return [encoded(number) for number in range(count)]


def protobuf_events(count: int) -> list[bytes]:
    """Return events in Protobuf."""
    return [b"".join(_protobuf_fields(_fields(number))) for number in range(count)]


def _protobuf_fields(fields: dict[str, Any]) -> Iterator[bytes]:
    """Yield the fields of a message; proto3 leaves out the default of a type."""
    for number, (name, type_) in enumerate(AVRO_FIELDS, start=1):
        value = fields[name]
        if not value:
            continue
        if type_ == "double":
            yield _varint(number << 3 | 1) + struct.pack("<d", value)
        elif type_ == "string":
            text = value.encode()
            yield _varint(number << 3 | 2) + _varint(len(text)) + text
        else:
            yield _varint(number << 3) + _varint(int(value))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def _json_events(count: int) -> list[bytes]:
    return [event(number) for number in range(count)]


KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind("json", "flat JSON", FLAT_SCHEMA, _json_events, 5.0),
        Kind("json-lz4", "flat JSON, topic in lz4", FLAT_SCHEMA, _json_events, 5.0, "lz4"),
        Kind(
            "nested",
            "nested JSON",
            NESTED_SCHEMA,
            lambda count: [nested_event(number) for number in range(count)],
            5.0,
        ),
        Kind("avro", "Avro with a registry", FLAT_SCHEMA, avro_events, 3.0),
        Kind("protobuf", "Protobuf", FLAT_SCHEMA, protobuf_events, 3.0),
    )
}


def value_section(kind: str, folder: Path, registry: str) -> str:
    """Return the section `[value]` of a definition; a Protobuf file is written to the folder."""
    if kind == "avro":
        return f'[value]\nformat = "avro"\nschema = "{registry}"\n'
    if kind == "protobuf":
        path = folder / "event.proto"
        path.write_text(PROTOBUF_FILE)
        return f'[value]\nformat = "protobuf"\nschema = "{path}"\nmessage = "{PROTOBUF_MESSAGE}"\n'
    return f'[value]\nformat = "json"\nschema = "{KINDS[kind].schema}"\n'
