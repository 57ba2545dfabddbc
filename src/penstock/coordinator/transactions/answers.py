"""Answers of the transaction coordinator, built in one place.

Which answer is due is NOT decided here.
"""

from collections.abc import Callable
from typing import Final

from penstock.coordinator.shard import Outcome, Reply, Ticket
from penstock.coordinator.transactions.transaction import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
)
from penstock.core.types import TopicPartition
from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from penstock.protocol.messages.end_txn import EndTxnResponse
from penstock.protocol.messages.init_producer_id import InitProducerIdResponse

NO_ID_NOW: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
"""No producer id could be allocated: Kafka's answer, after which clients retry."""


def answer(ticket: Ticket, response: Message) -> Outcome:
    """Only an answer."""
    return Outcome(replies=(Reply(ticket, response),))


def init_refused(code: ErrorCode) -> InitProducerIdResponse:
    """No producer id."""
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )


def ended(rest: Transaction) -> EndTxnResponse:
    """Success, with the producer id and epoch for the producer's next transaction."""
    return EndTxnResponse(producer_id=rest.producer_id, producer_epoch=rest.producer_epoch)


def add_answer(asks: AddPartitionsToTxnTransaction, code: ErrorCode) -> AddPartitionsToTxnResponse:
    """The same code for every partition of one transaction."""
    return _add_answer(asks, lambda _: code)


def verified(
    asks: AddPartitionsToTxnTransaction, error: ErrorCode | None, now: Transaction
) -> AddPartitionsToTxnResponse:
    """Which of the partitions the transaction has; an error is the same for all."""
    if error is not None:
        return add_answer(asks, error)
    return _add_answer(
        asks,
        lambda partition: (
            ErrorCode.NONE if partition in now.partitions else ErrorCode.TRANSACTION_ABORTABLE
        ),
    )


def _add_answer(
    asks: AddPartitionsToTxnTransaction, code_of: Callable[[TopicPartition], ErrorCode]
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=(
            AddPartitionsToTxnResult(
                transactional_id=asks.transactional_id,
                topic_results=tuple(
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=tuple(
                            AddPartitionsToTxnPartitionResult(
                                partition_index=partition,
                                partition_error_code=code_of(TopicPartition(topic.name, partition)),
                            )
                            for partition in topic.partitions
                        ),
                    )
                    for topic in asks.topics
                ),
            ),
        )
    )
