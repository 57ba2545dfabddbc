"""Heartbeat: keeps a classic member in its group; the answer says whether it must rejoin.

While the coordinator loads, every member gets a success, as in Kafka: the state is unknown, and an
error would only make it rejoin.
"""

from penstock.broker.answers import Answer
from penstock.broker.context import RequestContext
from penstock.broker.coordinator_requests import ask_group
from penstock.core.deferred import Deferred
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.security.acls.values import Operation, ResourceType


def handle(request: HeartbeatRequest, context: RequestContext) -> Answer | Deferred[Answer]:
    """Ask the group's coordinator."""
    if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    return ask_group(context, request.group_id, request, HeartbeatResponse, _refused)


def _refused(code: ErrorCode) -> HeartbeatResponse:
    is_loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else code)
