"""`IsrWriter`: a partition that cannot be decided, and a write that fails, keep no other back."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from penstock.cluster.image import MetadataImage
from penstock.cluster.link.partition_writes import PartitionWrite
from penstock.core.types import TopicPartition
from penstock.replication import isr_writer
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.isr_writer import IsrWriter
from tests.replication.replicas import Node
from tests.replication.test_replicated_partition import image, lead


class Metadata:
    """Notes the writes; the first ones fail."""

    image = MetadataImage()

    def __init__(self) -> None:
        self.failures = 0
        self.written: list[int] = []

    async def write_partitions(self, writes: Sequence[PartitionWrite]) -> list[bool]:
        if self.failures:
            self.failures -= 1
            raise AssertionError("a defect")
        self.written += [one.after.min_isr for one in writes]
        return [True] * len(writes)


class Scene:
    """Two partitions that this broker leads; both get another `min.insync.replicas`."""

    def __init__(self) -> None:
        self.node = Node()
        self.first = lead(self.node)
        self.node.partition = self.node.add("other")
        self.second = lead(self.node, image())
        self.metadata = Metadata()
        self.undecided: TopicPartition | None = None
        self.writer = IsrWriter(
            self.node.replicas, cast("Any", self.metadata), self.min_isr, lag_seconds=10.0
        )

    def min_isr(self, partition: HostedPartition) -> int:
        if partition.name == self.undecided:
            raise ValueError("a setting that is no number")
        return 1

    async def until_written(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.metadata.written) < count:  # noqa: ASYNC110 (has a deadline)
                await asyncio.sleep(0.001)


def run(act: Callable[[Scene], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_writer, "DEFECT_SECONDS", 0.01)

    async def begin() -> None:
        scene = Scene()
        await act(scene)
        await scene.writer.stop()

    asyncio.run(begin())


def test_a_partition_that_cannot_be_decided_keeps_no_other_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def act(scene: Scene) -> None:
        scene.undecided = scene.first.name
        for partition in (scene.first, scene.second):
            scene.writer.decide_soon(partition.name)
        await scene.until_written(1)
        scene.undecided = None
        await scene.until_written(2)

    run(act, monkeypatch)


def test_a_write_that_fails_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change without an outcome would be the last one of its partition."""

    async def act(scene: Scene) -> None:
        scene.metadata.failures = 2
        scene.writer.decide_soon(scene.first.name)
        await scene.until_written(1)

    run(act, monkeypatch)
