"""`QueueReads`: acquires, unfolds and hands out the records of one queue subscription.

Guarantees:

- records are acquired only for credit that is free, and only when earlier ones are written: at most
  the records of one fetch are acquired and not delivered;
- offsets that were acquired and have no record (compaction) are acknowledged as gaps;
- records whose lock expired before they could be written are not written;
- the end of the subscription leaves the group, which releases its records.

It does NOT decide which records a subscriber gets: the share group does.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Final, Protocol

from penstock.core.errors import PenstockError
from penstock.edge.push import limits
from penstock.edge.push.ports import PushBroker
from penstock.edge.push.queue_ports import AcquiredRead, QueueMember
from penstock.edge.push.queue_subscription import (
    QueuedRecord,
)
from penstock.edge.push.reactions import Settled
from penstock.edge.push.record_runs import Run, RunCache, is_heavy, record_run
from penstock.edge.push.session import PushSession
from penstock.protocol.push.data import with_delivery_count
from penstock.protocol.push.payloads import Refusal

READ_FAILED: Final = "KAFKA_STORAGE_ERROR"


class Owner(Protocol):
    """The connection of a session."""

    def lost(self, reason: str, code: str) -> None:
        """A topic cannot be read here any more: the session ends."""
        ...

    def turn_soon(self) -> None:
        """Deliver in a later turn of the event loop."""
        ...

    def start(self, work: Coroutine[object, object, None]) -> None:
        """Run a coroutine for this connection."""
        ...

    def settled(self, number: int, settled: Sequence[Settled], *, is_stored: bool) -> None:
        """The share group stored or refused acknowledgements."""
        ...


class Shared(Protocol):
    """The parts that all sessions share."""

    broker: PushBroker
    queue_cache: RunCache

    def seconds(self) -> float:
        """Return the time of the event loop."""
        ...


class QueueReads:
    """The reads of one queue subscription."""

    __slots__ = (
        "_acquired_at",
        "_is_ended",
        "_is_fetching",
        "_member",
        "_number",
        "_owner",
        "_ready",
        "_server",
        "_session",
        "topic",
    )

    def __init__(
        self,
        owner: Owner,
        session: PushSession,
        server: Shared,
        number: int,
        topic: str,
        member: QueueMember,
    ) -> None:
        self._owner = owner
        self._session = session
        self._server = server
        self._number = number
        self.topic = topic
        self._member = member
        self._is_fetching = False
        """From the fetch until its records are unfolded."""
        self._ready: deque[QueuedRecord] = deque()
        self._acquired_at = 0.0
        self._is_ended = False

    @property
    def has_records(self) -> bool:
        """Whether acquired records wait to be written."""
        return bool(self._ready)

    def pull(self) -> None:
        """Acquire records, if there is credit and nothing is under way."""
        if self._is_fetching or self._ready or self._is_ended:
            return
        records_max, bytes_max = self._session.queue_credit(self._number)
        if records_max > 0:
            self._is_fetching = True
            self._member.fetch(records_max, bytes_max, self._fetched)

    def _fetched(self, found: Sequence[AcquiredRead] | Refusal) -> None:
        self._acquired_at = self._server.seconds()
        if self._is_ended:
            return
        if isinstance(found, Refusal):
            self._is_fetching = False
            self._owner.lost(found.error, found.code)
            return
        is_slow = any(self._cached(one) is None and is_heavy(one.read) for one in found)
        if is_slow:
            self._owner.start(self._unfold_slowly(found))
            return
        try:
            runs = [self._cached(one) or self._kept(one, record_run(one.read)) for one in found]
        except PenstockError as error:
            self._failed(error)
            return
        self._unfolded(found, runs)

    async def _unfold_slowly(self, found: Sequence[AcquiredRead]) -> None:
        try:
            runs = [self._cached(one) or self._kept(one, await self._unfold(one)) for one in found]
        except PenstockError as error:
            self._failed(error)
            return
        self._unfolded(found, runs)

    async def _unfold(self, one: AcquiredRead) -> Run:
        read = one.read
        return await self._server.broker.run_heavy(lambda: record_run(read), len(read.records))

    def _failed(self, error: PenstockError) -> None:
        self._is_fetching = False
        if not self._is_ended:
            self._owner.lost(str(error), READ_FAILED)

    def _cached(self, one: AcquiredRead) -> Run | None:
        """Return the records of a batch of which other members acquired a part before."""
        read = one.read
        run = self._server.queue_cache.find(
            self.topic, read.partition, one.shares[0].first, read.version, is_batch_format=False
        )
        return run if run is not None and one.shares[-1].last < run.next_offset else None

    def _kept(self, one: AcquiredRead, run: Run) -> Run:
        self._server.queue_cache.add(self.topic, one.read.partition, run, is_batch_format=False)
        return run

    def _unfolded(self, found: Sequence[AcquiredRead], runs: Sequence[Run]) -> None:
        self._is_fetching = False
        if self._is_ended:
            return
        for one, run in zip(found, runs, strict=True):
            for share in one.shares:
                self._add(one.read.partition, run, *share)
        self._owner.turn_soon()

    def _add(self, partition: int, run: Run, first: int, last: int, delivery_count: int) -> None:
        """Add the records of acquired offsets; offsets without a record are skipped."""
        nexts, tails = run.nexts, run.tails
        index, expected = bisect_left(nexts, first + 1), first
        while index < len(nexts) and nexts[index] - 1 <= last:
            offset = nexts[index] - 1
            if offset > expected:
                self._member.skip(partition, expected, offset - 1)
            tail = with_delivery_count(tails[index], delivery_count)
            self._ready.append(QueuedRecord(partition, offset, tail))
            expected = offset + 1
            index += 1
        if expected <= last:
            self._member.skip(partition, expected, last)

    def take(self, bytes_max: int, now: float) -> list[QueuedRecord]:
        """Return records to write, up to `bytes_max` bytes or one record."""
        if self._ready and now >= self._acquired_at + self._member.topic.lock_seconds:
            self._ready.clear()  # Other subscribers get them.
        taken: list[QueuedRecord] = []
        size = 0
        while self._ready and size < bytes_max:
            record = self._ready.popleft()
            taken.append(record)
            size += len(record.tail) + limits.DATA_OVERHEAD_BYTES
        return taken

    def acknowledge(self, settled: Sequence[Settled]) -> None:
        """Send acknowledgements to the share group."""
        self._member.acknowledge(
            settled,
            lambda done, is_stored: self._owner.settled(self._number, done, is_stored=is_stored),
        )

    def end(self) -> None:
        """Leave the group; acquired records are released."""
        if not self._is_ended:
            self._is_ended = True
            self._ready.clear()
            self._member.leave()
