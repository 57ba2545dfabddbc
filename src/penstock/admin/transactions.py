"""Transactions over HTTP: list, describe, producers of a partition, abort a hanging one.

A transaction that its coordinator knows is not aborted without `force`: the coordinator aborts it
itself after its timeout.
"""

from typing import Annotated, Final

from pydantic import Field

from penstock.admin.group_models import Place
from penstock.admin.model import (
    Answer,
    Input,
    Offset,
    Page,
    PartitionPath,
    TransactionalId,
)
from penstock.admin.operation import Asked, Operation, page
from penstock.admin.problems import refused
from penstock.client.cluster import Cluster
from penstock.client.transactions.transactions import PartitionProducer, Transactions

TAG: Final = "transactions"


class TransactionPath(Input):
    """A transactional id in the path."""

    transactional_id: TransactionalId


class TransactionSummary(Answer):
    """One transactional id of the list."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class TransactionPage(Answer):
    """One page of the transactional ids, by name."""

    transactions: list[TransactionSummary]
    next: Annotated[str | None, Field(description="`after` of the next page; null at the end.")]


class TransactionDetail(Answer):
    """What a coordinator knows of a transactional id."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_at_ms: Annotated[int | None, Field(description="Null while none is open.")]
    partitions: list[Place]


class Producer(Answer):
    """What a partition knows of a producer that writes to it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    start_offset: Annotated[int | None, Field(description="Of its open transaction, if any.")]


class ProducerList(Answer):
    """The producers that a partition remembers."""

    producers: list[Producer]


class AbortBody(Input):
    """Which transaction of a partition is aborted."""

    start_offset: Annotated[
        Offset, Field(description="Where it begins; the producers of the partition show it.")
    ]
    force: Annotated[bool, Field(description="Also when a coordinator knows it.")] = False


class Aborted(Answer):
    """The transaction that was aborted in one partition."""

    topic: str
    partition: int
    producer: Producer


def list_transactions(cluster: Cluster, asked: Asked) -> TransactionPage:
    """Return one page of the transactional ids."""
    found = Transactions(cluster).list_all()
    shown, following = page(found, lambda one: one.transactional_id, asked.query_as(Page))
    return TransactionPage(
        transactions=[
            TransactionSummary(
                transactional_id=one.transactional_id,
                coordinator=one.coordinator_id,
                producer_id=one.producer_id,
                state=one.state,
            )
            for one in shown
        ],
        next=following,
    )


def describe_transaction(cluster: Cluster, asked: Asked) -> TransactionDetail:
    """Return a transactional id."""
    found = Transactions(cluster).describe(asked.path_as(TransactionPath).transactional_id)
    return TransactionDetail(
        transactional_id=found.transactional_id,
        coordinator=found.coordinator.broker_id,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        state=found.state,
        timeout_ms=found.timeout_ms,
        started_at_ms=found.started_at_ms,
        partitions=[Place(topic=at.topic, partition=at.partition) for at in found.partitions],
    )


def list_producers(cluster: Cluster, asked: Asked) -> ProducerList:
    """Return the producers that a partition remembers."""
    path = asked.path_as(PartitionPath)
    (at,) = cluster.partitions_of(path.topic, [path.partition])
    return ProducerList(producers=[_producer(one) for one in Transactions(cluster).producers(at)])


def abort_transaction(cluster: Cluster, asked: Asked) -> Aborted:
    """Abort a hanging transaction in one partition."""
    path, body = asked.path_as(PartitionPath), asked.body_as(AbortBody)
    (at,) = cluster.partitions_of(path.topic, [path.partition])
    transactions = Transactions(cluster)
    producer = transactions.open_at(at, body.start_offset)
    owner = None if body.force else transactions.owner(producer.producer_id, at)
    if owner is not None:
        raise refused(
            409,
            "Not hanging",
            f"this transaction does not hang: it belongs to {owner.transactional_id}, which is "
            f"{owner.state}. Its coordinator aborts it after {owner.timeout_ms} ms.",
            "To abort this part of it anyway, set force.",
        )
    transactions.abort(at, producer)
    return Aborted(topic=at.topic, partition=at.partition, producer=_producer(producer))


def _producer(one: PartitionProducer) -> Producer:
    return Producer(
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        last_sequence=one.last_sequence,
        last_timestamp_ms=one.last_timestamp_ms,
        coordinator_epoch=one.coordinator_epoch,
        start_offset=one.start_offset,
    )


OPERATIONS: Final = (
    Operation(
        "GET",
        "/transactions",
        "listTransactions",
        "List the transactional ids",
        TAG,
        list_transactions,
        TransactionPage,
        query_model=Page,
    ),
    Operation(
        "GET",
        "/transactions/{transactional_id}",
        "describeTransaction",
        "Describe the transaction of a transactional id",
        TAG,
        describe_transaction,
        TransactionDetail,
        path_model=TransactionPath,
    ),
    Operation(
        "GET",
        "/topics/{topic}/partitions/{partition}/producers",
        "listProducers",
        "Show the producers of a partition and their open transactions",
        TAG,
        list_producers,
        ProducerList,
        path_model=PartitionPath,
    ),
    Operation(
        "POST",
        "/topics/{topic}/partitions/{partition}/transactions/abort",
        "abortTransaction",
        "Abort a transaction that hangs in a partition",
        TAG,
        abort_transaction,
        Aborted,
        path_model=PartitionPath,
        body_model=AbortBody,
    ),
)
"""The operations on transactions."""
