"""More partitions and other settings: rejections, writes, and lost answers."""

import asyncio
from collections.abc import Mapping
from uuid import UUID

import pytest

from penstock.cluster.configs.setting_changes import EditKind, SettingEdit, SettingsChange
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import BrokerImage, Endpoint, MetadataImage, PartitionImage, TopicImage
from penstock.cluster.keys import Keys
from penstock.cluster.persistent_map import PersistentMap
from penstock.cluster.service import MetadataService
from penstock.cluster.stores.port import Delete, Put
from penstock.cluster.topic_changes import (
    MorePartitions,
    decide_growth,
    decide_settings,
    growth_writes,
    settings_writes,
)
from penstock.cluster.topic_rules import TopicRules
from penstock.core.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    InvalidTopicConfigError,
    InvalidTopicNameError,
    PenstockError,
    PolicyViolationError,
    StoreError,
    UnknownTopicOrPartitionError,
)
from penstock.core.types import PLAINTEXT
from penstock.testing.memory_store import Fault, MemoryMetadataStore
from tests.cluster.test_service import BROKER, loaded, run, settled

ONE = PartitionImage((1,), 1, 0, (1,), 7)
RULES = TopicRules(partitions_per_topic_max=20, partitions_per_broker_max=30)
KEYS = Keys()
NEW = NewTopic(name="t")


def image_with(
    name: str = "t", count: int = 2, settings: Mapping[str, str] | None = None
) -> MetadataImage:
    topic = TopicImage(name, UUID(int=5), (ONE,) * count, settings or {}, 9)
    return MetadataImage(
        topics=PersistentMap({name: topic}),
        topic_names=PersistentMap({topic.id: name}),
        brokers={1: BrokerImage(1, (Endpoint(PLAINTEXT, "localhost", 9092),), None, "d", 3)},
        partition_count=count,
    )


def change(
    *edits: tuple[str, EditKind, str], topic: str = "t", replaces_all: bool = False
) -> SettingsChange:
    return SettingsChange(topic, tuple(SettingEdit(*edit) for edit in edits), replaces_all)


@pytest.mark.parametrize(
    ("wanted", "error", "text"),
    [
        (MorePartitions("u", 3), UnknownTopicOrPartitionError, "does not host"),
        (MorePartitions("t", 2), InvalidPartitionsError, "already has 2"),
        (MorePartitions("t", 1), InvalidPartitionsError, "1 would not be an increase"),
        (MorePartitions("t", -1), InvalidPartitionsError, "-1 would not be an increase"),
        (MorePartitions("t", 4, ((1,),)), InvalidReplicaAssignmentError, "only 1 assignment"),
        (MorePartitions("t", 3, ((),)), InvalidReplicaAssignmentError, "empty replica list"),
        (MorePartitions("t", 3, ((9,),)), InvalidReplicaAssignmentError, "no such broker"),
        (MorePartitions("t", 3, ((1, 1),)), InvalidReplicaAssignmentError, "more than once"),
        (MorePartitions("t", 21), PolicyViolationError, "at most 20"),
    ],
)
def test_growth_that_is_refused(
    wanted: MorePartitions, error: type[PenstockError], text: str
) -> None:
    with pytest.raises(error, match=text):
        decide_growth(image_with(), wanted, RULES)


def test_growth_beyond_what_the_cluster_holds_is_refused() -> None:
    rules = TopicRules(partitions_per_topic_max=50, partitions_per_broker_max=30)
    with pytest.raises(PolicyViolationError, match="room for 28"):
        decide_growth(image_with(), MorePartitions("t", 31), rules)


def test_an_internal_topic_keeps_its_partitions() -> None:
    image = image_with("__consumer_offsets")
    with pytest.raises(PolicyViolationError, match="would move to other partitions"):
        decide_growth(image, MorePartitions("__consumer_offsets", 3), RULES)


def test_growth_adds_and_leaves_the_others_alone() -> None:
    before = image_with().topics["t"]
    grown = decide_growth(image_with(), MorePartitions("t", 4, ((1,), (1,))), RULES)
    assert grown.partitions[:2] == before.partitions
    assert [part.replicas for part in grown.partitions[2:]] == [(1,), (1,)]
    (write,) = growth_writes(KEYS, before, grown, ())
    written = {operation.key for operation in write.operations if isinstance(operation, Put)}
    assert written == {
        KEYS.partition(before.id, 2),
        KEYS.partition(before.id, 3),
        KEYS.topic("t"),
    }
    assert [compare.key for compare in write.compares] == [KEYS.topic("t")]


@pytest.mark.parametrize(
    ("asked", "error", "text"),
    [
        (change(topic=""), InvalidRequestError, "Default topic"),
        (change(topic="!"), InvalidTopicNameError, "invalid"),
        (change(topic="u"), UnknownTopicOrPartitionError, "'u' does not exist"),
        (change(("retention.ms", EditKind.SET, "x"), topic="u"), InvalidTopicConfigError, "LONG"),
        (change(("nope", EditKind.SET, "1")), InvalidTopicConfigError, "Unknown topic config"),
        (change(("nope", EditKind.APPEND, "1")), InvalidTopicConfigError, "Can't APPEND to key"),
        (
            change(("retention.ms", EditKind.SUBTRACT, "1")),
            InvalidTopicConfigError,
            "Can't SUBTRACT to key retention.ms",
        ),
        (
            change(
                ("min.compaction.lag.ms", EditKind.SET, "9"),
                ("max.compaction.lag.ms", EditKind.SET, "8"),
            ),
            InvalidTopicConfigError,
            "conflict",
        ),
    ],
)
def test_settings_that_are_refused(
    asked: SettingsChange, error: type[PenstockError], text: str
) -> None:
    with pytest.raises(error, match=text):
        decide_settings(image_with(), asked, {})


@pytest.mark.parametrize(
    ("asked", "after"),
    [
        (change(("segment.ms", EditKind.SET, "5")), {"retention.ms": "1", "segment.ms": "5"}),
        (change(("retention.ms", EditKind.SET, "2")), {"retention.ms": "2"}),
        (change(("retention.ms", EditKind.DELETE, "")), {}),
        (change(("nope", EditKind.DELETE, "")), {"retention.ms": "1"}),
        (
            change(("cleanup.policy", EditKind.APPEND, "delete,compact")),
            {"retention.ms": "1", "cleanup.policy": "delete,compact"},
        ),
        (
            change(("cleanup.policy", EditKind.SUBTRACT, "delete,compact")),
            {"retention.ms": "1", "cleanup.policy": ""},
        ),
        (change(("segment.ms", EditKind.SET, "5"), replaces_all=True), {"segment.ms": "5"}),
        (change(replaces_all=True), {}),
    ],
)
def test_edits(asked: SettingsChange, after: dict[str, str]) -> None:
    image = image_with(settings={"retention.ms": "1"})
    assert decide_settings(image, asked, {}).settings == after


def test_a_list_begins_with_what_the_broker_gives_by_default() -> None:
    asked = change(("cleanup.policy", EditKind.SUBTRACT, "delete"))
    changed = decide_settings(image_with(), asked, {"cleanup.policy": "compact,delete"})
    assert changed.settings == {"cleanup.policy": "compact"}


def test_settings_publish_the_topic_anew_so_that_two_changes_cannot_pass_each_other() -> None:
    before = image_with(settings={"retention.ms": "1"}).topics["t"]
    changed = decide_settings(image_with(), change(replaces_all=True), {})
    write = settings_writes(KEYS, before, changed, ())
    gone, published = write.operations
    assert gone == Delete(KEYS.topic_settings("t"))
    assert isinstance(published, Put)
    assert published.key == KEYS.topic("t")
    assert [compare.key for compare in write.compares] == [KEYS.topic("t")]


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.ANSWER_LOST, Fault.LATE])
def test_a_lost_answer_is_cleared_up(fault: Fault) -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        await service.create_topics([NEW])
        store.faults.append(fault)
        topic = await service.create_partitions(MorePartitions("t", 3))
        assert len(topic.partitions) == 3
        with pytest.raises(InvalidPartitionsError):
            await service.create_partitions(MorePartitions("t", 3))
        store.faults.clear()
        store.faults.append(fault)
        topic = await service.change_settings(change(("retention.ms", EditKind.SET, "5")))
        assert topic.settings == {"retention.ms": "5"}
        await settled(service, store)
        assert service.image.topic("t") == topic
        assert service.image == await loaded(store)

    run(body)


def test_validating_writes_nothing() -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        await service.create_topics([NEW])
        before = service.image
        grown = await service.create_partitions(MorePartitions("t", 3), validate_only=True)
        assert len(grown.partitions) == 3
        asked = change(("retention.ms", EditKind.SET, "5"))
        changed = await service.change_settings(asked, validate_only=True)
        assert changed.settings == {"retention.ms": "5"}
        assert service.image is before

    run(body)


def test_what_a_failed_growth_left_is_swept_at_the_next_start_and_the_topic_stays() -> None:
    store = MemoryMetadataStore()

    async def fails(service: MetadataService, used: MemoryMetadataStore) -> None:
        await service.create_topics([NEW])
        # The key of the growth, the first partitions; the publication and the release fail.
        used.faults.extend([Fault.NONE, Fault.NONE, Fault.REFUSED, Fault.REFUSED])
        with pytest.raises(StoreError):
            await service.create_partitions(MorePartitions("t", 150))
        await settled(service, used)
        assert service.image.unpublished
        assert len(service.image.topics["t"].partitions) == 1
        assert service.image == await loaded(used)

    async def starts_again(service: MetadataService, used: MemoryMetadataStore) -> None:
        assert not service.image.unpublished
        assert len(service.image.topics["t"].partitions) == 1
        topic = await service.create_partitions(MorePartitions("t", 150))
        assert len(topic.partitions) == 150

    async def both(service: MetadataService, used: MemoryMetadataStore) -> None:
        await fails(service, used)
        await service.stop()
        async with asyncio.TaskGroup() as tasks:
            again = MetadataService(used)
            await again.start(tasks)
            await again.register_broker(BROKER, tasks)
            await starts_again(again, used)
            await again.stop()

    run(both, store=store)
