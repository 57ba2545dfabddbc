"""Positions: the options become an offset for every partition, or an error with a remedy."""

import pytest

from penstock.core.types import TopicPartition
from penstock.spark.errors import OptionError, SubscriptionError
from penstock.spark.source.lookups import Lookups
from penstock.spark.source.options import Mode
from tests.client.number_cluster import NumberCluster
from tests.spark.source_world import lookups_of, source_options

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
TIME = 1_700_000_000_000


@pytest.fixture
def cluster() -> NumberCluster:
    made = NumberCluster((1, 2))
    made.set_topic("orders", 100, 50, starts={0: 10})
    made.times = {(A, TIME): 42, (A, TIME + 1): 43, (B, TIME): 7}
    return made


def first(cluster: NumberCluster, **given: str) -> dict[TopicPartition, int]:
    options = source_options(Mode.STREAM, **given)
    found = lookups_of(cluster, options).first_position()
    assert found.is_initial
    assert found.cluster_id == "fake-cluster"
    assert found.topic_ids.keys() == {at.topic for at in found.positions}
    return {at: position.offset for at, position in found.positions.items()}


def test_the_edges(cluster: NumberCluster) -> None:
    assert first(cluster) == {A: 100, B: 50}
    assert first(cluster, startingOffsets="latest") == {A: 100, B: 50}
    assert first(cluster, startingOffsets="EARLIEST") == {A: 10, B: 0}


def test_offsets_with_edges_among_them(cluster: NumberCluster) -> None:
    assert first(cluster, startingOffsets='{"orders":{"0":-1,"1":-2}}') == {A: 100, B: 0}
    cluster.counted()
    assert first(cluster, startingOffsets='{"orders":{"0":11,"1":5}}') == {A: 11, B: 5}
    assert cluster.counted() == {"Metadata": 1}


def test_times(cluster: NumberCluster) -> None:
    assert first(cluster, startingTimestamp=str(TIME)) == {A: 42, B: 7}
    by_partition = f'{{"orders":{{"0":{TIME + 1},"1":{TIME}}}}}'
    assert first(cluster, startingOffsetsByTimestamp=by_partition) == {A: 43, B: 7}


def test_a_time_after_the_last_record(cluster: NumberCluster) -> None:
    late = str(TIME + 1)
    with pytest.raises(OptionError, match="orders-1") as caught:
        first(cluster, startingTimestamp=late)
    assert "startingOffsetsByTimestampStrategy" in caught.value.remedy
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert first(cluster, startingTimestamp=late, **strategy) == {A: 43, B: 50}


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": '{"orders":{"0":1}}'},
        {"startingOffsets": '{"orders":{"0":1,"1":1,"2":1}}'},
        {"startingOffsetsByTimestamp": '{"orders":{"0":1}}'},
    ],
)
def test_who_names_partitions_names_all(cluster: NumberCluster, given: dict[str, str]) -> None:
    with pytest.raises(OptionError) as caught:
        first(cluster, **given)
    assert caught.value.option == next(iter(given))


def test_patterns_are_found_anywhere_and_internal_topics_never(cluster: NumberCluster) -> None:
    for name in ("old-orders", "users", "__consumer_offsets", "order"):
        cluster.set_topic(name, 1)
    found = first(cluster, subscribePattern="orders", startingOffsets="earliest")
    assert {at.topic for at in found} == {"orders", "old-orders"}
    found = first(cluster, subscribePattern="^order.$", startingOffsets="earliest")
    assert {at.topic for at in found} == {"orders"}
    assert first(cluster, subscribePattern="nothing") == {}
    found = first(cluster, subscribePattern=".*")
    assert "__consumer_offsets" not in {at.topic for at in found}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"subscribe": "orders,nope,gone"}, "'subscribe': there is no topic 'nope', 'gone'"),
        ({"subscribe": "__consumer_offsets"}, "internal"),
        ({"assign": '{"nope":[0]}'}, "'assign': there is no topic 'nope'"),
        ({"assign": '{"orders":[0,2]}'}, "no partition orders-2. orders has 2 partitions"),
    ],
)
def test_what_is_not_there_is_named(
    cluster: NumberCluster, given: dict[str, str], text: str
) -> None:
    cluster.set_topic("__consumer_offsets", 1)
    with pytest.raises(SubscriptionError, match=text):
        first(cluster, **given)


def test_a_topic_that_was_just_created_is_waited_for(cluster: NumberCluster) -> None:
    sleep = cluster.clock.sleep

    def create(seconds: float) -> None:
        sleep(seconds)
        cluster.set_topic("users", 4)

    options = source_options(Mode.STREAM, subscribe="users")
    found = Lookups(cluster.client(), options, create).first_position()
    assert found.positions.keys() == {TopicPartition("users", 0)}


def test_only_assigned_partitions_are_read(cluster: NumberCluster) -> None:
    assert first(cluster, assign='{"orders":[1]}') == {B: 50}


def test_committed_readers_start_at_the_last_stable_offset(cluster: NumberCluster) -> None:
    cluster.stable_offsets = {A: 80}
    assert first(cluster, **{"kafka.isolation.level": "read_committed"}) == {A: 80, B: 50}


def test_the_list_of_topics_is_kept_for_as_long_as_allowed(cluster: NumberCluster) -> None:
    def latest(lookups: Lookups) -> int:
        lookups.latest()
        return cluster.counted().get("Metadata", 0)

    always = lookups_of(cluster, source_options())
    assert (latest(always), latest(always)) == (1, 1)
    options = source_options(Mode.STREAM, **{"partition.metadata.cache.ttl.ms": "1000"})
    sometimes = lookups_of(cluster, options)
    assert (latest(sometimes), latest(sometimes)) == (1, 0)
    cluster.clock.seconds += 1
    assert latest(sometimes) == 1
