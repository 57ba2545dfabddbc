"""`FakeServices`: the services of a handler, over replicas whose disk and clock the test moves.

Only the parts that Produce and Fetch use are real; the rest raises.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import NoReturn, TypeVar
from uuid import UUID

from penstock.broker.context import BrokerServices, RequestContext
from penstock.broker.fetch_sessions import FetchSessionCache
from penstock.broker.pacing.turns import TurnBudget
from penstock.broker.ports import Asker
from penstock.cluster.configs.described_configs import NO_LAYERS, BrokerLayers
from penstock.cluster.configs.setting_changes import SettingsChange
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import MetadataImage
from penstock.cluster.moves.requested_moves import ReplicaMove
from penstock.cluster.quota_changes import QuotaChange
from penstock.cluster.topic_changes import MorePartitions
from penstock.coordinator.kinds import CoordinatorKind
from penstock.core.cancellation import Cancellation
from penstock.core.errors import PenstockError
from penstock.core.settings.current_settings import CurrentSettings
from penstock.core.settings.tree import Settings
from penstock.core.types import TopicPartition
from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from penstock.replication.admission import Fetcher
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.read_result import PartitionRead
from penstock.storage.log.log_types import TimestampAndOffset
from tests.replication.replicas import Node
from tests.storage.logs import Clock

Result = TypeVar("Result")


class Nobody:
    """Ports that these tests do not use."""

    image = MetadataImage()

    async def create(self, topics: Sequence[NewTopic], *, validate_only: bool) -> NoReturn:
        raise AssertionError("not used here")

    async def delete(self, topic_ids: Sequence[UUID]) -> NoReturn:
        raise AssertionError("not used here")

    async def move_replicas(
        self, moves: Sequence[ReplicaMove], *, may_change_factor: bool
    ) -> NoReturn:
        raise AssertionError("not used here")

    async def forget(self, broker_id: int) -> NoReturn:
        raise AssertionError("not used here")

    async def raise_levels(self, levels: Mapping[str, int], *, validate_only: bool) -> NoReturn:
        raise AssertionError("not used here")

    async def add_partitions(
        self, wanted: Sequence[MorePartitions], *, validate_only: bool
    ) -> NoReturn:
        raise AssertionError("not used here")

    async def change_settings(
        self, changes: Sequence[SettingsChange], *, validate_only: bool
    ) -> NoReturn:
        raise AssertionError("not used here")

    @property
    def layers(self) -> BrokerLayers:
        return NO_LAYERS

    async def change(self, changes: Sequence[QuotaChange], *, validate_only: bool) -> NoReturn:
        raise AssertionError("not used here")

    def describe_settings(self, name: str) -> NoReturn:
        raise AssertionError("not used here")

    async def describe(self) -> NoReturn:
        raise AssertionError("not used here")

    async def next_id(self) -> NoReturn:
        raise AssertionError("not used here")

    async def advance_starts(self, starts: Sequence[tuple[HostedPartition, int]]) -> NoReturn:
        raise AssertionError("not used here")

    async def load(self, load: Callable[[], None], client: Cancellation) -> NoReturn:
        raise AssertionError("not used here")

    async def find_by_time(
        self,
        partition: HostedPartition,
        timestamp_ms: int | None,
        client: Cancellation | None = None,
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
        reads_committed: bool,
        fetcher: Fetcher | None = None,
        client: Cancellation | None = None,
    ) -> PartitionRead:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class Workers:
    """Heavy work, done at once and counted; `outcome` is raised instead if it is set."""

    def __init__(self) -> None:
        self.jobs = 0
        self.outcome: PenstockError | None = None
        self.before: Callable[[], None] = lambda: None

    async def run(
        self, call: Callable[[], Result], size_bytes: int, client: Cancellation | None
    ) -> Result:
        assert size_bytes > 0
        self.jobs += 1
        self.before()
        if self.outcome is not None:
            raise self.outcome
        return call()


class FakeCoordinators:
    """Coordinators without groups, and with the transactions that the test sets."""

    def __init__(self) -> None:
        self.codes: list[ErrorCode] = []
        """For one question each; when none is left, the answer is yes."""
        self.asked: list[AddPartitionsToTxnTransaction] = []
        self.markers: list[tuple[TopicPartition, int, int, bool]] = []
        self.before_answer: Callable[[], None] = lambda: None

    async def ask(
        self, kind: CoordinatorKind, key: str, request: Message, asker: Asker
    ) -> Message | PenstockError:
        assert kind == "transaction"
        assert isinstance(request, AddPartitionsToTxnRequest)
        (asked,) = request.transactions
        assert asked.transactional_id == key
        self.asked.append(asked)
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        await asyncio.sleep(0)
        self.before_answer()
        topics = tuple(
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code
                    )
                    for index in topic.partitions
                ),
            )
            for topic in asked.topics
        )
        result = AddPartitionsToTxnResult(transactional_id=key, topic_results=topics)
        return AddPartitionsToTxnResponse(results_by_transaction=(result,))

    async def verify(
        self, transaction: AddPartitionsToTxnTransaction, asker: Asker
    ) -> Message | PenstockError:
        request = AddPartitionsToTxnRequest(transactions=(transaction,))
        return await self.ask("transaction", transaction.transactional_id, request, asker)

    def submit(self, kind: CoordinatorKind, key: str, request: Message, asker: Asker) -> NoReturn:
        raise AssertionError("not used here")

    async def ask_partition(
        self, kind: CoordinatorKind, partition: int, request: Message, asker: Asker
    ) -> NoReturn:
        raise AssertionError("not used here")

    def partition_of(self, kind: CoordinatorKind, key: str) -> int:
        return 0

    def partition_count(self, kind: CoordinatorKind) -> int:
        return 0

    async def ensure_topic(self, kind: CoordinatorKind) -> NoReturn:
        raise AssertionError("not used here")

    def marker_written(
        self, name: TopicPartition, producer_id: int, producer_epoch: int, *, commits: bool
    ) -> None:
        self.markers.append((name, producer_id, producer_epoch, commits))


class RunAtOnce:
    """Runs a task to its end when it is started; its error is raised in the caller."""

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        asyncio.run(coroutine)


class FakeServices:
    """A node, and the context of requests to it."""

    def __init__(self) -> None:
        self.node = Node()
        self.cold = ColdDisk()
        self.heavy = Workers()
        self.coordinators = FakeCoordinators()
        self.refusal: PenstockError | None = None
        self.soon: list[Callable[[], None]] = []
        """What the event loop would call in its next turn."""
        self.services = BrokerServices(
            current=CurrentSettings(Settings()),
            node_id=1,
            clock=Clock(),
            metadata=Nobody(),
            topics=Nobody(),
            groups=Nobody(),
            brokers=Nobody(),
            quota_administration=Nobody(),
            producer_ids=Nobody(),
            replicas=self.node.replicas,
            cold_reader=self.cold,
            heavy_work=self.heavy,
            record_deletion=Nobody(),
            log_directories=Nobody(),
            coordinators=self.coordinators,
            fetch_sessions=FetchSessionCache(lambda: 1),
            tasks=RunAtOnce(),
            turns=TurnBudget(self.soon.append),
            api_ranges={},
            accepts_produce=lambda: self.refusal,
        )

    def run_turns(self) -> int:
        """Run turns of the event loop until nothing waits for one; returns how many."""
        count = 0
        while self.soon:
            due, self.soon[:] = tuple(self.soon), []
            for call in due:
                call()
            count += 1
        return count

    def context(self, api_version: int) -> RequestContext:
        """The surroundings of one request."""
        return RequestContext(self.services, api_version, "test", is_version_unsupported=False)
