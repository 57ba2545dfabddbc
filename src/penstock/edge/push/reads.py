"""`SessionReads`: the reads of one push session: from shared runs, the page cache, or the disk.

A partition without records is parked in the step that found it empty, so no append can fall in
between. A read that misses the page cache, and a read with many records, continue on a thread; the
other subscriptions of the session go on meanwhile. A read for a deleted offset, a lost partition or
a topic that the client may not read any more ends the session with the reason.
"""

from collections.abc import Coroutine
from typing import Final, Protocol

from penstock.core.errors import PenstockError
from penstock.edge.push import limits
from penstock.edge.push.feeds import Feeds, Waiting
from penstock.edge.push.ports import PushBroker
from penstock.edge.push.reactions import Wanted
from penstock.edge.push.record_runs import LogRead, Run, RunCache, batch_run, is_heavy, record_run
from penstock.edge.push.session import PushSession

READ_FAILED: Final = "KAFKA_STORAGE_ERROR"
AGAIN: Final = (
    "Connect and subscribe again: a group continues at its committed offset, other subscriptions "
    "choose 'from'. A client with a copy of the data asks for a refresh"
)
"""What a client does whose log was replaced."""


class Reader(Waiting, Protocol):
    """The connection of a session."""

    client: object

    def lost(self, reason: str, code: str) -> None:
        """A topic cannot be read here any more: the session ends."""
        ...

    def turn_soon(self) -> None:
        """Deliver in a later turn of the event loop."""
        ...

    def start(self, work: Coroutine[object, object, None]) -> None:
        """Run a coroutine for this connection."""
        ...


class Shared(Protocol):
    """The parts that all sessions share."""

    broker: PushBroker
    cache: RunCache
    feeds: Feeds


class SessionReads:
    """The reads of one session."""

    __slots__ = ("_cuts", "_found", "_owner", "_parked", "_reading", "_server", "_session")

    def __init__(self, owner: Reader, session: PushSession, server: Shared) -> None:
        self._owner = owner
        self._session = session
        self._server = server
        self._parked: set[tuple[str, int, int]] = set()
        """Topic, partition and subscription."""
        self._reading: set[tuple[int, int]] = set()
        self._cuts: dict[tuple[int, int], tuple[int, int]] = {}
        """Cuts and refreshes of the log at the first read: later ones may have removed delivered
        records."""
        self._found: dict[tuple[int, int], Run] = {}
        """Runs of the disk, or large ones, until they are delivered."""

    def fan_out(self, now: float) -> tuple[list[bytes], int]:
        """Return frames of fanout subscriptions up to `TURN_BYTES`, and their bytes."""
        session, frames = self._session, list[bytes]()
        written = blocked = 0
        while written < limits.TURN_BYTES and blocked <= len(session.subscriptions):
            wanted = session.next_read()
            if wanted is None:
                break
            run = self.run_for(wanted)
            if run is None:
                continue
            found, size = session.deliver(wanted, run, limits.TURN_BYTES - written, now)
            frames += found
            written += size
            self.release(wanted, run)
            blocked = 0 if found or self._has_moved(wanted) else blocked + 1
        return frames, written

    def _has_moved(self, wanted: Wanted) -> bool:
        subscription = self._session.subscriptions.get(wanted.number)
        return subscription is not None and (
            subscription.positions[wanted.partition] != wanted.offset
        )

    def run_for(self, wanted: Wanted) -> Run | None:
        """Return records for a read; None if there are none now."""
        server, topic, partition = self._server, wanted.topic, wanted.partition
        try:
            if not server.broker.may_read(self._owner.client, topic):
                self._owner.lost(
                    f"READ on the topic {topic} is denied", "TOPIC_AUTHORIZATION_FAILED"
                )
                return None
            view = server.broker.view(topic, partition)
            seen = view.version[2], view.refreshes
            before = self._cuts.setdefault((wanted.number, partition), seen)
            if before != seen:
                self._replaced(wanted, is_refresh=before[1] != seen[1])
                return None
            if wanted.offset < view.start_offset:
                self._owner.lost(
                    f"offset {wanted.offset} of {topic}-{partition} was deleted; the log starts "
                    f"at {view.start_offset}",
                    "OFFSET_OUT_OF_RANGE",
                )
                return None
            if wanted.offset >= view.end_offset:
                self._park(wanted)
                return None
            return self._held(wanted) or self._read(wanted)
        except PenstockError as error:
            self._owner.lost(str(error), "NOT_LEADER_OR_FOLLOWER")
            return None

    def _replaced(self, wanted: Wanted, *, is_refresh: bool) -> None:
        """End a session whose delivered records may be gone from the log."""
        place = f"{wanted.topic}-{wanted.partition}"
        if is_refresh:
            self._owner.lost(
                f"the log of {place} was replaced by a refresh. {AGAIN}", "NOT_LEADER_OR_FOLLOWER"
            )
        else:
            self._owner.lost(
                f"the log of {place} was cut, because its parent has other records. {AGAIN}",
                "OFFSET_OUT_OF_RANGE",
            )

    def _held(self, wanted: Wanted) -> Run | None:
        """Return a run that was read before for this subscription, or for others."""
        run = self._found.get((wanted.number, wanted.partition))
        version = self._server.broker.view(wanted.topic, wanted.partition).version
        if (
            run is not None
            and run.version == version
            and run.offset <= wanted.offset < run.next_offset
        ):
            return run
        return self._server.cache.find(
            wanted.topic,
            wanted.partition,
            wanted.offset,
            version,
            is_batch_format=wanted.is_batch_format,
        )

    def _read(self, wanted: Wanted) -> Run | None:
        server = self._server
        try:
            read = server.broker.read(
                wanted.topic, wanted.partition, wanted.offset, limits.READ_BYTES
            )
        except BlockingIOError:
            self._read_later(wanted, None)
            return None
        if not read.records:
            self._park(wanted)
            return None
        if not wanted.is_batch_format and is_heavy(read):
            self._read_later(wanted, read)
            return None
        run = batch_run(read) if wanted.is_batch_format else record_run(read)
        self._keep(wanted, run)
        return run

    def _keep(self, wanted: Wanted, run: Run) -> None:
        self._server.cache.add(
            wanted.topic, wanted.partition, run, is_batch_format=wanted.is_batch_format
        )

    def _read_later(self, wanted: Wanted, read: LogRead | None) -> None:
        """Read from the disk, or unfold many records, on a thread."""
        place = wanted.number, wanted.partition
        if place not in self._reading:
            self._reading.add(place)
            self._owner.start(self._read_slowly(wanted, read))

    async def _read_slowly(self, wanted: Wanted, read: LogRead | None) -> None:
        broker, place = self._server.broker, (wanted.number, wanted.partition)
        try:
            if read is None:
                read = await broker.read_cold(
                    wanted.topic, wanted.partition, wanted.offset, limits.READ_BYTES
                )
            if read.records:
                found, unfold = read, batch_run if wanted.is_batch_format else record_run
                run = await broker.run_heavy(lambda: unfold(found), len(read.records))
                self._keep(wanted, run)
                self._found[place] = run
        except PenstockError as error:
            self._owner.lost(str(error), READ_FAILED)
        finally:
            self._reading.discard(place)
        self._session.news(*place)
        self._owner.turn_soon()

    def release(self, wanted: Wanted, run: Run) -> None:
        """Forget a run whose records are all delivered."""
        place = wanted.number, wanted.partition
        if self._found.get(place) is run:
            subscription = self._session.subscriptions.get(wanted.number)
            if subscription is None or subscription.positions[place[1]] >= run.next_offset:
                del self._found[place]

    def _park(self, wanted: Wanted) -> None:
        self._parked.add((wanted.topic, wanted.partition, wanted.number))
        self._server.feeds.park(wanted.topic, wanted.partition, self._owner, wanted.number)

    def unparked(self, number: int, partition: int) -> None:
        """The feed of a partition has news."""
        subscription = self._session.subscriptions.get(number)
        if subscription is not None:
            self._parked.discard((subscription.request.topic, partition, number))

    def forget(self, number: int | None) -> None:
        """Forget the waits of a subscription, or of all."""
        for place in [one for one in self._parked if number in (None, one[2])]:
            self._parked.discard(place)
            self._server.feeds.forget(place[0], place[1], self._owner, place[2])
        for found in [one for one in self._found if number in (None, one[0])]:
            del self._found[found]
        for read in [one for one in self._cuts if number in (None, one[0])]:
            del self._cuts[read]
