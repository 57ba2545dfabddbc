"""SyncGroup: the leader of a classic group sends the assignment, every member gets its own."""

from typing import Final

from penstock.broker.answers import Answer
from penstock.broker.context import RequestContext
from penstock.broker.coordinator_requests import ask_group
from penstock.core.deferred import Deferred
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.security.acls.values import Operation, ResourceType

PROTOCOL_SINCE: Final = 5
"""Starting at this version a request must name the protocol."""


def handle(request: SyncGroupRequest, context: RequestContext) -> Answer | Deferred[Answer]:
    """Ask the group's coordinator."""
    if context.api_version >= PROTOCOL_SINCE and not (
        request.protocol_type and request.protocol_name
    ):
        return _refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        return _refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return _refused(ErrorCode.INVALID_GROUP_ID)
    return ask_group(context, request.group_id, request, SyncGroupResponse, _refused)


def _refused(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=b"")
