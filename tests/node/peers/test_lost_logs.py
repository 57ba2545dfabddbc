"""A broker whose logs are gone: no write of the controller keeps its entries valid."""

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

from penstock.cluster.changes import Change
from penstock.cluster.image import MetadataImage, PartitionImage, Replica, TopicImage
from penstock.cluster.link.partition_writes import PartitionWrite
from penstock.cluster.persistent_map import PersistentMap
from penstock.core.types import TopicPartition
from penstock.node.peers.lost_logs import PAUSE_SECONDS, disown, keep_disowned
from tests.node.peers.three_brokers import until

TOPIC_ID = UUID(int=1)
LOST = TopicPartition("orders", 0)


class Metadata:
    """Metadata with one partition, which another broker changes before a write arrives."""

    broker_epoch = 20

    def __init__(self, state: PartitionImage, changed: Sequence[PartitionImage]) -> None:
        self.state = state
        self._changed = list(changed)
        self.subscribers: list[
            Callable[[MetadataImage, MetadataImage, tuple[Change, ...]], None]
        ] = []

    @property
    def image(self) -> MetadataImage:
        topic = TopicImage("orders", TOPIC_ID, (self.state,), {}, 1)
        return MetadataImage(
            topics=PersistentMap({"orders": topic}), topic_names=PersistentMap({TOPIC_ID: "orders"})
        )

    def subscribe(
        self, subscriber: Callable[[MetadataImage, MetadataImage, tuple[Change, ...]], None]
    ) -> Callable[[], None]:
        self.subscribers.append(subscriber)
        return self.subscribers.clear

    async def write_partitions(self, writes: Sequence[PartitionWrite]) -> list[bool]:
        if self._changed:
            self.state = self._changed.pop(0)
        (write,) = writes
        if write.before.partition_epoch != self.state.partition_epoch:
            return [False]
        self.state = write.after._replace(partition_epoch=self.state.partition_epoch + 1)
        return [True]


async def no_pause(_seconds: float) -> None:
    """Return at once."""


def test_a_lost_log_is_disowned_also_if_the_controller_writes_first() -> None:
    before = PartitionImage(
        (1, 2), 1, 3, (1, 2), 100, broker_epoch=11, isr_epochs=(11, 12), min_isr=2
    )
    # The controller has seen that broker 2 registered again, and keeps its entry as eligible.
    shrunk = before._replace(isr=(1,), isr_epochs=(11,), elr=(Replica(2, 12),), partition_epoch=101)
    metadata = Metadata(before, [shrunk])
    asyncio.run(disown(metadata, 2, [LOST], no_pause))
    assert metadata.state.elr == (Replica(2, 0),), "epoch 0 is never valid"


def test_a_partition_without_an_entry_of_the_broker_is_left_alone() -> None:
    state = PartitionImage((1, 2), 1, 3, (1,), 100, broker_epoch=11, isr_epochs=(11,), min_isr=2)
    metadata = Metadata(state, [])
    asyncio.run(disown(metadata, 2, [LOST, TopicPartition("gone", 4)], no_pause))
    assert metadata.state == state


def test_a_failed_disk_is_disowned_each_time_that_a_leader_adds_it() -> None:
    joined = PartitionImage(
        (1, 2), 1, 3, (1, 2), 100, broker_epoch=11, isr_epochs=(11, 12), min_isr=2
    )

    async def act() -> None:
        is_lost = True
        metadata = Metadata(joined, [])
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(keep_disowned(metadata, 2, [LOST], lambda _name: is_lost))
            for partition_epoch in (100, 200):
                metadata.state = joined._replace(partition_epoch=partition_epoch)
                for subscriber in metadata.subscribers:
                    subscriber(metadata.image, metadata.image, ())
                await until(lambda: metadata.state.isr_epochs == (11, 0))
            # Another log has the name now: it may join.
            is_lost = False
            metadata.state = joined._replace(partition_epoch=300)
            for subscriber in metadata.subscribers:
                subscriber(metadata.image, metadata.image, ())
            await asyncio.sleep(2 * PAUSE_SECONDS)
            assert metadata.state.isr_epochs == (11, 12)
            task.cancel()
        assert metadata.subscribers == []

    asyncio.run(act())


def test_the_only_replica_in_sync_keeps_its_entry() -> None:
    """A failed disk may have everything after a restart, and no other one has."""
    state = PartitionImage((1, 2), 2, 3, (2,), 100, broker_epoch=12, isr_epochs=(12,), min_isr=1)
    metadata = Metadata(state, [])
    asyncio.run(disown(metadata, 2, [LOST], no_pause, keeps_last=True))
    assert metadata.state == state
