"""Row decisions: which rows a sequence of records writes and deletes (pure).

Guarantees: applied to the table in order, the changes give exactly the rows of the compacted
partition: the last value of each key, and no row for a key whose last record is a tombstone (a null
value). Records without a key are counted and have no row, as compaction rejects them.

A row belongs to (key, partition). A key that has records in two partitions, because the topic got
more partitions, has two rows, as it has two records in the compacted topic. So the order between
partitions, which Kafka does not define, changes nothing.

Keys and values are TEXT when they are UTF-8 without NUL, and BLOB otherwise. Different bytes never
become equal columns. It does NOT read logs and does NOT write tables.
"""

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NoReturn

from penstock.records.record import Header, Record

Column = str | bytes
"""TEXT or BLOB."""

JSON_KIND: Final = "json"
TEXT_KIND: Final = "text"
BYTES_KIND: Final = "bytes"

ROW_OVERHEAD_BYTES: Final = 200
"""The estimated memory of a change, without its key and value."""


class Row(NamedTuple):
    """One row, in the order of the columns."""

    key: Column
    partition: int
    value: Column
    offset: int
    timestamp_ms: int
    headers: str | None


@dataclass(slots=True)
class Changes:
    """The changes of one partition: the last record of each key."""

    partition: int
    latest: dict[bytes, Record] = field(default_factory=dict)
    skipped: int = 0
    """Records without a key."""
    size_bytes: int = 0
    """An upper estimate of the memory."""

    def add(self, records: Iterable[Record]) -> None:
        """Add records in the order of their offsets."""
        latest = self.latest
        for record in records:
            key = record.key
            if key is None:
                self.skipped += 1
                continue
            latest[key] = record
            self.size_bytes += len(key) + len(record.value or b"") + ROW_OVERHEAD_BYTES

    def upserts(self) -> list[Row]:
        """Return the rows to write."""
        return [
            Row(
                column_of(key),
                self.partition,
                column_of(record.value),
                record.offset,
                record.timestamp_ms,
                headers_text(record.headers) if record.headers else None,
            )
            for key, record in self.latest.items()
            if record.value is not None
        ]

    def deletes(self) -> list[tuple[Column, int]]:
        """Return the key and partition of the rows to delete."""
        return [
            (column_of(key), self.partition)
            for key, record in self.latest.items()
            if record.value is None
        ]


def column_of(data: bytes) -> Column:
    """Return the column for these bytes: TEXT for UTF-8 without NUL, otherwise BLOB."""
    if b"\0" in data:
        return data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def headers_text(headers: Sequence[Header]) -> str:
    """Return headers as JSON: a list of [name, value]; binary values are {"base64": ...}."""
    return json.dumps(
        [[name, None if value is None else json_of(column_of(value))] for name, value in headers],
        ensure_ascii=False,
        separators=(",", ":"),
    )


def json_of(column: Column) -> str | dict[str, str]:
    """Return a column as a value for JSON."""
    if isinstance(column, str):
        return column
    return {"base64": base64.b64encode(column).decode()}


def kind_of(value: Column) -> str:
    """Return the kind of a value: `json`, `text` or `bytes`."""
    if isinstance(value, bytes):
        return BYTES_KIND
    try:
        json.loads(value, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return TEXT_KIND
    return JSON_KIND


def row_json(row: Row) -> str:
    """Return a row as a JSON object; a JSON value is embedded as it was stored."""
    kind = kind_of(row.value)
    if kind == JSON_KIND:
        value = str(row.value)
    elif isinstance(row.value, bytes):
        value = json.dumps(base64.b64encode(row.value).decode())
    else:
        value = json.dumps(row.value, ensure_ascii=False)
    key = json.dumps(json_of(row.key), ensure_ascii=False)
    return (
        f'{{"key":{key},"kind":"{kind}","value":{value},"partition":{row.partition},'
        f'"offset":{row.offset},"timestamp":{row.timestamp_ms},"headers":{row.headers or "[]"}}}'
    )


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
