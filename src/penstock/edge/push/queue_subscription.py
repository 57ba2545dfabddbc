"""`QueueSubscription`: the records in flight of one subscription with mode queue. Pure.

Guarantees:

- not more than `credit` records are in flight: acquired by this subscription and neither
  acknowledged nor expired;
- each record in flight is acknowledged once; an ACK of another message id changes nothing;
- a renewal does not free credit, and a second one waits until the first has an outcome;
- credit of a record whose lock expired is free again: the broker delivers the record again.

It does NOT acquire records, and does not keep locks: the share group does.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.edge.push.reactions import OpenedTopic, Settled
from penstock.edge.push.session_subscription import Delivered, Subscription
from penstock.protocol.push.data import DATA_HEAD
from penstock.protocol.push.frames import FrameType
from penstock.protocol.push.payloads import SubscribeRequest

ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
_DATA: Final = int(FrameType.DATA)


class QueuedRecord(NamedTuple):
    """A record that this subscription acquired."""

    partition: int
    offset: int
    tail: bytes
    """The payload of DATA without the subscription."""


class _InFlight(NamedTuple):
    partition: int
    offset: int
    size_bytes: int
    expires_at: float


class QueueSubscription(Subscription):
    """One subscription with mode queue."""

    __slots__ = (
        "_in_flight",
        "_renewing",
        "expired_count",
        "group",
        "lock_seconds",
        "settling_count",
    )

    def __init__(self, number: int, request: SubscribeRequest) -> None:
        super().__init__(number, request)
        self._in_flight: OrderedDict[int, _InFlight] = OrderedDict()
        """By message id; the lock that expires first is first."""
        self._renewing: set[int] = set()
        self.settling_count = 0
        """Acknowledgements that the share group has not stored yet."""
        self.lock_seconds = 0.0
        self.group: str | None = None
        """The share group."""
        self.expired_count = 0

    def open(self, topic: OpenedTopic) -> None:
        """Begin; positions are those of the share group."""
        self.is_open = True
        self.partition_count = topic.partition_count
        self.message_bytes_max = topic.message_bytes_max
        self.lock_seconds = topic.lock_seconds
        self.group = topic.queue_group

    @property
    def has_group(self) -> bool:
        """Whether positions are committed: not here, the share group has its own state."""
        return False

    @property
    def unacknowledged_count(self) -> int:
        """Records in flight."""
        return len(self._in_flight)

    @property
    def credit_left(self) -> int:
        """Records that may be acquired now."""
        if not self.is_open or self.ending_id is not None:
            return 0
        return self.credit - len(self._in_flight)

    @property
    def next_expiry(self) -> float | None:
        """Return when the first lock expires."""
        return next(iter(self._in_flight.values())).expires_at if self._in_flight else None

    def first_unacknowledged(self, otherwise: int) -> int:
        """Return the lowest message id in flight."""
        return min(self._in_flight, default=otherwise)

    def deliver_queued(
        self, records: Iterable[QueuedRecord], message_id: int, now: float
    ) -> Delivered:
        """Return frames with acquired records, starting with `message_id`."""
        frames: list[bytes] = []
        first_id, size, expires_at = message_id, 0, now + self.lock_seconds
        for partition, offset, tail in records:
            length = len(tail) + 2
            frames += (DATA_HEAD.pack(_DATA, message_id, length, self.number), tail)
            self._in_flight[message_id] = _InFlight(partition, offset, length, expires_at)
            message_id += 1
            size += length
        self.unacknowledged_bytes += size
        count = message_id - first_id
        self.credit_used += count
        return Delivered(frames, count, count, size)

    def settle(self, message_id: int, kind: int) -> Settled | None:
        """Acknowledge one record; None if it is not in flight, or is being renewed again."""
        found = self._in_flight.get(message_id)
        if found is None:
            return None
        if kind == RENEW:
            if message_id in self._renewing:
                return None
            self._renewing.add(message_id)
        else:
            self._remove(message_id)
        self.settling_count += 1
        return Settled(message_id, found.partition, found.offset, kind)

    def settle_all(self) -> list[Settled]:
        """Accept all records in flight, for `auto_ack`."""
        found = [self.settle(message_id, ACCEPT) for message_id in tuple(self._in_flight)]
        return [one for one in found if one is not None]

    def settled(self, settled: Iterable[Settled], now: float, *, is_stored: bool) -> None:
        """The share group stored or refused acknowledgements; a renewed lock is a new one."""
        for one in settled:
            self.settling_count -= 1
            if one.kind == RENEW:
                self._renewing.discard(one.message_id)
                found = self._in_flight.get(one.message_id)
                if found is not None and is_stored:
                    renewed = found._replace(expires_at=now + self.lock_seconds)
                    self._in_flight[one.message_id] = renewed
                    self._in_flight.move_to_end(one.message_id)

    def expire(self, now: float) -> int:
        """Forget records whose lock expired; return their number."""
        count = 0
        while self._in_flight:
            message_id, found = next(iter(self._in_flight.items()))
            if found.expires_at > now:
                break
            self._remove(message_id)
            count += 1
        self.expired_count += count
        return count

    def _remove(self, message_id: int) -> None:
        found = self._in_flight.pop(message_id)
        self._renewing.discard(message_id)
        self.unacknowledged_bytes -= found.size_bytes
        self.credit_used -= 1

    def validate(self) -> None:
        """Assert the invariants."""
        flight = self._in_flight
        assert self.credit_used == len(flight) <= self.credit
        assert self.unacknowledged_bytes == sum(one.size_bytes for one in flight.values())
        assert flight.keys() >= self._renewing
        times = [one.expires_at for one in flight.values()]
        assert times == sorted(times)
        assert not self.positions
        assert not self.acknowledged
        assert self.settling_count >= len(self._renewing)
