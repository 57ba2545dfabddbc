"""TxnOffsetCommit: offsets that count when the producer's transaction commits.

The transaction's coordinator is asked first (KIP-890): up to version 4 whether the transaction has
the group's partition, since version 5 to add it. Then the group's coordinator stores the offsets.
Topics that the client may not read and partitions that do not exist are refused one by one; the
others are committed.
"""

from dataclasses import replace
from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of
from penstock.broker.pacing.slices import NextTurn
from penstock.broker.pieces import PIECE_PARTITIONS, join_topics, pieces
from penstock.broker.producing.transaction_check import Claim, TransactionCheck
from penstock.core.errors import PenstockError
from penstock.core.limits import OFFSETS_PER_COMMIT_MAX
from penstock.core.types import OFFSETS_TOPIC
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from penstock.security.acls.values import Operation, ResourceType

IMPLICIT_ADD_VERSION: Final = 5
"""Starting at this version the client uses transaction version 2 and sends no AddOffsetsToTxn."""
ABORTABLE_VERSION: Final = 4
"""The first version whose clients know TRANSACTION_ABORTABLE."""
LOADING_VERSION: Final = 2
"""The first version whose clients know COORDINATOR_LOAD_IN_PROGRESS."""
NO_SEQUENCE: Final = -1
"""Offsets are written without sequence numbers."""
_AS_COORDINATORS_SAY: Final = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""Errors of the log, as codes that make the client look for its coordinator."""


async def handle(
    request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    """Verify the transaction, then commit the offsets of existing partitions."""
    count = sum(len(topic.partitions) for topic in request.topics)
    code = _denial(request, context)
    if code is ErrorCode.NONE and count > OFFSETS_PER_COMMIT_MAX:
        code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    if count <= PIECE_PARTITIONS:
        is_refused = code is not ErrorCode.NONE
        return _merged(request, {}, code=code) if is_refused else await _commit(request, context)
    topics: list[TxnOffsetCommitResponseTopic] = []
    turn = NextTurn(context.services.turns, context.services.clock)
    for few in pieces(request.topics):
        piece = replace(request, topics=few)
        if code is not ErrorCode.NONE:
            found = _merged(piece, {}, code=code)
        else:
            found = await _commit(piece, context)
        topics += found.topics
        await turn.wait_if_due()
    return TxnOffsetCommitResponse(topics=join_topics(topics))


def _denial(request: TxnOffsetCommitRequest, context: RequestContext) -> ErrorCode:
    """The reason why the client may commit nothing for this group; `NONE` if it may."""
    name = request.transactional_id
    if not context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


async def _commit(
    request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    known, refused = _sorted_out(request, context)
    if not known:
        return _merged(request, refused)
    code = await _verified(request, context)
    if code is not ErrorCode.NONE:
        return _merged(request, refused, code=_for_old_clients(code, context.api_version))
    answer = await context.services.coordinators.ask(
        "group", request.group_id, replace(request, topics=known), context
    )
    if isinstance(answer, PenstockError):
        code = _for_old_clients(code_of(answer), context.api_version)
        return _merged(request, refused, code=code)
    assert isinstance(answer, TxnOffsetCommitResponse)
    codes = {
        (topic.name, found.partition_index): found.error_code
        for topic in answer.topics
        for found in topic.partitions
    }
    return _merged(request, refused | codes)


_Codes = dict[tuple[str, int], ErrorCode]


def _sorted_out(
    request: TxnOffsetCommitRequest, context: RequestContext
) -> tuple[tuple[TxnOffsetCommitRequestTopic, ...], _Codes]:
    """The partitions to commit, and a code for each one that is denied or does not exist."""
    image = context.services.metadata.image
    refused: _Codes = {}
    for topic in request.topics:
        is_denied = not context.allows(Operation.READ, ResourceType.TOPIC, topic.name)
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            if is_denied:
                refused[key] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif image.partition(*key) is None:
                refused[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not refused:
        return request.topics, refused
    topics = (
        replace(
            topic,
            partitions=tuple(
                partition
                for partition in topic.partitions
                if (topic.name, partition.partition_index) not in refused
            ),
        )
        for topic in request.topics
    )
    return tuple(topic for topic in topics if topic.partitions), refused


async def _verified(request: TxnOffsetCommitRequest, context: RequestContext) -> ErrorCode:
    """Whether the transaction is open and has, or now has, the group's partition."""
    services = context.services
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    index = services.coordinators.partition_of("group", request.group_id)
    partition = services.replicas.find(OFFSETS_TOPIC, index)
    if partition is None:
        return ErrorCode.NOT_COORDINATOR
    check = TransactionCheck(
        context,
        Claim(request.transactional_id, request.producer_id, request.producer_epoch),
        adds=context.api_version >= IMPLICIT_ADD_VERSION,
    )
    if check.begin({partition: NO_SEQUENCE}):
        await check.ask()
    code = check.errors.get(partition, ErrorCode.NONE)
    return _AS_COORDINATORS_SAY.get(code, code)


def _for_old_clients(code: ErrorCode, version: int) -> ErrorCode:
    is_loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if is_loading and version < LOADING_VERSION:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _merged(
    request: TxnOffsetCommitRequest, codes: _Codes, *, code: ErrorCode = ErrorCode.NONE
) -> TxnOffsetCommitResponse:
    """The answer in the order of the request; `code` is for partitions without one."""
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes.get((topic.name, partition.partition_index), code),
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )
