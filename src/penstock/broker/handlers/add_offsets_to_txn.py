"""AddOffsetsToTxn: a transaction will commit offsets of a group.

It is the add of one partition, the one of `__consumer_offsets` that the group's offsets are in.
"""

from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.coordinator_requests import required
from penstock.core.errors import CoordinatorNotAvailableError, InvalidRequestError
from penstock.core.types import OFFSETS_TOPIC
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.security.acls.values import Operation, ResourceType

FENCED_VERSION: Final = 2
"""The first version whose clients know PRODUCER_FENCED."""
CLIENT_ADD_VERSION: Final = 3
"""The version of AddPartitionsToTxn that clients of this API would send."""


async def handle(
    request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    """Ask the coordinator of the transactional id to add the group's partition."""
    name = request.transactional_id
    if not context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return refuse(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "")
    if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        return refuse(request, ErrorCode.GROUP_AUTHORIZATION_FAILED, "")
    coordinators = context.services.coordinators
    if not request.transactional_id:
        raise InvalidRequestError("The transactional id is empty.")
    error = await coordinators.ensure_topic("group")
    if error is not None:
        raise CoordinatorNotAvailableError("The topic of offsets cannot be created.") from error
    partition = coordinators.partition_of("group", request.group_id)
    add = AddPartitionsToTxnRequest(
        transactions=(
            AddPartitionsToTxnTransaction(
                transactional_id=request.transactional_id,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                topics=(AddPartitionsToTxnTopic(name=OFFSETS_TOPIC, partitions=(partition,)),),
            ),
        )
    )
    as_client = context._replace(api_version=CLIENT_ADD_VERSION)
    found = await coordinators.ask("transaction", request.transactional_id, add, as_client)
    added = required(found, AddPartitionsToTxnResponse)
    code = added.results_by_transaction[0].topic_results[0].results_by_partition[0]
    return AddOffsetsToTxnResponse(
        error_code=_for_old_clients(code.partition_error_code, context.api_version)
    )


def refuse(
    _request: AddOffsetsToTxnRequest, code: ErrorCode, _message: str
) -> AddOffsetsToTxnResponse:
    """The answer with an error code."""
    return AddOffsetsToTxnResponse(error_code=code)


def _for_old_clients(code: ErrorCode, version: int) -> ErrorCode:
    is_fenced = code is ErrorCode.PRODUCER_FENCED
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced and version < FENCED_VERSION else code
