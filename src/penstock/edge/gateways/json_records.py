"""Records as JSON objects, for HTTP and for pages without a library. Pure.

Bytes that are UTF-8 are texts (`key`, `value`); others have the member `key_base64` or
`value_base64`. Null is null. Guarantees: `record_of` returns the bytes that `json_of` wrote, for
any bytes. An object with an unknown or wrong member raises `RecordFormError`, which names it.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.core.errors import PenstockError
from penstock.protocol.push.data import (
    HEADERS_MAX,
    NO_PARTITION,
    NO_TIMESTAMP,
    Headers,
    PushData,
)
from penstock.protocol.push.payloads import OFFSET_MAX, PARTITION_MAX

FIELDS: Final = frozenset(
    {"key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp"}
)
_HEADER_FIELDS: Final = frozenset({"name", "value", "value_base64"})


class RecordFormError(PenstockError):
    """A JSON object that is not a record."""


class GivenRecord(NamedTuple):
    """A record that a client publishes."""

    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def put_bytes(found: dict[str, object], name: str, content: bytes | None) -> None:
    """Add bytes to a JSON object, as text if they are UTF-8."""
    if content is None:
        found[name] = None
        return
    try:
        found[name] = content.decode()
    except UnicodeDecodeError:
        found[f"{name}_base64"] = base64.b64encode(content).decode()


def json_of(data: PushData) -> dict[str, object]:
    """Return the JSON object of a delivered record."""
    found: dict[str, object] = {
        "partition": data.partition,
        "offset": data.offset,
        "timestamp": data.timestamp_ms,
    }
    put_bytes(found, "key", data.key)
    put_bytes(found, "value", data.value)
    if data.headers:
        found["headers"] = [_header_json(name, value) for name, value in data.headers]
    return found


def _header_json(name: str, value: bytes | None) -> dict[str, object]:
    found: dict[str, object] = {"name": name}
    put_bytes(found, "value", value)
    return found


def record_of(found: object, *, known: frozenset[str] = FIELDS) -> GivenRecord:
    """Return the record in a JSON object."""
    if not isinstance(found, dict):
        raise RecordFormError("a record is not a JSON object")
    unknown = sorted(found.keys() - known)
    if unknown:
        raise RecordFormError(
            f"a record has the unknown member {unknown[0][:64]!r}; known are "
            f"{', '.join(sorted(known))}"
        )
    return GivenRecord(
        number(found, "partition", NO_PARTITION, PARTITION_MAX),
        number(found, "timestamp", NO_TIMESTAMP, OFFSET_MAX),
        _bytes(found, "key"),
        _bytes(found, "value"),
        _headers(found.get("headers")),
    )


def number(found: Mapping[str, object], name: str, default: int, highest: int) -> int:
    """Return a number from 0, or the default if it is missing or null."""
    value = found.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= highest:
        raise RecordFormError(f"member {name!r} is not a number from 0 to {highest}")
    return value


def _bytes(found: Mapping[str, object], name: str) -> bytes | None:
    other = f"{name}_base64"
    if other not in found:
        value = found.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise RecordFormError(
                f"member {name!r} is not a text; send JSON values as their text, and bytes in "
                f"{other!r}"
            )
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise RecordFormError(f"member {name!r} has half a character") from None
    if found.get(name) is not None:
        raise RecordFormError(f"a record has {name!r} and {other!r}; send one of them")
    encoded = found[other]
    try:
        if not isinstance(encoded, str):
            raise ValueError
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise RecordFormError(f"member {other!r} is not base64") from None


def _headers(found: object) -> Headers:
    if found is None:
        return ()
    if not isinstance(found, list) or len(found) > HEADERS_MAX:
        raise RecordFormError(f"member 'headers' is not a list of at most {HEADERS_MAX} objects")
    headers: list[tuple[str, bytes | None]] = []
    for one in found:
        if not isinstance(one, dict) or one.keys() - _HEADER_FIELDS:
            raise RecordFormError(
                "a header is not an object with 'name', and 'value' or 'value_base64'"
            )
        name = one.get("name")
        if not isinstance(name, str) or len(name) > HEADERS_MAX:
            raise RecordFormError("a header has no 'name', or one that is too long")
        try:
            is_long = len(name.encode()) > HEADERS_MAX
        except UnicodeEncodeError:
            raise RecordFormError("the name of a header has half a character") from None
        if is_long:
            raise RecordFormError(f"the name of a header has more than {HEADERS_MAX} bytes")
        headers.append((name, _bytes(one, "value")))
    return tuple(headers)
