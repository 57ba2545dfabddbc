"""`FakeServices`: what a handler is given, over replicas whose disk and clock the test moves.

Only what Produce and Fetch touch is real; the rest refuses to be used.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import NoReturn
from uuid import UUID

from penstock.broker.context import BrokerServices, RequestContext
from penstock.broker.fetch_sessions import FetchSessionCache
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import MetadataImage
from penstock.core.errors import PenstockError
from penstock.core.settings import Settings
from penstock.replication.manager import HostedPartition, PartitionRead
from penstock.storage.log_types import TimestampAndOffset
from tests.replication.replicas import Node
from tests.storage.logs import Clock


class Nobody:
    """Ports that these tests have no use for."""

    image = MetadataImage()

    async def create(self, topics: Sequence[NewTopic], *, validate_only: bool) -> NoReturn:
        raise AssertionError("not used here")

    async def delete(self, topic_ids: Sequence[UUID]) -> NoReturn:
        raise AssertionError("not used here")

    async def next_id(self) -> NoReturn:
        raise AssertionError("not used here")

    async def find_by_time(
        self, partition: HostedPartition, timestamp_ms: int | None
    ) -> TimestampAndOffset | None:
        raise AssertionError("not used here")


class ColdDisk(Nobody):
    """A reader of cold data that answers or fails as the test says."""

    def __init__(self) -> None:
        self.outcome: PartitionRead | Exception = PartitionRead(0, 0, b"")

    async def read_cold(
        self,
        partition: HostedPartition,
        offset: int,
        bytes_max: int,
        *,
        current_leader_epoch: int,
        last_fetched_epoch: int,
        at_least_one: bool,
    ) -> PartitionRead:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class RunAtOnce:
    """Runs a task to its end when it is started; what it raises reaches who started it."""

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        asyncio.run(coroutine)


class FakeServices:
    """A node, and the context of requests to it."""

    def __init__(self) -> None:
        self.node = Node()
        self.cold = ColdDisk()
        self.refusal: PenstockError | None = None
        self.services = BrokerServices(
            settings=Settings(),
            node_id=1,
            clock=Clock(),
            metadata=Nobody(),
            topics=Nobody(),
            producer_ids=Nobody(),
            replicas=self.node.replicas,
            cold_reader=self.cold,
            fetch_sessions=FetchSessionCache(lambda: 1),
            tasks=RunAtOnce(),
            api_ranges={},
            accepts_produce=lambda: self.refusal,
            topic_defaults={},
            broker_configs=lambda: (),
        )

    def context(self, api_version: int) -> RequestContext:
        """The surroundings of one request."""
        return RequestContext(self.services, api_version, "test", is_version_unsupported=False)
