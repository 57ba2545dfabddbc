"""Growth of internal topics: when, where to, and which ones are left alone."""

from uuid import UUID

import pytest

from penstock.cluster.changes import (
    BrokerRegistered,
    PartitionsChanged,
    TopicPublished,
    TopicSettingsChanged,
    apply,
)
from penstock.cluster.controller import MIN_ISR
from penstock.cluster.image import (
    BrokerImage,
    BrokerState,
    Endpoint,
    MetadataImage,
    PartitionImage,
)
from penstock.cluster.keys import Keys
from penstock.cluster.moves.internal_topics import growth_decision, min_isr_writes
from penstock.cluster.moves.reassignment import begun, is_moving, target_of
from penstock.cluster.stores.port import Compare, Put
from penstock.cluster.values import read_settings
from penstock.core.types import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

KEYS = Keys()
TOPIC_ID = UUID(int=9)
GUARDS = (Compare.created_at(KEYS.controller(), 3),)


def state(*replicas: int) -> PartitionImage:
    return PartitionImage(replicas, replicas[0], 4, replicas, 7, isr_epochs=(5,) * len(replicas))


def image_of(
    *states: PartitionImage,
    running: tuple[int, ...] = (1, 2, 3),
    name: str = OFFSETS_TOPIC,
    settings: dict[str, str] | None = None,
) -> MetadataImage:
    endpoint = (Endpoint("PLAINTEXT", "h", 1),)
    return apply(
        MetadataImage(),
        [
            PartitionsChanged(TOPIC_ID, dict(enumerate(states))),
            TopicPublished(name, TOPIC_ID, len(states), 5),
            TopicSettingsChanged(name, settings or {"cleanup.policy": "compact"}),
            *(
                BrokerRegistered(BrokerImage(one, endpoint, None, "d", 5, BrokerState.RUNNING))
                for one in running
            ),
        ],
        8,
    )


def grown(image: MetadataImage, replicas_max: int = 3) -> list[PartitionImage | None] | None:
    """Return the next states, None for partitions that stay; None if nothing is decided."""
    decide = growth_decision(image, replicas_max)
    if decide is None:
        return None
    (topic,) = image.topics.values()
    return [decide(topic, index, one) for index, one in enumerate(topic.partitions)]


@pytest.mark.parametrize("name", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
def test_each_partition_gets_a_replica_on_each_broker(name: str) -> None:
    found = grown(image_of(state(1), state(1), state(1), name=name))
    assert found is not None
    targets = [target_of(one) for one in found if one is not None]
    assert [set(one) for one in targets] == [{1, 2, 3}] * 3
    # Each broker leads one.
    assert {one[0] for one in targets} == {1, 2, 3}


def test_as_many_as_run_and_at_most_three() -> None:
    found = grown(image_of(state(1), running=(1, 2)))
    assert found is not None
    assert found[0] is not None
    assert set(target_of(found[0])) == {1, 2}
    assert grown(image_of(state(1), running=(1,))) is None
    assert grown(image_of(state(1, 2, 3), running=(1, 2, 3, 4))) is None
    assert grown(image_of(state(1)), 1) is None


def test_other_topics_and_moves_under_way_are_left_alone() -> None:
    assert grown(image_of(state(1), name="orders")) is None
    moving = begun(state(1), (2,))
    assert grown(image_of(moving)) is None
    found = grown(image_of(moving, state(1)))
    assert found is not None
    assert (found[0], found[1] is not None) == (None, True)
    # An operator has decided, or it has been grown before.
    assert grown(image_of(state(1), settings={MIN_ISR: "1"})) is None


def test_two_of_three_must_have_a_record_when_all_partitions_have_three() -> None:
    whole = image_of(state(1, 2, 3), state(2, 3, 1))
    (write,) = min_isr_writes(KEYS, whole, GUARDS)
    assert GUARDS[0] in write.compares
    settings = next(
        one
        for one in write.operations
        if isinstance(one, Put) and one.key == KEYS.topic_settings(OFFSETS_TOPIC)
    )
    assert read_settings(settings.value) == {"cleanup.policy": "compact", MIN_ISR: "2"}
    assert not [*min_isr_writes(KEYS, image_of(state(1, 2, 3), state(1, 2)), GUARDS)]
    behind = state(1, 2, 3)._replace(isr=(1, 2), isr_epochs=(5, 5))
    assert not [*min_isr_writes(KEYS, image_of(behind), GUARDS)]
    assert is_moving(begun(state(1), (1, 2, 3)))
    assert not [*min_isr_writes(KEYS, image_of(begun(state(1), (1, 2, 3))), GUARDS)]
    known = image_of(state(1, 2, 3), settings={MIN_ISR: "1"})
    assert not [*min_isr_writes(KEYS, known, GUARDS)]
