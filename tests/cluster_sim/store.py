"""The metadata store of the simulation: one shared `MemoryMetadataStore`, one view for each broker.

A request travels to the store, is applied there at once, and its answer travels back; both ways
have delays from the seed. So a transaction may be applied after its broker crashed or was told that
the outcome is unknown. Faults of a view: requests or answers are lost, the broker is cut off, its
watch is late. Faults of the store: a freeze, after which expired sessions end at once; a change of
its leader, which restarts the time to live of each session; a compaction of its history.

Watches deliver each revision once and in order, or raise `CompactedError`.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from penstock.cluster.keys import Keys
from penstock.cluster.stores.port import (
    CompactedError,
    Compare,
    Event,
    EventBatch,
    KeyValue,
    Operation,
    Snapshot,
    TransactionResult,
)
from penstock.core.errors import AmbiguousStoreError, StoreError
from penstock.testing.memory_store import MemoryMetadataStore
from tests.cluster_sim.loop import MACHINE, Machine, SimulatedLoop

Result = TypeVar("Result")

DELAY_SECONDS: Final = (0.0003, 0.003)
LATE_SECONDS: Final = (0.2, 3.0)
"""Delay of a late write, and of a late watch."""
ANSWER_SECONDS_MAX: Final = 5.0
"""A request without an answer by then has an unknown outcome."""
SESSION_CHECK_SECONDS: Final = 0.25


def at_once(work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        result: Result = done.value
        return result
    raise AssertionError("the coroutine waited")


class SharedStore(MemoryMetadataStore):
    """The store; it calls `on_commit` for each revision."""

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__(clock=_LoopClock(loop))
        self.on_commit: list[Callable[[EventBatch], None]] = []
        self.present: dict[str, KeyValue] = {}
        """The newest state: the simulation reads it after each step."""

    @property
    def revision(self) -> int:
        """The newest revision."""
        return self._revision

    def _commit(self, events: list[Event]) -> None:
        if not events:
            return
        super()._commit(events)
        for event in events:
            if event.value is None:
                self.present.pop(event.key, None)
            else:
                self.present[event.key] = event.value
        batch = EventBatch(self._revision, tuple(events))
        for call in [*self.on_commit]:
            call(batch)

    def _state_at(self, revision: int) -> dict[str, KeyValue]:
        if revision == self._revision:
            return dict(sorted(self.present.items()))
        return super()._state_at(revision)

    def expire(self) -> None:
        """End the sessions whose time is over."""
        self._begin()

    def prolong_sessions(self) -> None:
        """Restart every time to live, as a new leader of the store does."""
        for session in [*self._sessions]:
            at_once(self.keep_alive(session))

    def history(self, prefix: str, from_revision: int) -> list[EventBatch]:
        """Return past changes; raise `CompactedError` if they are not kept."""
        return list(at_once(self._history(prefix, from_revision)))


class _LoopClock:
    """The clock of the store."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        """Return the virtual time."""
        return int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        """Return the virtual time."""
        return self._loop.time()


class StoreNetwork:
    """The connections of all brokers to the store."""

    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        self.loop = loop
        self.random = random.Random(f"store {seed}")
        self.shared = SharedStore(loop)
        self.frozen_until_seconds = 0.0
        self.lost_share = 0.0
        """Share of requests whose answer is lost."""
        self.late_share = 0.0
        """Share of transactions that arrive after their caller gave up."""
        self.cut_off: set[int] = set()
        """Brokers whose requests and answers are lost."""
        self.late_watches: set[int] = set()
        self.on_transaction: list[
            Callable[[int, Sequence[Compare], Sequence[Operation], TransactionResult], None]
        ] = []
        """Called for each applied transaction with the broker's id."""

    def start(self) -> None:
        """End expired sessions from now on."""
        self.loop.at(self.loop.world, SESSION_CHECK_SECONDS, self._check_sessions)

    def _check_sessions(self) -> None:
        if not self.is_frozen:
            self.shared.expire()
        self.start()

    @property
    def is_frozen(self) -> bool:
        """Whether the store answers nothing now."""
        return self.loop.time() < self.frozen_until_seconds

    def expire_broker(self, broker_id: int) -> None:
        """End the session of a registered broker, as after a suspension."""
        pair = self.shared.present.get(Keys().broker(broker_id))
        if pair is not None:
            at_once(self.shared.end_session(pair.session))

    def freeze(self, seconds: float) -> None:
        """Answer nothing for this time; sessions that expire meanwhile end afterwards."""
        self.frozen_until_seconds = self.loop.time() + seconds

    def delay_seconds(self) -> float:
        """Return the time of one way."""
        return self.random.uniform(*DELAY_SECONDS)

    def heal(self) -> None:
        """End every fault."""
        self.lost_share = self.late_share = 0.0
        self.cut_off.clear()
        self.late_watches.clear()


class StoreView:
    """The store as one process of a broker reaches it."""

    def __init__(self, network: StoreNetwork, broker_id: int) -> None:
        self._network = network
        self._broker_id = broker_id
        self._loop = network.loop

    async def _ask(
        self, call: Callable[[], Coroutine[Any, Any, Result]], *, writes: bool
    ) -> Result:
        """Send a request and wait for its answer."""
        network, loop = self._network, self._loop
        machine = MACHINE.get()
        answer: asyncio.Future[Result] = loop.create_future()
        delay = network.delay_seconds()
        is_late = writes and network.random.random() < network.late_share
        if is_late:
            delay += network.random.uniform(*LATE_SECONDS) + ANSWER_SECONDS_MAX
        if self._broker_id not in network.cut_off:
            loop.at(loop.world, delay, self._arrived, machine, call, answer)
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                return await answer
        except TimeoutError:
            if writes:
                raise AmbiguousStoreError("the metadata store did not answer in time") from None
            raise StoreError("the metadata store did not answer in time") from None

    def _arrived(
        self,
        machine: Machine,
        call: Callable[[], Coroutine[Any, Any, Result]],
        answer: "asyncio.Future[Result]",
    ) -> None:
        network, loop = self._network, self._loop
        if network.is_frozen:
            wait = network.frozen_until_seconds - loop.time()
            loop.at(
                loop.world, wait + network.delay_seconds(), self._arrived, machine, call, answer
            )
            return
        result: Any = None
        error: Exception | None = None
        try:
            result = at_once(call())
        except StoreError as raised:
            error = raised
        is_lost = network.random.random() < network.lost_share
        if not is_lost and self._broker_id not in network.cut_off:
            loop.at(machine, network.delay_seconds(), _settle, answer, result, error)

    async def read(self, key: str, *, revision: int | None = None) -> Snapshot:
        """Return one key."""
        shared = self._network.shared
        return await self._ask(lambda: shared.read(key, revision=revision), writes=False)

    async def read_prefix(self, prefix: str, *, revision: int | None = None) -> Snapshot:
        """Return the keys with the prefix."""
        shared = self._network.shared
        return await self._ask(lambda: shared.read_prefix(prefix, revision=revision), writes=False)

    async def transact(
        self,
        compares: Sequence[Compare],
        operations: Sequence[Operation],
        *,
        read_on_failure: Sequence[str] = (),
    ) -> TransactionResult:
        """Apply a transaction."""
        network = self._network

        async def apply() -> TransactionResult:
            result = await network.shared.transact(
                compares, operations, read_on_failure=read_on_failure
            )
            for call in network.on_transaction:
                call(self._broker_id, compares, operations, result)
            return result

        return await self._ask(apply, writes=True)

    async def open_session(self, time_to_live_seconds: float) -> int:
        """Open a session."""
        shared = self._network.shared
        return await self._ask(lambda: shared.open_session(time_to_live_seconds), writes=False)

    async def keep_alive(self, session: int) -> None:
        """Prolong a session."""
        await self._ask(lambda: self._network.shared.keep_alive(session), writes=False)

    async def end_session(self, session: int) -> None:
        """End a session."""
        await self._ask(lambda: self._network.shared.end_session(session), writes=True)

    async def close(self) -> None:
        """Leave the shared store open."""

    async def watch(self, prefix: str, *, from_revision: int) -> AsyncIterator[EventBatch]:
        """Yield the changes in order; each travels to the broker."""
        watch = _Watch(self._network, self._broker_id, MACHINE.get(), prefix)
        try:
            past = await self._ask(lambda: watch.begin(from_revision), writes=False)
            for batch in past:
                yield batch
            while True:
                await watch.arrived.wait()
                watch.arrived.clear()
                while watch.queue:
                    one = watch.queue.popleft()
                    if isinstance(one, CompactedError):
                        raise one
                    yield one
        finally:
            watch.end()


class _Watch:
    """One watch: revisions on their way to a broker."""

    def __init__(
        self, network: StoreNetwork, broker_id: int, machine: Machine, prefix: str
    ) -> None:
        self._network = network
        self._broker_id = broker_id
        self._machine = machine
        self._prefix = prefix
        self._arrives_at_seconds = 0.0
        self._waiting: deque[EventBatch] = deque()
        self.queue: deque[EventBatch | CompactedError] = deque()
        self.arrived = asyncio.Event()

    async def begin(self, from_revision: int) -> list[EventBatch]:
        """Return past changes, and follow from now on; at the store."""
        past = self._network.shared.history(self._prefix, from_revision)
        self._network.shared.on_commit.append(self._committed)
        return past

    def end(self) -> None:
        """Follow no more."""
        if self._committed in self._network.shared.on_commit:
            self._network.shared.on_commit.remove(self._committed)

    def _committed(self, batch: EventBatch) -> None:
        if self._machine.is_dead:
            self.end()
            return
        events = tuple(one for one in batch.events if one.key.startswith(self._prefix))
        if events:
            self._waiting.append(EventBatch(batch.revision, events))
            self._send()

    def _send(self) -> None:
        network, loop = self._network, self._network.loop
        if self._broker_id in network.cut_off:
            # Delivered after the cut is healed: the connection is opened again.
            loop.at(loop.world, 0.5, self._retry)
            return
        delay = network.delay_seconds()
        if self._broker_id in network.late_watches:
            delay += network.random.uniform(*LATE_SECONDS)
        while self._waiting:
            batch = self._waiting.popleft()
            when = max(self._arrives_at_seconds + 1e-9, loop.time() + delay)
            self._arrives_at_seconds = when
            context = self._machine.context.copy()
            loop.call_at(when, self._arrived, batch, context=context)

    def _retry(self) -> None:
        if self._waiting and not self._machine.is_dead:
            self._send()

    def _arrived(self, batch: EventBatch) -> None:
        self.queue.append(batch)
        self.arrived.set()


def _settle(answer: "asyncio.Future[Any]", result: object, error: Exception | None) -> None:
    if not answer.done():
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)
