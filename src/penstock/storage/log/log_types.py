"""The arguments and results of a partition's log. Values only."""

from typing import NamedTuple, Protocol

from penstock.core.types import TopicPartition
from penstock.records.batch import BatchHeader


class LogProblem(NamedTuple):
    """A problem of a log, for operators."""

    path: str
    topic_partition: TopicPartition | None
    message: str
    is_served: bool
    """Whether the partition works in spite of it."""


class AppendableBatch(Protocol):
    """One validated batch, as returned by `records.validation`."""

    @property
    def header(self) -> BatchHeader:
        """The header as the producer sent it."""
        ...

    @property
    def buffer(self) -> memoryview:
        """The writable bytes of exactly this batch."""
        ...

    @property
    def max_timestamp_ms(self) -> int:
        """Highest timestamp of its records."""
        ...

    @property
    def offset_of_max_timestamp(self) -> int:
        """Offset delta of the first record with that timestamp; -1 when no record has one."""
        ...


class AppendInfo:
    """The offsets and the timestamp of an appended batch.

    `log_append_time_ms` is the broker's time if the topic uses it, else -1; of a repetition, the
    original's timestamp.
    """

    __slots__ = (
        "base_offset",
        "is_duplicate",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
    )

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        *,
        is_duplicate: bool,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.is_duplicate = is_duplicate


class ReplicaAppend(NamedTuple):
    """The batches of a leader that a replica appended."""

    first_offset: int
    """Base offset of the first batch."""
    last_offset: int
    batch_count: int
    size_bytes: int


class LogRead:
    """Whole batches from the log.

    `first_offset` is the base offset of the first batch, which may lie before the requested offset,
    and -1 if there is none. The next read continues at `next_offset`.
    """

    __slots__ = ("first_offset", "next_offset", "records")

    def __init__(self, records: memoryview, first_offset: int, next_offset: int) -> None:
        self.records = records
        self.first_offset = first_offset
        self.next_offset = next_offset


class TimestampAndOffset(NamedTuple):
    """A record's timestamp, its offset, and the leader epoch it was written in."""

    timestamp_ms: int
    offset: int
    leader_epoch: int
