"""ShareGroupHeartbeat: a member of a share group joins, stays and leaves (KIP-932).

A client that may not describe one of the topics in its subscription is refused. Checks have Kafka's
order.
"""

from collections.abc import Sequence
from typing import Final

from penstock.broker.answers import Answer
from penstock.broker.context import RequestContext
from penstock.broker.coordinator_requests import ask_group
from penstock.broker.pacing.slices import in_slices
from penstock.broker.pieces import promise, settled
from penstock.core.deferred import Deferred
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from penstock.security.acls.values import Operation, ResourceType

MEMBER_ID_CHARACTERS_MAX: Final = 36
"""The length of a UUID; Kafka refuses longer ids."""
NAMES_AT_ONCE_MAX: Final = 500
"""A longer subscription is checked in slices."""


def handle(
    request: ShareGroupHeartbeatRequest, context: RequestContext
) -> Answer | Deferred[Answer]:
    """Ask the group's coordinator."""
    if context.services.shares is None:
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        return _refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not 0 < len(request.member_id) <= MEMBER_ID_CHARACTERS_MAX:
        return _refused(ErrorCode.INVALID_REQUEST)
    if context.services.access is None:
        return _ask(request, context)
    names = tuple(dict.fromkeys(request.subscribed_topic_names or ()))
    if len(names) > NAMES_AT_ONCE_MAX:
        return promise(_ask_wide(request, names, context), context)
    if not _are_allowed(names, context):
        return _refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return _ask(request, context)


async def _ask_wide(
    request: ShareGroupHeartbeatRequest, names: Sequence[str], context: RequestContext
) -> Answer:
    """Check a subscription to very many topics, then ask."""
    services = context.services
    async for few in in_slices(names, services.turns, services.clock):
        if not _are_allowed(few, context):
            return _refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return await settled(_ask(request, context))


def _are_allowed(names: Sequence[str], context: RequestContext) -> bool:
    return all(context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names)


def _ask(request: ShareGroupHeartbeatRequest, context: RequestContext) -> Deferred[Answer]:
    return ask_group(context, request.group_id, request, ShareGroupHeartbeatResponse, _refused)


def _refused(code: ErrorCode) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=code, member_epoch=0, heartbeat_interval_ms=0)
