"""A broker that is drained by a setting: it runs, stays in sync, and leads only if no other can."""

from uuid import UUID

import pytest

from penstock.cluster.broker_changes import broker_layers, decide_broker_settings
from penstock.cluster.changes import BrokerRegistered, BrokerSettingsChanged, NodeChanged, apply
from penstock.cluster.configs.drain_setting import DRAIN, drained_brokers
from penstock.cluster.configs.setting_changes import EditKind, SettingEdit, SettingsChange
from penstock.cluster.controller import (
    NewTopic,
    TopicCreation,
    absent_brokers,
    decide_creations,
    new_partition,
    running_racks,
)
from penstock.cluster.elections import (
    Members,
    elected,
    reconciled,
    with_preferred_leader,
    without_drained_leader,
    without_drained_replicas,
)
from penstock.cluster.image import (
    BrokerImage,
    BrokerSettingsImage,
    BrokerState,
    Endpoint,
    MetadataImage,
    NodeImage,
    PartitionImage,
)
from penstock.cluster.keys import ALL_BROKERS
from penstock.cluster.topic_rules import TopicRules
from penstock.core.errors import InvalidRequestError


def cluster(
    drained: tuple[int, ...] = (), stopping: tuple[int, ...] = (), ids: tuple[int, ...] = (1, 2, 3)
) -> MetadataImage:
    """Return registered brokers, broker 1 with epoch 11 and so on."""
    changes: list[BrokerRegistered | NodeChanged | BrokerSettingsChanged] = []
    for one in ids:
        state = BrokerState.DRAINING if one in stopping else BrokerState.RUNNING
        endpoint = Endpoint("PLAINTEXT", "localhost", 9090 + one)
        broker = BrokerImage(one, (endpoint,), None, f"d{one}", 10 + one, state)
        changes += [BrokerRegistered(broker), NodeChanged(one, NodeImage(f"d{one}", one))]
    changes += [
        BrokerSettingsChanged(str(one), BrokerSettingsImage({DRAIN: "true"}, 20)) for one in drained
    ]
    return apply(MetadataImage(), changes, 30)


def state(leader: int, isr: tuple[int, ...] = (1, 2, 3)) -> PartitionImage:
    return PartitionImage(
        (1, 2, 3),
        leader,
        5,
        isr,
        30,
        broker_epoch=10 + leader,
        isr_epochs=tuple(10 + one for one in isr),
        min_isr=2,
    )


def test_the_setting_is_read_from_the_image() -> None:
    assert drained_brokers(cluster()) == frozenset()
    assert drained_brokers(cluster(drained=(2, 3))) == {2, 3}
    others = [BrokerSettingsChanged("1", BrokerSettingsImage({DRAIN: "false"}, 20))]
    assert drained_brokers(apply(cluster(drained=(2,)), others, 31)) == {2}


def test_its_leaders_move_and_its_replicas_stay() -> None:
    members = Members.of(cluster(drained=(1,)))
    moved = without_drained_leader(state(1), members)
    assert moved is not None
    assert (moved.leader, moved.isr, moved.leader_epoch) == (2, (1, 2, 3), 6)
    assert without_drained_replicas(moved, members) is None
    # A broker that stops leaves the in-sync replicas.
    stopping = without_drained_replicas(moved, Members.of(cluster(stopping=(1,))))
    assert stopping is not None
    assert stopping.isr == (2, 3)


def test_its_leaders_do_not_come_back() -> None:
    members = Members.of(cluster(drained=(1,)))
    assert with_preferred_leader(state(2), members) is None
    assert with_preferred_leader(state(2), Members.of(cluster())) is not None


def test_it_leads_if_no_other_broker_can() -> None:
    alone = cluster(drained=(1,), ids=(1,))
    found = reconciled(state(2), Members.of(alone))
    assert found is not None
    assert found.leader == 1
    # It keeps what it leads, without a broker to move it to.
    assert without_drained_leader(state(1, (1,)), Members.of(cluster(drained=(1,)))) is None
    both = Members.of(cluster(drained=(1, 2)))
    assert without_drained_leader(state(1, (1, 2)), both) is None


def test_a_broker_that_stops_hands_over_to_it() -> None:
    members = Members.of(cluster(drained=(1,), stopping=(2,), ids=(1, 2)))
    moved = without_drained_leader(state(2), members)
    assert moved is not None
    assert moved.leader == 1


def test_an_unclean_election_may_choose_it() -> None:
    members = Members.of(cluster(drained=(1,), ids=(1,)))
    lost = state(2, (2, 3))
    assert elected(lost, members, is_unclean_allowed=False).leader == -1
    assert elected(lost, members, is_unclean_allowed=True).leader == 1


def test_new_replicas_are_elsewhere_if_they_can_be() -> None:
    image = cluster(drained=(2,))
    assert [*running_racks(image)] == [1, 3]
    assert absent_brokers(image) == [2]
    for factor, expected in ((2, {1, 3}), (3, {1, 2, 3})):
        topic = NewTopic(name="t", partition_count=6, replication_factor=factor)
        (found,) = decide_creations(image, [topic], [UUID(int=5)], TopicRules())
        assert isinstance(found, TopicCreation)
        for partition in found.topic.partitions:
            assert set(partition.replicas) == set(partition.isr) == expected
            assert partition.leader != 2
    assert [*running_racks(cluster(drained=(1, 2, 3)))] == [1, 2, 3]


def test_an_assignment_that_names_it_first_is_led_by_another() -> None:
    image = cluster(drained=(2,))
    partition = new_partition(image, (2, 3), 1)
    assert (partition.leader, partition.broker_epoch) == (3, 13)
    assert (partition.isr, partition.isr_epochs) == ((2, 3), (12, 13))
    assert new_partition(image, (2,), 1).leader == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("2", "perhaps", "perhaps"),
        (ALL_BROKERS, "true", "broker id must be specified"),
    ],
)
def test_refused_values(name: str, text: str, message: str) -> None:
    image = cluster()
    change = SettingsChange(name, (SettingEdit(DRAIN, EditKind.SET, text),), replaces_all=False)
    with pytest.raises(InvalidRequestError, match=message):
        decide_broker_settings(image, change, broker_layers(image, 2, {}))


def test_the_setting_is_accepted_for_one_broker() -> None:
    image = cluster()
    change = SettingsChange("2", (SettingEdit(DRAIN, EditKind.SET, "true"),), replaces_all=False)
    assert decide_broker_settings(image, change, broker_layers(image, 2, {})) == {DRAIN: "true"}


@pytest.mark.parametrize("text", [" true", "TRUE ", "\ttrue"])
def test_a_value_with_spaces_that_is_accepted_has_its_effect(text: str) -> None:
    settings = BrokerSettingsChanged("2", BrokerSettingsImage({DRAIN: text}, 20))
    assert drained_brokers(apply(cluster(), [settings], 31)) == {2}
