"""`PushQueues`: creates the members of share groups for push subscriptions with mode queue.

The subscriptions of a topic without a mode follow its routing (`penstock.routing`). A subscriber
is a member of its own: records are locked for it alone, and other members of the group, push
subscribers or Kafka's share consumers, get other records.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from penstock.broker.context import BrokerServices, RequestContext
from penstock.broker.handlers import share_group_heartbeat
from penstock.broker.pieces import settled
from penstock.cluster.configs.topic_routing import topic_routing
from penstock.cluster.image import TopicImage
from penstock.edge.push.reactions import OpenedTopic
from penstock.node.push.push_elsewhere import check_coordinator
from penstock.node.push.push_refusals import refused
from penstock.node.push.queue_heartbeats import QueueHeartbeats
from penstock.node.push.queue_member import NodeQueueMember
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from penstock.protocol.push.payloads import Refusal, SubscribeRequest

HEARTBEAT_VERSION: Final = 1
ContextOf = Callable[[ApiKey, int], RequestContext]


class PushQueues:
    """Queue subscriptions of push on one broker."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    def group_of(self, request: SubscribeRequest) -> str | None:
        """Return the share group of a queue subscription; None: the subscription is fanout."""
        if request.publish or request.mode == "fanout":
            return None
        if request.mode is None:
            topic = self._services.metadata.image.topic(request.topic)
            if topic is None or not topic_routing(topic.settings).is_queue:
                return None
        return request.group or request.topic

    async def join(
        self,
        request: SubscribeRequest,
        group: str,
        topic: TopicImage,
        opened: OpenedTopic,
        context_of: ContextOf,
        may_read: Callable[[], bool],
        lost: Callable[[Refusal], None],
    ) -> NodeQueueMember:
        """Return a new member of a share group; raise `PushRefusedError`."""
        shares = self._services.shares
        if shares is None:
            raise refused(ErrorCode.UNSUPPORTED_VERSION, "share groups are not enabled")
        self._check(request)
        groups = shares.get()
        if len(groups.sessions) >= groups.sessions.sessions_max:
            raise refused(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"this broker has {groups.sessions.sessions_max} share sessions, which is the "
                "limit (groups.share_sessions_max)",
            )
        services, name = self._services, topic.name
        error = await services.coordinators.ensure_topic("group")
        if error is not None:
            raise refused(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group} cannot be joined: {error}"
            )
        check_coordinator(services, group)

        def here() -> frozenset[int]:
            current = services.metadata.image.topic(name)
            if current is None or current.id != topic.id:
                return frozenset()
            found = (services.replicas.find(name, one) for one in range(len(current.partitions)))
            return frozenset(
                one.name.partition for one in found if one is not None and one.state.is_leader
            )

        member = NodeQueueMember(group, topic.id, opened, groups, context_of, here, may_read, lost)
        member.heartbeats = QueueHeartbeats(
            group,
            member.id,
            name,
            self._heartbeat(context_of),
            services.tasks.start,
            member.report_lost,
        )
        try:
            await member.heartbeats.join()
            await member.open(lambda one: services.replicas.find(name, one))
        except BaseException:
            member.leave()
            raise
        return member

    @staticmethod
    def _check(request: SubscribeRequest) -> None:
        if request.format == "batch":
            raise refused(
                ErrorCode.INVALID_REQUEST,
                "a queue delivers record by record, so 'format' batch is not possible",
            )
        if request.start is not None:
            raise refused(
                ErrorCode.INVALID_REQUEST,
                "a queue has no positions, so 'from' is not possible; set share.auto.offset.reset "
                "of the group",
            )

    @staticmethod
    def _heartbeat(
        context_of: ContextOf,
    ) -> Callable[[ShareGroupHeartbeatRequest], Awaitable[ShareGroupHeartbeatResponse]]:
        async def send(request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
            context = context_of(ApiKey.SHARE_GROUP_HEARTBEAT, HEARTBEAT_VERSION)
            answer = await settled(share_group_heartbeat.handle(request, context))
            if isinstance(answer, ShareGroupHeartbeatResponse):
                return answer
            return ShareGroupHeartbeatResponse(
                error_code=ErrorCode.UNKNOWN_SERVER_ERROR, member_epoch=0, heartbeat_interval_ms=0
            )

        return send
