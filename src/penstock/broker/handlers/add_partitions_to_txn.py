"""AddPartitionsToTxn: which partitions a transaction writes to.

Clients send one transaction (up to version 3); brokers send batches and may only verify (since
version 4). As in Kafka, one partition that does not exist, or that the client may not write to,
keeps all of its transaction from being added.

A wide request, of very many partitions or transactions, is handled in slices. A partition that it
names more than once is answered once, so that a coordinator gets no more partitions than exist.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Final

from penstock.broker.answers import Answer
from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of
from penstock.broker.pacing.slices import NextTurn
from penstock.broker.pieces import promise, settled
from penstock.core.deferred import Deferred
from penstock.core.errors import PenstockError
from penstock.core.types import INTERNAL_TOPICS
from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from penstock.security.acls.values import Operation, ResourceType

BATCH_VERSION: Final = 4
"""Starting at this version the request holds several transactions."""
TRANSACTIONS_AT_ONCE_MAX: Final = 50
"""A request with more transactions is handled in slices: each costs up to 20 microseconds."""
FENCED_VERSION: Final = 2
"""The first version whose clients know PRODUCER_FENCED."""
_DENIED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def handle(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> Answer | Deferred[Answer]:
    """Ask the coordinator of each transactional id; answer when all have answered."""
    is_batch = context.api_version >= BATCH_VERSION
    if is_batch and not context.allows_cluster(Operation.CLUSTER_ACTION):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asks = request.transactions if is_batch else (_lifted(request),)
    gathering = _Gathering(len(asks), is_batch=is_batch)
    if context.permit is not None or len(asks) > TRANSACTIONS_AT_ONCE_MAX:
        return promise(_add_wide(asks, gathering, context), context)
    for position, transaction in enumerate(asks):
        _add(transaction, position, gathering, context)
    return gathering.waiting


class _Gathering:
    """The answer to all transactions of a request; their results arrive one by one."""

    def __init__(self, count: int, *, is_batch: bool) -> None:
        self.waiting: Deferred[Answer] = Deferred()
        self._is_batch = is_batch
        self._results: list[AddPartitionsToTxnResult | None] = [None] * count
        self._missing = count
        if not count:
            self.waiting.set(AddPartitionsToTxnResponse())

    def put(self, position: int, result: AddPartitionsToTxnResult) -> None:
        """Add one result; the last one completes the answer."""
        self._results[position] = result
        self._missing -= 1
        if self._missing:
            return
        results = tuple(found for found in self._results if found is not None)
        self.waiting.set(
            AddPartitionsToTxnResponse(results_by_transaction=results)
            if self._is_batch
            else AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)
        )


def _lifted(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


async def _add_wide(
    asks: Sequence[AddPartitionsToTxnTransaction], gathering: _Gathering, context: RequestContext
) -> Answer:
    """`_add` for very many partitions or transactions, in slices."""
    turn = NextTurn(context.services.turns, context.services.clock)
    for position, asked in enumerate(asks):
        await turn.wait_if_due()
        transaction = await _each_once(asked, turn)
        codes: list[ErrorCode] = []
        if _is_denied(transaction, context):
            gathering.put(position, await _refusal_in_slices(transaction, repeat(_DENIED), turn))
            continue
        for code in _partition_codes(transaction, context):
            codes.append(code)
            await turn.wait_if_due()
        if any(codes):
            gathering.put(position, await _refusal_in_slices(transaction, codes, turn))
        else:
            _submit(transaction, position, gathering, context)
    turn.end()
    return await settled(gathering.waiting)


async def _each_once(
    transaction: AddPartitionsToTxnTransaction, turn: NextTurn
) -> AddPartitionsToTxnTransaction:
    """Return the transaction with each partition once, without topics that have none."""
    topics: dict[str, dict[int, None]] = {}
    for topic in transaction.topics:
        await turn.wait_if_due()
        for partition in topic.partitions:
            topics.setdefault(topic.name, {})[partition] = None
            await turn.wait_if_due()
    return replace(
        transaction,
        topics=tuple(
            AddPartitionsToTxnTopic(name=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
    )


async def _refusal_in_slices(
    transaction: AddPartitionsToTxnTransaction, codes: Iterable[ErrorCode], turn: NextTurn
) -> AddPartitionsToTxnResult:
    """`_result` of a refused transaction, for very many partitions."""
    topics: list[AddPartitionsToTxnTopicResult] = []
    code = iter(codes)
    for topic in transaction.topics:
        await turn.wait_if_due()
        results = []
        for partition in topic.partitions:
            results.append(_partition_result(partition, _not_attempted(next(code))))
            await turn.wait_if_due()
        topics.append(_topic_result(topic.name, results))
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id, topic_results=tuple(topics)
    )


def _not_attempted(code: ErrorCode) -> ErrorCode:
    """The code of a partition beside refused ones: the healthy ones are not tried."""
    return code or ErrorCode.OPERATION_NOT_ATTEMPTED


def _add(
    transaction: AddPartitionsToTxnTransaction,
    position: int,
    gathering: _Gathering,
    context: RequestContext,
) -> None:
    if _is_denied(transaction, context):
        gathering.put(position, _result(transaction, repeat(_DENIED)))
        return
    codes = list(_partition_codes(transaction, context))
    if any(codes):
        gathering.put(position, _result(transaction, map(_not_attempted, codes)))
    else:
        _submit(transaction, position, gathering, context)


def _submit(
    transaction: AddPartitionsToTxnTransaction,
    position: int,
    gathering: _Gathering,
    context: RequestContext,
) -> None:
    """Ask the coordinator to add partitions that all exist."""

    def answer(found: Message | PenstockError) -> None:
        if isinstance(found, PenstockError):
            gathering.put(position, _result(transaction, repeat(code_of(found))))
            return
        assert isinstance(found, AddPartitionsToTxnResponse)
        (result,) = found.results_by_transaction
        gathering.put(position, _for_old_clients(result, context.api_version))

    context.services.coordinators.submit(
        "transaction",
        transaction.transactional_id,
        AddPartitionsToTxnRequest(transactions=(transaction,)),
        context,
    ).then(answer)


def _is_denied(transaction: AddPartitionsToTxnTransaction, context: RequestContext) -> bool:
    """Whether a client may not use this transactional id; brokers may use each one."""
    return context.api_version < BATCH_VERSION and not context.allows(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id
    )


def _partition_codes(
    transaction: AddPartitionsToTxnTransaction, context: RequestContext
) -> Iterable[ErrorCode]:
    image = context.services.metadata.image
    is_client = context.api_version < BATCH_VERSION
    for topic in transaction.topics:
        known = image.topic(topic.name)
        is_mirror = known is not None and known.mirror is not None
        is_denied = is_client and (
            topic.name in INTERNAL_TOPICS
            or not context.allows(Operation.WRITE, ResourceType.TOPIC, topic.name)
        )
        for partition in topic.partitions:
            if is_denied:
                yield ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif image.partition(topic.name, partition) is None:
                yield ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                yield ErrorCode.POLICY_VIOLATION if is_mirror else ErrorCode.NONE


def _result(
    transaction: AddPartitionsToTxnTransaction, codes: Iterable[ErrorCode]
) -> AddPartitionsToTxnResult:
    code = iter(codes)
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=tuple(
            _topic_result(
                topic.name,
                (_partition_result(partition, next(code)) for partition in topic.partitions),
            )
            for topic in transaction.topics
        ),
    )


def _topic_result(
    name: str, results: Iterable[AddPartitionsToTxnPartitionResult]
) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(name=name, results_by_partition=tuple(results))


def _partition_result(partition: int, code: ErrorCode) -> AddPartitionsToTxnPartitionResult:
    return AddPartitionsToTxnPartitionResult(partition_index=partition, partition_error_code=code)


def _for_old_clients(result: AddPartitionsToTxnResult, version: int) -> AddPartitionsToTxnResult:
    if version >= FENCED_VERSION:
        return result
    return replace(
        result,
        topic_results=tuple(
            replace(
                topic,
                results_by_partition=tuple(
                    replace(found, partition_error_code=ErrorCode.INVALID_PRODUCER_EPOCH)
                    if found.partition_error_code is ErrorCode.PRODUCER_FENCED
                    else found
                    for found in topic.results_by_partition
                ),
            )
            for topic in result.topic_results
        ),
    )
