"""`SkippedRecords`: counts and logs records of internal topics that a load could not use.

Every record is counted. The log gets a bounded number of lines a minute: a partition may hold
thousands of such records, and is loaded again after each failure.
"""

import logging
from typing import Final

from penstock.coordinator.kinds import KINDS_BY_TOPIC
from penstock.core.clock import Clock
from penstock.core.limits import SKIPPED_RECORD_LINES_PER_MINUTE_MAX
from penstock.core.types import TopicPartition

logger = logging.getLogger(__name__)

_MINUTE_SECONDS: Final = 60.0


class SkippedRecords:
    """Skipped records of all internal topics."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.counts: Final = dict.fromkeys(KINDS_BY_TOPIC, 0)
        """By topic."""
        self._minute_start = -_MINUTE_SECONDS
        self._lines = 0

    def note(self, partition: TopicPartition, offset: int, error: Exception) -> None:
        """Count a record, and log where it is and why it was skipped."""
        self.counts[partition.topic] = self.counts.get(partition.topic, 0) + 1
        now = self._clock.monotonic()
        if now - self._minute_start >= _MINUTE_SECONDS:
            self._minute_start = now
            self._lines = 0
        self._lines += 1
        if self._lines <= SKIPPED_RECORD_LINES_PER_MINUTE_MAX:
            reason = str(error) or type(error).__name__
            logger.error(
                "skipped a record: topic %s, partition %d, offset %d: %s",
                partition.topic,
                partition.partition,
                offset,
                reason,
            )
        elif self._lines == SKIPPED_RECORD_LINES_PER_MINUTE_MAX + 1:
            logger.error(
                "more than %d records of internal topics were skipped within a minute; the others "
                "are counted in penstock_coordinator_skipped_records_total only",
                SKIPPED_RECORD_LINES_PER_MINUTE_MAX,
            )
