"""`Subscription`: positions, credit and unacknowledged deliveries of one subscription. Pure.

Guarantees:

- deliveries of a partition are in the order of its log, and each record is delivered once;
- not more than `credit` records are unacknowledged; a stored batch with more records than the
  whole credit is delivered alone;
- an acknowledgement of fanout includes all earlier deliveries, so the position that is committed
  for a partition is never above an unacknowledged record of it.

It reads nothing: `session` asks for `next_partition`, and reports what was read.
"""

from bisect import bisect_right
from collections import deque
from typing import NamedTuple

from penstock.edge.push.reactions import OpenedTopic
from penstock.edge.push.record_runs import Run
from penstock.protocol.push.data import DATA_HEAD
from penstock.protocol.push.frames import FrameType
from penstock.protocol.push.payloads import SubscribeRequest

_DATA = int(FrameType.DATA)


class Delivery(NamedTuple):
    """One DATA frame that is not acknowledged."""

    message_id: int
    partition: int
    next_offset: int
    record_count: int
    size_bytes: int


class Delivered(NamedTuple):
    """The outcome of one turn of a subscription."""

    frames: list[bytes]
    frame_count: int
    record_count: int
    size_bytes: int


class Subscription:
    """One subscription of a session."""

    __slots__ = (
        "_ready",
        "_unacknowledged",
        "acknowledged",
        "committing",
        "credit",
        "credit_used",
        "ending_id",
        "is_open",
        "last_commit_at",
        "message_bytes_max",
        "number",
        "partition_count",
        "positions",
        "request",
        "unacknowledged_bytes",
    )

    def __init__(self, number: int, request: SubscribeRequest) -> None:
        self.number = number
        self.request = request
        self.credit = request.credit
        """Records that may be unacknowledged."""
        self.is_open = False
        """Whether its topic is known, and the client may use it."""
        self.partition_count = 0
        self.message_bytes_max = 0
        self.positions: dict[int, int] = {}
        self._ready: dict[int, None] = {}
        """Partitions that may have records at their position, in the order of their turns."""
        self._unacknowledged: deque[Delivery] = deque()
        self.credit_used = 0
        self.unacknowledged_bytes = 0
        self.acknowledged: dict[int, int] = {}
        """Positions to commit."""
        self.committing: dict[int, int] | None = None
        """Positions of the commit in progress."""
        self.last_commit_at = float("-inf")
        self.ending_id: int | None = None
        """The message id of the request that ends it."""

    def open(self, topic: OpenedTopic) -> None:
        """Begin to deliver, unless it only publishes."""
        self.is_open = True
        self.partition_count = topic.partition_count
        self.message_bytes_max = topic.message_bytes_max
        if topic.buffer_size is not None:
            self.credit = min(self.credit, topic.buffer_size)
        if not self.request.publish:
            self.positions = dict(topic.positions)
            self._ready = dict.fromkeys(topic.positions)
            if self.request.group is not None:
                self.acknowledged = dict(topic.uncommitted)

    @property
    def has_group(self) -> bool:
        """Whether acknowledged positions are committed."""
        return self.request.group is not None and not self.request.publish

    @property
    def is_waiting(self) -> bool:
        """Whether no partition is known to have records."""
        return not self._ready

    @property
    def unacknowledged_count(self) -> int:
        """DATA frames that are not acknowledged."""
        return len(self._unacknowledged)

    def first_unacknowledged(self, otherwise: int) -> int:
        """Return the lowest message id that is not acknowledged."""
        return self._unacknowledged[0].message_id if self._unacknowledged else otherwise

    def news(self, partition: int) -> None:
        """A partition may have records at its position."""
        if self.is_open and partition in self.positions:
            self._ready[partition] = None

    def next_partition(self) -> int | None:
        """Return the partition to read next; it is not ready until `deliver` or `news`."""
        if not self._ready or self.ending_id is not None:
            return None
        if self.credit_used >= self.credit:
            return None
        partition = next(iter(self._ready))
        del self._ready[partition]
        return partition

    def deliver(
        self,
        partition: int,
        run: Run,
        message_id: int,
        *,
        bytes_max: int,
        bytes_left: int,
        is_session_idle: bool,
    ) -> Delivered:
        """Return frames with the records of a run, starting with `message_id`.

        They have up to `bytes_max` bytes, or one frame. `bytes_left` is the bound of the session,
        which one frame may exceed while the session has no unacknowledged bytes.
        """
        position, number = self.positions[partition], self.number
        nexts, counts, tails = run.nexts, run.counts, run.tails
        index = bisect_right(nexts, position)
        frames: list[bytes] = []
        credit_left = self.credit - self.credit_used
        count = size = 0
        first_id, end = message_id, len(tails)
        unacknowledged, pack = self._unacknowledged, DATA_HEAD.pack
        while index < end and size < bytes_max:
            tail, records = tails[index], counts[index]
            length = len(tail) + 2
            if records > credit_left and unacknowledged:
                break
            if size + length > bytes_left and (size or not is_session_idle):
                break
            frames += (pack(_DATA, message_id, length, number), tail)
            position = nexts[index]
            unacknowledged.append(Delivery(message_id, partition, position, records, length))
            message_id += 1
            count += records
            credit_left -= records
            size += length
            index += 1
        self.positions[partition] = position if index < end else max(position, run.next_offset)
        self._ready[partition] = None
        self.credit_used += count
        self.unacknowledged_bytes += size
        return Delivered(frames, message_id - first_id, count, size)

    def acknowledge(self, message_id: int) -> int:
        """Acknowledge a delivery and all before it; return the bytes of them."""
        unacknowledged, acknowledged = self._unacknowledged, self.acknowledged
        count = size = 0
        while unacknowledged and unacknowledged[0].message_id <= message_id:
            delivery = unacknowledged.popleft()
            count += delivery.record_count
            size += delivery.size_bytes
            acknowledged[delivery.partition] = delivery.next_offset
        self.credit_used -= count
        self.unacknowledged_bytes -= size
        if not self.has_group:
            acknowledged.clear()
        return size

    def begin_commit(self, now: float) -> dict[int, int]:
        """Return the positions to commit; `commit_done` follows."""
        assert self.committing is None
        self.committing, self.acknowledged = self.acknowledged, {}
        self.last_commit_at = now
        return self.committing

    def commit_done(self, *, is_committed: bool) -> None:
        """The commit in progress ended; positions that are not committed are kept."""
        committing, self.committing = self.committing, None
        if not is_committed and committing is not None:
            self.acknowledged = committing | self.acknowledged

    def validate(self) -> None:
        """Assert the invariants."""
        assert self.credit_used == sum(one.record_count for one in self._unacknowledged)
        assert self.unacknowledged_bytes == sum(one.size_bytes for one in self._unacknowledged)
        assert self.credit_used <= self.credit or len(self._unacknowledged) == 1
        ids = [one.message_id for one in self._unacknowledged]
        assert ids == sorted(set(ids))
        lowest: dict[int, int] = {}
        for one in self._unacknowledged:
            lowest.setdefault(one.partition, one.next_offset)
        for partition, offset in (self.acknowledged | (self.committing or {})).items():
            assert offset < lowest.get(partition, offset + 1)
        assert self._ready.keys() <= self.positions.keys()
