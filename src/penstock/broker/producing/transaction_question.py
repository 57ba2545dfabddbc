"""The question of a broker to a transaction coordinator before it appends.

One transaction of AddPartitionsToTxn as brokers send it, and the codes in its answer as producers
know them. It is NOT the handler of that request.
"""

from collections.abc import Iterable, Sequence

from penstock.core.types import TopicPartition
from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)


def question(
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    names: Iterable[TopicPartition],
    *,
    verifies_only: bool,
) -> AddPartitionsToTxnTransaction:
    """The question about one transaction."""
    topics: dict[str, list[int]] = {}
    for name in names:
        topics.setdefault(name.topic, []).append(name.partition)
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        verify_only=verifies_only,
        topics=tuple(
            AddPartitionsToTxnTopic(name=topic, partitions=tuple(partitions))
            for topic, partitions in topics.items()
        ),
    )


def codes_in(answer: Message, names: Sequence[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
    """The code of each partition."""
    assert isinstance(answer, AddPartitionsToTxnResponse)
    if answer.error_code is not ErrorCode.NONE:
        return dict.fromkeys(names, answer.error_code)
    return {
        TopicPartition(topic.name, found.partition_index): _as_producers_know_it(
            found.partition_error_code
        )
        for result in answer.results_by_transaction
        for topic in result.topic_results
        for found in topic.results_by_partition
    }


def _as_producers_know_it(code: ErrorCode) -> ErrorCode:
    """A fenced producer gets an epoch error: it may abort and go on, as Kafka answers."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
