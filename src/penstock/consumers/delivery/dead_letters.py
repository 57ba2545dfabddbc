"""Records of dead-letter topics and retry topics: the original record and where it came from.

Key and value are the original bytes, and so are the headers of the application. Penstock adds
headers whose names begin with `penstock.`:

    penstock.topic, .partition, .offset, .timestamp    the original record
    penstock.group                                     the group whose handler failed
    penstock.attempts                                  failed attempts so far
    penstock.error.type, .error.text                   the last error, bounded
    penstock.failed_at                                 milliseconds since 1970
    penstock.due                                       retry topics: not before this time

Numbers are decimal text. A record that failed again has these headers once, with the new values.
`read_origin` returns None for a record without them: other programs may write to the same topic.
"""

from dataclasses import dataclass, replace
from typing import Final

from penstock.consumers.consumer_record import ConsumerRecord, Headers
from penstock.consumers.limits import ERROR_TEXT_CHARACTERS_MAX, ERROR_TYPE_CHARACTERS_MAX

PREFIX: Final = "penstock."
TOPIC: Final = PREFIX + "topic"
PARTITION: Final = PREFIX + "partition"
OFFSET: Final = PREFIX + "offset"
TIMESTAMP: Final = PREFIX + "timestamp"
GROUP: Final = PREFIX + "group"
ATTEMPTS: Final = PREFIX + "attempts"
ERROR_TYPE: Final = PREFIX + "error.type"
ERROR_TEXT: Final = PREFIX + "error.text"
FAILED_AT: Final = PREFIX + "failed_at"
DUE: Final = PREFIX + "due"
_NAMES: Final = frozenset(
    {
        TOPIC, PARTITION, OFFSET, TIMESTAMP, GROUP, ATTEMPTS, ERROR_TYPE, ERROR_TEXT, FAILED_AT,
        DUE,
    }
)  # fmt: skip
_DIGITS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a dead letter came from, and why."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    group: str
    attempts: int
    error_type: str
    error_text: str
    failed_at_ms: int
    due_ms: int | None = None


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record to be written to a retry topic or a dead-letter topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers


def outgoing(
    topic: str,
    record: ConsumerRecord,
    *,
    group: str,
    error: BaseException,
    now_ms: int,
    due_ms: int | None = None,
) -> OutgoingRecord:
    """Return the failed record for a dead-letter topic, or with `due_ms` for a retry topic."""
    ours: list[tuple[str, str]] = [
        (TOPIC, record.topic),
        (PARTITION, str(record.partition)),
        (OFFSET, str(record.offset)),
        (TIMESTAMP, str(record.timestamp_ms)),
        (GROUP, group),
        (ATTEMPTS, str(record.attempt)),
        (ERROR_TYPE, _error_type(error)[:ERROR_TYPE_CHARACTERS_MAX]),
        (ERROR_TEXT, _error_text(error)[:ERROR_TEXT_CHARACTERS_MAX]),
        (FAILED_AT, str(now_ms)),
    ]
    if due_ms is not None:
        ours.append((DUE, str(due_ms)))
    headers = application_headers(record.headers)
    added = tuple((name, value.encode(errors="replace")) for name, value in ours)
    return OutgoingRecord(topic, record.key, record.value, headers + added)


def application_headers(headers: Headers) -> Headers:
    """Return the headers without Penstock's."""
    return tuple(one for one in headers if one[0] not in _NAMES)


def read_origin(headers: Headers) -> Origin | None:
    """Return the origin of a dead letter; None if a header is missing or wrong."""
    found = {name: (value or b"").decode(errors="replace") for name, value in headers}
    numbers = [found.get(name, "") for name in (PARTITION, OFFSET, TIMESTAMP, ATTEMPTS, FAILED_AT)]
    if TOPIC not in found or not all(_is_number(number) for number in numbers):
        return None
    due = found.get(DUE, "")
    partition, offset, timestamp_ms, attempts, failed_at_ms = map(int, numbers)
    if attempts < 0:
        return None  # a record of another program: attempts begin with 1
    return Origin(
        found[TOPIC],
        partition,
        offset,
        timestamp_ms,
        found.get(GROUP, ""),
        attempts,
        found.get(ERROR_TYPE, ""),
        found.get(ERROR_TEXT, ""),
        failed_at_ms,
        int(due) if _is_number(due) else None,
    )


def original(record: ConsumerRecord, origin: Origin) -> ConsumerRecord:
    """Return a record of a retry topic as the handler saw it before, with the next attempt."""
    return replace(
        record,
        topic=origin.topic,
        partition=origin.partition,
        offset=origin.offset,
        timestamp_ms=origin.timestamp_ms,
        headers=application_headers(record.headers),
        attempt=origin.attempts + 1,
    )


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < _DIGITS_MAX


def _error_type(error: BaseException) -> str:
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else (f"{kind.__module__}.{kind.__qualname__}")
    )


def _error_text(error: BaseException) -> str:
    """Return the text of an error; a `__str__` that fails must not stop the consumer."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 (any code of the application)
        return "(the text of this error cannot be read)"
