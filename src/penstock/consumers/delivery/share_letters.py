"""Dead letters that a broker writes for a share group (KIP-1191), read from their headers. Pure.

The headers are Kafka's: `__dlq.errors.topic`, `.partition`, `.offset`, `.group`, `.delivery.count`
and `.message`. The broker writes them before the headers of the record, so the first of each name
counts. It does NOT read letters of consumers: `dead_letters` does.
"""

from typing import Final

from penstock.consumers.consumer_record import Headers
from penstock.consumers.delivery.dead_letters import Origin

PREFIX: Final = "__dlq.errors."
_DIGITS_MAX: Final = 18


def read_share_origin(headers: Headers, written_at_ms: int) -> Origin | None:
    """Return the origin of a letter; None if a header is missing or wrong."""
    found: dict[str, str] = {}
    for name, value in headers:
        if name.startswith(PREFIX):
            found.setdefault(name.removeprefix(PREFIX), (value or b"").decode(errors="replace"))
    numbers = [found.get(name, "") for name in ("partition", "offset")]
    if "topic" not in found or "group" not in found or not all(map(_is_number, numbers)):
        return None
    count = found.get("delivery.count", "")
    return Origin(
        topic=found["topic"],
        partition=int(numbers[0]),
        offset=int(numbers[1]),
        timestamp_ms=-1,
        group=found["group"],
        attempts=int(count) if _is_number(count) else 0,
        error_type="",
        error_text=found.get("message", ""),
        failed_at_ms=written_at_ms,
    )


def record_headers(headers: Headers) -> Headers:
    """Return the headers of the record itself."""
    return tuple(one for one in headers if not one[0].startswith(PREFIX))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
