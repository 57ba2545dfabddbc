"""Markers and producer ids for transaction shards: all partitions, only when committed, once."""

import asyncio
from collections.abc import Awaitable

import pytest

from penstock.cluster.image import MetadataImage, PartitionImage, TopicImage
from penstock.cluster.persistent_map import PersistentMap
from penstock.coordinator.transactions.effects import NextProducerId, WriteMarkers
from penstock.core.errors import NotLeaderError, StoreError
from penstock.core.types import TopicPartition
from penstock.node.coordination.transaction_effects import TransactionEffects
from penstock.records.batch import iterate_headers
from penstock.replication.manager import TransactionEnd
from tests.replication.replicas import Node
from tests.storage.logs import Clock

PRODUCER_ID = 7
LOST = TopicPartition("lost", 0)


class Ids:
    """Producer ids, as long as the store answers."""

    def __init__(self) -> None:
        self.error: StoreError | None = None

    async def next_id(self) -> int:
        if self.error is not None:
            raise self.error
        return 41


class Stage:
    """Effects over a node with two partitions."""

    def __init__(self) -> None:
        self.node = Node()
        self.names = (self.node.partition.name, self.node.add("second").name)
        self.ids = Ids()
        self.told: list[tuple[TopicPartition, int, int, bool]] = []
        partition = PartitionImage((1,), 1, 0, (1,), 1)
        topic = TopicImage(LOST.topic, self.node.partition.topic_id, (partition,), {}, 1)
        self.image = MetadataImage(topics=PersistentMap({LOST.topic: topic}))
        self.effects = TransactionEffects(
            self.node.replicas, self.ids, Clock(), self.marker_written, lambda: self.image
        )

    def marker_written(
        self, name: TopicPartition, producer_id: int, producer_epoch: int, *, commits: bool
    ) -> None:
        self.told.append((name, producer_id, producer_epoch, commits))

    def markers(self, *more: TopicPartition, epoch: int = 1, commits: bool = True) -> WriteMarkers:
        return WriteMarkers("t", PRODUCER_ID, epoch, 0, commits, (*self.names, *more), 2)

    def control_batches(self, name: TopicPartition) -> int:
        log = self.node.logs.logs[name]
        found = log.read(0, 1_000_000, offset_limit=log.end_offset, at_least_one=True, nowait=False)
        return sum(header.is_control for _, header in iterate_headers(bytes(found.records)))

    def perform(self, effect: object) -> object:
        """Carry out, with a disk that syncs when it is waited for."""

        async def run() -> object:
            task: Awaitable[object] = asyncio.ensure_future(self.effects.perform(effect))  # noqa: TID251
            await asyncio.sleep(0)
            self.node.sync()
            return await task

        return asyncio.run(run())


def test_a_producer_id_is_drawn() -> None:
    stage = Stage()
    assert stage.perform(NextProducerId("t")) == 41
    stage.ids.error = StoreError("the store is away")
    with pytest.raises(StoreError):
        stage.perform(NextProducerId("t"))


@pytest.mark.parametrize("commits", [True, False])
def test_every_partition_gets_a_marker_and_its_listener_hears_of_it(commits: bool) -> None:
    stage = Stage()
    assert stage.perform(stage.markers(commits=commits)) is None
    assert [stage.control_batches(name) for name in stage.names] == [1, 1]
    assert stage.told == [(name, PRODUCER_ID, 1, commits) for name in stage.names]


def test_a_marker_counts_when_it_is_committed() -> None:
    stage = Stage()

    async def run() -> None:
        task = asyncio.ensure_future(stage.effects.perform(stage.markers()))  # noqa: TID251
        for _ in range(5):
            await asyncio.sleep(0)
        assert not task.done()
        stage.node.sync()
        assert await task is None

    asyncio.run(run())


def test_a_marker_of_an_epoch_that_has_passed_is_not_written() -> None:
    stage = Stage()
    stage.perform(stage.markers(epoch=2))
    stage.told.clear()
    assert stage.perform(stage.markers(epoch=1)) is None
    assert [stage.control_batches(name) for name in stage.names] == [1, 1]
    assert stage.told == []


def test_our_coordinator_is_not_fenced_by_whoever_wrote_a_higher_epoch() -> None:
    stage = Stage()
    claim = TransactionEnd(PRODUCER_ID, 0, coordinator_epoch=2**31 - 1, commits=False)
    stage.node.replicas.append_marker(stage.node.partition, claim, 0)
    assert stage.perform(stage.markers()) is None
    assert [stage.control_batches(name) for name in stage.names] == [2, 1]
    known = [stage.node.logs.logs[name].producers.entries[PRODUCER_ID] for name in stage.names]
    assert [entry.coordinator_epoch for entry in known] == [2**31 - 1, 0], "it never falls"


def test_a_partition_that_was_deleted_is_owed_nothing() -> None:
    stage = Stage()
    assert stage.perform(stage.markers(TopicPartition("deleted", 0))) is None


def test_a_partition_that_is_not_served_now_fails_the_effect_and_the_others_are_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    for _ in range(3):
        with pytest.raises(NotLeaderError):
            stage.perform(stage.markers(LOST))
    assert len(caplog.records) == 1, "said once, not with every attempt"
    assert [stage.control_batches(name) for name in stage.names] == [1, 1]
    stage.image = MetadataImage()
    assert stage.perform(stage.markers(LOST)) is None


def test_an_attempt_that_fails_after_a_later_one_succeeded_leaves_nothing_behind() -> None:
    stage = Stage()
    effect = WriteMarkers("t", PRODUCER_ID, 1, 0, True, (*stage.names, LOST), 0)

    async def run() -> None:
        first = asyncio.ensure_future(stage.effects.perform(effect))  # noqa: TID251
        await asyncio.sleep(0)
        stage.image = MetadataImage()
        second = asyncio.ensure_future(stage.effects.perform(effect))  # noqa: TID251
        await asyncio.sleep(0)
        stage.node.sync()
        assert await second is None
        with pytest.raises(NotLeaderError):
            await first

    asyncio.run(run())
    before = [stage.control_batches(name) for name in stage.names]
    # The next transaction of a client of version 0 ends in the same words.
    assert stage.perform(effect) is None
    assert [stage.control_batches(name) for name in stage.names] == [n + 1 for n in before]


def test_without_partitions_there_is_nothing_to_do() -> None:
    stage = Stage()
    assert stage.perform(WriteMarkers("t", PRODUCER_ID, 1, 0, False, (), 2)) is None


def test_an_effect_that_nobody_knows_is_a_defect() -> None:
    with pytest.raises(AssertionError):
        asyncio.run(Stage().effects.perform("tea"))
