"""EndTxn: commit or abort. The answer is sent when the outcome is stored, before the markers."""

from dataclasses import replace
from typing import Final

from penstock.broker.answers import Answer
from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of
from penstock.core.deferred import Deferred
from penstock.core.errors import PenstockError
from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.security.acls.values import Operation, ResourceType

FENCED_VERSION: Final = 2
"""The first version whose clients know PRODUCER_FENCED."""


def handle(request: EndTxnRequest, context: RequestContext) -> Answer | Deferred[Answer]:
    """Ask the coordinator of the transactional id."""
    if not context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    waiting: Deferred[Answer] = Deferred()

    def answer(found: Message | PenstockError) -> None:
        if isinstance(found, PenstockError):
            waiting.set(EndTxnResponse(error_code=code_of(found)))
            return
        assert isinstance(found, EndTxnResponse)
        is_fenced = found.error_code is ErrorCode.PRODUCER_FENCED
        if is_fenced and context.api_version < FENCED_VERSION:
            found = replace(found, error_code=ErrorCode.INVALID_PRODUCER_EPOCH)
        waiting.set(found)

    coordinators = context.services.coordinators
    coordinators.submit("transaction", request.transactional_id, request, context).then(answer)
    return waiting
