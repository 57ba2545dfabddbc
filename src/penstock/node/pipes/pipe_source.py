"""`NodePipeSource`: implements `edge.pipes.http_ports.PipeSource` on this broker.

Guarantees: a client gets topics that it may READ, by the rules of Kafka's protocol, and never an
internal topic. Reads end at the high watermark, and count for the fetch quota of the user.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, cast

from penstock.broker.context import BrokerServices
from penstock.broker.peer import Peer
from penstock.broker.quotas.limit_table import QuotaClient
from penstock.core.errors import NotLeaderError, TooManyWaitersError
from penstock.core.types import INTERNAL_TOPICS, TopicPartition
from penstock.edge.pipes.down_pipe import NO_EPOCH, EpochEnd
from penstock.edge.pipes.http.http_ports import SourcePartition, SourceTopic
from penstock.protocol.api_keys import ApiKey
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.waits import FetchWait
from penstock.security.acls.values import Operation, ResourceType

CLIENT_ID: Final = "penstock-pipe"
"""The client id of children over HTTP, for quotas."""
CROWDED_SECONDS: Final = 1.0
"""Pause of a child that cannot wait for records, because too many clients wait: it would ask again
at once."""


class NodePipeSource:
    """`edge.pipes.http_ports.PipeSource`."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    def reader(self, client: object) -> str:
        """Return the name of a child, for `catch_up`."""
        peer = cast("Peer", client)
        return f"{peer.principal} {peer.address}"

    def _may_read(self, client: object, topic: str) -> bool:
        access = self._services.access
        return topic not in INTERNAL_TOPICS and (
            access is None
            or access.allows(
                cast("Peer", client), ApiKey.FETCH, Operation.READ, ResourceType.TOPIC, topic
            )
        )

    def topics(self, client: object, is_topic: Callable[[str], bool]) -> Sequence[SourceTopic]:
        """Return the topics that the client may read."""
        return [
            SourceTopic(
                name, topic.id, [one.leader_epoch for one in topic.partitions], topic.settings
            )
            for name, topic in self._services.metadata.image.topics.items()
            if is_topic(name) and self._may_read(client, name)
        ]

    def _find(self, topic: str, partition: int) -> HostedPartition | None:
        hosted = self._services.replicas.find(topic, partition)
        return hosted if hosted is not None and hosted.state.is_leader else None

    def partition(
        self, client: object, topic: str, partition: int, epoch: int
    ) -> SourcePartition | None:
        """Return a partition; None if it does not exist, or the client may not read it."""
        hosted = self._find(topic, partition)
        if hosted is None or not self._may_read(client, topic):
            return None
        end = hosted.end_offset_for_epoch(epoch) if epoch > NO_EPOCH else (NO_EPOCH, -1)
        return SourcePartition(
            hosted.topic_id,
            hosted.state.leader_epoch,
            hosted.log.log_start_offset,
            hosted.state.high_watermark,
            EpochEnd(*end),
        )

    async def read(self, topic: str, partition: int, offset: int, bytes_max: int) -> memoryview:
        """Read stored batches up to the high watermark."""
        hosted = self._find(topic, partition)
        if hosted is None:
            raise NotLeaderError(f"this broker does not lead {TopicPartition(topic, partition)}")
        services = self._services
        try:
            found = services.replicas.read(
                hosted,
                offset,
                bytes_max,
                current_leader_epoch=NO_EPOCH,
                last_fetched_epoch=NO_EPOCH,
                at_least_one=True,
            )
        except BlockingIOError:
            found = await services.cold_reader.read_cold(
                hosted,
                offset,
                bytes_max,
                current_leader_epoch=NO_EPOCH,
                last_fetched_epoch=NO_EPOCH,
                at_least_one=True,
                reads_committed=False,
            )
        services.replicas.fetched(hosted, len(found.records), None)
        return memoryview(found.records)

    async def wait(self, topic: str, partition: int, offset: int, seconds: float) -> None:
        """Wait until the high watermark is above the offset, or the time is over."""
        hosted = self._find(topic, partition)
        if hosted is None or hosted.state.high_watermark > offset:
            return
        news = asyncio.Event()
        wait = FetchWait(1, news.set)
        replicas = self._services.replicas
        try:
            is_parked = replicas.wait_bytes(wait, [hosted], round(seconds * 1_000))
        except TooManyWaitersError:
            is_parked = False
            await asyncio.sleep(min(seconds, CROWDED_SECONDS))
        if not is_parked:
            return
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await news.wait()
        finally:
            replicas.waits.cancel(wait)

    def charge(self, client: object, size_bytes: int) -> float:
        """Count bytes for the fetch quota of a client; return the seconds that it has to wait."""
        quotas = self._services.quotas
        if not quotas.is_active:
            return 0.0
        user = QuotaClient(cast("Peer", client).principal.name, CLIENT_ID)
        return quotas.fetch.charge(user, size_bytes, quotas.now_ms()) / 1_000

    def catch_up_max(self) -> int:
        """Return how many children may read old records at the same time."""
        return self._services.settings.edge.catch_up_max

    def monotonic(self) -> float:
        """Return the time in seconds."""
        return self._services.clock.monotonic()
