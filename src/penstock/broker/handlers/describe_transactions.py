"""DescribeTransactions: the state of some transactional ids.

Partitions of topics that the client may not describe are hidden.
"""

import asyncio
from dataclasses import replace

from penstock.broker.context import RequestContext
from penstock.broker.coordinator_requests import visible
from penstock.broker.error_mapping import code_of
from penstock.broker.pacing.slices import in_slices
from penstock.coordinator.transactions.listing import undescribed
from penstock.core.errors import PenstockError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from penstock.security.acls.values import Operation, ResourceType


async def handle(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """Ask the coordinator of each id."""
    services = context.services
    found: list[TransactionState] = []
    names = tuple(dict.fromkeys(request.transactional_ids))
    async for few in in_slices(names, services.turns, services.clock):
        found += await asyncio.gather(*(_describe(one, context) for one in few))
    return DescribeTransactionsResponse(transaction_states=tuple(found))


async def _describe(transactional_id: str, context: RequestContext) -> TransactionState:
    if not context.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return undescribed(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not transactional_id:
        return undescribed(transactional_id, ErrorCode.INVALID_REQUEST)
    answer = await context.services.coordinators.ask(
        "transaction",
        transactional_id,
        DescribeTransactionsRequest(transactional_ids=(transactional_id,)),
        context,
    )
    if isinstance(answer, PenstockError):
        return undescribed(transactional_id, code_of(answer))
    assert isinstance(answer, DescribeTransactionsResponse)
    found = answer.transaction_states[0]
    shown = await visible(context, ResourceType.TOPIC, found.topics, lambda one: one.topic)
    return found if len(shown) == len(found.topics) else replace(found, topics=tuple(shown))
