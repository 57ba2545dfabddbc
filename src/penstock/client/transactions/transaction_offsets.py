"""`TransactionOffsets`: commits a group's offsets within a transaction, for exactly-once copies.

The offsets become visible with the commit of the transaction and disappear with its abort, like its
records. The group must have no members: the caller reads without one. Both versions of the protocol
are supported: in version 2 the group's coordinator adds itself to the transaction, before that
AddOffsetsToTxn does. It belongs to one thread, and neither begins nor ends transactions.
"""

from collections.abc import Mapping
from typing import Final

from penstock.client.calls import by_topic
from penstock.client.cluster import Cluster
from penstock.client.coordinators import CoordinatorKind, Coordinators
from penstock.client.transactions.producer_transactions import VERSION_0
from penstock.client.transactions.transaction_outcomes import OpenTransaction
from penstock.client.transport.call import Call, raise_error
from penstock.core.types import TopicPartition
from penstock.protocol.messages import add_offsets_to_txn, txn_offset_commit

COMMIT_VERSION_MAX_0: Final = 4
"""TxnOffsetCommit 5 is version 2 of the protocol."""


class TransactionOffsets:
    """Offsets of groups in transactions of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._producers = Coordinators(cluster, CoordinatorKind.TRANSACTION)
        self._groups = Coordinators(cluster, CoordinatorKind.GROUP)

    def commit(
        self, transaction: OpenTransaction, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Add the offsets of a group without members to the transaction."""
        if transaction.version == VERSION_0:
            self._producers.ask(
                transaction.transactional_id, add_group_call(transaction, group_id), repeatable=True
            )
        self._groups.ask(group_id, commit_call(transaction, group_id, offsets), repeatable=True)


def add_group_call(transaction: OpenTransaction, group_id: str) -> Call[None]:
    """Add a group to a transaction of version 0."""
    request = add_offsets_to_txn.AddOffsetsToTxnRequest(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        group_id=group_id,
    )

    def read(answer: add_offsets_to_txn.AddOffsetsToTxnResponse) -> None:
        raise_error(answer.error_code, None, transaction.transactional_id)

    return Call(request, add_offsets_to_txn.AddOffsetsToTxnResponse, read)


def commit_call(
    transaction: OpenTransaction,
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    metadata: Mapping[TopicPartition, str] | None = None,
) -> Call[None]:
    """Commit offsets of a group in a transaction, each with a text of the caller."""
    texts = metadata or {}
    request = txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=transaction.transactional_id,
        group_id=group_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=tuple(
            txn_offset_commit.TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=tuple(
                    txn_offset_commit.TxnOffsetCommitRequestPartition(
                        partition_index=at.partition,
                        committed_offset=offsets[at],
                        committed_metadata=texts.get(at, ""),
                    )
                    for at in partitions
                ),
            )
            for topic, partitions in by_topic(offsets).items()
        ),
    )

    def read(answer: txn_offset_commit.TxnOffsetCommitResponse) -> None:
        for topic in answer.topics:
            for part in topic.partitions:
                at = TopicPartition(topic.name, part.partition_index)
                raise_error(part.error_code, None, f"{group_id}: {at}")

    version_max = COMMIT_VERSION_MAX_0 if transaction.version == VERSION_0 else None
    return Call(request, txn_offset_commit.TxnOffsetCommitResponse, read, version_max)
