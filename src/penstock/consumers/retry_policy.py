"""`RetryPolicy`: how often a failed record is tried, and the pauses between the attempts. Pure.

    RetryPolicy(attempts=5, backoff="100ms..30s", jitter=True)

The first attempt counts, so 5 attempts have 4 pauses. The window of a pause doubles from the
shortest to the longest: 100, 200, 400, 800 ms, ... 30 s. With jitter a pause is between half of its
window and the whole of it, so that records that failed together are not retried together. The draw
is an argument: this file has no random numbers.
"""

import re
from dataclasses import dataclass
from typing import Final

from penstock.consumers.limits import ATTEMPTS_MAX, BACKOFF_SECONDS_MAX
from penstock.core.errors import ConfigError

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0}
_DURATION: Final = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*(ms|s|m|h)")
_RANGE: Final = ".."
_DOUBLINGS_MAX: Final = 64


def parse_duration(text: str, name: str) -> float:
    """Return the seconds of `100ms`, `30s`, `5m` or `1h`; raise `ConfigError` for others."""
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * _UNITS[found[2]] if found else -1.0
    if not 0 <= seconds <= BACKOFF_SECONDS_MAX:
        raise ConfigError(
            f"{name}: {text!r} is not a duration between 0s and 24h.",
            hint="Write a number and ms, s, m or h, such as 100ms.",
        )
    return seconds


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Attempts and pauses of a record whose handler fails."""

    attempts: int = 5
    backoff: str = "100ms..30s"
    """The shortest and the longest pause, or one pause for all."""
    jitter: bool = True
    in_place: str = "1s"
    """The longest pause in the memory of the consumer. Records with longer pauses go to the retry
    topic (fanout), so that their partition continues."""

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= ATTEMPTS_MAX:
            raise ConfigError(
                f"RetryPolicy: attempts is {self.attempts}, it must be 1 to {ATTEMPTS_MAX}.",
                hint="attempts=1 never retries.",
            )
        shortest, longest = self._bounds()
        if shortest > longest:
            raise ConfigError(
                f"RetryPolicy: backoff {self.backoff!r} begins above its end.",
                hint='Write the shortest pause first: "100ms..30s".',
            )
        parse_duration(self.in_place, "RetryPolicy: in_place")

    def _bounds(self) -> tuple[float, float]:
        first, separator, last = self.backoff.partition(_RANGE)
        shortest = parse_duration(first, "RetryPolicy: backoff")
        return shortest, parse_duration(last, "RetryPolicy: backoff") if separator else shortest

    @property
    def in_place_seconds(self) -> float:
        """Return the longest pause in memory."""
        return parse_duration(self.in_place, "RetryPolicy: in_place")

    def window_seconds(self, failed_attempts: int) -> float:
        """Return the longest possible pause after this number of failed attempts."""
        assert failed_attempts >= 1
        shortest, longest = self._bounds()
        return min(longest, shortest * 2.0 ** min(failed_attempts - 1, _DOUBLINGS_MAX))

    def pause_seconds(self, failed_attempts: int, draw: float) -> float:
        """Return the pause after this number of failed attempts; `draw` is between 0 and 1."""
        assert 0 <= draw <= 1
        window = self.window_seconds(failed_attempts)
        return window * (0.5 + draw / 2) if self.jitter else window

    @property
    def needs_topic(self) -> bool:
        """Whether some pause is too long for the memory of the consumer."""
        return self.attempts > 1 and (
            self.window_seconds(self.attempts - 1) > self.in_place_seconds
        )
