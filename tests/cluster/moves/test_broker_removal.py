"""The cluster forgets a broker: only one that has stopped and has no replicas."""

from uuid import UUID

import pytest

from penstock.cluster.changes import (
    BrokerRegistered,
    BrokerSettingsChanged,
    Change,
    NodeChanged,
    PartitionsChanged,
    TopicPublished,
    apply,
)
from penstock.cluster.configs.drain_setting import DRAIN
from penstock.cluster.image import (
    BrokerImage,
    BrokerSettingsImage,
    Endpoint,
    MetadataImage,
    NodeImage,
    PartitionImage,
)
from penstock.cluster.keys import Keys
from penstock.cluster.moves.broker_removal import removal_writes
from penstock.cluster.stores.port import Compare, Delete, Put
from penstock.cluster.values import read_settings
from penstock.core.errors import PolicyViolationError, UnknownBrokerError

KEYS = Keys()
TOPIC_ID = UUID(int=7)
GUARD = Compare.created_at(KEYS.broker(1), 11)


def cluster(*changes: Change, settings: dict[str, str] | None = None) -> MetadataImage:
    """Return broker 1, and the disk of broker 3, which has stopped."""
    endpoint = Endpoint("PLAINTEXT", "localhost", 9091)
    own = BrokerImage(1, (endpoint,), None, "d1", 11)
    known: list[Change] = [
        BrokerRegistered(own),
        NodeChanged(1, NodeImage("d1", 1)),
        NodeChanged(3, NodeImage("d3", 25)),
        *changes,
    ]
    if settings is not None:
        known.append(BrokerSettingsChanged("3", BrokerSettingsImage(settings, 28)))
    return apply(MetadataImage(), known, 30)


def test_the_write_compares_both_keys() -> None:
    found = removal_writes(KEYS, cluster(), 3, (GUARD,))
    assert found.compares == (
        GUARD,
        Compare.absent(KEYS.broker(3)),
        Compare.unchanged(KEYS.node(3), 25),
    )
    assert found.operations == (Delete(KEYS.node(3)),)


def test_only_the_drain_goes_with_the_broker() -> None:
    key = KEYS.broker_settings("3")
    drained = removal_writes(KEYS, cluster(settings={DRAIN: "true"}), 3, ())
    assert drained.operations == (Delete(KEYS.node(3)), Delete(key))
    assert Compare.unchanged(key, 28) in drained.compares
    both = cluster(settings={DRAIN: "true", "log.roll.ms": "9"})
    _, put = removal_writes(KEYS, both, 3, ()).operations
    assert isinstance(put, Put)
    assert put.key == key
    assert read_settings(put.value) == {"log.roll.ms": "9"}
    other = removal_writes(KEYS, cluster(settings={"log.roll.ms": "9"}), 3, ())
    assert other.operations == (Delete(KEYS.node(3)),)


def test_an_unknown_broker() -> None:
    with pytest.raises(UnknownBrokerError, match=r"^Broker ID 7 is not currently registered$"):
        removal_writes(KEYS, cluster(), 7, ())


def test_a_running_broker_stays() -> None:
    with pytest.raises(PolicyViolationError, match="Broker ID 1 is running"):
        removal_writes(KEYS, cluster(), 1, ())


@pytest.mark.parametrize("is_published", [True, False])
def test_a_broker_with_replicas_stays(is_published: bool) -> None:
    state = PartitionImage((1, 3), 1, 0, (1,), 9)
    changes: list[Change] = [PartitionsChanged(TOPIC_ID, {0: state})]
    if is_published:
        changes.append(TopicPublished("t", TOPIC_ID, 1, 10))
    name = "t-0" if is_published else f"{TOPIC_ID}-0"
    with pytest.raises(PolicyViolationError, match=rf"has 1 replicas \({name}\)"):
        removal_writes(KEYS, cluster(*changes), 3, ())
