"""`RangeReader`: the stored batches of one partition, from an offset until an offset, as they are.

It makes no object for a record: what comes out are views of the received frames, for a decoder that
wants bytes. Each answer is asked for while the caller still works on the one before, so that broker
and caller work at the same time; never more than two answers are in memory.

Guarantees: answers follow each other without a gap and end exactly when the range does. A leader
that moved, a lost answer or a broker that restarts is waited for, as long as the cluster repeats
calls. What cannot be read any more is an error, never a silent end:

    what the broker says                                  what is raised
    the offset is outside of the log                      RangeGoneError
    the log ends before the range, for all that time      RangeGoneError
    the topic of this name has another id                 TopicRecreatedError
    there is no topic or partition of this name           UnknownTopicOrPartitionError

The last two are asked again, of several brokers, before they are believed: one that has not caught
up says so of a topic that was just created. One that knows the topic is believed at once, because
what is read is asked for by the topic's id: there is no second one with it.

Where compaction has left nothing, there is nothing to give: a range may end without its last
offsets. It does NOT decode, decompress or check checksums, and is not a consumer: it commits
nothing and follows nothing. It is used by one thread, and iterated once.
"""

import uuid
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from penstock.client import calls
from penstock.client.calls import FetchBounds, FetchPlace
from penstock.client.cluster import Cluster
from penstock.client.transport.call import raise_error
from penstock.client.transport.pool import Started
from penstock.core.errors import (
    BrokerAnswerError,
    MalformedResponseError,
    PenstockError,
    UnknownTopicOrPartitionError,
)
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.fetch import PartitionData
from penstock.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, read_header

RANGE_BOUNDS: Final = FetchBounds(
    wait_ms_max=500, bytes_min=1, bytes_max=8_388_608, partition_bytes_max=8_388_608
)
"""Large enough that asking costs nothing beside the bytes, small enough for many tasks at once."""

LAST_FETCH_BYTES_MIN: Final = 65_536
"""What is asked for at least when only few offsets are left: their size is an estimate."""

EMPTY_ANSWERS_MAX: Final = 6
"""A broker that has nothing although its log goes on past the range is asked so many times, about
three seconds in all: a tiered log may be slow. Then the offsets are gone by compaction, and the log
is read on from its end."""

_OFFSET_AND_LENGTH: Final = Struct(">qi")
_LENGTH_MIN: Final = HEADER_BYTES - LOG_OVERHEAD_BYTES


class RangeGoneError(PenstockError):
    """Offsets that were to be read are not in the log, or not any more."""

    def __init__(
        self, at: TopicPartition, wanted_offset: int, log_start_offset: int, end_offset: int
    ) -> None:
        super().__init__(
            f"{at}: offset {wanted_offset} cannot be read, the log has {log_start_offset} to "
            f"{end_offset}. Retention or DeleteRecords removed it, or the log was cut or restored."
        )
        self.at = at
        self.wanted_offset = wanted_offset
        self.log_start_offset = log_start_offset
        self.end_offset = end_offset


class TopicRecreatedError(PenstockError):
    """The topic was deleted, and another one of its name exists."""

    def __init__(
        self, topic: str, expected_id: uuid.UUID | None, found_id: uuid.UUID | None
    ) -> None:
        super().__init__(
            f"{topic} is another topic than before: its id was {expected_id} and is {found_id}. "
            "It was deleted and created again; offsets of the old one mean nothing in it."
        )
        self.topic = topic
        self.expected_id = expected_id
        self.found_id = found_id


class AbortedTransaction(NamedTuple):
    """A transaction whose records are not for readers of committed ones, from this offset on."""

    producer_id: int
    first_offset: int


class FetchedBatches(NamedTuple):
    """Whole stored batches in order, and where the log stood when they were read.

    The first may begin before the range, and the last may end behind it.
    """

    data: memoryview
    aborted: tuple[AbortedTransaction, ...]
    """Empty for who reads uncommitted records."""
    next_offset: int
    """Where the next answer goes on; at the end of the range its end."""
    log_start_offset: int
    end_offset: int
    """The high watermark; for who reads committed records the last stable offset."""


class RangeReader:
    """Reads one range of one partition."""

    def __init__(
        self,
        cluster: Cluster,
        at: TopicPartition,
        from_offset: int,
        until_offset: int,
        *,
        is_read_committed: bool,
        bounds: FetchBounds = RANGE_BOUNDS,
        expected_topic_id: uuid.UUID | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        """`leader_epoch` is the newest one heard of: a leader that knows less is not believed."""
        assert 0 <= from_offset <= until_offset
        self._cluster = cluster
        self._at = at
        self._position = from_offset
        self._until = until_offset
        self._is_read_committed = is_read_committed
        self._bounds = bounds
        self._topic_id = expected_topic_id
        self._leader_epoch = calls.NO_EPOCH if leader_epoch is None else leader_epoch
        self._under_way: Started[PartitionData] | None = None
        self._bytes_per_offset = 0.0
        """Of the last answer; 0 before there was one."""
        self._empty_answers = 0

    def __iter__(self) -> Iterator[FetchedBatches]:
        """The batches, answer by answer."""
        try:
            while self._position < self._until:
                fetched = self._next()
                if fetched is not None:
                    self._start_next()
                    yield fetched
        finally:
            under_way, self._under_way = self._under_way, None
            if under_way is not None:
                under_way.forget()

    def _next(self) -> FetchedBatches | None:
        """The next answer; None when it had no batch, and the next may have."""
        try:
            answer = self._cluster.repeat_doubting(
                self._attempt, TopicRecreatedError, UnknownTopicOrPartitionError
            )
        except BrokerAnswerError as error:
            if error.code == ErrorCode.OFFSET_NOT_AVAILABLE:
                raise self._gone() from error
            raise
        data = memoryview(answer.records or b"")
        size, next_offset = whole_batches(data, self._position, self._until)
        if next_offset == self._position:
            self._empty_answers += 1
            if self._empty_answers < EMPTY_ANSWERS_MAX:
                return None
            next_offset = self._until
        self._empty_answers = 0
        self._bytes_per_offset = size / (next_offset - self._position)
        self._position = next_offset
        return FetchedBatches(
            data[:size],
            tuple(
                AbortedTransaction(one.producer_id, one.first_offset)
                for one in answer.aborted_transactions or ()
            ),
            next_offset,
            answer.log_start_offset,
            self._end_offset(answer),
        )

    def _attempt(self) -> PartitionData:
        """The answer that is under way, or a new one; an error if it cannot be used."""
        under_way, self._under_way = self._under_way, None
        answer = (under_way or self._start()).result()
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            gone = self._gone()
            if not gone.log_start_offset <= self._position <= gone.end_offset:
                raise gone
            # It is there after all: the broker that said otherwise was behind.
            raise_error(ErrorCode.NOT_LEADER_OR_FOLLOWER, None, str(self._at))
        raise_error(answer.error_code, None, f"{self._at} at offset {self._position}")
        if not answer.records and self._end_offset(answer) < self._until:
            # A new leader may need a moment to learn how far its log is committed.
            raise_error(ErrorCode.OFFSET_NOT_AVAILABLE, None, str(self._at))
        return answer

    def _start(self) -> Started[PartitionData]:
        leader = self._cluster.leaders([self._at])[self._at]
        topic = self._cluster.known_topic(self._at.topic)
        assert topic is not None
        if self._topic_id is None:
            self._topic_id = topic.topic_id
        if topic.topic_id != self._topic_id:
            raise TopicRecreatedError(self._at.topic, self._topic_id, topic.topic_id)
        place = FetchPlace(
            self._at,
            self._topic_id,
            self._position,
            max(leader.leader_epoch, self._leader_epoch),
        )
        call = calls.fetch_from(
            place, self._next_bounds(), is_read_committed=self._is_read_committed
        )
        return self._cluster.start(leader.address, call)

    def _start_next(self) -> None:
        """Ask for what follows while the caller works; if that fails, it is told when needed."""
        if self._position < self._until:
            try:
                self._under_way = self._start()
            except PenstockError:
                self._under_way = None

    def _next_bounds(self) -> FetchBounds:
        """As large as allowed, and not much larger than what is left of the range."""
        bounds = self._bounds
        if not self._bytes_per_offset:
            return bounds
        left_bytes = round(1.25 * self._bytes_per_offset * (self._until - self._position))
        wanted_bytes = max(left_bytes, LAST_FETCH_BYTES_MIN)
        if wanted_bytes >= bounds.partition_bytes_max:
            return bounds
        return FetchBounds(bounds.wait_ms_max, bounds.bytes_min, bounds.bytes_max, wanted_bytes)

    def _end_offset(self, answer: PartitionData) -> int:
        return answer.last_stable_offset if self._is_read_committed else answer.high_watermark

    def _gone(self) -> RangeGoneError:
        """What the log has instead; an answer with an error does not say it."""
        ends = [
            self._cluster.find_offsets({self._at: timestamp})[self._at]
            for timestamp in (calls.EARLIEST_TIMESTAMP, calls.LATEST_TIMESTAMP)
        ]
        return RangeGoneError(self._at, self._position, *ends)


def whole_batches(data: memoryview, from_offset: int, until_offset: int) -> tuple[int, int]:
    """The bytes of the whole batches that begin before `until_offset`, and the offset behind them.

    A batch that is cut off at the end is left out. When the range ends in `data`, the offset is its
    end; when there is no batch, it is `from_offset`.
    """
    position = last = 0
    size = len(data)
    unpack = _OFFSET_AND_LENGTH.unpack_from
    while size - position >= LOG_OVERHEAD_BYTES:
        base_offset, length = unpack(data, position)
        if base_offset >= until_offset:
            return position, until_offset
        if length < _LENGTH_MIN:
            raise MalformedResponseError(f"a stored batch of {length} bytes at {base_offset}")
        stop = position + LOG_OVERHEAD_BYTES + length
        if stop > size:
            break
        last, position = position, stop
    if position == 0:
        if size:
            raise MalformedResponseError(f"{size} bytes that hold no whole batch")
        return 0, from_offset
    header = read_header(data, last)
    if header.magic != MAGIC or header.next_offset <= from_offset:
        raise MalformedResponseError(
            f"a stored batch of magic {header.magic} that ends before {header.next_offset}, "
            f"asked from {from_offset}"
        )
    return position, min(header.next_offset, until_offset)
