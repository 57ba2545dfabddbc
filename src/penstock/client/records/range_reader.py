"""`RangeReader`: the stored batches of one partition between two offsets, unchanged.

It creates no object for a record. The results are views of the received frames, for a decoder of
bytes. It requests each answer while the caller still works on the previous one, so that broker and
caller work at the same time. At most two answers are in memory.

Guarantees: answers follow each other without a gap and end exactly at the end of the range. If a
leader moves, an answer is lost or a broker restarts, the reader waits as long as the cluster
retries calls. Unreadable offsets are an error, never a silent end:

    the broker's answer                                   the error
    the offset is outside of the log                      RangeGoneError
    the log ends before the range, for all that time      RangeGoneError
    the topic of this name has another id                 TopicRecreatedError
    there is no topic or partition of this name           UnknownTopicOrPartitionError

The last two answers are checked with several brokers before they are accepted: a broker that is not
up to date sends them for a topic that was just created. A broker that knows the topic is trusted
immediately, because the fetch uses the topic's id, and no other topic has this id.

Compaction can remove offsets, so a range may end without its last offsets. The reader does NOT
decode, decompress or check checksums. It is not a consumer: it commits nothing and follows nothing.
It is used by one thread, and iterated once.
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
"""Large enough that the cost of a request does not matter, small enough for many concurrent
tasks."""

LAST_FETCH_BYTES_MIN: Final = 65_536
"""The smallest fetch size when only few offsets are left: their size is an estimate."""

EMPTY_ANSWERS_MAX: Final = 6
"""The limit of empty answers from a broker whose log continues after the range, about three seconds
in all: a tiered log may be slow. After that, the offsets count as removed by compaction, and
reading continues at the end of the range."""

_OFFSET_AND_LENGTH: Final = Struct(">qi")
_LENGTH_MIN: Final = HEADER_BYTES - LOG_OVERHEAD_BYTES


class RangeGoneError(PenstockError):
    """Requested offsets are not in the log, or not any more."""

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
    """The topic was deleted, and another topic with the same name exists."""

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
    """An aborted transaction: `read_committed` readers skip its records from `first_offset`."""

    producer_id: int
    first_offset: int


class FetchedBatches(NamedTuple):
    """Whole stored batches in order, and the bounds of the log at the time of the fetch.

    The first batch may begin before the range, and the last may end after it.
    """

    data: memoryview
    aborted: tuple[AbortedTransaction, ...]
    """Empty for `read_uncommitted` readers."""
    next_offset: int
    """The start of the next answer; at the end of the range, its end."""
    log_start_offset: int
    end_offset: int
    """The high watermark; for `read_committed` readers the last stable offset."""


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
        """`leader_epoch` is the newest known epoch: a leader with an older epoch is not trusted."""
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
        """Bytes per offset of the last answer; 0 before the first answer."""
        self._empty_answers = 0

    def __iter__(self) -> Iterator[FetchedBatches]:
        """Return the batches, answer by answer."""
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
        """Return the next answer; None when it had no batch and the next answer may have one."""
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
        """Return the answer in flight, or request a new one; raise an error if it is unusable."""
        under_way, self._under_way = self._under_way, None
        answer = (under_way or self._start()).result()
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            gone = self._gone()
            if not gone.log_start_offset <= self._position <= gone.end_offset:
                raise gone
            # The offset exists: the broker that denied it was not up to date.
            raise_error(ErrorCode.NOT_LEADER_OR_FOLLOWER, None, str(self._at))
        raise_error(answer.error_code, None, f"{self._at} at offset {self._position}")
        if not answer.records and self._end_offset(answer) < self._until:
            # A new leader may need a moment to learn the committed end of its log.
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
        """Request the next answer while the caller works; an error is raised by the next read."""
        if self._position < self._until:
            try:
                self._under_way = self._start()
            except PenstockError:
                self._under_way = None

    def _next_bounds(self) -> FetchBounds:
        """Return the largest allowed bounds, but not much larger than the rest of the range."""
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
        """Return the error with the bounds of the log; an error answer does not contain them."""
        ends = [
            self._cluster.find_offsets({self._at: timestamp})[self._at]
            for timestamp in (calls.EARLIEST_TIMESTAMP, calls.LATEST_TIMESTAMP)
        ]
        return RangeGoneError(self._at, self._position, *ends)


def whole_batches(data: memoryview, from_offset: int, until_offset: int) -> tuple[int, int]:
    """Return the size of the whole batches that begin before `until_offset`, and the next offset.

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
