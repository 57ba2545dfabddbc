"""`TransactionShard`: the transaction coordinator behind one partition of `__transaction_state`.

It decides which client may write with which producer id, and how each transaction ends. Guarantees:

- an answer to EndTxn means that the outcome is stored: the markers will be written, by this shard
  or by the one that loads its log;
- a transaction that outlives its timeout is aborted, and its producer fenced;
- at most one transition of a transactional id is under way; others get
  CONCURRENT_TRANSACTIONS, or wait for a moment (`adding`).

It does NOT write markers or allocate producer ids: it asks for them with effects. The handlers pass
AddOffsetsToTxn as the add of a partition, and a batch of adds one by one.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from penstock.coordinator.metadata_view import TopicsView
from penstock.coordinator.shard import (
    NOTHING,
    REFUSED_RETRY_MS,
    Asked,
    Outcome,
    Producer,
    Reply,
    SetTimer,
    StoredRecord,
    Ticket,
    TimerKey,
)
from penstock.coordinator.transactions import decisions, listing, upkeep
from penstock.coordinator.transactions import transaction as moves
from penstock.coordinator.transactions.adding import Adds, add_of
from penstock.coordinator.transactions.answers import NO_ID_NOW, answer, ended, init_refused
from penstock.coordinator.transactions.decisions import NewEpoch, Step
from penstock.coordinator.transactions.effects import NextProducerId, WriteMarkers
from penstock.coordinator.transactions.settings import TransactionSettings
from penstock.coordinator.transactions.states import TransactionState
from penstock.coordinator.transactions.transaction import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTION_VERSION_2,
    Transaction,
)
from penstock.core.errors import PenstockError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
)
from penstock.protocol.messages.describe_transactions import DescribeTransactionsRequest
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.messages.list_transactions import ListTransactionsRequest
from penstock.protocol.stored.transaction_records import TransactionLogKey, TransactionLogValue

MARKER_RETRY_MS: Final = 100
"""How long after a failure markers are tried again: Kafka's retry.backoff.ms."""
EPOCH_BUMP_END_VERSION: Final = 5
"""Starting at this version of EndTxn, the client uses transaction version 2."""
TIMEOUTS: Final = ("timeouts",)
EXPIRATIONS: Final = ("expirations",)
TIMED_OUT_PER_BATCH_MAX: Final = 100
"""Transactions that are aborted in one event: each writes markers to all its partitions. The next
check, at once, goes on."""


@dataclass(frozen=True, slots=True)
class _Awaited:
    """A transition that cannot go on without a new producer id."""

    resume: Callable[[int, int], Outcome]
    """Called with the id and the time."""
    refusal: Reply | None


class TransactionShard:
    """The transactional ids of one partition."""

    def __init__(self, settings: TransactionSettings, coordinator_epoch: int = 0) -> None:
        self.transactions: dict[str, Transaction] = {}
        self._settings = settings
        self._coordinator_epoch = coordinator_epoch
        # Not replicated, as in Kafka: a retry that meets a new coordinator is fenced.
        self._last_epochs: dict[str, int] = {}
        self._late = upkeep.LateTransactions()
        self._awaited: dict[str, _Awaited] = {}
        self._adds = Adds()

    # --- Events ---

    def handle(self, asked: Asked, ticket: Ticket, now_ms: int) -> Outcome:
        """React to a request."""
        match asked.request:
            case InitProducerIdRequest():
                return self._handle_init(asked.request, ticket, now_ms)
            case AddPartitionsToTxnRequest():
                add = add_of(asked, asked.request, ticket)
                now = self.transactions.get(add.transactional_id)
                is_awaited = add.transactional_id in self._awaited
                return self._adds.handle(add, now, is_awaited=is_awaited, now_ms=now_ms)
            case EndTxnRequest():
                return self._handle_end(asked, asked.request, ticket, now_ms)
            case DescribeTransactionsRequest():
                return answer(ticket, listing.described(asked.request, self.transactions))
            case ListTransactionsRequest():
                return answer(ticket, listing.listed(asked.request, self.transactions, now_ms))
        raise AssertionError(f"no transaction coordinator answers {type(asked.request).__name__}")

    def timer_fired(self, key: TimerKey, now_ms: int) -> Outcome:
        """Abort transactions that timed out, delete expired ids, or retry markers."""
        match key:
            case ("timeouts",):
                return self._abort_timed_out(now_ms)
            case ("expirations",):
                return self._expire(now_ms)
            case ("adds", str() as transactional_id):
                return self._adds.give_up(transactional_id)
            case ("markers", str() as transactional_id):
                now = self.transactions.get(transactional_id)
                if now is None or not now.is_ending:
                    return NOTHING
                return Outcome(effects=(self._markers(transactional_id, now),))
            case ("written", str() as transactional_id):
                now = self.transactions.get(transactional_id)
                if now is None or not now.is_ending:
                    return NOTHING
                return self._complete(transactional_id, now, now_ms)
        raise AssertionError(f"the transaction coordinator has no timer {key!r}")

    def effect_done(self, effect: object, result: object, now_ms: int) -> Outcome:
        """Continue the transition that waited for the effect."""
        match effect:
            case NextProducerId():
                return self._go_on(effect.transactional_id, result, now_ms)
            case WriteMarkers():
                return self._markers_written(effect, result, now_ms)
        raise AssertionError(f"the transaction coordinator has no effect {effect!r}")

    def topics_changed(self, topics: TopicsView, gone: Collection[str], now_ms: int) -> Outcome:
        """Do nothing: `node` knows that a deleted partition needs no marker."""
        del topics, gone, now_ms
        return NOTHING

    def loaded(self, topics: TopicsView, now_ms: int) -> Outcome:
        """Finish every transaction whose outcome is stored; start the check for late ones."""
        del topics, now_ms
        return Outcome(
            timers=(
                SetTimer(TIMEOUTS, self._settings.timeout_check_interval_ms),
                SetTimer(EXPIRATIONS, self._settings.expiration_check_interval_ms),
            ),
            effects=tuple(
                self._markers(transactional_id, now)
                for transactional_id, now in self.transactions.items()
                if now.is_ending
            ),
        )

    def replay(self, record: StoredRecord, producer: Producer | None, offset: int) -> None:
        """Store the value of the record."""
        del offset
        assert producer is None, "transaction state is never written inside a transaction"
        assert isinstance(record.key, TransactionLogKey), record
        transactional_id = record.key.transactional_id
        if record.value is None:
            self.transactions.pop(transactional_id, None)
            return
        assert isinstance(record.value, TransactionLogValue), record
        self.transactions[transactional_id] = moves.of_record(record.value)

    def replay_marker(self, producer: Producer, *, commits: bool) -> None:
        """Do nothing: no transaction writes to this partition."""
        del producer, commits

    def validate(self) -> None:
        """Assert the invariants between events."""
        for transactional_id, now in self.transactions.items():
            assert transactional_id
            moves.validate(now)
        for transactional_id in self._awaited:
            waiting = self.transactions.get(transactional_id)
            assert waiting is None or not waiting.is_ending, (transactional_id, waiting)
        for transactional_id in self._adds.waiting_ids:
            assert self.transactions[transactional_id].is_ending, transactional_id

    # --- InitProducerId ---

    def _handle_init(self, request: InitProducerIdRequest, ticket: Ticket, now_ms: int) -> Outcome:
        transactional_id = request.transactional_id
        if not transactional_id:
            return answer(ticket, init_refused(ErrorCode.INVALID_REQUEST))
        if not 0 < request.transaction_timeout_ms <= self._settings.timeout_ms_max:
            return answer(ticket, init_refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
        if self._is_moving(transactional_id):
            return answer(ticket, init_refused(ErrorCode.CONCURRENT_TRANSACTIONS))
        now = self.transactions.get(transactional_id)
        if now is not None:
            return self._initialize(transactional_id, now, request, ticket, now_ms)

        def create(producer_id: int, later_ms: int) -> Outcome:
            new = moves.created(producer_id, request.transaction_timeout_ms, later_ms)
            return self._initialize(transactional_id, new, request, ticket, later_ms)

        return self._await_producer_id(
            transactional_id, create, Reply(ticket, init_refused(NO_ID_NOW))
        )

    def _initialize(
        self,
        transactional_id: str,
        now: Transaction,
        request: InitProducerIdRequest,
        ticket: Ticket,
        now_ms: int,
    ) -> Outcome:
        expected = None
        if request.producer_id != NO_PRODUCER_ID:
            expected = Producer(request.producer_id, request.producer_epoch)
        last_epoch = self._last_epochs.get(transactional_id, NO_PRODUCER_EPOCH)

        def start(producer_id: int, epoch: int, from_epoch: int, at_ms: int) -> Outcome:
            self._last_epochs[transactional_id] = from_epoch
            moved = moves.initialized(
                now, producer_id, epoch, request.transaction_timeout_ms, at_ms
            )
            return Outcome(
                records=(moves.record_of(transactional_id, moved),),
                replies=(
                    Reply(
                        ticket,
                        InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch),
                    ),
                ),
                is_revocable=True,
            )

        match decisions.on_init(now, last_epoch, expected):
            case ErrorCode() as code:
                return answer(ticket, init_refused(code))
            case NewEpoch() as new:
                return start(now.producer_id, new.producer_epoch, new.last_epoch, now_ms)
            case Step.ROTATE:
                from_epoch = NO_PRODUCER_EPOCH if expected is None else now.producer_epoch
                return self._await_producer_id(
                    transactional_id,
                    lambda producer_id, later_ms: start(producer_id, 0, from_epoch, later_ms),
                    Reply(ticket, init_refused(NO_ID_NOW)),
                )
            case _:
                # The client retries; then no transition is under way.
                reply = Reply(ticket, init_refused(ErrorCode.CONCURRENT_TRANSACTIONS))
                return self._fence(transactional_id, now, reply, now_ms)

    # --- EndTxn ---

    def _handle_end(
        self, asked: Asked, request: EndTxnRequest, ticket: Ticket, now_ms: int
    ) -> Outcome:
        transactional_id = request.transactional_id
        if not transactional_id:
            return answer(ticket, EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST))
        now = self.transactions.get(transactional_id)
        if now is None:
            return answer(ticket, EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        if transactional_id in self._awaited:
            return answer(ticket, EndTxnResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS))
        version = TRANSACTION_VERSION_2 if asked.api_version >= EPOCH_BUMP_END_VERSION else 0
        claimed = Producer(request.producer_id, request.producer_epoch)
        step = decisions.on_end(now, claimed, commits=request.committed, client_version=version)
        if isinstance(step, ErrorCode):
            return answer(ticket, EndTxnResponse(error_code=step))
        if step is Step.NOTHING:
            return answer(ticket, ended(now))

        def end(next_producer_id: int, at_ms: int) -> Outcome:
            return self._end(
                transactional_id,
                now,
                commits=request.committed,
                client_version=version,
                next_producer_id=next_producer_id,
                now_ms=at_ms,
                reply=lambda moved: Reply(ticket, ended(moves.completed(moved, at_ms))),
            )

        if version >= TRANSACTION_VERSION_2 and now.is_epoch_exhausted:
            return self._await_producer_id(
                transactional_id, end, Reply(ticket, EndTxnResponse(error_code=NO_ID_NOW))
            )
        return end(NO_PRODUCER_ID, now_ms)

    def _fence(
        self, transactional_id: str, now: Transaction, reply: Reply | None, now_ms: int
    ) -> Outcome:
        """Abort the open transaction, with an epoch that its producer does not have."""

        def end(next_producer_id: int, at_ms: int) -> Outcome:
            return self._end(
                transactional_id,
                now,
                commits=False,
                client_version=TRANSACTION_VERSION_2,
                next_producer_id=next_producer_id,
                now_ms=at_ms,
                reply=lambda _: reply,
            )

        if now.is_epoch_exhausted:
            return self._await_producer_id(transactional_id, end, reply)
        return end(NO_PRODUCER_ID, now_ms)

    def _end(
        self,
        transactional_id: str,
        now: Transaction,
        *,
        commits: bool,
        client_version: int,
        next_producer_id: int,
        now_ms: int,
        reply: Callable[[Transaction], Reply | None],
    ) -> Outcome:
        moved = moves.ending(
            now,
            commits=commits,
            client_version=client_version,
            next_producer_id=next_producer_id,
            now_ms=now_ms,
        )
        if client_version >= TRANSACTION_VERSION_2:
            self._last_epochs[transactional_id] = now.producer_epoch
        answered = reply(moved)
        return Outcome(
            records=(moves.record_of(transactional_id, moved),),
            replies=() if answered is None else (answered,),
            effects=(self._markers(transactional_id, moved),),
            is_revocable=True,
        )

    def _markers(self, transactional_id: str, now: Transaction) -> WriteMarkers:
        return WriteMarkers(
            transactional_id=transactional_id,
            producer_id=now.producer_id,
            producer_epoch=now.producer_epoch,
            coordinator_epoch=self._coordinator_epoch,
            commits=now.state is TransactionState.PREPARE_COMMIT,
            partitions=tuple(sorted(now.partitions)),
            transaction_version=now.client_version,
        )

    def _markers_written(self, effect: WriteMarkers, result: object, now_ms: int) -> Outcome:
        now = self.transactions.get(effect.transactional_id)
        if (
            now is None
            or not now.is_ending
            or self._markers(effect.transactional_id, now) != effect
        ):
            return NOTHING
        if isinstance(result, PenstockError):
            return Outcome(
                timers=(SetTimer(("markers", effect.transactional_id), MARKER_RETRY_MS),)
            )
        return self._complete(effect.transactional_id, now, now_ms)

    def _complete(self, transactional_id: str, now: Transaction, now_ms: int) -> Outcome:
        """All markers are written. If that cannot be stored, only storing it is retried."""
        moved = moves.completed(now, now_ms)
        adds = self._adds.completed(transactional_id, moved, now_ms)
        retry = SetTimer(("written", transactional_id), REFUSED_RETRY_MS)
        return Outcome(
            records=(moves.record_of(transactional_id, moved), *adds.records),
            replies=adds.replies,
            timers=adds.timers,
            then=lambda error: NOTHING if error is None else Outcome(timers=(*adds.timers, retry)),
        )

    # --- New producer ids ---

    def _is_moving(self, transactional_id: str) -> bool:
        """Whether a transition is under way, so that other requests must be retried."""
        now = self.transactions.get(transactional_id)
        return transactional_id in self._awaited or (now is not None and now.is_ending)

    def _await_producer_id(
        self, transactional_id: str, resume: Callable[[int, int], Outcome], refusal: Reply | None
    ) -> Outcome:
        assert transactional_id not in self._awaited, transactional_id
        self._awaited[transactional_id] = _Awaited(resume, refusal)
        return Outcome(effects=(NextProducerId(transactional_id),))

    def _go_on(self, transactional_id: str, result: object, now_ms: int) -> Outcome:
        awaited = self._awaited.pop(transactional_id)
        if isinstance(result, PenstockError):
            return NOTHING if awaited.refusal is None else Outcome(replies=(awaited.refusal,))
        assert isinstance(result, int), result
        return awaited.resume(result, now_ms)

    # --- Time ---

    def _abort_timed_out(self, now_ms: int) -> Outcome:
        late = self._late.find(self.transactions, self._awaited, now_ms)
        batch = upkeep.portion_of_late(late, TIMED_OUT_PER_BATCH_MAX)
        outcomes = [self._fence(name, now, None, now_ms) for name, now in batch]
        interval_ms = self._settings.timeout_check_interval_ms
        # A transition that needs a producer id has no record yet, and asks for one in any case.
        waiting = [outcome for outcome in outcomes if not outcome.records]
        instead = Outcome(
            timers=(SetTimer(TIMEOUTS, interval_ms),),
            effects=tuple(effect for outcome in waiting for effect in outcome.effects),
        )
        return Outcome(
            records=tuple(record for outcome in outcomes for record in outcome.records),
            timers=(SetTimer(TIMEOUTS, 0 if len(late) > len(batch) else interval_ms),),
            effects=tuple(effect for outcome in outcomes for effect in outcome.effects),
            then=lambda error: NOTHING if error is None else instead,
        )

    def _expire(self, now_ms: int) -> Outcome:
        updated_ms_max = now_ms - self._settings.id_expiration_ms
        expired = upkeep.expired(self.transactions, self._awaited, updated_ms_max)
        batch = upkeep.portion_of_expired(expired)
        interval_ms = self._settings.expiration_check_interval_ms

        def then(error: PenstockError | None) -> Outcome:
            if error is not None:
                return Outcome(timers=(SetTimer(EXPIRATIONS, interval_ms),))
            for transactional_id in batch:
                self._last_epochs.pop(transactional_id, None)
            return NOTHING

        return Outcome(
            records=tuple(
                StoredRecord(TransactionLogKey(transactional_id=transactional_id), None)
                for transactional_id in batch
            ),
            timers=(SetTimer(EXPIRATIONS, 0 if len(expired) > len(batch) else interval_ms),),
            then=then,
        )
