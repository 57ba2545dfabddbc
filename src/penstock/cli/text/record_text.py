"""Records as text: lines of input to records, records to lines or JSON (pure).

A value is bytes and stays bytes: input is split at newlines and not decoded; output writes the
bytes unchanged. JSON has only text. A key, value or header that is not UTF-8 is null in JSON, and a
second field with the suffix `_base64` contains it.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from penstock.client.records.topic_reader import ReadRecord
from penstock.core.errors import InvalidRequestError

PARTS: Final = ("partition", "offset", "timestamp", "key", "headers", "value")
"""The parts of a record that an output line can contain."""


@dataclass(frozen=True, slots=True)
class LineFormat:
    """The format of an input line."""

    key_separator: bytes | None = None
    null_marker: bytes | None = None

    def parse(self, line: bytes, line_number: int) -> tuple[bytes | None, bytes | None]:
        """Return the key and the value of one line without its newline."""
        key: bytes | None = None
        value: bytes | None = line
        if self.key_separator is not None:
            key, found, rest = line.partition(self.key_separator)
            if not found:
                separator = self.key_separator.decode(errors="replace")
                raise InvalidRequestError(
                    f"line {line_number}: missing key separator {separator!r}. Earlier lines were "
                    "sent; this line and the rest were not.",
                    hint=f"Write the line as key{separator}value, or leave --key-separator out.",
                )
            value = rest
        if self.null_marker is not None:
            key = None if key == self.null_marker else key
            value = None if value == self.null_marker else value
        return key, value


def parse_parts(text: str) -> tuple[str, ...]:
    """Return the parts of a list such as `key,value`."""
    parts = tuple(part.strip() for part in text.split(","))
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise InvalidRequestError(
            f"{unknown[0]!r} is no part of a record; there are {', '.join(PARTS)}."
        )
    return parts


def parse_headers(texts: Sequence[str]) -> tuple[tuple[str, bytes], ...]:
    """Return the headers of `name=value` arguments."""
    headers = []
    for text in texts:
        name, found, value = text.partition("=")
        if not found or not name:
            raise InvalidRequestError(f"header {text!r} is not of the form name=value.")
        headers.append((name, value.encode()))
    return tuple(headers)


def timestamp_text(timestamp_ms: int) -> str:
    """Return a time as ISO 8601 in UTC; a time outside the calendar as a number."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    if timestamp_ms < 0:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def line_of(record: ReadRecord, parts: Sequence[str]) -> bytes:
    """Return the chosen parts of a record, separated by tabs, with a newline at the end."""
    return b"\t".join(_part(record, part) for part in parts) + b"\n"


def _part(record: ReadRecord, part: str) -> bytes:
    if part == "key":
        return b"null" if record.key is None else record.key
    if part == "value":
        return b"null" if record.value is None else record.value
    if part == "headers":
        return b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers)
    if part == "timestamp":
        return timestamp_text(record.timestamp_ms).encode()
    return str(record.partition if part == "partition" else record.offset).encode()


def document_of(record: ReadRecord) -> dict[str, object]:
    """Return a record as a JSON document."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **bytes_fields("key", record.key),
        **bytes_fields("value", record.value),
        "headers": [
            {"name": name, **bytes_fields("value", value)} for name, value in record.headers
        ],
    }


def bytes_fields(name: str, value: bytes | None) -> dict[str, object]:
    """Return text under its own name, or null and a base64 field."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {name: None, f"{name}_base64": base64.b64encode(value).decode("ascii")}
