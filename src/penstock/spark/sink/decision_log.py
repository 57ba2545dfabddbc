"""`DecisionLog`: the decisions of one query in the decision topic.

Guarantees: `write` stores a decision durably or raises; after `take_ownership` no earlier owner can
write one, and each of their decisions is either committed or never will be. `read` returns every
decision that was committed before the call. These guarantees rest on Kafka's transactions: the
owner's transactional id is the same for every driver of the query, and a new owner fences the last
one.

A decision of another query that is being written in the same partition delays `read`, for a minute
at most: then the cluster aborts it. This module decides nothing: `sink.decisions` does.
`decision_topic` creates the topic.
"""

import time
from collections.abc import Callable, Collection, Iterator
from typing import Final

from penstock.client.calls import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from penstock.client.cluster import Cluster
from penstock.client.records.batch_sender import BatchSender
from penstock.client.records.partitioner import partition_of_key
from penstock.client.records.range_reader import RangeReader
from penstock.client.transactions.producer_transactions import VERSION_0, ProducerTransactions
from penstock.client.transactions.transaction_outcomes import REFUSALS, OpenTransaction
from penstock.client.transport.retries import Pauses
from penstock.core.errors import BrokerAnswerError, PenstockError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.records.builder import build_batch
from penstock.records.record import Record
from penstock.spark.decode.columns import BatchDecoder
from penstock.spark.sink.decision_topic import PARTITIONS
from penstock.spark.sink.errors import (
    DecisionTopicError,
    OwnershipForgottenError,
    OwnershipLostError,
)
from penstock.spark.sink.records import decision_record, done_record, fold
from penstock.spark.sink.steps import Decision, Ledger

OWNER_TIMEOUT_MS: Final = 60_000
"""A decision needs milliseconds. A dead driver's open decision delays readers for this time."""
STABLE_SECONDS_MAX: Final = 90.0
"""How long `read` waits for other queries' decisions: their timeout, and the cluster's delay."""

_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


class DecisionLog:
    """The log of one query, used by one thread."""

    def __init__(
        self,
        cluster: Cluster,
        transactions: ProducerTransactions,
        topic: str,
        *,
        query: str,
        id_prefix: str,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._transactions = transactions
        self._topic = topic
        self._query = query
        self.owner_id: Final = f"{id_prefix}.{query}.decisions"
        self._sleep = sleep
        self._at: TopicPartition | None = None
        self._owner: OpenTransaction | None = None
        self._sequence = 0

    def read(self) -> Ledger:
        """Return the current decisions of the query."""
        at = self._partition()
        end = self._look_up(at, LATEST_TIMESTAMP, is_read_committed=False)
        self._wait_until_stable(at, end)
        start = self._look_up(at, EARLIEST_TIMESTAMP, is_read_committed=False)
        return fold(self._query, self._records(at, start, end))

    def take_ownership(self) -> None:
        """Fence the previous owner of the log."""
        self._owner = self._transactions.begin(self.owner_id, OWNER_TIMEOUT_MS)
        self._sequence = 0

    def write(self, decision: Decision) -> None:
        """Store the decision as the owner; raise `OwnershipLostError` if it is not the owner.

        After any error it is unknown whether the decision is stored: a response may have been lost.
        """
        owner, at = self._owner, self._partition()
        assert owner is not None
        data = self._batch(decision_record(self._query, decision), owner)
        self._owner = None  # restored after success

        def join(partitions: Collection[TopicPartition]) -> None:
            self._transactions.add_partitions(owner, partitions)

        sender = BatchSender(
            self._cluster,
            transactional_id=owner.transactional_id,
            join=join if owner.version == VERSION_0 else None,
        )
        try:
            sender.send(at, data)
            sender.flush()
            after = self._transactions.end(owner, commits=True)
        except BrokerAnswerError as error:
            raise _ownership_problem(error, decision.batch_id) from error
        # A new epoch starts its sequence numbers at 0.
        is_same = after.producer_epoch == owner.producer_epoch
        self._sequence = self._sequence + 1 if is_same else 0
        self._owner = after

    def write_done(self, decision: Decision) -> None:
        """Record a completed decision; any process may call this, and a repetition is harmless."""
        sender = BatchSender(self._cluster)
        sender.send(self._partition(), self._batch(done_record(self._query, decision), None))
        sender.flush()

    def _partition(self) -> TopicPartition:
        if self._at is None:
            # Partitions that were added later must not separate a query from its decisions.
            count = min(len(self._cluster.topic(self._topic).partitions), PARTITIONS)
            number = partition_of_key(self._query.encode(), count)
            self._at = TopicPartition(self._topic, number)
        return self._at

    def _batch(self, record: tuple[bytes, bytes], owner: OpenTransaction | None) -> bytearray:
        key, value = record
        now_ms = self._cluster.clock.now_ms()
        records = [Record(offset=0, timestamp_ms=now_ms, key=key, value=value, headers=())]
        if owner is None:
            return build_batch(records)
        return build_batch(
            records,
            producer_id=owner.producer_id,
            producer_epoch=owner.producer_epoch,
            base_sequence=self._sequence,
            transactional=True,
        )

    def _look_up(self, at: TopicPartition, timestamp: int, *, is_read_committed: bool) -> int:
        found = self._cluster.look_up_offsets({at: timestamp}, is_read_committed=is_read_committed)
        return found[at].offset

    def _wait_until_stable(self, at: TopicPartition, end: int) -> None:
        pauses = Pauses(self._cluster.clock.monotonic() + STABLE_SECONDS_MAX)
        while self._look_up(at, LATEST_TIMESTAMP, is_read_committed=True) < end:
            pause = pauses.next_pause(self._cluster.clock.monotonic())
            if pause is None:
                raise DecisionTopicError(
                    f"a transaction holds up {at} for more than {STABLE_SECONDS_MAX:.0f} s, so "
                    "that the decisions of this query cannot be read. See who it is with "
                    f"`penstock txn hanging {at.topic}`, and abort it."
                )
            self._sleep(pause)

    def _records(
        self, at: TopicPartition, start: int, end: int
    ) -> Iterator[tuple[bytes | None, bytes | None]]:
        decoder = BatchDecoder(
            at.topic, at.partition, start, end, include_headers=False, is_read_committed=True
        )
        for fetched in RangeReader(self._cluster, at, start, end, is_read_committed=True):
            for rows in decoder.feed(fetched.data, fetched.aborted):
                yield from zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)
        for rows in decoder.finish():
            yield from zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)


def _ownership_problem(error: BrokerAnswerError, batch_id: int) -> PenstockError:
    """Return the owner's error for this response to its write or its commit."""
    code = ErrorCode(error.code)
    if code not in REFUSALS:
        return error
    if code in _FENCED:
        return OwnershipLostError(batch_id, error.name)
    return OwnershipForgottenError(batch_id, error.name)
