"""Values and keys read back, and the image of a damaged store."""

import json
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
)
from penstock.cluster.image import (
    BrokerImage,
    BrokerState,
    Endpoint,
    MetadataImage,
    NodeImage,
    PartitionImage,
    Replica,
    WriteMark,
)
from penstock.cluster.keys import ALL_BROKERS, KeyKind, Keys, ParsedKey
from penstock.cluster.link.interpretation import interpret
from penstock.cluster.stores.port import Event, KeyValue
from penstock.core.errors import StoreError
from penstock.core.types import PLAINTEXT

KEYS = Keys("/penstock/test/")
ID = UUID(int=7)
STATE = PartitionImage((1,), 1, 0, (1,), 5)
NUMBERS = st.integers(0, 2**31 - 1)
INTEGERS = st.lists(NUMBERS, max_size=5).map(tuple)


REPLICAS = st.lists(st.builds(Replica, NUMBERS, NUMBERS), max_size=5).map(tuple)
STATES = st.builds(
    lambda isr, **fields: PartitionImage(
        isr=tuple(one.broker_id for one in isr),
        isr_epochs=tuple(one.epoch for one in isr),
        partition_epoch=9,
        **fields,
    ),
    isr=REPLICAS,
    replicas=INTEGERS,
    leader=st.integers(-1, 2**31 - 1),
    leader_epoch=NUMBERS,
    broker_epoch=NUMBERS,
    elr=REPLICAS,
    min_isr=NUMBERS,
    adding=INTEGERS,
    removing=INTEGERS,
    is_recovering=st.booleans(),
    written_by=st.none() | st.builds(WriteMark, NUMBERS, NUMBERS, NUMBERS),
)


@given(STATES)
def test_a_partition_reads_back(state: PartitionImage) -> None:
    written = values.write_partition(state)
    assert values.read_partition(written, 9) == state
    # The same value with spaces and in another order is read by the JSON parser.
    other = json.dumps(dict(sorted(json.loads(written).items())), indent=1).encode()
    assert values.read_partition(other, 9) == state


@given(STATES, st.data())
def test_a_changed_byte_is_read_as_json_is(state: PartitionImage, data: st.DataObject) -> None:
    """The fast reader accepts nothing that the JSON parser rejects or reads in another way."""
    written = bytearray(values.write_partition(state))
    position = data.draw(st.integers(0, len(written) - 1))
    written[position] = data.draw(st.sampled_from(b'0123456789-[]{},"x '))
    outcomes: list[PartitionImage | None] = []
    for value in (bytes(written), b" " + bytes(written)):
        try:
            outcomes.append(values.read_partition(value, 9))
        except StoreError:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]


def test_a_partition_of_version_1_is_read_and_written_as_version_2() -> None:
    value = b'{"v":1,"replicas":[1,2],"leader":1,"leader_epoch":4,"isr":[2,1]}'
    state = values.read_partition(value, 9)
    assert state == PartitionImage((1, 2), 1, 4, (2, 1), 9, isr_epochs=(0, 0))
    assert state.in_sync == (Replica(2, 0), Replica(1, 0))
    written = values.write_partition(state)
    assert json.loads(written) == {
        "v": 2,
        "replicas": [1, 2],
        "adding": [],
        "removing": [],
        "leader": 1,
        "bepoch": 0,
        "epoch": 4,
        "isr": [[2, 0], [1, 0]],
        "elr": [],
        "min_isr": 1,
        "recovering": False,
        "by": None,
    }
    assert values.read_partition(written, 9) == state


@pytest.mark.parametrize(
    "damage",
    [
        {"isr": [1]},
        {"isr": [[1, True]]},
        {"isr": [[1, 2, 3]]},
        {"elr": 5},
        {"leader": None},
        {"epoch": True},
        {"recovering": 0},
        {"by": [1]},
        {"by": "x"},
        {"replicas": [[1]]},
        {"min_isr": 1.5},
    ],
)
def test_a_damaged_partition_raises_the_one_error(damage: dict[str, object]) -> None:
    fields = json.loads(values.write_partition(STATE))
    with pytest.raises(StoreError, match="damaged"):
        values.read_partition(json.dumps({**fields, **damage}).encode(), 1)
    for name in fields:
        rest = {one: value for one, value in fields.items() if one != name}
        with pytest.raises(StoreError):
            values.read_partition(json.dumps(rest).encode(), 1)


@given(st.dictionaries(st.text(), st.text()))
def test_settings_read_back(settings: dict[str, str]) -> None:
    assert values.read_settings(values.write_settings(settings)) == settings


def test_other_values_read_back() -> None:
    endpoints = (Endpoint(PLAINTEXT, "host", 9092), Endpoint("CLIENTS", "name", 9093, "SSL"))
    broker = BrokerImage(3, endpoints, "rack", "directory", 12)
    assert values.read_broker(values.write_broker(broker), 3, 12) == broker
    draining = replace(broker, state=BrokerState.DRAINING, revision=14)
    assert values.read_broker(values.write_broker(draining), 3, 12, 14) == draining
    assert values.read_node(values.write_node("directory"), 5) == NodeImage("directory", 5)
    older = b'{"v":1,"host":"host","port":9092,"rack":"rack","directory_id":"directory"}'
    assert values.read_broker(older, 3, 12) == replace(broker, endpoints=endpoints[:1], features=())
    levels = {"penstock.cluster": 2, "other": 1}
    assert values.read_features(values.write_features(levels)) == levels
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
    with pytest.raises(StoreError, match="version 3"):
        values.read_partition(b'{"v":3}', 1)
    with pytest.raises(StoreError, match="version 3"):
        values.read_broker(b'{"v":3}', 1, 1)
    with pytest.raises(StoreError, match="unknown state"):
        values.read_broker(b'{"v":2,"state":"sleeping"}', 1, 1)
    with pytest.raises(StoreError, match="version 2"):
        values.read_features(b'{"v":2,"levels":{}}')
    with pytest.raises(StoreError, match="table of levels"):
        values.read_features(b'{"v":1}')
    with pytest.raises(StoreError, match="number 'f'"):
        values.read_features(b'{"v":1,"levels":{"f":"x"}}')
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
        (KEYS.node(3), ParsedKey(KeyKind.NODE, "", 3)),
        (KEYS.controller(), ParsedKey(KeyKind.CONTROLLER)),
        (KEYS.creating(ID), ParsedKey(KeyKind.CREATING, str(ID))),
        (KEYS.name("a_b"), ParsedKey(KeyKind.NAME, "a_b")),
        (KEYS.features(), ParsedKey(KeyKind.FEATURES)),
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
