"""InitProducerId: returns an id for an idempotent producer, or initializes a transactional one.

As in Kafka, a producer without a transactional id always gets a new id with epoch 0, also when it
names its former one: it bumps its own epoch (KIP-360). A transactional id is handled by its
coordinator. Permission to write to any topic is enough for a producer without a transactional id.
"""

from dataclasses import replace
from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.coordinator_requests import required
from penstock.core.errors import InvalidRequestError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.security.acls.values import Operation, ResourceType

FENCED_VERSION: Final = 4
"""The first version whose clients know PRODUCER_FENCED."""


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Return an unused producer id, or a transactional id's next epoch."""
    code = _denial(request, context)
    if code is not ErrorCode.NONE:
        return refuse(request, code, "")
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        raise InvalidRequestError("A producer id without an epoch, or an epoch without one.")
    if request.transactional_id is not None:
        return await _of_coordinator(request.transactional_id, request, context)
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE,
        producer_id=await context.services.producer_ids.next_id(),
        producer_epoch=0,
    )


def _denial(request: InitProducerIdRequest, context: RequestContext) -> ErrorCode:
    """The reason why the client may not have this producer id; `NONE` if it may."""
    name = request.transactional_id
    if name is None:
        is_allowed = context.allows_cluster(
            Operation.IDEMPOTENT_WRITE, is_logged=False
        ) or context.allows_any(Operation.WRITE, ResourceType.TOPIC)
        return ErrorCode.NONE if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    needed = [Operation.WRITE]
    if request.enable2_pc:
        needed.append(Operation.TWO_PHASE_COMMIT)
    if all(context.allows(one, ResourceType.TRANSACTIONAL_ID, name) for one in needed):
        return ErrorCode.NONE
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def _of_coordinator(
    transactional_id: str, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    if not transactional_id:
        raise InvalidRequestError("The transactional id is empty.")
    coordinators = context.services.coordinators
    found = await coordinators.ask("transaction", transactional_id, request, context)
    answer = required(found, InitProducerIdResponse)
    is_fenced = answer.error_code is ErrorCode.PRODUCER_FENCED
    if is_fenced and context.api_version < FENCED_VERSION:
        return replace(answer, error_code=ErrorCode.INVALID_PRODUCER_EPOCH)
    return answer


def refuse(
    _request: InitProducerIdRequest, code: ErrorCode, _message: str
) -> InitProducerIdResponse:
    """The answer without a producer id."""
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
