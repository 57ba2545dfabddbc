"""ConsumerGroupHeartbeat: a member of a consumer group joins, stays and leaves (KIP-848)."""

from penstock.broker.answers import Answer
from penstock.broker.context import RequestContext
from penstock.broker.coordinator_requests import ask_group
from penstock.core.deferred import Deferred
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> Answer | Deferred[Answer]:
    """Ask the group's coordinator."""
    return ask_group(context, request.group_id, request, ConsumerGroupHeartbeatResponse, _refused)


def _refused(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, member_epoch=0, heartbeat_interval_ms=0)
