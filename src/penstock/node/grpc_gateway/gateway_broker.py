"""`NodeGatewayBroker`: `GatewayBroker` on this broker's services: push's, with topics and quotas.

Topics need DESCRIBE; one that the client may not describe looks as one that does not exist, as in
Kafka's Metadata. Quotas are those of Kafka clients with the client id `penstock-grpc`.
"""

import asyncio
from typing import Final, cast

from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of
from penstock.broker.peer import Peer
from penstock.broker.quotas.limit_table import QuotaClient
from penstock.cluster.image import TopicImage
from penstock.cluster.quota_entities import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from penstock.edge.grpc_gateway.gateway_messages import PartitionState, TopicState
from penstock.edge.push.ports import PushRefusedError
from penstock.node.push.push_broker import NodePushBroker
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.push.payloads import Refusal
from penstock.security.acls.values import Operation, ResourceType

CLIENT_ID: Final = "penstock-grpc"
METADATA_VERSION: Final = 12
_NOT_HERE: Final = -1
LOADING: Final = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE")
LOADING_TRIES: Final = 20
LOADING_PAUSE_SECONDS: Final = 0.1


class NodeGatewayBroker(NodePushBroker):
    """The broker behind the gateway; clients are `Peer`s."""

    async def commit(self, client: object, group: str, topic: str, offsets: dict[int, int]) -> None:
        """Commit offsets of a group; wait a moment for a coordinator that loads."""
        error = await self._services.coordinators.ensure_topic("group")
        if error is not None:
            code = code_of(error)
            message = f"group {group} cannot commit: {error}"
            raise PushRefusedError(Refusal(error=message, code=code.name, retriable=code.retriable))
        for left in reversed(range(LOADING_TRIES)):
            try:
                return await super().commit(client, group, topic, offsets)
            except PushRefusedError as refusal:
                if not left or refusal.refusal.code not in LOADING:
                    raise
            await asyncio.sleep(LOADING_PAUSE_SECONDS)
        raise AssertionError("the last try raises")

    def topic_states(self, client: object, names: list[str]) -> list[TopicState]:
        """Return topics by name."""
        context = self._context(client, ApiKey.METADATA, METADATA_VERSION)
        return [self._topic_state(context, name) for name in names]

    def _topic_state(self, context: RequestContext, name: str) -> TopicState:
        if not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            return TopicState(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED.name, b"", ())
        topic = self._services.metadata.image.topic(name)
        if topic is None:
            return TopicState(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name, b"", ())
        partitions = tuple(self._partition(topic, index) for index in range(len(topic.partitions)))
        return TopicState(name, "", topic.id.bytes, partitions)

    def _partition(self, topic: TopicImage, index: int) -> PartitionState:
        image, hosted = topic.partitions[index], self._replicas.find(topic.name, index)
        if hosted is None or not hosted.state.is_leader:
            return PartitionState(
                index,
                image.leader,
                image.leader_epoch,
                is_here=False,
                log_start_offset=_NOT_HERE,
                end_offset=_NOT_HERE,
            )
        return PartitionState(
            index,
            image.leader,
            hosted.state.leader_epoch,
            is_here=True,
            log_start_offset=hosted.log.log_start_offset,
            end_offset=hosted.last_stable_offset,
        )

    def produce_wait_seconds(self, client: object, size_bytes: int) -> float:
        """Charge the produce quota."""
        return self._charge(client, size_bytes, PRODUCER_BYTE_RATE)

    def fetch_wait_seconds(self, client: object, size_bytes: int) -> float:
        """Charge the fetch quota."""
        return self._charge(client, size_bytes, CONSUMER_BYTE_RATE)

    def _charge(self, client: object, size_bytes: int, kind: str) -> float:
        quotas = self._services.quotas
        if not quotas.is_active:
            return 0.0
        charged = QuotaClient(cast("Peer", client).principal.name, CLIENT_ID)
        quota = quotas.produce if kind == PRODUCER_BYTE_RATE else quotas.fetch
        wait_ms = quota.charge(charged, size_bytes, quotas.now_ms())
        if wait_ms:
            quotas.throttled(kind, wait_ms)
        return wait_ms / 1000
