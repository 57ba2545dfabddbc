"""`StateCalls`: loads and stores the delivery state of share-partitions, with retries.

A call to a share coordinator that moves or loads is retried with growing pauses, a few times; the
last refusal is the result. A state without a start offset begins where
`share.auto.offset.reset` of the group says. It decides nothing else, and keeps no state.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

from penstock.broker.ports import ColdReader
from penstock.cluster.configs.group_configs import DeliverySettings
from penstock.cluster.configs.share_offset_reset import BY_DURATION, EARLIEST
from penstock.coordinator.shares.delivery.share_delivery import DeliveryRules, ShareDelivery
from penstock.coordinator.shares.ports import (
    Refusal,
    ShareChange,
    ShareKey,
    ShareState,
    ShareStates,
)
from penstock.core.clock import Clock
from penstock.core.deferred import Deferred
from penstock.core.errors import PenstockError
from penstock.protocol.error_codes import ErrorCode
from penstock.replication.hosted_partition import HostedPartition

ATTEMPTS_MAX: Final = 6
PAUSE_SECONDS: Final = 0.1
"""Before the first repetition; doubled each time: 3 s in all."""

_CODES: Final = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}

FENCED: Final = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.FENCED_STATE_EPOCH,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""The durable state is another one, or deleted: the state here may belong to a former group."""

_RETRIED: Final = frozenset(
    code for code, shown in _CODES.items() if shown is ErrorCode.COORDINATOR_NOT_AVAILABLE
)
"""The coordinator moves or loads. A fence is final, although clients may retry it."""

Outcome = TypeVar("Outcome")


class Tasks(Protocol):
    """Starts coroutines whose tasks are awaited."""

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        """Run the coroutine."""
        ...


def client_refusal(refusal: Refusal) -> Refusal:
    """Return the error for a client, whose share-partition has this error: Kafka's mapping."""
    code = _CODES.get(refusal.error_code, ErrorCode.UNKNOWN_SERVER_ERROR)
    return Refusal(code, refusal.message)


class StateMark(NamedTuple):
    """The durable state that a share-partition has seen or written last."""

    state_epoch: int
    start_offset: int
    """-1 as long as no change was written."""


Loaded = Callable[[Refusal | tuple[ShareDelivery, StateMark]], None]
"""Gets the delivery and the durable state it comes from, or the refusal."""


class StateCalls:
    """Calls to the share coordinator for the share-partitions of this broker."""

    def __init__(
        self, states: ShareStates, cold_reader: ColdReader, clock: Clock, tasks: Tasks
    ) -> None:
        self._states = states
        self._cold_reader = cold_reader
        self._clock = clock
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()

    @staticmethod
    def rules(settings: DeliverySettings) -> DeliveryRules:
        """Return the rules of the state machine for the settings of a group."""
        return DeliveryRules(
            settings.lock_duration_ms / 1000,
            settings.delivery_count_limit,
            settings.record_locks_max,
            settings.is_renew_enabled,
            settings.dead_letter_topic != "",
        )

    def write(
        self, key: ShareKey, change: ShareChange, done: Callable[[Refusal | None], None]
    ) -> None:
        """Store a change; `done` is called once."""
        self._try(lambda: self._states.write(key, change), done, 1)

    def check(
        self, key: ShareKey, leader_epoch: int, done: Callable[[ShareState | Refusal], None]
    ) -> None:
        """Read a state once, without retries; `done` is called once."""
        self._states.read(key, leader_epoch).then(done)

    def load(
        self,
        key: ShareKey,
        hosted: HostedPartition,
        settings: Callable[[], DeliverySettings],
        done: Loaded,
    ) -> None:
        """Load a state; `done` is called once."""

        def read(found: ShareState | Refusal) -> None:
            if isinstance(found, Refusal):
                done(found)
            elif found.start_offset >= 0:
                done(_delivery(found, found.start_offset, hosted, settings()))
            else:
                self._tasks.start(self._begin(found, hosted, settings(), done))

        self._try(lambda: self._states.read(key, hosted.state.leader_epoch), read, 1)

    def _try(
        self,
        call: Callable[[], Deferred[Outcome]],
        done: Callable[[Outcome], None],
        attempt: int,
    ) -> None:
        call().then(partial(self._tried, call, done, attempt))

    def _tried(
        self,
        call: Callable[[], Deferred[Outcome]],
        done: Callable[[Outcome], None],
        attempt: int,
        outcome: Outcome,
    ) -> None:
        is_retried = isinstance(outcome, Refusal) and outcome.error_code in _RETRIED
        if not is_retried or attempt >= ATTEMPTS_MAX:
            done(outcome)
            return
        pause_seconds = PAUSE_SECONDS * 2 ** (attempt - 1)
        self._loop.call_later(pause_seconds, self._try, call, done, attempt + 1)

    async def _begin(
        self,
        found: ShareState,
        hosted: HostedPartition,
        settings: DeliverySettings,
        done: Loaded,
    ) -> None:
        """Find the start offset of a share-partition that has none."""
        reset = settings.offset_reset
        start = hosted.state.high_watermark
        if reset.kind == EARLIEST:
            start = hosted.log.log_start_offset
        elif reset.kind == BY_DURATION:
            moment_ms = self._clock.now_ms() - reset.duration_ms
            try:
                record = await self._cold_reader.find_by_time(hosted, max(0, moment_ms))
            except PenstockError as error:
                done(Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
                return
            if record is not None:
                start = min(start, record.offset)
        done(_delivery(found, start, hosted, settings))


def _delivery(
    found: ShareState, start: int, hosted: HostedPartition, settings: DeliverySettings
) -> tuple[ShareDelivery, StateMark]:
    delivery = ShareDelivery(start, found.batches, StateCalls.rules(settings))
    delivery.move_log_start(hosted.log.log_start_offset)
    return delivery, StateMark(found.state_epoch, found.start_offset)
