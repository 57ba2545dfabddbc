"""Debezium's events as its JSON converter writes them, from the rows of a small database table.

Events have the form that Debezium 3.6 sends for PostgreSQL: keys, snapshots, changes,
deletions with their tombstones, a changed key, and each type with its name in the schema part.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

Row = Mapping[str, Any]
DDL = (
    "id bigint, name string, amount decimal(10,2), big bigint, at timestamp, seen timestamp, "
    "born date, doc string, code string, data binary, tags array<int>, is_open boolean"
)
FIELDS: Sequence[Mapping[str, Any]] = (
    {"type": "int64", "optional": False, "field": "id"},
    {"type": "string", "optional": True, "field": "name"},
    {
        "type": "bytes",
        "optional": True,
        "name": "org.apache.kafka.connect.data.Decimal",
        "version": 1,
        "parameters": {"scale": "2", "connect.decimal.precision": "10"},
        "field": "amount",
    },
    {"type": "int64", "optional": True, "field": "big"},
    {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp", "field": "at"},
    {
        "type": "string",
        "optional": True,
        "name": "io.debezium.time.ZonedTimestamp",
        "field": "seen",
    },
    {"type": "int32", "optional": True, "name": "io.debezium.time.Date", "field": "born"},
    {"type": "string", "optional": True, "name": "io.debezium.data.Json", "field": "doc"},
    {"type": "string", "optional": True, "name": "io.debezium.data.Uuid", "field": "code"},
    {"type": "bytes", "optional": True, "field": "data"},
    {
        "type": "array",
        "items": {"type": "int32", "optional": True},
        "optional": True,
        "field": "tags",
    },
    {"type": "boolean", "optional": True, "field": "is_open"},
)
GEOMETRY: Mapping[str, Any] = {
    "type": "struct",
    "fields": [
        {"type": "bytes", "optional": False, "field": "wkb"},
        {"type": "int32", "optional": True, "field": "srid"},
    ],
    "optional": True,
    "name": "io.debezium.data.geometry.Geometry",
    "version": 1,
    "field": "shape",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)


class Record(NamedTuple):
    """One record of the topic."""

    key: bytes | None
    value: bytes | None


def dumped(document: object) -> bytes:
    """JSON as Jackson writes it."""
    return json.dumps(document, separators=(",", ":")).encode()


def row_schema(fields: Sequence[Mapping[str, Any]], name: str, field: str) -> dict[str, Any]:
    """The schema of `before` and `after`."""
    return {
        "type": "struct",
        "fields": list(fields),
        "optional": True,
        "name": name,
        "field": field,
    }


def event_schema(fields: Sequence[Mapping[str, Any]] = FIELDS) -> dict[str, Any]:
    """The schema part of an event."""
    source = {
        "type": "struct",
        "fields": [
            {"type": "string", "optional": False, "field": "version"},
            {"type": "int64", "optional": True, "field": "lsn"},
        ],
        "optional": False,
        "name": "io.debezium.connector.postgresql.Source",
        "field": "source",
    }
    return {
        "type": "struct",
        "fields": [
            row_schema(fields, "shop.public.orders.Value", "before"),
            row_schema(fields, "shop.public.orders.Value", "after"),
            source,
            {"type": "string", "optional": False, "field": "op"},
            {"type": "int64", "optional": True, "field": "ts_ms"},
        ],
        "optional": False,
        "name": "shop.public.orders.Envelope",
        "version": 2,
    }


def encoded(row: Row | None) -> dict[str, Any] | None:
    """A row of the database as Debezium's payload has it."""
    return None if row is None else {name: _encoded(value) for name, value in row.items()}


def _encoded(value: object) -> object:
    if isinstance(value, Decimal):
        number = int(value.scaleb(2))
        size = (number.bit_length() // 8) + 1
        return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            return value.isoformat().replace("+00:00", "Z")
        return (value - _EPOCH) // (datetime.resolution)
    if isinstance(value, date):
        return value.toordinal() - date(1970, 1, 1).toordinal()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


def geometry(wkb: bytes, srid: int | None = 4326) -> dict[str, Any]:
    """A geometry as Debezium's payload has it."""
    return {"wkb": base64.b64encode(wkb).decode(), "srid": srid}


def event(
    op: str,
    row: Row,
    lsn: int = 26_687_480,
    *,
    before: Row | None = None,
    order: int | None = None,
    key: object = None,
    has_schema: bool = True,
    fields: Sequence[Mapping[str, Any]] = FIELDS,
) -> Record:
    """One event; of a deletion `row` is the deleted one."""
    old, new = (before, row) if op != "d" else (before or {"id": row["id"]}, None)
    payload = {
        "before": encoded(old),
        "after": encoded(new),
        "source": {
            "version": "3.6.0.Final",
            "connector": "postgresql",
            "name": "shop",
            "ts_ms": 1_767_225_600_000,
            "snapshot": "first" if op == "r" else "false",
            "db": "shop",
            "sequence": f'[null,"{lsn}"]',
            "schema": "public",
            "table": "orders",
            "txId": 741,
            "lsn": lsn,
            "xmin": None,
        },
        "transaction": None
        if order is None
        else {"id": f"742:{lsn}", "total_order": order, "data_collection_order": order},
        "op": op,
        "ts_ms": 1_767_225_600_123,
        "ts_us": 1_767_225_600_123_456,
        "ts_ns": 1_767_225_600_123_456_789,
    }
    name = key if key is not None else {"id": row["id"]}
    if not has_schema:
        return Record(dumped(name), dumped(payload))
    key_schema = {
        "type": "struct",
        "fields": [FIELDS[0]],
        "optional": False,
        "name": "shop.public.orders.Key",
    }
    return Record(
        dumped({"schema": key_schema, "payload": name}),
        dumped({"schema": event_schema(fields), "payload": payload}),
    )


def flat(row: Row, lsn: int, *, deleted: bool = False, has_schema: bool = False) -> Record:
    """A row of `ExtractNewRecordState` with `rewrite` and `add.fields=op,lsn`."""
    payload = {
        **(encoded(row) or {}),
        "__deleted": "true" if deleted else "false",
        "__op": "d" if deleted else "u",
        "__lsn": lsn,
    }
    if not has_schema:
        return Record(dumped({"id": row["id"]}), dumped(payload))
    schema = row_schema(FIELDS, "shop.public.orders.Value", "")
    return Record(dumped({"id": row["id"]}), dumped({"schema": schema, "payload": payload}))


def tombstone(record: Record) -> Record:
    """The record after a deletion, for the compaction of the topic."""
    return Record(record.key, None)
