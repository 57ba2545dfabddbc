"""StreamsGroupDescribe: answers that a group is not a streams group; there are none here.

Clients that look for a group of any type send this request too. StreamsGroupHeartbeat is not
served, so no group can become a streams group.
"""

import asyncio

from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of
from penstock.broker.pacing.slices import in_slices
from penstock.core.errors import PenstockError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from penstock.security.acls.values import Operation, ResourceType


async def handle(
    request: StreamsGroupDescribeRequest, context: RequestContext
) -> StreamsGroupDescribeResponse:
    """Say of each group that it does not exist, or that it is of another type."""
    services = context.services
    groups: list[DescribedGroup] = []
    async for few in in_slices(request.group_ids, services.turns, services.clock):
        groups += await asyncio.gather(*(_described(group_id, context) for group_id in few))
    return StreamsGroupDescribeResponse(groups=tuple(groups))


async def _described(group_id: str, context: RequestContext) -> DescribedGroup:
    if not context.allows(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        return _refused(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return _refused(group_id, ErrorCode.INVALID_GROUP_ID)
    exists = await _exists(group_id, context)
    if isinstance(exists, PenstockError):
        return _refused(group_id, code_of(exists))
    reason = "is not a streams group." if exists else "not found."
    return _refused(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}")


async def _exists(group_id: str, context: RequestContext) -> bool | PenstockError:
    ask = context.services.coordinators.ask
    consumer = await ask(
        "group",
        group_id,
        ConsumerGroupDescribeRequest(group_ids=(group_id,), include_authorized_operations=False),
        context,
    )
    if isinstance(consumer, PenstockError):
        return consumer
    assert isinstance(consumer, ConsumerGroupDescribeResponse)
    if consumer.groups[0].error_code is ErrorCode.NONE:
        return True
    classic = await ask("group", group_id, DescribeGroupsRequest(groups=(group_id,)), context)
    if isinstance(classic, PenstockError):
        return classic
    assert isinstance(classic, DescribeGroupsResponse)
    # In old versions of that API a group that does not exist is a dead one.
    found = classic.groups[0]
    return found.error_code is ErrorCode.NONE and found.group_state != "Dead"


def _refused(group_id: str, code: ErrorCode, message: str | None = None) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        topology=None,
        members=(),
    )
