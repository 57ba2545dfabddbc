"""`CatchUp`: how many children may read old records at the same time. Pure.

After an outage thousands of sites return with days of records to read. `limit` of them read at full
speed; each of the others is asked to come back later. Requests near the end of a log are always
served, so that live data does not wait for old data.

Guarantees: at most `limit` readers have a place. A reader keeps its place while it reads, and loses
it `LEASE_SECONDS` after its last request, or when it has caught up. The pauses of waiting readers
grow with their number, so that their requests do not.
"""

from typing import Final

LAG_RECORDS_MAX: Final = 10_000
"""A reader that is further behind reads old records."""
LEASE_SECONDS: Final = 10.0
RETRY_SECONDS_MIN: Final = 2
RETRY_SECONDS_MAX: Final = 60
WAITING_MAX: Final = 100_000
"""Readers that are remembered while they wait."""


class CatchUp:
    """The places of readers that are behind; times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._readers: dict[str, float] = {}
        """The last request of each reader with a place, oldest first."""
        self._waiting: dict[str, float] = {}
        """The last request of each reader without one, oldest first."""

    @property
    def reader_count(self) -> int:
        """Readers with a place."""
        return len(self._readers)

    def admit(self, reader: str, lag_records: int, limit: int, now: float) -> int | None:
        """Return None if the reader may read, or the seconds after which it may ask again."""
        if lag_records <= LAG_RECORDS_MAX:
            return None
        self._forget(now)
        if self._readers.pop(reader, None) is not None or len(self._readers) < limit:
            self._readers[reader] = now
            self._waiting.pop(reader, None)
            return None
        self._waiting.pop(reader, None)
        if len(self._waiting) < WAITING_MAX:
            self._waiting[reader] = now
        seconds = RETRY_SECONDS_MIN + len(self._waiting) // max(1, limit)
        return min(RETRY_SECONDS_MAX, seconds)

    def done(self, reader: str) -> None:
        """The reader has caught up."""
        self._readers.pop(reader, None)

    def _forget(self, now: float) -> None:
        for places, seconds in (
            (self._readers, LEASE_SECONDS),
            (self._waiting, 2 * RETRY_SECONDS_MAX),
        ):
            while places:
                first = next(iter(places))
                if now - places[first] <= seconds:
                    break
                del places[first]
