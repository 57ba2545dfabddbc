"""InitProducerId: returns an id for an idempotent producer, or initializes a transactional one.

As in Kafka, a producer without a transactional id always gets a new id with epoch 0, also when it
names its former one: it bumps its own epoch (KIP-360). A transactional id is handled by its
coordinator.
"""

from dataclasses import replace
from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of
from penstock.core.errors import PenstockError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

FENCED_VERSION: Final = 4
"""The first version whose clients know PRODUCER_FENCED."""


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Return an unused producer id, or a transactional id's next epoch."""
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return await _of_coordinator(request.transactional_id, request, context)
    try:
        producer_id = await context.services.producer_ids.next_id()
    except PenstockError as error:
        return _refused(code_of(error))
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )


async def _of_coordinator(
    transactional_id: str, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    if not transactional_id:
        return _refused(ErrorCode.INVALID_REQUEST)
    coordinators = context.services.coordinators
    answer = await coordinators.ask("transaction", transactional_id, request, context)
    if isinstance(answer, PenstockError):
        return _refused(code_of(answer))
    assert isinstance(answer, InitProducerIdResponse)
    is_fenced = answer.error_code is ErrorCode.PRODUCER_FENCED
    if is_fenced and context.api_version < FENCED_VERSION:
        return replace(answer, error_code=ErrorCode.INVALID_PRODUCER_EPOCH)
    return answer


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
