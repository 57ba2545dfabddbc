"""`MemoryMetadataStore`: a metadata store in a dict, with faults on demand.

It keeps every version of every key, so that any revision that was not compacted can be read. It
passes the same contract suite as the real stores. `faults` decides the outcome of the next
transactions: rejected, lost before they were applied, applied with the answer lost, or applied
late, after the caller got an ambiguous error. It is the reference for other stores, so its code is
simple instead of fast.
"""

from collections import deque
from collections.abc import AsyncIterator, Sequence
from enum import Enum
from itertools import groupby

from penstock.cluster.stores.port import (
    NO_SESSION,
    CompactedError,
    Compare,
    CompareTarget,
    DeletePrefix,
    Event,
    EventBatch,
    KeyValue,
    Operation,
    Put,
    SessionLostError,
    Snapshot,
    TransactionResult,
    check_transaction,
)
from penstock.cluster.stores.watches import WatchHub
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import AmbiguousStoreError, StoreError


class Fault(Enum):
    """The outcome of a transaction."""

    NONE = "none"
    """It is applied and answered."""
    REFUSED = "refused"
    """It is not applied, and the caller gets an error."""
    LOST = "lost"
    """It is not applied, and the outcome is unknown to the caller."""
    ANSWER_LOST = "answer_lost"
    """It is applied, and the outcome is unknown to the caller."""
    LATE = "late"
    """It is applied just before the next transaction, and the outcome is unknown to the caller."""


class MemoryMetadataStore:
    """A metadata store for tests."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.faults: deque[Fault] = deque()
        self._clock = clock or SystemClock()
        self._revision = 0
        self._compacted = 0
        self._versions: list[tuple[int, Event]] = []
        self._sessions: dict[int, tuple[float, float]] = {}
        self._session_last = 0
        self._late: list[tuple[Sequence[Compare], Sequence[Operation]]] = []
        self._hub = WatchHub(self._history)
        self._closed = False

    async def read(self, key: str, *, revision: int | None = None) -> Snapshot:
        """Return one key, now or at a revision."""
        self._begin()
        wanted = self._readable(revision)
        pair = self._state_at(wanted).get(key)
        return Snapshot(wanted, (pair,) if pair else ())

    async def read_prefix(self, prefix: str, *, revision: int | None = None) -> Snapshot:
        """Return every key with the prefix, now or at a revision."""
        self._begin()
        wanted = self._readable(revision)
        state = self._state_at(wanted)
        return Snapshot(
            wanted, tuple(state[key] for key in sorted(state) if key.startswith(prefix))
        )

    async def transact(
        self,
        compares: Sequence[Compare],
        operations: Sequence[Operation],
        *,
        read_on_failure: Sequence[str] = (),
    ) -> TransactionResult:
        """Apply all operations if all compares hold, else none; or follow the next fault."""
        check_transaction(compares, operations, read_on_failure)
        self._begin()
        for late_compares, late_operations in self._late:
            self._apply(late_compares, late_operations, ())
        self._late.clear()
        fault = self.faults.popleft() if self.faults else Fault.NONE
        match fault:
            case Fault.NONE:
                return self._apply(compares, operations, read_on_failure)
            case Fault.REFUSED:
                raise StoreError("refused on demand")
            case Fault.ANSWER_LOST:
                self._apply(compares, operations, ())
            case Fault.LATE:
                self._late.append((tuple(compares), tuple(operations)))
            case Fault.LOST:
                pass
        raise AmbiguousStoreError("the answer was lost on demand")

    def watch(self, prefix: str, *, from_revision: int) -> AsyncIterator[EventBatch]:
        """Return the changes of keys with the prefix, starting at `from_revision`."""
        return self._hub.watch(prefix, from_revision)

    async def open_session(self, time_to_live_seconds: float) -> int:
        """Open a session and return its number."""
        self._begin()
        self._session_last += 1
        deadline = self._clock.monotonic() + time_to_live_seconds
        self._sessions[self._session_last] = (deadline, time_to_live_seconds)
        return self._session_last

    async def keep_alive(self, session: int) -> None:
        """Restart the session's time to live."""
        self._begin()
        if session not in self._sessions:
            raise SessionLostError(f"session {session} has ended")
        time_to_live_seconds = self._sessions[session][1]
        deadline = self._clock.monotonic() + time_to_live_seconds
        self._sessions[session] = (deadline, time_to_live_seconds)

    async def end_session(self, session: int) -> None:
        """End a session and delete its keys."""
        self._begin()
        self._end_session(session)

    async def close(self) -> None:
        """End every watch and accept no more calls."""
        self._closed = True
        self._hub.close()

    def compact(self, revision: int) -> None:
        """Delete versions that only revisions before this one need."""
        self._compacted = max(self._compacted, revision)

    def _begin(self) -> None:
        if self._closed:
            raise StoreError("the metadata store is closed")
        now = self._clock.monotonic()
        for session in [s for s, (deadline, _) in self._sessions.items() if deadline < now]:
            self._end_session(session)

    def _end_session(self, session: int) -> None:
        self._sessions.pop(session, None)
        state = self._state_at(self._revision)
        self._commit([Event(k, None) for k, pair in state.items() if pair.session == session != 0])

    def _apply(
        self,
        compares: Sequence[Compare],
        operations: Sequence[Operation],
        read_on_failure: Sequence[str],
    ) -> TransactionResult:
        state = self._state_at(self._revision)
        if not all(_holds(compare, state) for compare in compares):
            found = tuple(state[key] for key in read_on_failure if key in state)
            return TransactionResult(succeeded=False, revision=self._revision, values=found)
        events: dict[str, Event] = {}
        for operation in operations:
            for event in self._events(operation, state):
                events[event.key] = event
        self._commit(list(events.values()))
        return TransactionResult(succeeded=True, revision=self._revision, changed=bool(events))

    def _events(self, operation: Operation, state: dict[str, KeyValue]) -> list[Event]:
        if isinstance(operation, Put):
            if operation.session != NO_SESSION and operation.session not in self._sessions:
                raise SessionLostError(f"session {operation.session} has ended")
            before = state.get(operation.key)
            revision = self._revision + 1
            created = before.create_revision if before else revision
            pair = KeyValue(operation.key, operation.value, created, revision, operation.session)
            return [Event(operation.key, pair)]
        if isinstance(operation, DeletePrefix):
            return [Event(key, None) for key in state if key.startswith(operation.prefix)]
        return [Event(operation.key, None)] if operation.key in state else []

    def _commit(self, events: list[Event]) -> None:
        if events:
            self._revision += 1
            events.sort(key=lambda event: event.key)
            self._versions.extend((self._revision, event) for event in events)
            self._hub.publish([EventBatch(self._revision, tuple(events))])

    def _state_at(self, revision: int) -> dict[str, KeyValue]:
        state: dict[str, KeyValue] = {}
        for written_at, event in self._versions:
            if written_at > revision:
                break
            if event.value is None:
                state.pop(event.key, None)
            else:
                state[event.key] = event.value
        return state

    def _readable(self, revision: int | None) -> int:
        wanted = self._revision if revision is None else revision
        if wanted < self._compacted:
            raise CompactedError(f"revisions before {self._compacted} are no longer kept")
        if wanted > self._revision:
            raise StoreError(f"revision {wanted} is yet to come")
        return wanted

    async def _history(self, prefix: str, from_revision: int) -> Sequence[EventBatch]:
        self._begin()
        if from_revision <= self._compacted:
            raise CompactedError(f"changes up to revision {self._compacted} are no longer kept")
        found = [
            (revision, event)
            for revision, event in self._versions
            if revision >= from_revision and event.key.startswith(prefix)
        ]
        return [
            EventBatch(revision, tuple(event for _, event in group))
            for revision, group in groupby(found, key=lambda version: version[0])
        ]


def _holds(compare: Compare, state: dict[str, KeyValue]) -> bool:
    if compare.target is CompareTarget.NEWEST:
        found = (pair for key, pair in state.items() if key.startswith(compare.key))
        return all(pair.create_revision <= compare.revision for pair in found)
    return compare.holds(state.get(compare.key))
