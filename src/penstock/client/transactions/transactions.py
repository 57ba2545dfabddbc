"""`Transactions`: the transactions of a cluster, for administration.

A coordinator identifies a transaction by its transactional id, a partition by its producer. The two
can differ; then the partition's transaction hangs. It blocks all `read_committed` consumers until
it is aborted in the partition, with a marker that no coordinator writes any more.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from penstock.client.cluster import Cluster
from penstock.client.coordinators import Coordinator, CoordinatorKind, Coordinators
from penstock.client.transport.call import Call, raise_error
from penstock.core.errors import BrokerAnswerError, PenstockError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    describe_producers,
    describe_transactions,
    list_transactions,
    write_txn_markers,
)

NO_TIME: Final = -1
NO_OFFSET: Final = -1
OPEN_STATES: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""In these states the coordinator itself ends the transaction."""
COORDINATOR_EPOCH_FIRST: Final = 0
"""For a producer without an ended transaction here: not above any coordinator's epoch."""

DURATION_VERSION_MIN: Final = 1
"""The first version of ListTransactions with a duration filter (KIP-994, Kafka 3.8)."""

Result = TypeVar("Result")


class UnknownTransactionError(PenstockError):
    """No transaction has this id, or none begins at this offset."""

    def __init__(self, *words: object, transactional_id: str = "") -> None:
        super().__init__(*words)
        self.transactional_id = transactional_id
        """The requested id; empty when the request was for an offset."""


class ListedTransaction(NamedTuple):
    """One line of the list of transactions."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A coordinator's description of a transactional id."""

    transactional_id: str
    coordinator: Coordinator
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_at_ms: int | None
    """None while no transaction is open."""
    partitions: tuple[TopicPartition, ...]


class PartitionProducer(NamedTuple):
    """A partition's state of a producer that writes to it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    start_offset: int | None
    """The first offset of its open transaction, or None."""


class Transactions:
    """The transactions of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators(cluster, CoordinatorKind.TRANSACTION)

    def list_all(
        self,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        *,
        longer_than_ms: int = NO_TIME,
    ) -> list[ListedTransaction]:
        """Return every transactional id by name: each broker lists the ids that it coordinates.

        The coordinator measures the duration of a transaction, with the clock of its timeout.
        """
        request = list_transactions.ListTransactionsRequest(
            state_filters=tuple(states),
            producer_id_filters=tuple(producer_ids),
            duration_filter=longer_than_ms,
        )

        def attempt() -> list[ListedTransaction]:
            return [
                ListedTransaction(
                    one.transactional_id, broker_id, one.producer_id, one.transaction_state
                )
                for broker_id, address in self._cluster.brokers().items()
                for one in self._cluster.at(address, _listed(request))
            ]

        return sorted(self._cluster.repeat(attempt, repeatable=True))

    def describe(self, transactional_id: str) -> TransactionDescription:
        """Describe a transactional id; raise `UnknownTransactionError` when no producer has it."""
        try:
            found = self._coordinators.ask(
                transactional_id, _described(transactional_id), repeatable=True
            )
        except BrokerAnswerError as error:
            if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            raise UnknownTransactionError(
                f"transactional id {transactional_id!r} not found.",
                transactional_id=transactional_id,
            ) from error
        return TransactionDescription(
            transactional_id,
            self._coordinators.find(transactional_id),
            found.producer_id,
            found.producer_epoch,
            found.transaction_state,
            found.transaction_timeout_ms,
            None if found.transaction_start_time_ms < 0 else found.transaction_start_time_ms,
            tuple(
                sorted(
                    TopicPartition(topic.topic, partition)
                    for topic in found.topics
                    for partition in topic.partitions
                )
            ),
        )

    def producers(self, at: TopicPartition) -> list[PartitionProducer]:
        """Return the producers that a partition remembers, by id."""
        return self._at_leader(at, _producers(at), repeatable=True)

    def open_at(self, at: TopicPartition, start_offset: int) -> PartitionProducer:
        """Return the producer whose open transaction begins at this offset."""
        producers = self.producers(at)
        for producer in producers:
            if producer.start_offset == start_offset:
                return producer
        raise UnknownTransactionError(
            f"no open transaction begins at offset {start_offset} of {at}. " + _open_ones(producers)
        )

    def owner(self, producer_id: int, at: TopicPartition) -> TransactionDescription | None:
        """Return the producer's transaction here that a coordinator will end, or None.

        An open transaction without an owner hangs.
        """
        for listed in self.list_all(producer_ids=[producer_id]):
            try:
                found = self.describe(listed.transactional_id)
            except UnknownTransactionError:
                continue  # it expired since it was listed
            is_same = found.producer_id == producer_id and at in found.partitions
            if is_same and found.state in OPEN_STATES:
                return found
        return None

    def hanging(self, at: TopicPartition, *, silent_since_ms: int) -> list[PartitionProducer]:
        """Return producers with a hanging transaction here and no write since `silent_since_ms`."""
        return [
            one
            for one in self.producers(at)
            if one.start_offset is not None
            and one.last_timestamp_ms <= silent_since_ms
            and self.owner(one.producer_id, at) is None
        ]

    def abort(self, at: TopicPartition, producer: PartitionProducer) -> None:
        """Write the marker that ends this producer's transaction in this partition."""
        self._at_leader(at, _abort(at, producer), repeatable=False)

    def _at_leader(self, at: TopicPartition, call: Call[Result], *, repeatable: bool) -> Result:
        def attempt() -> Result:
            (leader,) = self._cluster.by_leader([at])
            return self._cluster.at(leader, call)

        return self._cluster.repeat(attempt, repeatable=repeatable)


def _listed(
    request: list_transactions.ListTransactionsRequest,
) -> Call[tuple[list_transactions.TransactionState, ...]]:
    def read(
        answer: list_transactions.ListTransactionsResponse,
    ) -> tuple[list_transactions.TransactionState, ...]:
        raise_error(answer.error_code, None, "listing transactions")
        return answer.transaction_states

    version_min = None if request.duration_filter == NO_TIME else DURATION_VERSION_MIN
    return Call(request, list_transactions.ListTransactionsResponse, read, version_min=version_min)


def _described(transactional_id: str) -> Call[describe_transactions.TransactionState]:
    request = describe_transactions.DescribeTransactionsRequest(
        transactional_ids=(transactional_id,)
    )

    def read(
        answer: describe_transactions.DescribeTransactionsResponse,
    ) -> describe_transactions.TransactionState:
        (found,) = answer.transaction_states
        raise_error(found.error_code, None, transactional_id)
        return found

    return Call(request, describe_transactions.DescribeTransactionsResponse, read)


def _producers(at: TopicPartition) -> Call[list[PartitionProducer]]:
    request = describe_producers.DescribeProducersRequest(
        topics=(describe_producers.TopicRequest(name=at.topic, partition_indexes=(at.partition,)),)
    )

    def read(answer: describe_producers.DescribeProducersResponse) -> list[PartitionProducer]:
        ((part,),) = (topic.partitions for topic in answer.topics)
        raise_error(part.error_code, part.error_message, str(at))
        return sorted(
            PartitionProducer(
                one.producer_id,
                one.producer_epoch,
                one.last_sequence,
                one.last_timestamp,
                one.coordinator_epoch,
                None if one.current_txn_start_offset == NO_OFFSET else one.current_txn_start_offset,
            )
            for one in part.active_producers
        )

    return Call(request, describe_producers.DescribeProducersResponse, read)


def _abort(at: TopicPartition, producer: PartitionProducer) -> Call[None]:
    marker = write_txn_markers.WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=(
            write_txn_markers.WritableTxnMarkerTopic(
                name=at.topic, partition_indexes=(at.partition,)
            ),
        ),
        coordinator_epoch=max(producer.coordinator_epoch, COORDINATOR_EPOCH_FIRST),
    )

    def read(answer: write_txn_markers.WriteTxnMarkersResponse) -> None:
        for result in answer.markers:
            for topic in result.topics:
                for part in topic.partitions:
                    raise_error(part.error_code, None, str(at))

    return Call(
        write_txn_markers.WriteTxnMarkersRequest(markers=(marker,)),
        write_txn_markers.WriteTxnMarkersResponse,
        read,
    )


def _open_ones(producers: Iterable[PartitionProducer]) -> str:
    offsets = sorted(one.start_offset for one in producers if one.start_offset is not None)
    if not offsets:
        return "None is open there."
    return f"Open ones begin at {', '.join(map(str, offsets))}."
