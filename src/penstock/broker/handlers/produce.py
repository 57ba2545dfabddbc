"""Produce: validate each batch, append it, answer when it is committed.

The order is Kafka's: a batch that is refused changes nothing, and the others of the request go on.
An idempotent producer's repeated batch is answered with the offset it got the first time. With acks
1 or all the answer waits for the high watermark, which on one node is what is on disk; with acks 0
there is no answer, and an error closes the connection. A partition may be named once in a request:
the second batch of a pair could be acknowledged by the commit of the first.

The first batch of a transaction in a partition waits until the transaction's coordinator said that
it belongs there (`broker.transaction_check`); everything else never waits before it is appended.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final
from uuid import UUID

from penstock.broker.context import (
    CLOSE_CONNECTION,
    NO_ANSWER,
    TOPIC_ID_VERSION,
    Answer,
    BrokerServices,
    EncodedAnswer,
    RequestContext,
    WaitingAnswer,
)
from penstock.broker.error_mapping import code_of, message_of
from penstock.broker.transaction_check import TransactionCheck
from penstock.broker.transactional_produce import (
    append_transaction,
    is_transactional,
    unverified,
)
from penstock.core.deferred import Deferred
from penstock.core.errors import (
    DiskFullError,
    InvalidBatchError,
    InvalidTimestampError,
    InvalidTopicNameError,
    PenstockError,
    RecordsError,
    TooManyWaitersError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from penstock.core.limits import PRODUCE_WAIT_MS_MAX
from penstock.core.types import TopicPartition
from penstock.protocol.connection import Request
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock.protocol.single_produce import SingleProduce, read_single, single_answer
from penstock.records.batch import TRANSACTIONAL
from penstock.records.validation import UnfoldAllowance, validate_produced
from penstock.replication.manager import HostedPartition, ReplicaManager
from penstock.replication.waits import CommitWait
from penstock.storage.log_types import AppendInfo
from penstock.storage.open_transactions import NO_GUARD

ACKS_NONE: Final = 0
ACKS_ALLOWED: Final = (-1, 0, 1)

_Appended = dict[HostedPartition, int]
"""The partitions that this request names, each with the last offset appended or `_NOTHING`."""
_NOTHING: Final = -1
"""Below every high watermark, so it is not waited for."""
_EXPLAINED: Final = (
    DiskFullError,
    InvalidBatchError,
    InvalidTimestampError,
    InvalidTopicNameError,
    UnknownTopicOrPartitionError,
)
"""Errors whose text helps the client; of others it gets the code."""
_NOT_TRANSACTIONAL: Final = -1
"""Stands for a guard in requests that name no transactional id."""


def handle(request: ProduceRequest, context: RequestContext) -> Answer | Deferred[Answer]:
    """Append every batch of the request."""
    refusal = _refusal(request, context)
    if refusal is None and _has_transaction(request):
        return append_transaction(
            request.transactional_id,
            _batches(request, context),
            context,
            partial(_append_all, request, context),
        )
    return _append_all(request, context, refusal, None)


def _has_transaction(request: ProduceRequest) -> bool:
    return any(
        data.records is not None and is_transactional(data.records)
        for topic in request.topic_data
        for data in topic.partition_data
    )


def _batches(
    request: ProduceRequest, context: RequestContext
) -> Iterator[tuple[HostedPartition | None, memoryview]]:
    for topic in request.topic_data:
        name, _ = _topic_name(topic, context)
        for data in topic.partition_data:
            partition = context.services.replicas.find(name, data.index)
            yield partition, memoryview(data.records or b"")


def _append_all(
    request: ProduceRequest,
    context: RequestContext,
    refusal: PenstockError | ErrorCode | None,
    check: TransactionCheck | None,
) -> Answer | Deferred[Answer]:
    appended: _Appended = {}
    allowance = UnfoldAllowance()
    has_error = False
    topics: list[tuple[str, TopicProduceData, list[PartitionProduceResponse]]] = []
    for topic in request.topic_data:
        name, error = _topic_name(topic, context)
        results = []
        for data in topic.partition_data:
            result = _append(name, data, refusal or error, context, appended, allowance, check)
            has_error = has_error or result.error_code != ErrorCode.NONE
            results.append(result)
        topics.append((name, topic, results))
    if request.acks == ACKS_NONE:
        return CLOSE_CONNECTION if has_error else NO_ANSWER
    pending = [
        (partition, last)
        for partition, last in appended.items()
        if last >= partition.state.high_watermark
    ]
    if not pending:
        return _response(topics, {}, context.services)
    return _when_committed(topics, pending, request.timeout_ms, context)


def _refusal(request: ProduceRequest, context: RequestContext) -> PenstockError | ErrorCode | None:
    """Why nothing of this request is taken, if so."""
    if request.acks not in ACKS_ALLOWED:
        return ErrorCode.INVALID_REQUIRED_ACKS
    return context.services.accepts_produce()


def _topic_name(
    topic: TopicProduceData, context: RequestContext
) -> tuple[str, PenstockError | None]:
    if context.api_version < TOPIC_ID_VERSION:
        return topic.name, None
    topic_id = topic.topic_id or UUID(int=0)
    image = context.services.metadata.image.topic_by_id(topic_id)
    if image is None:
        return "", UnknownTopicIdError(f"there is no topic with id {topic_id}")
    return image.name, None


def _append(
    topic: str,
    data: PartitionProduceData,
    refusal: PenstockError | ErrorCode | None,
    context: RequestContext,
    appended: _Appended,
    allowance: UnfoldAllowance,
    check: TransactionCheck | None,
) -> PartitionProduceResponse:
    if refusal is not None:
        return _refused(data.index, refusal, context.services)
    services = context.services
    try:
        partition = services.replicas.partition(TopicPartition(topic, data.index))
        if partition in appended:
            return _refused(data.index, ErrorCode.INVALID_REQUEST, services)
        if partition.is_internal:
            # Kafka lets the client id `__admin_client` write here, and any client can have it.
            raise InvalidTopicNameError(
                f"Cannot append to internal topic {topic}: only coordinators write to it"
            )
        # Before the batch is looked at: a refused one has cost time too.
        appended[partition] = _NOTHING
        if check is not None and partition in check.errors:
            told = unverified(data.index, check.errors[partition], context.api_version)
            services.refused_batches.count(told.error_code)
            return told
        records = _writable(data.records)
        info = _append_batch(
            partition,
            records,
            context.api_version,
            services,
            allowance,
            _NOT_TRANSACTIONAL if check is None else check.guards.get(partition, NO_GUARD),
        )
    except PenstockError as error:
        return _refused(data.index, error, services)
    if isinstance(info, ErrorCode):
        return _refused(data.index, info, services)
    appended[partition] = info.last_offset
    return PartitionProduceResponse(
        index=data.index,
        error_code=ErrorCode.NONE,
        base_offset=info.base_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
    )


def _append_batch(
    partition: HostedPartition,
    records: memoryview,
    api_version: int,
    services: BrokerServices,
    allowance: UnfoldAllowance | None,
    guard: int = _NOT_TRANSACTIONAL,
) -> AppendInfo | ErrorCode:
    """Validate and append; raises `PenstockError`."""
    batch = validate_produced(
        records,
        topic_limits=partition.rules,
        produce_version=api_version,
        now_ms=services.clock.now_ms(),
        allowance=allowance,
    )
    if guard == _NOT_TRANSACTIONAL:
        if batch.header.attributes & TRANSACTIONAL:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return services.replicas.append(partition, batch)
    return services.replicas.append(partition, batch, guard)


def _writable(records: bytes | bytearray | memoryview | None) -> memoryview:
    """The records as the frame holds them; null counts as empty, which validation refuses."""
    return records if isinstance(records, memoryview) else memoryview(bytearray(records or b""))


def _refused(
    index: int, refusal: PenstockError | ErrorCode, services: BrokerServices
) -> PartitionProduceResponse:
    """What the client is told of a batch that is not taken, or not known to be committed."""
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


def _when_committed(
    topics: list[tuple[str, TopicProduceData, list[PartitionProduceResponse]]],
    pending: list[tuple[HostedPartition, int]],
    timeout_ms: int,
    context: RequestContext,
) -> Answer | Deferred[Answer]:
    services = context.services
    wait = CommitWait(lambda: answer.set(_response(topics, wait.errors, services)))
    replicas = services.replicas
    answer = WaitingAnswer(_Commit(wait, replicas))
    try:
        replicas.wait_committed(wait, pending, min(max(0, timeout_ms), PRODUCE_WAIT_MS_MAX))
    except TooManyWaitersError as error:
        # As when time runs out: the records are appended, and nobody says that they are committed.
        return _response(topics, {partition.name: error for partition, _ in pending}, services)
    return answer


class _Commit:
    """`Waiter` of a produce whose records are not on the disk yet."""

    __slots__ = ("_replicas", "_wait")

    def __init__(self, wait: CommitWait, replicas: ReplicaManager) -> None:
        self._wait = wait
        self._replicas = replicas

    def abandon(self) -> None:
        """The client is gone. What it sent is kept."""
        self._replicas.waits.cancel(self._wait)

    def hurry(self) -> None:
        """There is no answer but the whole one, and it comes with the next sync."""


def handle_single(request: Request, services: BrokerServices) -> "_SingleOutcome":
    """As `handle`, for a request with one batch that may be taken; None for any other."""
    single = read_single(request.body, request.api_version)
    if single is None or single.acks not in ACKS_ALLOWED:
        return None
    partition = services.replicas.find(single.topic, single.partition)
    if partition is None or partition.is_internal or services.accepts_produce() is not None:
        return None
    try:
        info = _append_batch(
            partition,
            request.body[single.start : single.stop],
            request.api_version,
            services,
            UnfoldAllowance(),
        )
    except PenstockError as error:
        return _single_refused(single, error, services)
    if isinstance(info, ErrorCode):
        return _single_refused(single, info, services)
    if single.acks == ACKS_NONE:
        return NO_ANSWER
    answer = EncodedAnswer(
        single_answer(
            request.api_version,
            request.correlation_id,
            single.topic,
            single.partition,
            info.base_offset,
            info.log_append_time_ms,
            info.log_start_offset,
        )
    )
    if info.last_offset < partition.state.high_watermark:
        return answer
    return _single_when_committed(single, answer, partition, info.last_offset, services)


_SingleOutcome = Answer | Deferred[Answer] | None


def _single_refused(
    single: SingleProduce, refusal: PenstockError | ErrorCode, services: BrokerServices
) -> Answer:
    result = _refused(single.partition, refusal, services)
    if single.acks == ACKS_NONE:
        return CLOSE_CONNECTION
    name, topic_id = "", None
    if isinstance(single.topic, bytes):
        topic_id = UUID(bytes=single.topic)
    else:
        name = single.topic
    return ProduceResponse(
        responses=(
            TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=(result,)),
        )
    )


def _single_when_committed(
    single: SingleProduce,
    good: EncodedAnswer,
    partition: HostedPartition,
    last_offset: int,
    services: BrokerServices,
) -> Answer | Deferred[Answer]:
    def done() -> None:
        error = wait.errors.get(partition.name)
        answer.set(good if error is None else _single_refused(single, error, services))

    wait = CommitWait(done)
    answer = WaitingAnswer(_Commit(wait, services.replicas))
    timeout_ms = min(max(0, single.timeout_ms), PRODUCE_WAIT_MS_MAX)
    try:
        services.replicas.wait_committed(wait, [(partition, last_offset)], timeout_ms)
    except TooManyWaitersError as error:
        return _single_refused(single, error, services)
    return answer


def _response(
    topics: list[tuple[str, TopicProduceData, list[PartitionProduceResponse]]],
    errors: dict[TopicPartition, PenstockError],
    services: BrokerServices,
) -> ProduceResponse:
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
    return _refused(result.index, error, services)
