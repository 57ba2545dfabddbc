"""DeleteShareGroupOffsets: deletes the delivery state of topics of an empty share group (KIP-932).

The client needs DELETE on the group and READ on each topic. Topics that it may not read are refused
by name; the others are deleted.
"""

from dataclasses import replace

from penstock.broker.context import RequestContext
from penstock.broker.coordinator_requests import ask_groups
from penstock.broker.pacing.slices import NextTurn
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from penstock.security.acls.values import Operation, ResourceType

_TOPIC_DENIED = "Topic authorization failed."


async def handle(
    request: DeleteShareGroupOffsetsRequest, context: RequestContext
) -> DeleteShareGroupOffsetsResponse:
    """Ask the group's coordinator for the topics that the client may read."""
    if context.services.shares is None:
        return refuse(request, ErrorCode.UNSUPPORTED_VERSION, None)
    if not context.allows(Operation.DELETE, ResourceType.GROUP, request.group_id):
        return refuse(request, ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    turn = NextTurn(context.services.turns, context.services.clock)
    allowed, denied = [], []
    for topic in request.topics:
        await turn.wait_if_due()
        if context.allows(Operation.READ, ResourceType.TOPIC, topic.topic_name):
            allowed.append(topic)
        else:
            denied.append(
                DeleteShareGroupOffsetsResponseTopic(
                    topic_name=topic.topic_name,
                    topic_id=None,
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    error_message=_TOPIC_DENIED,
                )
            )
    (result,) = await ask_groups(
        context,
        [(request.group_id, replace(request, topics=tuple(allowed)))],
        DeleteShareGroupOffsetsResponse,
    )
    if isinstance(result, ErrorCode):
        return refuse(request, result, None)
    if result.error_code is not ErrorCode.NONE:
        return result
    return replace(result, responses=(*denied, *result.responses))


def refuse(
    _request: DeleteShareGroupOffsetsRequest, code: ErrorCode, message: str | None
) -> DeleteShareGroupOffsetsResponse:
    """The answer without topics."""
    return DeleteShareGroupOffsetsResponse(error_code=code, error_message=message, responses=())
