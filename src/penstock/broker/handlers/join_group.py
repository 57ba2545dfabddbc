"""JoinGroup: a member joins a classic group. The answer waits until the group is complete."""

from dataclasses import replace
from typing import Final

from penstock.broker.answers import Answer
from penstock.broker.context import RequestContext
from penstock.broker.coordinator_requests import ask_group
from penstock.core.deferred import Deferred
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.security.acls.values import Operation, ResourceType

REBALANCE_TIMEOUT_SINCE: Final = 1
"""Before this version the session timeout was also the time to join again."""
NULL_PROTOCOL_SINCE: Final = 7
"""Before this version a group without a protocol had the empty one."""


def handle(request: JoinGroupRequest, context: RequestContext) -> Answer | Deferred[Answer]:
    """Ask the group's coordinator."""
    version = context.api_version

    def finish(response: JoinGroupResponse) -> JoinGroupResponse:
        if version < NULL_PROTOCOL_SINCE and response.protocol_name is None:
            return replace(response, protocol_name="")
        return response

    def refuse(code: ErrorCode) -> JoinGroupResponse:
        is_denied = code is ErrorCode.GROUP_AUTHORIZATION_FAILED
        member_id = "" if is_denied else request.member_id
        return finish(
            JoinGroupResponse(error_code=code, leader="", member_id=member_id, members=())
        )

    if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        return refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return refuse(ErrorCode.INVALID_GROUP_ID)
    if version < REBALANCE_TIMEOUT_SINCE:
        request = replace(request, rebalance_timeout_ms=request.session_timeout_ms)
    return ask_group(context, request.group_id, request, JoinGroupResponse, refuse, finish)
