"""ListGroups: the groups of every shard on this broker.

As in Kafka a shard that is not served here adds nothing, and one that still loads makes the whole
answer an error: a list that may lack groups would be wrong. A client that may not describe the
cluster gets the groups that it may describe.
"""

import asyncio

from penstock.broker.context import RequestContext
from penstock.broker.coordinator_requests import required, visible
from penstock.core.errors import NotCoordinatorError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from penstock.security.acls.values import Operation, ResourceType


async def handle(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """Ask every shard."""
    coordinators = context.services.coordinators
    results = await asyncio.gather(
        *(
            coordinators.ask_partition("group", partition, request, context)
            for partition in range(coordinators.partition_count("group"))
        )
    )
    groups: list[ListedGroup] = []
    for result in results:
        if not isinstance(result, NotCoordinatorError):
            groups += required(result, ListGroupsResponse).groups
    if not context.allows_cluster(Operation.DESCRIBE, is_logged=False):
        shown = await visible(context, ResourceType.GROUP, groups, lambda group: group.group_id)
        return ListGroupsResponse(groups=tuple(shown))
    return ListGroupsResponse(groups=tuple(groups))


def refuse(_request: ListGroupsRequest, code: ErrorCode, _message: str) -> ListGroupsResponse:
    """The answer without groups."""
    return ListGroupsResponse(error_code=code, groups=())
