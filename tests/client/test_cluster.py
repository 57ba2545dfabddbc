"""Finding brokers, and which calls are retried."""

import pytest

from penstock.client.calls import LATEST_TIMESTAMP, NewTopic, describe_brokers
from penstock.client.cluster import Cluster
from penstock.client.cluster_view import PartitionDescription
from penstock.client.offset_lookup import FoundOffset
from penstock.client.transport.addresses import Address
from penstock.core.errors import (
    AdvertisedAddressError,
    AnswerLostError,
    BrokerAnswerError,
    BrokerUnreachableError,
    UnknownTopicOrPartitionError,
)
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    create_topics,
    delete_topics,
    init_producer_id,
    list_offsets,
    metadata,
)
from tests.client.conftest import StepClock
from tests.client.fake_broker import FakeCluster


def count_of(fake: FakeCluster, kind: type) -> int:
    return sum(isinstance(request, kind) for request in fake.requests)


def test_nobody_there_is_told_at_once(
    fake: FakeCluster, cluster: Cluster, clock: StepClock
) -> None:
    fake.is_down = True
    with pytest.raises(BrokerUnreachableError, match="bootstrap:9000: connection refused"):
        cluster.all_topics()
    assert clock.seconds == 0


def test_the_second_bootstrap_address_helps(fake: FakeCluster) -> None:
    def connect(address: Address) -> object:
        if address.host == "dead":
            raise BrokerUnreachableError("dead:1: no route to host")
        return fake.connect(address)

    fake.add_topic("orders")
    cluster = Cluster([Address("dead", 1), Address("bootstrap", 9000)], connect)  # type: ignore[arg-type]
    assert [topic.name for topic in cluster.all_topics()] == ["orders"]


def test_an_address_that_a_broker_named_is_told_as_such(fake: FakeCluster) -> None:
    """A wrong advertised address: whoever reads of it must learn where it comes from."""
    clock = StepClock()
    fake.ports_down = {9001}
    asked = [Address("bootstrap", 9000)]
    cluster = Cluster(asked, fake.connect, timeout_seconds=1.0, clock=clock, sleep=clock.sleep)
    assert cluster.all_topics() == []
    with pytest.raises(AdvertisedAddressError) as caught:
        cluster.create_topic(NewTopic("orders", 1, 1, {}))
    named = cluster.brokers()[1]
    assert str(caught.value) == (
        f"{named}: connection refused The cluster at bootstrap:9000 advertises this address "
        "for broker 1."
    )
    assert "`penstock doctor --bootstrap-server bootstrap:9000`" in caught.value.hint
    # A bootstrap address is the caller's own, whatever the broker says.
    direct = Cluster(
        [named, *asked], fake.connect, timeout_seconds=1.0, clock=clock, sleep=clock.sleep
    )
    with pytest.raises(BrokerUnreachableError) as own:
        direct.create_topic(NewTopic("orders", 1, 1, {}))
    assert not isinstance(own.value, AdvertisedAddressError)


def test_reads_are_repeated_after_a_lost_answer(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    cluster.all_topics()
    fake.fail_next(metadata.MetadataRequest, "lost", times=3)
    assert cluster.topic("orders").name == "orders"


def test_a_failed_connection_is_not_used_again(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    cluster.all_topics()
    opened = fake.connections_opened
    fake.fail_next(metadata.MetadataRequest, "lost")
    cluster.topic("orders")
    assert fake.connections_opened > opened


def test_creating_is_repeated_only_when_nothing_was_done(
    fake: FakeCluster, cluster: Cluster
) -> None:
    fake.fail_next(create_topics.CreateTopicsRequest, ErrorCode.NOT_CONTROLLER)
    fake.fail_next(create_topics.CreateTopicsRequest, "unreachable")
    cluster.create_topic(NewTopic("orders", 2))
    assert count_of(fake, create_topics.CreateTopicsRequest) == 3
    assert len(cluster.topic("orders").partitions) == 2


def test_creating_with_a_lost_answer_is_ambiguous(fake: FakeCluster, cluster: Cluster) -> None:
    fake.fail_next(create_topics.CreateTopicsRequest, "lost")
    with pytest.raises(AnswerLostError):
        cluster.create_topic(NewTopic("orders"))
    assert count_of(fake, create_topics.CreateTopicsRequest) == 1


def test_deleting_what_is_not_there_fails_at_once(
    fake: FakeCluster, cluster: Cluster, clock: StepClock
) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="nothing"):
        cluster.delete_topic("nothing")
    assert count_of(fake, delete_topics.DeleteTopicsRequest) == 1
    assert clock.seconds == 0


def test_an_unknown_topic_is_not_waited_for(cluster: Cluster, clock: StepClock) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="nothing"):
        cluster.topic("nothing")
    assert clock.seconds == 0


def test_a_topic_that_is_being_created_is_waited_for(fake: FakeCluster, cluster: Cluster) -> None:
    fake.auto_create = True
    assert len(cluster.topic("orders", auto_create=True).partitions) == 1


def test_a_topic_that_never_appears_is_given_up(cluster: Cluster, clock: StepClock) -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        cluster.topic("orders", auto_create=True)
    assert 3 < clock.seconds <= 5


def test_a_leader_that_moved_is_found_again(clock: StepClock) -> None:
    fake = FakeCluster(broker_ids=(1, 2))
    cluster = Cluster([Address("b", 9000)], fake.connect, clock=clock, sleep=clock.sleep)
    fake.add_topic("orders")
    at = TopicPartition("orders", 0)
    assert cluster.find_offsets({at: -1}) == {at: 0}
    assert cluster.by_leader([at]) == {Address("fake", 9001): [at]}
    fake.leaders[at] = 2
    fake.fail_next(list_offsets.ListOffsetsRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert cluster.find_offsets({at: -1}) == {at: 0}
    assert cluster.by_leader([at]) == {Address("fake", 9002): [at]}


def test_time_is_bounded(fake: FakeCluster, cluster: Cluster, clock: StepClock) -> None:
    fake.add_topic("orders")
    cluster.all_topics()
    fake.fail_next(
        init_producer_id.InitProducerIdRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 100
    )
    with pytest.raises(BrokerAnswerError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        cluster.start_producer()
    assert 8 < clock.seconds <= 10


def test_the_time_for_a_first_contact_is_bounded_too(fake: FakeCluster, clock: StepClock) -> None:
    cluster = Cluster(
        [Address("b", 9000)],
        fake.connect,
        timeout_seconds=10,
        repeats_first_contact=True,
        clock=clock,
        sleep=clock.sleep,
    )
    fake.is_down = True
    with pytest.raises(BrokerUnreachableError):
        cluster.all_topics()
    assert 8 < clock.seconds <= 10


# --- Many topics and partitions ---


@pytest.fixture
def wide(clock: StepClock) -> tuple[FakeCluster, Cluster]:
    """Three brokers, ten topics of a hundred partitions."""
    fake = FakeCluster(broker_ids=(1, 2, 3))
    for number in range(10):
        fake.add_topic(f"topic-{number}", partitions=100)
    return fake, Cluster([Address("b", 9000)], fake.connect, clock=clock, sleep=clock.sleep)


def test_looking_up_offsets_costs_a_call_for_each_leader(wide: tuple[FakeCluster, Cluster]) -> None:
    fake, cluster = wide
    fake.stable_offsets = dict.fromkeys(fake.logs, 17)
    wanted = dict.fromkeys(fake.logs, LATEST_TIMESTAMP)
    found = cluster.look_up_offsets(wanted, is_read_committed=True)
    assert found == dict.fromkeys(fake.logs, FoundOffset(17, 0, -1))
    assert list(found) == list(wanted)
    assert count_of(fake, metadata.MetadataRequest) == 1
    assert count_of(fake, list_offsets.ListOffsetsRequest) == 3
    assert cluster.find_offsets(wanted) == dict.fromkeys(fake.logs, 0)


def test_only_what_failed_is_asked_for_again(wide: tuple[FakeCluster, Cluster]) -> None:
    fake, cluster = wide
    fake.fail_next(list_offsets.ListOffsetsRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    wanted = dict.fromkeys(fake.logs, LATEST_TIMESTAMP)
    assert len(cluster.look_up_offsets(wanted, is_read_committed=False)) == 1_000
    requests = [one for one in fake.requests if isinstance(one, list_offsets.ListOffsetsRequest)]
    counts = [sum(len(topic.partitions) for topic in one.topics) for one in requests]
    assert counts == [340, 330, 330, 340]


def test_calls_to_many_brokers_leave_nothing_behind_when_one_fails(
    wide: tuple[FakeCluster, Cluster],
) -> None:
    fake, cluster = wide
    cluster.all_topics()
    fake.fail_next(list_offsets.ListOffsetsRequest, ErrorCode.NONE, times=2)
    fake.fail_next(list_offsets.ListOffsetsRequest, "unreachable")
    wanted = dict.fromkeys(fake.logs, LATEST_TIMESTAMP)
    assert len(cluster.look_up_offsets(wanted, is_read_committed=False)) == 1_000
    assert sum(one.answers_waiting for one in fake.opened) == 0


def test_an_answer_that_leaves_a_partition_out(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    fake.handlers[list_offsets.ListOffsetsRequest] = lambda *_: list_offsets.ListOffsetsResponse(
        topics=()
    )
    with pytest.raises(BrokerAnswerError, match="orders-0: the answer leaves it out"):
        cluster.find_offsets({TopicPartition("orders", 0): LATEST_TIMESTAMP})


def test_describing_is_one_request(wide: tuple[FakeCluster, Cluster]) -> None:
    fake, cluster = wide
    fake.leader_epochs[TopicPartition("topic-3", 7)] = 9
    found = cluster.describe(["topic-3", "nothing", "topic-1"])
    assert list(found) == ["topic-1", "topic-3"]
    assert found["topic-3"].topic_id == fake.topic_ids["topic-3"]
    assert found["topic-3"].partitions[7] == PartitionDescription(2, 9)
    assert len(cluster.describe(None)) == 10
    assert count_of(fake, metadata.MetadataRequest) == 2


def test_the_cluster_has_an_id(fake: FakeCluster, cluster: Cluster) -> None:
    assert cluster.cluster_id() == "fake-cluster"
    assert cluster.cluster_id() == "fake-cluster"
    assert count_of(fake, metadata.MetadataRequest) == 1


def test_leaders_are_learnt_anew_when_they_are_forgotten(
    fake: FakeCluster, cluster: Cluster
) -> None:
    fake.add_topic("orders")
    at = TopicPartition("orders", 0)
    assert cluster.leaders([at])[at].leader_epoch == 0
    fake.leader_epochs[at] = 3
    assert cluster.leaders([at])[at].leader_epoch == 0
    cluster.forget_leaders()
    assert cluster.known_topic("orders") is None
    assert cluster.leaders([at])[at].leader_epoch == 3


def test_one_broker_may_be_asked_several_things_at_once(
    fake: FakeCluster, cluster: Cluster
) -> None:
    fake.add_topic("orders")
    at = TopicPartition("orders", 0)
    leader = cluster.leaders([at])[at].address
    first, second, third = (cluster.start(leader, describe_brokers([])) for _ in range(3))
    second.forget()
    assert third.result().cluster_id == first.result().cluster_id == "fake-cluster"
    assert fake.opened[-1].answers_waiting == 0


def test_a_connection_that_fails_fails_for_all_and_once(
    fake: FakeCluster, cluster: Cluster
) -> None:
    """The second of two calls finds out; the next call gets a new connection and keeps it."""
    fake.add_topic("orders")
    at = TopicPartition("orders", 0)
    leader = cluster.leaders([at])[at].address
    first = cluster.start(leader, describe_brokers([]))
    fake.fail_next(metadata.MetadataRequest, "lost")
    second = cluster.start(leader, describe_brokers([]))
    with pytest.raises(AnswerLostError):
        second.result()
    opened = fake.connections_opened
    fresh = cluster.start(leader, describe_brokers([]))
    assert fake.connections_opened == opened + 1
    with pytest.raises(AnswerLostError):
        first.result()
    assert fresh.result().cluster_id == "fake-cluster"
    assert cluster.at(leader, describe_brokers([])).cluster_id == "fake-cluster"
    assert fake.connections_opened == opened + 1
