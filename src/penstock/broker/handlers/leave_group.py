"""LeaveGroup: removes members of a classic group, each with a result of its own."""

from typing import Final

from penstock.broker.answers import Answer
from penstock.broker.context import RequestContext
from penstock.broker.coordinator_requests import ask_group
from penstock.core.deferred import Deferred
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.security.acls.values import Operation, ResourceType

MEMBERS_SINCE: Final = 3
"""Before this version one member left at a time, and its code was the answer's."""


def handle(request: LeaveGroupRequest, context: RequestContext) -> Answer | Deferred[Answer]:
    """Ask the group's coordinator."""
    version = context.api_version

    def finish(response: LeaveGroupResponse) -> LeaveGroupResponse:
        if version >= MEMBERS_SINCE:
            return response
        codes = [response.error_code, *(member.error_code for member in response.members)]
        first = next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)
        return LeaveGroupResponse(error_code=first)

    if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        return _refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return _refused(ErrorCode.INVALID_GROUP_ID)
    return ask_group(context, request.group_id, request, LeaveGroupResponse, _refused, finish)


def _refused(code: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)
