"""Produce: validate each batch, append it, answer when it is committed.

The order is Kafka's: a refused batch changes nothing, and the others of the request are appended.
An idempotent producer's repeated batch is answered with the offset it got the first time. With acks
all the answer waits for the high watermark: the records are on the disk of each in-sync replica,
and without enough of these the batch is refused. With acks 1 it waits for the leader's disk alone;
with acks 0 there is no answer, and an error closes the connection. A partition may be named once in
a request: the second batch of a pair could be acknowledged by the commit of the first.

A request that needs more than its share of a turn of the event loop is continued later, and large
compressed batches are checked by worker threads (`broker.producing.produce_run`).

The first batch of a transaction in a partition waits until the transaction's coordinator has
confirmed it (`broker.producing.transaction_check`).

A client needs WRITE on each topic. If any batch is transactional, it also needs WRITE on the
transactional id of the request, and a request without one is refused (CVE-2018-17196).
"""

from collections.abc import Iterator
from functools import partial
from typing import Final
from uuid import UUID

from penstock.broker.answers import (
    CLOSE_CONNECTION,
    NO_ANSWER,
    Answer,
    EncodedAnswer,
    WaitingAnswer,
)
from penstock.broker.context import BrokerServices, RequestContext
from penstock.broker.peer import Peer
from penstock.broker.producing.produce_answers import TopicResults, refused, response
from penstock.broker.producing.produce_run import (
    ACKS_ALL,
    ProduceRun,
    append_checked,
    explained,
    is_acknowledged,
)
from penstock.broker.producing.transaction_check import TransactionCheck
from penstock.broker.producing.transactional_produce import append_transaction, is_transactional
from penstock.broker.producing.writable_topics import writable_topic
from penstock.core.deferred import Deferred
from penstock.core.errors import PenstockError, TooManyWaitersError
from penstock.core.limits import PRODUCE_WAIT_MS_MAX
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.connection import Request
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.produce import (
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock.protocol.single_produce import SingleProduce, read_single, single_answer
from penstock.records.validation import HeavyBatchError, UnfoldAllowance, validate_produced
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.manager import ReplicaManager
from penstock.replication.waits import CommitWait
from penstock.security.acls.values import Operation, ResourceType

_PRODUCE: Final = ApiKey.PRODUCE
_WRITE: Final = Operation.WRITE
_TOPIC: Final = ResourceType.TOPIC
"""Names of this module: a look-up in an enumeration costs as much as the decision."""
ACKS_NONE: Final = 0
ACKS_ALLOWED: Final = (ACKS_ALL, 0, 1)


def handle(request: ProduceRequest, context: RequestContext) -> Answer | Deferred[Answer]:
    """Append every batch of the request."""
    append_all = partial(_append_all, request, context)
    if not _has_transaction(request):
        return append_all(None, None)
    transactional_id = request.transactional_id
    if transactional_id is None or not context.allows(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        return append_all(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, None)
    if _refusal(request, context) is not None:
        return append_all(None, None)
    return append_transaction(transactional_id, _batches(request, context), context, append_all)


def _has_transaction(request: ProduceRequest) -> bool:
    return any(
        data.records is not None and is_transactional(data.records)
        for topic in request.topic_data
        for data in topic.partition_data
    )


def _batches(
    request: ProduceRequest, context: RequestContext
) -> Iterator[tuple[HostedPartition | None, memoryview]]:
    """The batches for topics that the client may write to."""
    for topic in request.topic_data:
        name, error = writable_topic(topic, context, is_logged=False)
        if error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            continue
        for data in topic.partition_data:
            partition = context.services.replicas.find(name, data.index)
            yield partition, memoryview(data.records or b"")


def _append_all(
    request: ProduceRequest,
    context: RequestContext,
    refusal: ErrorCode | None,
    check: TransactionCheck | None,
) -> Answer | Deferred[Answer]:
    def conclude(run: ProduceRun) -> Answer | Deferred[Answer]:
        if request.acks == ACKS_NONE:
            return CLOSE_CONNECTION if run.has_error else NO_ANSWER
        pending = [
            (partition, last)
            for partition, last in run.appended.items()
            if not is_acknowledged(partition, last, request.acks)
        ]
        if not pending:
            return response(run.topics, {}, context.services)
        return _when_committed(run.topics, pending, request, context)

    return ProduceRun(
        request,
        context,
        refusal,
        check,
        conclude,
        later_refusal=_refusal(request, context) if check is None else None,
    ).start()


def _refusal(request: ProduceRequest, context: RequestContext) -> PenstockError | ErrorCode | None:
    """The error that refuses all batches which the client may write, if any."""
    if request.acks not in ACKS_ALLOWED:
        return ErrorCode.INVALID_REQUIRED_ACKS
    return context.services.accepts_produce()


def _when_committed(
    topics: list[TopicResults],
    pending: list[tuple[HostedPartition, int]],
    request: ProduceRequest,
    context: RequestContext,
) -> Answer | Deferred[Answer]:
    services, timeout_ms = context.services, request.timeout_ms
    wait = CommitWait(
        lambda: answer.set(response(topics, wait.errors, services)),
        is_local=request.acks != ACKS_ALL,
    )
    replicas = services.replicas
    answer = WaitingAnswer(_Commit(wait, replicas))
    try:
        replicas.wait_committed(wait, pending, min(max(0, timeout_ms), PRODUCE_WAIT_MS_MAX))
    except TooManyWaitersError as error:
        # As after a timeout: the records are appended, and not acknowledged as committed.
        return response(topics, {partition.name: error for partition, _ in pending}, services)
    return answer


class _Commit:
    """`Waiter` of a produce whose records are not on the disk yet."""

    __slots__ = ("_replicas", "_wait")

    def __init__(self, wait: CommitWait, replicas: ReplicaManager) -> None:
        self._wait = wait
        self._replicas = replicas

    def abandon(self) -> None:
        """The client has disconnected. Its records are kept."""
        self._replicas.waits.cancel(self._wait)

    def hurry(self) -> None:
        """Do nothing: there is no partial answer, and the next sync completes this one."""


def handle_single(request: Request, services: BrokerServices, peer: Peer) -> "_SingleOutcome":
    """As `handle`, for a request with one batch that may be appended; None for any other."""
    single = read_single(request.body, request.api_version)
    if single is None or single.acks not in ACKS_ALLOWED:
        return None
    partition = services.replicas.find(single.topic, single.partition)
    if partition is None or partition.is_reserved or services.accepts_produce() is not None:
        return None
    access, topic = services.access, partition.name.topic
    if access is not None and not access.allows(
        peer, _PRODUCE, _WRITE, _TOPIC, topic, is_logged=False
    ):
        return None  # `handle` denies it, and says so
    try:
        batch = validate_produced(
            request.body[single.start : single.stop],
            topic_limits=partition.rules,
            produce_version=request.api_version,
            now_ms=services.clock.now_ms(),
            allowance=UnfoldAllowance(),
            on_loop=True,
        )
        info = append_checked(partition, batch, services, single.acks)
    except PenstockError as error:
        records = request.body[single.start : single.stop]
        return _single_refused(
            single, explained(partition.name, records, error, services), services
        )
    except HeavyBatchError:
        return None
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
    if is_acknowledged(partition, info.last_offset, single.acks):
        return answer
    return _single_when_committed(single, answer, partition, info.last_offset, services)


_SingleOutcome = Answer | Deferred[Answer] | None


def _single_refused(
    single: SingleProduce, refusal: PenstockError | ErrorCode, services: BrokerServices
) -> Answer:
    result = refused(single.partition, refusal, services)
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

    wait = CommitWait(done, is_local=single.acks != ACKS_ALL)
    answer = WaitingAnswer(_Commit(wait, services.replicas))
    timeout_ms = min(max(0, single.timeout_ms), PRODUCE_WAIT_MS_MAX)
    try:
        services.replicas.wait_committed(wait, [(partition, last_offset)], timeout_ms)
    except TooManyWaitersError as error:
        return _single_refused(single, error, services)
    return answer
