"""`ProduceRun`: the batches of one Produce request, checked and appended in order, in slices.

A client chooses how many partitions it names and how large each batch is when decompressed.
Guarantees:

- the run stops when its slice of the turn is over and continues in a later turn (`pacing.turns`),
  so a request for thousands of partitions does not stop the event loop;
- it has at most `PRODUCE_UNSYNCED_PARTITIONS_MAX` partitions that wait for the disk, then it waits
  itself: the disk syncs in order, and thousands of files would delay every client's next record;
- a batch that is too much for the event loop is checked by a worker thread, and the run continues
  when that has ended;
- batches are appended in the order of the request, and while a run is not at its end, later
  requests of its connection wait (`HoldingAnswer`): idempotent producers send five at once;
- a run whose client is gone stops. Batches that were appended stay;
- each slice is charged to the client's quota of request time; the waits between them are not.

It does not build the answer: `conclude` does, when all batches were appended or refused.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from penstock.broker.answers import DEFECT, Answer, HoldingAnswer, Waiter, WaitingAnswer
from penstock.broker.context import BrokerServices, RequestContext
from penstock.broker.partition_states import hosted_partition
from penstock.broker.producing.produce_answers import TopicResults, refused
from penstock.broker.producing.transaction_check import TransactionCheck
from penstock.broker.producing.transactional_produce import unverified
from penstock.broker.producing.writable_topics import require_not_internal, writable_topic
from penstock.core.clock import stopwatch
from penstock.core.deferred import Deferred
from penstock.core.errors import (
    NotLeaderError,
    PenstockError,
    TooManyWaitersError,
    UnknownTopicOrPartitionError,
)
from penstock.core.limits import PRODUCE_UNSYNCED_PARTITIONS_MAX
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
)
from penstock.records.batch import TRANSACTIONAL
from penstock.records.validation import (
    HeavyBatchError,
    UnfoldAllowance,
    ValidatedBatch,
    validate_produced,
)
from penstock.replication.admission import require_enough
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.waits import CommitWait
from penstock.storage.log.log_types import AppendInfo
from penstock.storage.log.open_transactions import NO_GUARD

logger = logging.getLogger(__name__)

ACKS_ALL: Final = -1
NOT_TRANSACTIONAL: Final = -1
"""Stands for a guard in requests that name no transactional id."""
DISK_WAIT_MS_MAX: Final = 5_000
"""How long a run waits for the disk. It then continues, because its client waits for an answer."""
_NOTHING: Final = -1
"""Below every high watermark, so it is not waited for."""

Appended = dict[HostedPartition, int]
"""The partitions that a request names, each with the last offset appended or `_NOTHING`."""
Conclude = Callable[["ProduceRun"], Answer | Deferred[Answer]]
_Entry = tuple[
    str, PenstockError | ErrorCode | None, PartitionProduceData, list[PartitionProduceResponse]
]


class ProduceRun:
    """One request on its way into the logs. It is a `Resumable` and the `Waiter` of its answer."""

    __slots__ = (
        "_acks",
        "_allowance",
        "_answer",
        "_check",
        "_checked",
        "_conclude",
        "_context",
        "_current",
        "_entries",
        "_is_abandoned",
        "_later_refusal",
        "_refusal",
        "_services",
        "_unsynced",
        "_waiter",
        "appended",
        "has_error",
        "topics",
        "turn_seconds",
        "turn_tag",
    )

    def __init__(
        self,
        request: ProduceRequest,
        context: RequestContext,
        refusal: PenstockError | ErrorCode | None,
        check: TransactionCheck | None,
        conclude: Conclude,
        *,
        later_refusal: PenstockError | ErrorCode | None = None,
    ) -> None:
        """Refuse all batches with `refusal`; with `later_refusal` those without another error."""
        self.topics: list[TopicResults] = []
        self.appended: Appended = {}
        self.has_error = False
        self.turn_tag = 0.0
        self.turn_seconds = 0.0
        self._context = context
        self._services = context.services
        self._refusal = refusal
        self._later_refusal = later_refusal
        self._check = check
        self._conclude = conclude
        self._allowance = UnfoldAllowance()
        self._acks = request.acks
        self._entries = self._walk(request)
        self._current: tuple[_Entry, HostedPartition] | None = None
        """The batch that a worker checks."""
        self._checked: ValidatedBatch | PenstockError | None = None
        """The result of that check."""
        self._unsynced: list[tuple[HostedPartition, int]] = []
        """Partitions that were not on the disk when they were appended to, with the last offset."""
        self._answer: HoldingAnswer | None = None
        """Created when the run does not end at once."""
        self._waiter: Waiter | None = None
        self._is_abandoned = False

    def start(self) -> Answer | Deferred[Answer]:
        """Append the batches that fit into this turn; the answer is deferred if some are left."""
        if self._advance(None):
            return self._conclude(self)
        assert self._answer is not None
        return self._answer

    def continue_turn(self) -> None:
        """Go on in a later turn of the event loop."""
        answer = self._answer
        assert answer is not None
        if self._is_abandoned:
            return
        meter = self._context.meter
        if meter is not None:
            meter.begin()
        try:
            monotonic = stopwatch(self._services.clock)
            begun = monotonic()
            is_done = self._advance(begun)
            self._services.turns.spend(self, monotonic() - begun)
            if not is_done:
                return
            outcome = self._conclude(self)
        except Exception:
            logger.exception("a produce failed; its connection is closed")
            outcome = DEFECT
        finally:
            if meter is not None:
                meter.end()
        self._answer = None  # it refers to this run
        answer.release()
        if isinstance(outcome, Deferred):
            if isinstance(outcome, WaitingAnswer):
                self._waiter = outcome.waiter
            outcome.then(answer.set)
        else:
            answer.set(outcome)

    def abandon(self) -> None:
        """The client has disconnected. Appended batches stay, the rest is dropped."""
        self._is_abandoned = True
        self._entries = iter(())
        if self._waiter is not None:
            self._waiter.abandon()

    def hurry(self) -> None:
        """Do nothing: there is no partial answer."""

    # --- One batch after the other ---

    def _walk(self, request: ProduceRequest) -> Iterator[_Entry]:
        for topic in request.topic_data:
            name, error = writable_topic(topic, self._context)
            results: list[PartitionProduceResponse] = []
            self.topics.append((name, topic, results))
            for data in topic.partition_data:
                yield name, error, data, results

    def _advance(self, begun: float | None) -> bool:
        """Append at least one batch, until the slice is over; return whether all are appended."""
        services = self._services
        monotonic = stopwatch(services.clock)
        if begun is None:
            begun = monotonic()
        deadline = begun + services.turns.slice_seconds(self)
        if self._current is not None:
            self._end_heavy(*self._current)
        for entry in self._entries:
            if not self._append_entry(entry):
                return False
            if len(self._unsynced) >= PRODUCE_UNSYNCED_PARTITIONS_MAX and self._waits_for_disk():
                return False
            if (now := monotonic()) >= deadline:
                self._hold()
                services.turns.join(self, now - begun)
                return False
        return True

    def _append_entry(self, entry: _Entry) -> bool:
        """Append one batch or refuse it; False when a worker has to check it first."""
        topic, error, data, results = entry
        services = self._services
        refusal = self._refusal or error or self._later_refusal
        if refusal is not None:
            return self._refuse(topic, data, results, refusal)
        try:
            partition = hosted_partition(TopicPartition(topic, data.index), self._context)
            if partition in self.appended:
                return self._note(results, refused(data.index, ErrorCode.INVALID_REQUEST, services))
            require_not_internal(partition, topic)
            # Before the batch is checked: a refused one has cost time too.
            self.appended[partition] = _NOTHING
            check = self._check
            if check is not None and partition in check.errors:
                response = unverified(
                    data.index, check.errors[partition], self._context.api_version
                )
                services.refused_batches.count(response.error_code)
                return self._note(results, response)
            batch = self._validated(partition, data, on_loop=True)
            self._append(data, results, partition, batch)
        except PenstockError as problem:
            self._refuse(topic, data, results, problem)
        except HeavyBatchError:
            self._begin_heavy(entry, partition)
            return False
        return True

    def _validated(
        self, partition: HostedPartition, data: PartitionProduceData, *, on_loop: bool
    ) -> ValidatedBatch:
        return validate_produced(
            _writable(data.records),
            topic_limits=partition.rules,
            produce_version=self._context.api_version,
            now_ms=self._services.clock.now_ms(),
            allowance=self._allowance,
            on_loop=on_loop,
        )

    def _append(
        self,
        data: PartitionProduceData,
        results: list[PartitionProduceResponse],
        partition: HostedPartition,
        batch: ValidatedBatch,
    ) -> None:
        check = self._check
        guard = NOT_TRANSACTIONAL if check is None else check.guards.get(partition, NO_GUARD)
        info = append_checked(partition, batch, self._services, self._acks, guard)
        if isinstance(info, ErrorCode):
            self._note(results, refused(data.index, info, self._services))
            return
        self.appended[partition] = info.last_offset
        if not is_acknowledged(partition, info.last_offset, self._acks):
            self._unsynced.append((partition, info.last_offset))
        results.append(
            PartitionProduceResponse(
                index=data.index,
                error_code=ErrorCode.NONE,
                base_offset=info.base_offset,
                log_append_time_ms=info.log_append_time_ms,
                log_start_offset=info.log_start_offset,
            )
        )

    def _refuse(
        self,
        topic: str,
        data: PartitionProduceData,
        results: list[PartitionProduceResponse],
        refusal: PenstockError | ErrorCode,
    ) -> bool:
        services = self._services
        if isinstance(refusal, PenstockError):
            refusal = explained(
                TopicPartition(topic, data.index), _writable(data.records), refusal, services
            )
        return self._note(results, refused(data.index, refusal, services))

    def _note(
        self, results: list[PartitionProduceResponse], result: PartitionProduceResponse
    ) -> bool:
        self.has_error = True
        results.append(result)
        return True

    def _hold(self) -> None:
        if self._answer is None:
            self._answer = HoldingAnswer(self)

    def _waits_for_disk(self) -> bool:
        """Continue when the appended batches are on the disk; False if they are already."""
        services = self._services
        pending = [
            (partition, last)
            for partition, last in self._unsynced
            if not is_acknowledged(partition, last, self._acks)
        ]
        self._unsynced = []
        if not pending:
            return False
        wait = CommitWait(lambda: services.turns.join(self, 0.0), is_local=self._acks != ACKS_ALL)
        try:
            services.replicas.wait_committed(wait, pending, DISK_WAIT_MS_MAX)
        except TooManyWaitersError:
            return False
        self._hold()
        return True

    # --- Batches that a worker checks ---

    def _begin_heavy(self, entry: _Entry, partition: HostedPartition) -> None:
        self._hold()
        self._current = entry, partition
        data = entry[2]
        check = partial(self._validated, partition, data, on_loop=False)
        self._services.tasks.start(self._check_heavy(check, len(data.records or b"")))

    async def _check_heavy(self, check: Callable[[], ValidatedBatch], size_bytes: int) -> None:
        try:
            self._checked = await self._services.heavy_work.run(
                check, size_bytes, self._context.client
            )
        except PenstockError as error:
            self._checked = error
        except Exception:
            # A task that ends with an exception ends the broker.
            logger.exception("a batch could not be checked")
            self._checked = PenstockError("the batch could not be checked")
        self._services.turns.join(self, 0.0)

    def _end_heavy(self, entry: _Entry, partition: HostedPartition) -> None:
        topic, _, data, results = entry
        checked, self._checked, self._current = self._checked, None, None
        assert checked is not None
        services = self._services
        if isinstance(checked, PenstockError):
            # Not raised again: its traceback would name this frame, and this frame names it.
            self._refuse(topic, data, results, checked)
            return
        try:
            if services.replicas.partition(TopicPartition(topic, data.index)) is not partition:
                raise UnknownTopicOrPartitionError(f"{topic} was deleted meanwhile")
            self._append(data, results, partition, checked)
        except PenstockError as error:
            self._refuse(topic, data, results, error)


def is_acknowledged(partition: HostedPartition, last_offset: int, acks: int) -> bool:
    """Whether records are synced where `acks` needs it: at this leader, or at all replicas."""
    state = partition.state
    if last_offset < state.high_watermark:
        return True
    return acks != ACKS_ALL and last_offset < state.local_durable_offset


def explained(
    name: TopicPartition, records: memoryview, error: PenstockError, services: BrokerServices
) -> PenstockError:
    """The error to answer for a refused batch: that of the batch before it, if this one is late."""
    return services.refused_sequences.explained(name, records, error, services.clock.monotonic())


def append_checked(
    partition: HostedPartition,
    batch: ValidatedBatch,
    services: BrokerServices,
    acks: int,
    guard: int = NOT_TRANSACTIONAL,
) -> AppendInfo | ErrorCode:
    """Append a batch that was validated; raises `PenstockError`."""
    if partition.state.in_sync is not None:
        if acks == ACKS_ALL:
            require_enough(partition.state)
        elif services.replicas.is_isolated():
            # Another broker may lead by now. Followers would still confirm records for `acks=all`.
            raise NotLeaderError(f"this broker does not know whether it leads {partition.name}")
    if guard == NOT_TRANSACTIONAL:
        if batch.header.attributes & TRANSACTIONAL:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return services.replicas.append(partition, batch)
    return services.replicas.append(partition, batch, guard)


def _writable(records: bytes | bytearray | memoryview | None) -> memoryview:
    """The records as the frame holds them; null counts as empty, which validation refuses."""
    return records if isinstance(records, memoryview) else memoryview(bytearray(records or b""))
