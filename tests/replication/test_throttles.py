"""Throttles of copies between brokers: the rate, and the replicas that it is for."""

import asyncio
from collections.abc import Callable, Sequence
from types import MappingProxyType
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.changes import (
    BrokerSettingsChanged,
    Change,
    PartitionsChanged,
    TopicPublished,
    TopicRemoved,
    TopicSettingsChanged,
    apply,
)
from penstock.cluster.configs.broker_configs import FOLLOWER_RATE, LEADER_RATE
from penstock.cluster.configs.topic_configs import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    check_override,
    throttled_partitions,
)
from penstock.cluster.image import BrokerSettingsImage, MetadataImage, PartitionImage
from penstock.cluster.link.partition_writes import PartitionWrite
from penstock.core.errors import InvalidTopicConfigError
from penstock.core.types import TopicPartition
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.isr import InSyncReplicas
from penstock.replication.partition import PartitionState
from penstock.replication.throttles import BURST_SECONDS, RateLimit, Throttles
from penstock.replication.waits import WaitTable
from tests.replication.replicas import Node

OWN_ID = 1
TOPIC_ID = UUID(int=7)
NAME = TopicPartition("t", 0)


# --- The rate ---


@given(
    st.integers(1, 1_000_000),
    st.lists(st.tuples(st.integers(1, 5_000_000), st.floats(0, 3)), min_size=1, max_size=50),
)
def test_over_time_no_more_than_the_rate_is_copied(
    rate: int, steps: list[tuple[int, float]]
) -> None:
    limit, now, copied = RateLimit(), 100.0, 0
    limit.change(rate, now)
    for size, pause in steps:
        now = limit.held_until(now) or now
        assert limit.held_until(now) is None
        # Before this answer, the earlier ones have been paid for.
        assert copied <= rate * (now - 100.0 + BURST_SECONDS) * (1 + 1e-6) + 1
        copied += size
        limit.spend(size, now)
        now += pause


def test_a_rate_that_is_used_up_is_free_again_in_time() -> None:
    limit = RateLimit()
    assert limit.held_until(5.0) is None
    limit.spend(10**9, 5.0)
    assert limit.held_until(5.0) is None
    limit.change(1_000, 10.0)
    limit.spend(3_000, 10.0)
    assert limit.held_until(10.0) == pytest.approx(13.0)
    assert limit.held_until(13.0) is None
    # Twice the rate: the rest of the debt takes half the time.
    limit.change(2_000, 11.0)
    assert limit.held_until(11.0) == pytest.approx(12.0)
    limit.change(0, 11.0)
    assert limit.held_until(11.0) == 12.0
    limit.change(None, 11.0)
    assert limit.held_until(11.0) is None


# --- The replicas ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*", None),
        ("0:1,2:1,1:2", {0, 2}),
        (" 0:1 , 3:1", {0, 3}),
        ("1:2", set()),
        ("0:1,", {0}),
    ],
)
def test_throttled_replicas_of_a_broker(text: str, expected: set[int] | None) -> None:
    assert throttled_partitions(LEADER_REPLICAS, text, OWN_ID) == expected


@pytest.mark.parametrize("text", ["0", "0:1,*", "a:b", "0:1:2", "**", "-1:1", "0:1;1:2"])
@pytest.mark.parametrize("name", [LEADER_REPLICAS, FOLLOWER_REPLICAS])
def test_a_list_with_another_syntax_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidTopicConfigError) as caught:
        check_override(name, text)
    assert str(caught.value).endswith(
        f"{name} must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


class FakeMetadata:
    """An image that a test publishes."""

    broker_epoch = 5

    def __init__(self) -> None:
        state = PartitionImage((1, 2), 2, 0, (2,), 3, broker_epoch=4, isr_epochs=(4,))
        self.image = apply(
            MetadataImage(),
            [
                PartitionsChanged(TOPIC_ID, {0: state, 1: state}),
                TopicPublished("t", TOPIC_ID, 2, 3),
            ],
            3,
        )
        self._subscribers: list[Callable[..., None]] = []

    def subscribe(self, subscriber: Callable[..., None]) -> Callable[[], None]:
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    async def write_partitions(self, writes: Sequence[PartitionWrite]) -> list[bool]:
        raise AssertionError("a throttle writes nothing")

    def publish(self, *changes: Change) -> None:
        before, self.image = self.image, apply(self.image, changes, self.image.revision + 1)
        for subscriber in self._subscribers:
            subscriber(before, self.image, changes)

    def set_rate(self, broker: str, **rates: str) -> None:
        names = {"leader": LEADER_RATE, "follower": FOLLOWER_RATE}
        settings = {names[side]: rate for side, rate in rates.items()}
        self.publish(BrokerSettingsChanged(broker, BrokerSettingsImage(settings, 9)))

    def set_replicas(self, **lists: str) -> None:
        names = {"leader": LEADER_REPLICAS, "follower": FOLLOWER_REPLICAS}
        self.publish(
            TopicSettingsChanged(
                "t", MappingProxyType({names[side]: text for side, text in lists.items()})
            )
        )


def started() -> tuple[Throttles, FakeMetadata, list[str]]:
    metadata = FakeMetadata()
    throttles = Throttles(OWN_ID, metadata, WaitTable())
    looked: list[str] = []
    throttles.on_change = lambda: looked.append("again")
    throttles.start()
    return throttles, metadata, looked


def test_a_follower_pauses_only_for_named_replicas_that_are_not_in_sync() -> None:
    async def body() -> None:
        throttles, metadata, looked = started()
        seen = [throttles.is_copying_throttled]
        metadata.set_rate("", follower="1000")
        seen.append(throttles.is_copying_throttled)
        metadata.set_replicas(follower="0:1,1:2")
        assert [*seen, throttles.is_copying_throttled] == [False, False, True]
        assert len(looked) == 2
        assert throttles.held_until(NAME) is None
        throttles.copied(NAME, 5_000, is_behind=True)
        now = asyncio.get_running_loop().time()
        held_until = throttles.held_until(NAME)
        assert held_until is not None
        assert 4.9 < held_until - now <= 5.0
        # The list names this replica for the other broker.
        assert throttles.held_until(TopicPartition("t", 1)) is None
        # It has everything: its leader must hear of it.
        throttles.copied(NAME, 1, is_behind=False)
        assert throttles.held_until(NAME) is None
        throttles.copied(NAME, 1, is_behind=True)
        assert throttles.held_until(NAME) is not None
        # In sync: never.
        topic = metadata.image.topics["t"]
        joined = topic.partitions[0]._replace(isr=(2, 1), isr_epochs=(4, 5))
        metadata.publish(PartitionsChanged(TOPIC_ID, {0: joined}))
        assert throttles.held_until(NAME) is None
        before = throttles._copying.limit.held_until(now)
        throttles.copied(NAME, 1_000_000, is_behind=True)
        assert throttles._copying.limit.held_until(now) == before
        # Nothing is left of it after the settings are deleted.
        metadata.publish(PartitionsChanged(TOPIC_ID, {0: topic.partitions[0]}))
        assert throttles.held_until(NAME) is not None
        metadata.set_replicas()
        assert throttles.held_until(NAME) is None
        assert len(looked) == 3

    asyncio.run(body())


def test_a_brokers_own_rate_comes_before_the_one_of_all() -> None:
    async def body() -> None:
        throttles, metadata, _ = started()
        metadata.set_replicas(leader="*", follower="*")
        metadata.set_rate("", leader="100", follower="200")
        assert (throttles._sending.limit.rate, throttles._copying.limit.rate) == (100, 200)
        metadata.set_rate("1", leader="7")
        assert (throttles._sending.limit.rate, throttles._copying.limit.rate) == (7, 200)
        metadata.set_rate("2", leader="9")
        rates = [throttles._sending.limit.rate]
        metadata.set_rate("1", leader=str(2**63 - 1))
        assert [*rates, throttles._sending.limit.rate] == [7, None]
        metadata.publish(TopicRemoved("t"))
        assert not throttles._sending.names(NAME)

    asyncio.run(body())


def test_settings_from_before_the_start_are_in_force() -> None:
    async def body() -> None:
        metadata = FakeMetadata()
        metadata.set_rate("1", leader="5", follower="6")
        metadata.set_replicas(leader="*", follower="0:1")
        throttles = Throttles(OWN_ID, metadata, WaitTable())
        unsubscribe = throttles.start()
        assert throttles._sending.is_active
        assert throttles._copying.names(NAME)
        unsubscribe()
        throttles.stop()

    asyncio.run(body())


def test_a_list_of_a_newer_broker_throttles_nothing() -> None:
    async def body() -> None:
        throttles, metadata, _ = started()
        metadata.set_rate("", follower="1")
        metadata.set_replicas(follower="something else")
        assert not throttles.is_copying_throttled

    asyncio.run(body())


# --- A leader that sends ---


def led(*in_sync: int) -> HostedPartition:
    """Return a partition that this broker leads, with replicas 1, 2 and 3."""
    node = Node()
    epochs = tuple(10 + one for one in in_sync)
    image = PartitionImage((1, 2, 3), 1, 0, in_sync, 3, broker_epoch=11, isr_epochs=epochs)
    log = node.partition.log
    role = PartitionState(
        log.topic_partition,
        leader_epoch=0,
        is_leader=True,
        durable_offset=0,
        in_sync=InSyncReplicas(OWN_ID, image, log.end_offset, 0.0),
    )
    return node.replicas.change_role(node.partition, role)


def test_only_answers_to_followers_that_are_not_in_sync_use_the_rate() -> None:
    async def body() -> None:
        throttles, metadata, _ = started()
        partition = led(1, 2)
        topic = partition.name.topic
        other = UUID(int=8)
        states = {0: metadata.image.topics["t"].partitions[0]}
        metadata.publish(PartitionsChanged(other, states), TopicPublished(topic, other, 1, 4))
        metadata.publish(TopicSettingsChanged(topic, MappingProxyType({LEADER_REPLICAS: "*"})))
        metadata.set_rate("", leader="1000")
        # A read from the disk is repeated: it was allowed, and nothing was sent.
        assert not throttles.holds_back(partition, 3)
        throttles.sent(partition, 2, 1_000_000)
        assert not throttles.holds_back(partition, 3)
        throttles.sent(partition, 3, 5_000)
        assert throttles.holds_back(partition, 3)
        assert not throttles.holds_back(partition, 2)
        throttles.stop()

    asyncio.run(body())


def test_a_raised_rate_ends_the_alarm_of_the_former_one() -> None:
    async def body() -> None:
        throttles, metadata, _ = started()
        partition = led(1)
        topic = partition.name.topic
        other = UUID(int=8)
        states = {0: metadata.image.topics["t"].partitions[0]}
        metadata.publish(PartitionsChanged(other, states), TopicPublished(topic, other, 1, 4))
        metadata.publish(TopicSettingsChanged(topic, MappingProxyType({LEADER_REPLICAS: "*"})))
        metadata.set_rate("", leader="10")
        throttles.sent(partition, 3, 1_000)
        assert throttles.holds_back(partition, 3)
        slow = throttles._alarm
        assert slow is not None
        metadata.set_rate("", leader="100")
        assert slow.cancelled()
        # The next pause has an alarm of its own, at its end.
        throttles.sent(partition, 3, 1_000)
        assert throttles.holds_back(partition, 3)
        fast = throttles._alarm
        assert fast is not None
        assert fast.when() < slow.when()
        throttles.stop()

    asyncio.run(body())
