"""Answers to producers: for a batch that is refused, and for all batches of a request."""

from typing import Final

from penstock.broker.context import BrokerServices
from penstock.broker.error_mapping import code_of, message_of
from penstock.core.errors import (
    DiskFullError,
    InvalidBatchError,
    InvalidTimestampError,
    InvalidTopicNameError,
    PenstockError,
    RecordsError,
    UnknownTopicOrPartitionError,
)
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

TopicResults = tuple[str, TopicProduceData, list[PartitionProduceResponse]]
"""A topic's name, its data in the request, and the results so far."""

_EXPLAINED: Final = (
    DiskFullError,
    InvalidBatchError,
    InvalidTimestampError,
    InvalidTopicNameError,
    UnknownTopicOrPartitionError,
)
"""Errors whose message is sent to the client; for others it gets only the code."""


def refused(
    index: int, refusal: PenstockError | ErrorCode, services: BrokerServices
) -> PartitionProduceResponse:
    """The answer for a batch that is refused, or not known to be committed."""
    if isinstance(refusal, ErrorCode):
        services.refused_batches.count(refusal)
        return PartitionProduceResponse(index=index, error_code=refusal, base_offset=-1)
    message: str | None = None
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = ()
    if isinstance(refusal, _EXPLAINED):
        message = message_of(refusal)
    if isinstance(refusal, RecordsError):
        record_errors = tuple(
            BatchIndexAndErrorMessage(batch_index=blamed, batch_index_error_message=fault)
            for blamed, fault in refusal.blamed
        )
    code = code_of(refusal)
    services.refused_batches.count(code, is_for_room=isinstance(refusal, DiskFullError))
    return PartitionProduceResponse(
        index=index,
        error_code=code,
        base_offset=-1,
        record_errors=record_errors,
        error_message=message,
    )


def response(
    topics: list[TopicResults],
    errors: dict[TopicPartition, PenstockError],
    services: BrokerServices,
) -> ProduceResponse:
    """The answer to all batches; `errors` has the batches that are not known to be committed."""
    responses = []
    for name, topic, appended in topics:
        results = appended
        if errors:
            results = [_with_error(name, result, errors, services) for result in appended]
        responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=tuple(results)
            )
        )
    return ProduceResponse(responses=tuple(responses))


def _with_error(
    topic: str,
    result: PartitionProduceResponse,
    errors: dict[TopicPartition, PenstockError],
    services: BrokerServices,
) -> PartitionProduceResponse:
    error = errors.get(TopicPartition(topic, result.index))
    if error is None or result.error_code != ErrorCode.NONE:
        return result
    return refused(result.index, error, services)
