"""`PipeMeter`: what a pipe has copied, how far it is behind, and how fast it is. Pure.

Rates are those of the last 10 seconds, in samples of a second: the cost of a sample does not depend
on the number of records.
"""

import math
from collections import deque
from typing import Final, NamedTuple

PAUSE_SECONDS_MAX: Final = 30.0
"""Longest pause of a pipe with a bound on its bytes: after 60 s without contact it is unhealthy. A
single batch that needs longer exceeds the bound."""
REQUEST_SECONDS: Final = 1.0
"""A request has as many bytes as the bound allows in this time, so that pauses are short."""
WINDOW_SECONDS: Final = 10.0
SAMPLE_SECONDS: Final = 1.0


class _Sample(NamedTuple):
    at: float
    records: int
    size_bytes: int
    lag_records: int


class PipeMeter:
    """The figures of one pipe; times are seconds of one monotonic clock."""

    def __init__(self, now: float) -> None:
        self.records = self.size_bytes = 0
        """Copied since the start."""
        self.lag_records = 0
        self.contact_at = now
        self.behind_since: float | None = now
        """When the pipe last had everything; None while it has."""
        self.newest_timestamp_ms = -1
        self._samples: deque[_Sample] = deque([_Sample(now, 0, 0, 0)])

    def copied(self, records: int, size_bytes: int, newest_timestamp_ms: int) -> None:
        """Records were appended."""
        self.records += records
        self.size_bytes += size_bytes
        self.newest_timestamp_ms = max(self.newest_timestamp_ms, newest_timestamp_ms)

    def answered(self, now: float, lag_records: int) -> None:
        """The parent answered; this many records are missing now."""
        self.contact_at = now
        self.lag_records = lag_records
        if lag_records == 0:
            self.behind_since = None
        elif self.behind_since is None:
            self.behind_since = now
        if now - self._samples[-1].at >= SAMPLE_SECONDS:
            self._samples.append(_Sample(now, self.records, self.size_bytes, lag_records))
            while len(self._samples) > 2 and now - self._samples[0].at > WINDOW_SECONDS:
                self._samples.popleft()

    def lost(self, now: float) -> None:
        """The parent does not answer: the pipe is not in step from now on."""
        if self.behind_since is None:
            self.behind_since = now

    def _rate(self, now: float, before: int, after: int) -> float:
        return (after - before) / max(SAMPLE_SECONDS, now - self._samples[0].at)

    def records_per_second(self, now: float) -> float:
        """The rate of copied records."""
        return self._rate(now, self._samples[0].records, self.records)

    def bytes_per_second(self, now: float) -> float:
        """The rate of copied bytes."""
        return self._rate(now, self._samples[0].size_bytes, self.size_bytes)

    @property
    def is_catching_up(self) -> bool:
        """Whether the lag is lower than it was 10 seconds ago."""
        return self.lag_records < self._samples[0].lag_records or self.lag_records == 0


class Pacer:
    """The pauses that keep copies below a number of bytes for each second; 0: no bound."""

    def __init__(self, bytes_per_second_max: int) -> None:
        self._rate = bytes_per_second_max
        self._free_at = 0.0

    def request_bytes(self, bytes_max: int) -> int:
        """Return the bytes of one request; a batch that is larger comes alone."""
        return min(bytes_max, math.ceil(self._rate * REQUEST_SECONDS)) if self._rate else bytes_max

    def pause_seconds(self, now: float, size_bytes: int) -> float:
        """Return how long to wait after these bytes; at most `PAUSE_SECONDS_MAX`."""
        if not self._rate:
            return 0.0
        free_at = max(self._free_at, now) + size_bytes / self._rate
        self._free_at = min(free_at, now + PAUSE_SECONDS_MAX)
        return self._free_at - now
