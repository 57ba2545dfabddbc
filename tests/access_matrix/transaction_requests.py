"""Requests of the matrix that are about transactions.

Requests that would change a transaction name a producer id that the coordinator does not know.
"""

from typing import Final

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message
from penstock.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    find_coordinator,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)
from tests.access_matrix.names import (
    FRESH_TRANSACTION,
    GROUP,
    MISSING_TRANSACTION,
    OTHER_TOPIC,
    OTHER_TRANSACTION,
    TOPIC,
    TRANSACTION,
    UNKNOWN_PRODUCER_ID,
    CaseList,
    World,
)

CASES: Final = CaseList()
TRANSACTION_KEY: Final = 1
OFFSETS_TOPIC: Final = "__consumer_offsets"


@CASES.add(ApiKey.FIND_COORDINATOR, 6, "transactions")
def find_transaction_coordinators(world: World) -> Message:
    return find_coordinator.FindCoordinatorRequest(
        key_type=TRANSACTION_KEY, coordinator_keys=(TRANSACTION, OTHER_TRANSACTION)
    )


@CASES.add(ApiKey.FIND_COORDINATOR, 3, "one transaction")
def find_transaction_coordinator(world: World) -> Message:
    return find_coordinator.FindCoordinatorRequest(key_type=TRANSACTION_KEY, key=TRANSACTION)


@CASES.add(ApiKey.INIT_PRODUCER_ID, 5, "transactional")
def initialize_transaction(world: World) -> Message:
    return init_producer_id.InitProducerIdRequest(
        transactional_id=FRESH_TRANSACTION, transaction_timeout_ms=60_000
    )


@CASES.add(ApiKey.INIT_PRODUCER_ID, 5, "other transactional id")
def initialize_other_transaction(world: World) -> Message:
    return init_producer_id.InitProducerIdRequest(
        transactional_id=OTHER_TRANSACTION, transaction_timeout_ms=60_000
    )


@CASES.add(ApiKey.INIT_PRODUCER_ID, 5, "idempotent")
def initialize_idempotent(world: World) -> Message:
    return init_producer_id.InitProducerIdRequest(transaction_timeout_ms=60_000)


def add_partitions(*topics: str) -> Message:
    """Return a request as a client sends it."""
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TRANSACTION,
        v3_and_below_producer_id=UNKNOWN_PRODUCER_ID,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=tuple(
            add_partitions_to_txn.AddPartitionsToTxnTopic(name=name, partitions=(0,))
            for name in topics
        ),
    )


@CASES.add(ApiKey.ADD_PARTITIONS_TO_TXN, 3, "one topic")
def add_one_topic(world: World) -> Message:
    return add_partitions(TOPIC)


@CASES.add(ApiKey.ADD_PARTITIONS_TO_TXN, 3, "two topics")
def add_two_topics(world: World) -> Message:
    return add_partitions(TOPIC, OTHER_TOPIC)


@CASES.add(ApiKey.ADD_PARTITIONS_TO_TXN, 3, "internal topic")
def add_internal_topic(world: World) -> Message:
    return add_partitions(TOPIC, OFFSETS_TOPIC)


@CASES.add(ApiKey.ADD_PARTITIONS_TO_TXN, 5, "as a broker")
def add_as_broker(world: World) -> Message:
    topic = add_partitions_to_txn.AddPartitionsToTxnTopic(name=TOPIC, partitions=(0,))
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        transactions=(
            add_partitions_to_txn.AddPartitionsToTxnTransaction(
                transactional_id=TRANSACTION,
                producer_id=UNKNOWN_PRODUCER_ID,
                producer_epoch=0,
                verify_only=True,
                topics=(topic,),
            ),
        )
    )


@CASES.add(ApiKey.ADD_OFFSETS_TO_TXN, 4)
def add_offsets(world: World) -> Message:
    return add_offsets_to_txn.AddOffsetsToTxnRequest(
        transactional_id=TRANSACTION,
        producer_id=UNKNOWN_PRODUCER_ID,
        producer_epoch=0,
        group_id=GROUP,
    )


@CASES.add(ApiKey.END_TXN, 5)
def end_transaction(world: World) -> Message:
    return end_txn.EndTxnRequest(
        transactional_id=TRANSACTION,
        producer_id=UNKNOWN_PRODUCER_ID,
        producer_epoch=0,
        committed=True,
    )


@CASES.add(ApiKey.TXN_OFFSET_COMMIT, 5)
def commit_in_transaction(world: World) -> Message:
    partition = txn_offset_commit.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=1
    )
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=TRANSACTION,
        group_id=GROUP,
        producer_id=UNKNOWN_PRODUCER_ID,
        producer_epoch=0,
        topics=tuple(
            txn_offset_commit.TxnOffsetCommitRequestTopic(name=name, partitions=(partition,))
            for name in (TOPIC, OTHER_TOPIC)
        ),
    )


@CASES.add(ApiKey.WRITE_TXN_MARKERS, 2)
def write_no_markers(world: World) -> Message:
    topic = write_txn_markers.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=(9,))
    return write_txn_markers.WriteTxnMarkersRequest(
        markers=(
            write_txn_markers.WritableTxnMarker(
                producer_id=UNKNOWN_PRODUCER_ID,
                producer_epoch=0,
                transaction_result=False,
                topics=(topic,),
                coordinator_epoch=0,
                transaction_version=2,
            ),
        )
    )


@CASES.add(ApiKey.DESCRIBE_TRANSACTIONS, 0)
def describe_all_transactions(world: World) -> Message:
    return describe_transactions.DescribeTransactionsRequest(
        transactional_ids=(TRANSACTION, OTHER_TRANSACTION, MISSING_TRANSACTION)
    )


@CASES.add(ApiKey.LIST_TRANSACTIONS, 2)
def list_all_transactions(world: World) -> Message:
    return list_transactions.ListTransactionsRequest()
