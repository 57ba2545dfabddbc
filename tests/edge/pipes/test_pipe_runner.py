"""The rounds of a pipe with a parent and mirrors in memory."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

import pytest

from penstock.client.transport.addresses import Address
from penstock.core.clock import SystemClock
from penstock.core.errors import BrokerAnswerError
from penstock.core.types import TopicPartition
from penstock.edge.pipes import pipe_runner
from penstock.edge.pipes.common_end import BatchMark
from penstock.edge.pipes.down_pipe import EpochEnd, OnGap, OwnLog, ParentLog, Phase
from penstock.edge.pipes.group_copies import copy_group
from penstock.edge.pipes.pipe_health import Priority, Room
from penstock.edge.pipes.pipe_runner import PipeRunner
from penstock.edge.pipes.pipe_status import PipeOptions
from penstock.edge.pipes.ports import (
    Committed,
    DiskRoom,
    FetchAt,
    Fetched,
    FetchLimits,
    MirrorTopic,
    Parent,
    ParentPartition,
    ParentTopic,
)
from penstock.protocol.error_codes import ErrorCode

TOPIC_ID = UUID(int=7)
LEADER = Address("parent", 9092)
MARK = BatchMark(4, 4, 0, 1)
OWN = OwnLog(0, 5, 0)
LATE = TopicPartition("t", 1)
"""Its high watermark at the parent is below the end of the mirror in the first check."""


class Cluster:
    """`ports.Parent`: two partitions of one leader, with the records of the mirrors."""

    def __init__(self) -> None:
        self.checks = 0
        self.sizes: set[int] = set()

    async def topics(self, names: Collection[str] | None) -> Mapping[str, ParentTopic]:
        assert names == ("t",)
        return {"t": ParentTopic("t", TOPIC_ID, (ParentPartition(LEADER, 0),) * 2)}

    async def settings(self, names: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        return {name: {} for name in names}

    async def log_ends(
        self, asked: Mapping[TopicPartition, tuple[UUID, int, int]]
    ) -> Mapping[TopicPartition, ParentLog]:
        self.checks += 1
        return {
            at: ParentLog(TOPIC_ID, 0, 3 if at == LATE and self.checks == 1 else 5, EpochEnd(0, 5))
            for at in asked
        }

    async def fetch(
        self, leader: Address, places: Mapping[TopicPartition, FetchAt], limits: FetchLimits
    ) -> Mapping[TopicPartition, Fetched]:
        assert (leader, limits.wait_ms) == (LEADER, 10)
        self.sizes.add(limits.bytes_max)
        await asyncio.sleep(0)
        return {at: Fetched(ErrorCode.NONE, 5, 0, False, memoryview(b"")) for at in places}

    async def batch_at(
        self, leader: Address, at: TopicPartition, place: FetchAt
    ) -> BatchMark | None:
        assert (leader, at.topic, place.offset) == (LEADER, "t", 4)
        return MARK

    async def groups(self) -> Collection[str]:
        return ()

    async def committed(self, group: str) -> Committed:
        raise AssertionError(group)

    async def close(self) -> None:
        pass


class Copies:
    """`ports.Mirrors`: two mirrors that are complete."""

    def topic(self, name: str) -> MirrorTopic | None:
        assert name == "t"
        return MirrorTopic(TOPIC_ID, 2, "hq", is_restoring=False, is_compacted=False)

    def names(self, pipe: str) -> Collection[str]:
        assert pipe == "hq"
        return ("t",)

    async def create(self, topic: ParentTopic, settings: Mapping[str, str], pipe: str) -> None:
        raise AssertionError((topic, settings, pipe))

    async def grow(self, name: str, partition_count: int) -> None:
        raise AssertionError((name, partition_count))

    async def raise_epochs(self, name: str, epochs: Sequence[int]) -> None:
        assert (name, list(epochs)) == ("t", [0, 0])

    async def restored(self, name: str) -> None:
        raise AssertionError(name)

    async def refresh(self, pipe: str, at: TopicPartition, offset: int) -> None:
        raise AssertionError((pipe, at, offset))

    def log(self, at: TopicPartition) -> OwnLog | None:
        assert at.topic == "t"
        return OWN

    def epoch_end(self, at: TopicPartition, epoch: int) -> EpochEnd:
        assert at.topic == "t"
        return EpochEnd(epoch, 5)

    async def batch_at(self, at: TopicPartition, offset: int) -> BatchMark | None:
        assert (at.topic, offset) == ("t", 4)
        return MARK

    async def append(self, at: TopicPartition, records: memoryview, parent_start: int) -> None:
        raise AssertionError((at, records, parent_start))

    async def cut(self, at: TopicPartition, offset: int, *, is_restart: bool) -> None:
        raise AssertionError((at, offset, is_restart))

    def room(self) -> DiskRoom:
        return DiskRoom(Room.ENOUGH, 1 << 30)

    async def committed(self, group: str) -> Committed:
        raise AssertionError(group)

    async def commit(self, group: str, offsets: Committed) -> bool:
        raise AssertionError((group, offsets))


@pytest.mark.parametrize(("bytes_per_second_max", "size"), [(0, 1_024), (512, 512)])
def test_a_partition_that_waits_is_compared_again_while_others_are_copied(
    bytes_per_second_max: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a bound on the bytes, a request has as many as the bound allows in a second."""
    monkeypatch.setattr(pipe_runner, "WAITING_SECONDS_MAX", 0.01)
    cluster = Cluster()

    async def opened() -> Parent:
        return cluster

    async def test() -> None:
        rates = bytes_per_second_max, 1_024, 10
        options = PipeOptions("hq", "parent:9092", ("t",), (), OnGap.STOP, Priority.NORMAL, *rates)
        runner = PipeRunner(options, opened, Copies(), SystemClock(), lambda: 0.0)
        task = asyncio.get_running_loop().create_task(runner.run())
        async with asyncio.timeout(5):
            while not runner.status().is_in_step:  # noqa: ASYNC110 (has a deadline)
                await asyncio.sleep(0.001)
        assert cluster.checks > 1
        assert cluster.sizes == {size}
        assert {one.phase for one in runner.status().partitions} == {Phase.COPYING}
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(test())


def test_a_topic_above_the_bound_of_partitions_is_not_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Nothing(Copies):
        def topic(self, name: str) -> MirrorTopic | None:
            assert name == "t"
            return None

    monkeypatch.setattr(pipe_runner, "PARTITIONS_MAX", 1)

    async def opened() -> Parent:
        return Cluster()

    async def test() -> None:
        options = PipeOptions("hq", "parent:9092", ("t",), poll_interval_ms=10)
        runner = PipeRunner(options, opened, Nothing(), SystemClock(), lambda: 0.0)
        task = asyncio.get_running_loop().create_task(runner.run())
        async with asyncio.timeout(5):
            while "retrying" in runner.status().health.reason:  # noqa: ASYNC110 (has a deadline)
                await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait([task])
        assert "more than 1 partitions" in runner.status().health.reason

    asyncio.run(test())


def test_a_group_that_is_refused_does_not_end_the_round() -> None:
    class Refusing(Cluster):
        async def committed(self, group: str) -> Committed:
            raise BrokerAnswerError(69, "GROUP_ID_NOT_FOUND", group)

    async def test() -> None:
        assert await copy_group("g", Refusing(), Copies(), lambda _: 5) is True

    asyncio.run(test())
