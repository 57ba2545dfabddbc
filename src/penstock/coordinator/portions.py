"""`Portion`: bounds the records of a large piece of work that are written in one event.

A coordinator may delete any number of expired records (offsets, groups, transactional ids). It
writes them in portions: each is one batch that fits into an internal topic also on Apache Kafka,
and small enough that no request waits long for it. The rest follows in the next event. Sizes are
upper bounds, so that no record has to be encoded to be counted. It writes NOTHING itself.
"""

from typing import Final

from penstock.core.limits import COORDINATOR_PORTION_BYTES_MAX, COORDINATOR_PORTION_RECORDS_MAX

RECORD_OVERHEAD_BYTES: Final = 64
"""All of a record but its strings: lengths, version, partition, time, offset."""


class Portion:
    """The records of one event, counted before they are written."""

    __slots__ = ("_byte_count", "_record_count", "_records_max")

    def __init__(self, records_max: int = COORDINATOR_PORTION_RECORDS_MAX) -> None:
        self._records_max = records_max
        self._record_count = 0
        self._byte_count = 0

    def take(self, *texts: str, record_count: int = 1, more_bytes: int = 0) -> bool:
        """Whether records with these strings (all in each record) still fit; if so, count them.

        The first always fits: a record that is too large for a batch of its own fails by itself.
        """
        texts_bytes = sum(map(_bytes_max, texts))
        byte_count = self._byte_count + more_bytes
        byte_count += record_count * (RECORD_OVERHEAD_BYTES + texts_bytes)
        is_first = self._record_count == 0
        count = self._record_count + record_count
        is_full = count > self._records_max or byte_count > COORDINATOR_PORTION_BYTES_MAX
        if is_full and not is_first:
            return False
        self._record_count, self._byte_count = count, byte_count
        return True


def _bytes_max(text: str) -> int:
    """How long a string can be in UTF-8."""
    return len(text) if text.isascii() else 4 * len(text)
