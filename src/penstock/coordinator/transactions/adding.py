"""Adds of partitions to transactions: checked, answered, or kept for a moment.

A producer's next transaction often arrives while the markers of its last one are being written.
Kafka answers CONCURRENT_TRANSACTIONS, and the client retries after a pause. Here such an add is
kept until the markers are written, and then goes into the log with the end of the last transaction;
one that waits too long gets Kafka's answer. Kept adds are NOT replicated: after a crash the client
asks again.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.coordinator.shard import (
    NOTHING,
    Asked,
    CancelTimer,
    Outcome,
    Producer,
    Reply,
    SetTimer,
    StoredRecord,
    Ticket,
)
from penstock.coordinator.transactions import decisions
from penstock.coordinator.transactions import transaction as moves
from penstock.coordinator.transactions.answers import add_answer, answer, verified
from penstock.coordinator.transactions.decisions import Step
from penstock.coordinator.transactions.transaction import TRANSACTION_VERSION_2, Transaction
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)

BATCHED_ADD_VERSION: Final = 4
"""Starting at this version of AddPartitionsToTxn, the sender uses transaction version 2."""
ADD_WAIT_MS: Final = 100
"""How long an add is kept: Kafka's brokers retry one for as long
(add.partitions.to.txn.retry.backoff.max.ms)."""
KEPT_PER_ID_MAX: Final = 64
"""A producer sends to a few partitions before it gets the first answer; the rest is retried."""


@dataclass(frozen=True, slots=True)
class Add:
    """One transaction's part of a request."""

    asks: AddPartitionsToTxnTransaction
    claimed: Producer
    partitions: frozenset[TopicPartition]
    client_version: int
    ticket: Ticket

    @property
    def transactional_id(self) -> str:
        """The transactional id of the add."""
        return self.asks.transactional_id

    def reply(self, code: ErrorCode) -> Reply:
        """Answer all partitions with the same code."""
        return Reply(self.ticket, add_answer(self.asks, code))


class Completion(NamedTuple):
    """The result for the kept adds of a transactional id when its last transaction is over."""

    records: tuple[StoredRecord, ...]
    replies: tuple[Reply, ...]
    timers: tuple[CancelTimer, ...]


def add_of(asked: Asked, request: AddPartitionsToTxnRequest, ticket: Ticket) -> Add:
    """The one add that a request has when it reaches a shard."""
    assert len(request.transactions) == 1, "the handler spreads a batch over the shards"
    asks = request.transactions[0]
    return Add(
        asks,
        Producer(asks.producer_id, asks.producer_epoch),
        frozenset(
            TopicPartition(topic.name, partition)
            for topic in asks.topics
            for partition in topic.partitions
        ),
        TRANSACTION_VERSION_2 if asked.api_version >= BATCHED_ADD_VERSION else 0,
        ticket,
    )


class Adds:
    """The kept adds of one shard, and the handling of new ones."""

    def __init__(self) -> None:
        self._kept: dict[str, list[Add]] = {}

    def handle(
        self, add: Add, now: Transaction | None, *, is_awaited: bool, now_ms: int
    ) -> Outcome:
        """React to an add; `is_awaited`: a transition of the id waits for a producer id."""
        if not add.transactional_id:
            return Outcome(replies=(add.reply(ErrorCode.INVALID_REQUEST),))
        if now is None:
            return Outcome(replies=(add.reply(ErrorCode.INVALID_PRODUCER_ID_MAPPING),))
        if add.asks.verify_only:
            error = decisions.on_verify(now, add.claimed)
            return answer(add.ticket, verified(add.asks, error, now))
        if is_awaited:
            return Outcome(replies=(add.reply(ErrorCode.CONCURRENT_TRANSACTIONS),))
        if now.is_ending:
            return self._keep(add, now, now_ms)
        moved, reply = _applied(add, now, now_ms)
        if moved is now:
            return Outcome(replies=(reply,))
        record = moves.record_of(add.transactional_id, moved)
        return Outcome(records=(record,), replies=(reply,), is_revocable=True)

    def _keep(self, add: Add, now: Transaction, now_ms: int) -> Outcome:
        kept = self._kept.get(add.transactional_id, [])
        after = moves.completed(now, now_ms)
        is_next = decisions.on_add(after, add.claimed, add.partitions) is Step.ADD
        if not is_next or len(kept) >= KEPT_PER_ID_MAX:
            return Outcome(replies=(add.reply(ErrorCode.CONCURRENT_TRANSACTIONS),))
        self._kept[add.transactional_id] = [*kept, add]
        if kept:
            return NOTHING
        return Outcome(timers=(SetTimer(("adds", add.transactional_id), ADD_WAIT_MS),))

    def completed(self, transactional_id: str, now: Transaction, now_ms: int) -> Completion:
        """The last transaction is over, and `now` is its end: continue with the kept adds."""
        kept = self._kept.pop(transactional_id, None)
        if kept is None:
            return Completion((), (), ())
        replies = []
        moved = now
        for add in kept:
            moved, reply = _applied(add, moved, now_ms)
            replies.append(reply)
        records = () if moved is now else (moves.record_of(transactional_id, moved),)
        return Completion(records, tuple(replies), (CancelTimer(("adds", transactional_id)),))

    def give_up(self, transactional_id: str) -> Outcome:
        """Answer the kept adds with CONCURRENT_TRANSACTIONS."""
        kept = self._kept.pop(transactional_id, [])
        return Outcome(replies=tuple(add.reply(ErrorCode.CONCURRENT_TRANSACTIONS) for add in kept))

    @property
    def waiting_ids(self) -> frozenset[str]:
        """Transactional ids that have kept adds."""
        return frozenset(self._kept)


def _applied(add: Add, now: Transaction, now_ms: int) -> tuple[Transaction, Reply]:
    match decisions.on_add(now, add.claimed, add.partitions):
        case ErrorCode() as code:
            return now, add.reply(code)
        case Step.NOTHING:
            return now, add.reply(ErrorCode.NONE)
    moved = moves.with_partitions(now, add.partitions, add.client_version, now_ms)
    return moved, add.reply(ErrorCode.NONE)
