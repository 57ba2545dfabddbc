"""InitProducerId: an id for an idempotent producer.

As in Kafka, a producer without a transactional id always gets a new id with epoch 0, also when it
names its former one: it bumps its own epoch (KIP-360). A transactional id needs a transaction
coordinator, which this broker does not have: the client is told so at once instead of waiting for
one.
"""

from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of
from penstock.core.errors import PenstockError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)


async def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Give out a producer id that nobody had before."""
    if request.transactional_id is not None:
        code = (
            ErrorCode.UNSUPPORTED_VERSION if request.transactional_id else ErrorCode.INVALID_REQUEST
        )
        return _refused(code)
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return _refused(ErrorCode.INVALID_REQUEST)
    try:
        producer_id = await context.services.producer_ids.next_id()
    except PenstockError as error:
        return _refused(code_of(error))
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
