"""Heartbeat: a classic member lives, and hears whether it is to join again.

While the coordinator loads, every member is told that all is well, as in Kafka: nobody knows
better, and an error would only make it join again.
"""

from penstock.broker.context import Answer, RequestContext
from penstock.broker.group_requests import ask_group
from penstock.core.deferred import Deferred
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(request: HeartbeatRequest, context: RequestContext) -> Answer | Deferred[Answer]:
    """Ask the group's coordinator."""
    if not request.group_id:
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    return ask_group(context, request.group_id, request, HeartbeatResponse, _refused)


def _refused(code: ErrorCode) -> HeartbeatResponse:
    is_loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else code)
