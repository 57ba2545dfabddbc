"""The start position of a reader: a small value, and its text forms (pure).

    earliest            the first record that is kept
    latest              after the last record
    42                  offset 42
    -10                 ten records before the end, in each partition
    2024-05-01T12:00Z   the first record at or after this time; without a zone it is UTC
    @1714564800000      the same, as milliseconds since 1970

A bare number is always an offset, so that its meaning does not depend on its size.
"""

from datetime import UTC, datetime
from typing import Final, NamedTuple

from penstock.core.errors import InvalidRequestError


class Start(NamedTuple):
    """A start position; `value` is an offset, a count or milliseconds."""

    kind: str
    value: int = 0


EARLIEST: Final = "earliest"
LATEST: Final = "latest"
AT_OFFSET: Final = "offset"
AT_TIMESTAMP: Final = "timestamp"
BEFORE_END: Final = "before end"

_REMEDY: Final = (
    "Use earliest, latest, an offset such as 42, -10 for the last ten, an ISO time such as "
    "2024-05-01T12:00:00Z, or @ and milliseconds since 1970."
)


def parse_start(text: str) -> Start:
    """Parse a start position; raise `InvalidRequestError` with the valid forms."""
    if text in {EARLIEST, LATEST}:
        return Start(text)
    if text.startswith("@") and text[1:].isdecimal():
        return Start(AT_TIMESTAMP, int(text[1:]))
    if text.isdecimal():
        return Start(AT_OFFSET, int(text))
    if text.startswith("-") and text[1:].isdecimal():
        return Start(BEFORE_END, int(text[1:]))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidRequestError(f"{text!r} names no position. {_REMEDY}") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return Start(AT_TIMESTAMP, round(moment.timestamp() * 1000))
