"""ListTransactions: the transactional ids of this coordinator that match the filters.

Ids that the client may not describe are hidden.
"""

import asyncio

from penstock.broker.context import RequestContext
from penstock.broker.coordinator_requests import required, visible
from penstock.coordinator.transactions.listing import listed
from penstock.core.errors import NotCoordinatorError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from penstock.security.acls.values import ResourceType


async def handle(
    request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    """Ask every partition of the transaction log; one that loads makes the answer an error."""
    coordinators = context.services.coordinators
    answers = await asyncio.gather(
        *(
            coordinators.ask_partition("transaction", partition, request, context)
            for partition in range(coordinators.partition_count("transaction"))
        )
    )
    # Errors of the filters themselves are known without any coordinator.
    whole = listed(request, {}, 0)
    found: list[TransactionState] = []
    for result in answers:
        if isinstance(result, NotCoordinatorError):
            continue
        answer = required(result, ListTransactionsResponse)
        if answer.error_code is not ErrorCode.NONE:
            return answer
        found.extend(answer.transaction_states)
    shown = await visible(
        context, ResourceType.TRANSACTIONAL_ID, found, lambda one: one.transactional_id
    )
    return ListTransactionsResponse(
        error_code=whole.error_code,
        unknown_state_filters=whole.unknown_state_filters,
        transaction_states=tuple(shown),
    )


def refuse(
    _request: ListTransactionsRequest, code: ErrorCode, _message: str
) -> ListTransactionsResponse:
    """The answer without transactions."""
    return ListTransactionsResponse(error_code=code, transaction_states=())
