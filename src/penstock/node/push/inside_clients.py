"""`InsideClients`: publish and subscribe for the process that has the broker.

Publishes share one session. Each subscription has its own, so that closing one commits its
acknowledged positions and touches no other.
"""

from penstock.broker.context import BrokerServices
from penstock.client.push.push_client import PushClient
from penstock.client.push.push_subscription import PushSubscription
from penstock.cluster.configs.topic_routing import FANOUT
from penstock.cluster.controller import NewTopic
from penstock.core.errors import PenstockError, TopicExistsError
from penstock.core.settings.topic_declarations import BUFFER_SIZE, ROUTING
from penstock.node.push.push_node import NodePush
from penstock.protocol.push.payloads import Mode, Start, Vector


class InsideClients:
    """The clients of one `BrokerServer`."""

    def __init__(self, push: NodePush, services: BrokerServices) -> None:
        self._push = push
        self._services = services
        self._publisher: PushClient | None = None

    def publisher(self) -> PushClient:
        """Return the client that all publishes share."""
        if self._publisher is None or self._publisher.is_closed:
            self._publisher = self._push.open_client()
        return self._publisher

    async def subscribe(
        self,
        topic: str,
        *,
        group: str | None,
        start: Start | Vector | None,
        credit: int,
        auto_ack: bool,
        mode: Mode | None = None,
    ) -> PushSubscription:
        """Return the records of a topic; closing the subscription ends its session."""
        client = self._push.open_client()
        try:
            subscription = await client.subscribe(
                topic, group=group, mode=mode, start=start, credit=credit, auto_ack=auto_ack
            )
        except BaseException:
            await client.close()
            raise
        subscription.on_close = client.close
        return subscription

    async def create_topic(
        self,
        name: str,
        partitions: int | None,
        routing: str = FANOUT,
        buffer_size: int | None = None,
    ) -> None:
        """Create a topic with the defaults of the broker, unless it exists."""
        count = partitions or self._services.settings.topic_defaults.partitions_default
        settings: dict[str, str | None] = {} if routing == FANOUT else {ROUTING: routing}
        if buffer_size is not None:
            settings[BUFFER_SIZE] = str(buffer_size)
        (outcome,) = await self._services.topics.create(
            [NewTopic(name=name, partition_count=count, settings=settings)], validate_only=False
        )
        if isinstance(outcome, PenstockError) and not isinstance(outcome, TopicExistsError):
            raise outcome
