"""Decisions about mirrors: ids, epochs, marks and producer ids."""

from dataclasses import replace
from uuid import UUID

import pytest

from penstock.cluster import values
from penstock.cluster.changes import PartitionsChanged, TopicPublished, apply
from penstock.cluster.controller import NewTopic, TopicCreation
from penstock.cluster.image import BrokerImage, MetadataImage, Mirror, TopicImage
from penstock.cluster.keys import Keys
from penstock.cluster.mirrors import mirror_changes
from penstock.cluster.stores.port import Put
from penstock.cluster.topic_rules import TopicRules
from penstock.core.errors import (
    PolicyViolationError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)

KEYS = Keys("/penstock/")
ID, OTHER_ID = UUID(int=7), UUID(int=8)
EMPTY = MetadataImage(brokers={1: BrokerImage(1, (), None, "d", 5)})


def created(image: MetadataImage = EMPTY, count: int = 2) -> TopicCreation:
    wanted = NewTopic(name="price", partition_count=count, replication_factor=1)
    epochs = [3] * count
    return mirror_changes.decide_mirror(image, wanted, ID, epochs, "hq", TopicRules(), {})


def with_topic(topic: TopicImage) -> MetadataImage:
    published = TopicPublished(topic.name, topic.id, len(topic.partitions), 9, mirror=topic.mirror)
    states = PartitionsChanged(topic.id, dict(enumerate(topic.partitions)))
    return apply(EMPTY, [states, published], 9)


def test_a_mirror_has_the_id_and_the_epochs_of_its_parent() -> None:
    topic = created().topic
    assert (topic.id, topic.mirror) == (ID, Mirror("hq"))
    assert [one.leader_epoch for one in topic.partitions] == [3, 3]


def test_an_id_is_not_used_twice() -> None:
    image = with_topic(replace(created().topic, name="other"))
    with pytest.raises(TopicExistsError, match="has the id"):
        created(image)


def test_producer_ids_move_once() -> None:
    ids, *_ = mirror_changes.mirror_writes(KEYS, EMPTY, created(), (), 4)
    (write,) = ids.operations
    assert isinstance(write, Put)
    assert values.read_next_producer_id(write.value) == 5 << 40
    moved = replace(EMPTY, next_producer_id=5 << 40)
    assert len(list(mirror_changes.mirror_writes(KEYS, moved, created(), (), 4))) == 1


def test_epochs_never_fall() -> None:
    topic = created().topic
    raised = mirror_changes.raised(topic, [2, 4])
    assert {index: one.leader_epoch for index, one in raised.items()} == {1: 4}


def test_a_promotion_raises_epochs_and_ends_the_mark_last() -> None:
    topic = created(count=250).topic
    after = mirror_changes.decide_promotion(with_topic(topic), "price")
    assert (after.mirror, after.partitions[0].leader_epoch) == (None, 4)
    states = dict(enumerate(after.partitions))
    writes = list(mirror_changes.change_writes(KEYS, topic, states, (), after))
    assert len(writes) == 3
    last = writes[-1].operations[-1]
    assert isinstance(last, Put)
    assert values.read_topic(last.value).mirror is None
    assert all(len(one.operations) <= 101 for one in writes)


def test_only_mirrors_are_promoted_and_only_others_restored() -> None:
    mirror = created().topic
    plain = replace(mirror, mirror=None)
    with pytest.raises(PolicyViolationError, match="not a mirror"):
        mirror_changes.decide_promotion(with_topic(plain), "price")
    with pytest.raises(PolicyViolationError, match="a mirror already"):
        mirror_changes.decide_restoration(with_topic(mirror), "price", "hq")
    with pytest.raises(UnknownTopicOrPartitionError):
        mirror_changes.decide_promotion(EMPTY, "price")
    restored = mirror_changes.decide_restoration(with_topic(plain), "price", "hq")
    assert restored.mirror == Mirror("hq", is_restoring=True)


@pytest.mark.parametrize("mirror", [None, Mirror("hq"), Mirror("hq", is_restoring=True)])
def test_the_mark_is_stored(mirror: Mirror | None) -> None:
    value = values.TopicValue(ID, 3, mirror=mirror)
    assert values.read_topic(values.write_topic(value)) == value
