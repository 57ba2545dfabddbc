"""The asyncio cluster: the same decisions as the blocking one, for many tasks at once."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from penstock.client.async_cluster import AsyncCluster
from penstock.client.calls import LATEST_TIMESTAMP, NewTopic, create, describe_brokers
from penstock.client.cluster_view import PartitionDescription
from penstock.client.transport.addresses import Address
from penstock.client.transport.call import Call
from penstock.client.transport.pool import breaks_connection
from penstock.core.errors import (
    AdvertisedAddressError,
    AnswerLostError,
    BrokerAnswerError,
    BrokerUnreachableError,
    ClientError,
    UnknownTopicOrPartitionError,
)
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import create_topics, list_offsets, metadata
from tests.client.conftest import StepClock
from tests.client.fake_broker import FakeCluster, FakeConnection

Result = TypeVar("Result")
AT = TopicPartition("orders", 0)


class SharedFake:
    """A connection of the fake, as tasks share one."""

    def __init__(self, under: FakeConnection) -> None:
        self._under = under
        self.is_open = True

    async def carry(self, call: Call[Result]) -> Result:
        await asyncio.sleep(0)
        if not self.is_open:
            raise BrokerUnreachableError("closed")
        try:
            return self._under.carry(call)
        except ClientError as error:
            self.is_open = not breaks_connection(error)
            raise

    async def close(self) -> None:
        self.is_open = False
        self._under.close()


class Setting:
    """A fake cluster and the client of it."""

    def __init__(self) -> None:
        self.fake = FakeCluster(broker_ids=(1, 2, 3))
        self.clock = StepClock()
        self.cluster = AsyncCluster(
            [Address("bootstrap", 9000)],
            self.connect,
            timeout_seconds=10.0,
            clock=self.clock,
            sleep=self.sleep,
        )

    async def connect(self, address: Address) -> SharedFake:
        await asyncio.sleep(0)
        return SharedFake(self.fake.connect(address))

    async def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    def count_of(self, kind: type) -> int:
        return sum(isinstance(request, kind) for request in self.fake.requests)


def run(test: Callable[[Setting], Awaitable[None]]) -> Setting:
    async def main() -> Setting:
        setting = Setting()
        async with setting.cluster:
            await test(setting)
        assert all(one.is_closed for one in setting.fake.opened)
        return setting

    return asyncio.run(main())


def test_topics_leaders_and_offsets() -> None:
    async def test(setting: Setting) -> None:
        fake, cluster = setting.fake, setting.cluster
        fake.add_topic("orders", partitions=300)
        assert await cluster.cluster_id() == "fake-cluster"
        found = await cluster.describe(["orders", "nothing"])
        assert found["orders"].topic_id == fake.topic_ids["orders"]
        assert found["orders"].partitions[2] == PartitionDescription(3, 0)
        wanted = dict.fromkeys(fake.logs, LATEST_TIMESTAMP)
        offsets = await cluster.look_up_offsets(wanted, is_read_committed=True)
        assert {one.offset for one in offsets.values()} == {0}
        assert len(offsets) == 300

    setting = run(test)
    assert setting.count_of(list_offsets.ListOffsetsRequest) == 3
    assert setting.count_of(metadata.MetadataRequest) == 2


def test_many_tasks_share_one_connection() -> None:
    async def test(setting: Setting) -> None:
        address = Address("fake", 9002)
        call = describe_brokers([])
        await asyncio.gather(*(setting.cluster.at(address, call) for _ in range(20)))
        assert setting.fake.connections_opened == 1

    run(test)


@pytest.mark.parametrize("failure", ["lost", "unreachable", ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_reads_are_repeated(failure: ErrorCode | str) -> None:
    async def test(setting: Setting) -> None:
        setting.fake.add_topic("orders")
        setting.fake.fail_next(metadata.MetadataRequest, "unreachable")
        setting.fake.fail_next(list_offsets.ListOffsetsRequest, failure, times=3)
        wanted = {AT: LATEST_TIMESTAMP}
        found = await setting.cluster.look_up_offsets(wanted, is_read_committed=False)
        assert found[AT].offset == 0
        assert setting.clock.seconds > 0

    run(test)


def test_what_is_not_repeatable_is_repeated_only_when_nothing_was_done() -> None:
    async def test(setting: Setting) -> None:
        call = create([NewTopic("orders")], 1_000)
        setting.fake.fail_next(create_topics.CreateTopicsRequest, "unreachable", times=2)
        setting.fake.fail_next(create_topics.CreateTopicsRequest, "lost")
        with pytest.raises(AnswerLostError):
            await setting.cluster.repeat(
                lambda: setting.cluster.at(Address("fake", 9001), call), repeatable=False
            )
        assert setting.count_of(create_topics.CreateTopicsRequest) == 3

    run(test)


def test_an_address_that_a_broker_named_is_told_as_such() -> None:
    async def test(setting: Setting) -> None:
        setting.fake.add_topic("orders")
        await setting.cluster.describe(None)
        await setting.cluster.close()
        setting.fake.ports_down = {9001, 9002, 9003}
        with pytest.raises(AdvertisedAddressError, match="advertises this address for broker 1"):
            await setting.cluster.look_up_offsets({AT: LATEST_TIMESTAMP}, is_read_committed=False)
        await setting.cluster.close()
        setting.fake.is_down = True  # then the address is not to blame
        with pytest.raises(BrokerUnreachableError) as caught:
            await setting.cluster.describe(None)
        assert "advertises" not in f"{caught.value}{caught.value.hint}"

    run(test)


def test_time_is_bounded() -> None:
    async def test(setting: Setting) -> None:
        setting.fake.is_down = True
        with pytest.raises(BrokerUnreachableError, match="connection refused"):
            await setting.cluster.describe(None)
        assert 8 < setting.clock.seconds <= 10

    run(test)


def test_an_unknown_topic_is_not_waited_for() -> None:
    async def test(setting: Setting) -> None:
        with pytest.raises(UnknownTopicOrPartitionError, match="orders"):
            await setting.cluster.look_up_offsets({AT: -1}, is_read_committed=False)
        assert setting.clock.seconds == 0

    run(test)


def test_leaders_that_another_task_forgets_meanwhile() -> None:
    """While one topic is being learnt, a failed call of another task forgets the one known."""

    async def test(setting: Setting) -> None:
        fake, cluster = setting.fake, setting.cluster
        fake.add_topic("orders")
        fake.add_topic("payments")
        await cluster.leaders([AT])
        fake.fail_next(list_offsets.ListOffsetsRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        both = {AT: -1, TopicPartition("payments", 0): -1}
        found = await asyncio.gather(
            *(cluster.look_up_offsets(both, is_read_committed=False) for _ in range(5)),
            cluster.look_up_offsets({AT: -1}, is_read_committed=False),
        )
        assert [len(one) for one in found] == [2, 2, 2, 2, 2, 1]

    run(test)


def test_an_error_that_is_not_worth_a_repetition_is_raised() -> None:
    async def test(setting: Setting) -> None:
        setting.fake.add_topic("orders")
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        setting.fake.fail_next(list_offsets.ListOffsetsRequest, code)
        with pytest.raises(BrokerAnswerError, match="TOPIC_AUTHORIZATION_FAILED"):
            await setting.cluster.look_up_offsets({AT: -1}, is_read_committed=False)
        assert setting.clock.seconds == 0

    run(test)
