"""`OffsetReset`: the position at which a share group begins with a partition.

The texts are those of Kafka's `share.auto.offset.reset`: `latest`, `earliest`, and `by_duration:`
with a duration in ISO 8601 (`PnDTnHnMn.nS`), for the first record that is not older. Pure: a text
in, a value out. It does NOT look up an offset.
"""

import re
from typing import Final, NamedTuple

LATEST: Final = "latest"
EARLIEST: Final = "earliest"
BY_DURATION: Final = "by_duration"

_DURATION: Final = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?[0-9]{1,18})D)?"
    r"(?P<time>T(?:(?P<hours>[-+]?[0-9]{1,18})H)?(?:(?P<minutes>[-+]?[0-9]{1,18})M)?"
    r"(?:(?P<seconds>[-+]?[0-9]{1,18})(?:[.,](?P<fraction>[0-9]{0,9}))?S)?)?",
    re.IGNORECASE,
)
_NANOSECONDS: Final = {"days": 86_400 * 10**9, "hours": 3_600 * 10**9, "minutes": 60 * 10**9}
_NANOSECONDS_MAX: Final = (2**63 - 1) * 10**6
"""The longest time that fits into Kafka's count of milliseconds."""


class OffsetReset(NamedTuple):
    """A position in the log."""

    kind: str
    """`latest`, `earliest` or `by_duration`."""
    duration_ms: int = 0
    """For `by_duration`: how far back from now."""


def parse_offset_reset(text: str) -> OffsetReset | None:
    """Return the position of a text; None: the text is none of the three forms."""
    if text in (LATEST, EARLIEST):
        return OffsetReset(text)
    kind, separator, duration = text.partition(":")
    if kind != BY_DURATION or not separator:
        return None
    nanoseconds = _nanoseconds(duration)
    if nanoseconds is None or not 0 <= nanoseconds <= _NANOSECONDS_MAX:
        return None
    return OffsetReset(BY_DURATION, nanoseconds // 10**6)


def _nanoseconds(text: str) -> int | None:
    """Return a duration, negative ones too; None: not in ISO 8601."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    parts = [found[name] for name in ("days", "hours", "minutes", "seconds")]
    has_bare_time = found["time"] is not None and not any(parts[1:])
    if not any(parts) or has_bare_time:
        return None
    total = sum(int(found[name] or 0) * unit for name, unit in _NANOSECONDS.items())
    seconds = found["seconds"] or "0"
    fraction = int((found["fraction"] or "").ljust(9, "0"))
    total += int(seconds) * 10**9 + (-fraction if seconds.startswith("-") else fraction)
    return -total if found["sign"] == "-" else total
