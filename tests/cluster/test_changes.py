"""Values and keys read back, and the image of a damaged store."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster import values
from penstock.cluster.changes import (
    PartitionsChanged,
    TopicPublished,
    TopicRemoved,
    TopicSettingsChanged,
    apply,
    interpret,
)
from penstock.cluster.image import BrokerImage, Endpoint, MetadataImage, PartitionImage
from penstock.cluster.keys import ALL_BROKERS, KeyKind, Keys, ParsedKey
from penstock.cluster.stores.port import Event, KeyValue
from penstock.core.errors import StoreError
from penstock.core.types import PLAINTEXT

KEYS = Keys("/penstock/test/")
ID = UUID(int=7)
STATE = PartitionImage((1,), 1, 0, (1,), 5)
INTEGERS = st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple)


@given(INTEGERS, st.integers(-1, 2**31 - 1), st.integers(0, 2**31 - 1), INTEGERS)
def test_a_partition_reads_back(
    replicas: tuple[int, ...], leader: int, epoch: int, isr: tuple[int, ...]
) -> None:
    state = PartitionImage(replicas, leader, epoch, isr, 9)
    assert values.read_partition(values.write_partition(state), 9) == state


@given(st.dictionaries(st.text(), st.text()))
def test_settings_read_back(settings: dict[str, str]) -> None:
    assert values.read_settings(values.write_settings(settings)) == settings


def test_other_values_read_back() -> None:
    endpoints = (Endpoint(PLAINTEXT, "host", 9092), Endpoint("CLIENTS", "name", 9093, "SSL"))
    broker = BrokerImage(3, endpoints, "rack", "directory", 12)
    assert values.read_broker(values.write_broker(broker), 3, 12) == broker
    older = b'{"v":1,"host":"host","port":9092,"rack":"rack","directory_id":"directory"}'
    assert values.read_broker(older, 3, 12) == replace(broker, endpoints=endpoints[:1])
    for is_adopted in (False, True):
        topic = values.TopicValue(ID, 4, is_adopted)
        assert values.read_topic(values.write_topic(topic)) == topic
    assert values.read_cluster_id(values.write_cluster_id("c")) == "c"
    assert values.read_next_producer_id(values.write_next_producer_id(2**40)) == 2**40


@given(
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from(
            [b"[]", b"{}", b'{"v":1}', b'{"v":"1"}', b'{"v":1,"id":"x","partitions":1}']
        ),
    )
)
def test_damaged_values_raise_the_one_error(value: bytes) -> None:
    for read in (values.read_topic, values.read_settings, values.read_next_producer_id):
        with pytest.raises(StoreError):
            read(value)
    with pytest.raises(StoreError):
        values.read_partition(value, 1)


def test_newer_values_are_refused() -> None:
    with pytest.raises(StoreError, match="newer Penstock"):
        values.read_topic(b'{"v":2,"id":"x"}')
    with pytest.raises(StoreError, match="layout 9"):
        values.check_format(b'{"v":1,"format":9}')


@pytest.mark.parametrize(
    ("key", "parsed"),
    [
        (KEYS.topic("a.b-c_d"), ParsedKey(KeyKind.TOPIC, "a.b-c_d")),
        (KEYS.partition(ID, 12), ParsedKey(KeyKind.PARTITION, str(ID), 12)),
        (KEYS.topic_settings("t"), ParsedKey(KeyKind.TOPIC_SETTINGS, "t")),
        (KEYS.group_settings("a/b"), ParsedKey(KeyKind.GROUP_SETTINGS, "a/b")),
        (KEYS.broker(3), ParsedKey(KeyKind.BROKER, "", 3)),
        (KEYS.producer_ids(), ParsedKey(KeyKind.PRODUCER_IDS)),
        (KEYS.cluster_id(), ParsedKey(KeyKind.CLUSTER_ID)),
        (KEYS.format(), ParsedKey(KeyKind.FORMAT)),
        (KEYS.root + "tokens/x", ParsedKey(KeyKind.UNKNOWN)),
        (KEYS.broker_settings("1"), ParsedKey(KeyKind.BROKER_SETTINGS, "1")),
        (KEYS.broker_settings(ALL_BROKERS), ParsedKey(KeyKind.BROKER_SETTINGS, ALL_BROKERS)),
        (KEYS.root + "configs/user/1", ParsedKey(KeyKind.UNKNOWN)),
    ],
)
def test_keys_are_taken_apart_as_they_were_put_together(key: str, parsed: ParsedKey) -> None:
    assert KEYS.parse(key) == parsed


def test_partition_keys_sort_as_they_count() -> None:
    keys = [KEYS.partition(ID, index) for index in (0, 9, 10, 99, 100, 9_999)]
    assert keys == sorted(keys)
    assert all(key.startswith(KEYS.partitions(ID)) for key in keys)


def test_unknown_keys_of_a_newer_version_are_ignored() -> None:
    pair = KeyValue(KEYS.root + "tokens/x", b"?", 1, 1, 0)
    assert interpret(KEYS, [Event(pair.key, pair)]) == ()


def published(count: int) -> MetadataImage:
    states = dict.fromkeys(range(count), STATE)
    return apply(
        MetadataImage(),
        [PartitionsChanged(ID, states), TopicPublished("t", ID, count, 1)],
        1,
    )


def test_a_topic_without_all_its_partitions_is_damage() -> None:
    with pytest.raises(StoreError, match="lacks partition"):
        apply(MetadataImage(), [TopicPublished("t", ID, 1, 1)], 1)
    with pytest.raises(StoreError, match="lacks partition"):
        apply(published(2), [TopicPublished("t", ID, 1, 2)], 2)
    with pytest.raises(StoreError, match="vanished"):
        apply(published(2), [PartitionsChanged(ID, {1: None})], 2)


def test_a_topic_grows() -> None:
    waiting = apply(published(1), [PartitionsChanged(ID, {1: STATE})], 2)
    assert len(waiting.topics["t"].partitions) == 1
    grown = apply(waiting, [TopicPublished("t", ID, 2, 3)], 3)
    assert len(grown.topics["t"].partitions) == 2
    assert grown.partition_count == 2
    assert not grown.unpublished


def test_a_partition_changes_without_touching_others() -> None:
    before = published(2)
    led = PartitionImage((1, 2), 2, 1, (2,), 6)
    after = apply(before, [PartitionsChanged(ID, {1: led})], 6)
    assert after.topics["t"].partitions == (STATE, led)
    assert before.topics["t"].partitions == (STATE, STATE)


def test_a_name_that_passes_to_another_topic_in_one_change() -> None:
    other = UUID(int=8)
    before = apply(published(2), [TopicSettingsChanged("t", {"flush.ms": "1"})], 2)
    after = apply(
        before, [PartitionsChanged(other, {0: STATE}), TopicPublished("t", other, 1, 3)], 3
    )
    assert after.topics["t"].id == other
    assert after.topics["t"].settings == {}
    assert after.topic_by_id(ID) is None
    assert after.partition_count == 1


def test_settings_and_removal_of_an_unknown_topic_are_nothing() -> None:
    image = apply(published(1), [TopicSettingsChanged("u", {"a": "b"}), TopicRemoved("u")], 2)
    assert image.topics == published(1).topics
