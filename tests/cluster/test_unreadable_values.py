"""A value that a broker cannot read does not end it: the last image of the key stays in use."""

import asyncio
import json
from collections.abc import Callable

import pytest

from penstock.cluster import values
from penstock.cluster.changes import TopicRemoved
from penstock.cluster.configs.setting_changes import EditKind, SettingEdit, SettingsChange
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import TopicImage
from penstock.cluster.service import MetadataService
from penstock.cluster.stores.port import Delete, KeyValue, Put
from penstock.core.errors import StoreError
from penstock.security.scram_credential import ScramCredential
from tests.cluster.shared_store import Cluster, run_cluster, until
from tests.cluster.test_service import loaded

CHANGE = SettingsChange("t", (SettingEdit("retention.ms", EditKind.SET, "7"),))


def newer(value: bytes) -> bytes:
    """Return the value in a version of the future."""
    return json.dumps({**json.loads(value), "v": 9}).encode()


async def pair_of(cluster: Cluster, key: str) -> KeyValue:
    (pair,) = (await cluster.shared.read(key)).values
    return pair


async def upgrade(cluster: Cluster, key: str) -> bytes:
    """Write the key in a newer version; return its value before."""
    pair = await pair_of(cluster, key)
    await cluster.shared.transact((), (Put(key, newer(pair.value), pair.session),))
    return pair.value


async def prepared(cluster: Cluster) -> MetadataService:
    service = await cluster.start(1)
    await cluster.start(2)
    await service.create_topics([NewTopic(name="t", partition_count=3, settings={"flush.ms": "1"})])
    credential = ScramCredential(b"salt", b"stored", b"server", 4096)
    keys = cluster.keys
    await cluster.shared.transact(
        (),
        (
            Put(keys.group_settings("g"), values.write_settings({"a": "b"})),
            Put(keys.broker_settings("1"), values.write_settings({"a": "b"})),
            Put(keys.scram("SCRAM-SHA-256", "u"), values.write_scram(credential, 1)),
            Put(keys.producer_ids(), values.write_next_producer_id(5_000)),
            Put(keys.features(), values.write_features({"penstock.cluster": 1})),
        ),
    )
    await cluster.settle()
    return service


KINDS: dict[str, Callable[[Cluster, TopicImage], str]] = {
    "topic": lambda cluster, topic: cluster.keys.topic(topic.name),
    "partition": lambda cluster, topic: cluster.keys.partition(topic.id, 1),
    "settings": lambda cluster, topic: cluster.keys.topic_settings(topic.name),
    "group": lambda cluster, topic: cluster.keys.group_settings("g"),
    "broker settings": lambda cluster, topic: cluster.keys.broker_settings("1"),
    "scram": lambda cluster, topic: cluster.keys.scram("SCRAM-SHA-256", "u"),
    "producer ids": lambda cluster, topic: cluster.keys.producer_ids(),
    "broker": lambda cluster, topic: cluster.keys.broker(2),
    "controller": lambda cluster, topic: cluster.keys.controller(),
    "format": lambda cluster, topic: cluster.keys.format(),
    "cluster id": lambda cluster, topic: cluster.keys.cluster_id(),
    "features": lambda cluster, topic: cluster.keys.features(),
}


@pytest.mark.parametrize("is_loaded", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_newer_value_keeps_the_last_image_of_its_key(kind: str, is_loaded: bool) -> None:
    """Both when it arrives by the watch, and when everything is loaded again afterwards."""

    async def body(cluster: Cluster) -> None:
        service = await prepared(cluster)
        before = service.image
        key = KINDS[kind](cluster, before.topics["t"])
        heard: list[object] = []
        service.subscribe(lambda _before, _after, changes: heard.extend(changes))
        value = await upgrade(cluster, key)
        if is_loaded:
            cluster.shared._hub.lose_track()
        await until(lambda: bool(service.problems))
        (problem,) = service.problems
        assert key in problem
        assert "version 9" in problem
        assert not [change for change in heard if isinstance(change, TopicRemoved)]
        after = service.image
        assert (after.topics, after.groups, after.scram) == (
            before.topics,
            before.groups,
            before.scram,
        )
        assert (after.brokers, after.controller) == (before.brokers, before.controller)
        assert (after.broker_settings, after.cluster_id) == (
            before.broker_settings,
            before.cluster_id,
        )
        assert after.next_producer_id == before.next_producer_id
        assert after.features == before.features
        # The broker goes on: other changes arrive, and it writes.
        (made,) = await cluster.services[2].create_topics([NewTopic(name="u")])
        assert isinstance(made, TopicImage)
        (made,) = await service.create_topics([NewTopic(name="w")])
        assert isinstance(made, TopicImage)
        # A readable value ends the problem.
        session = (await pair_of(cluster, key)).session
        await cluster.shared.transact((), (Put(key, value, session),))
        await until(lambda: not service.problems)
        assert (await cluster.settle()) == await loaded(cluster.shared)

    run_cluster(body)


def test_a_value_that_cannot_be_read_is_not_overwritten() -> None:
    async def body(cluster: Cluster) -> None:
        service = await prepared(cluster)
        key = cluster.keys.topic("t")
        await upgrade(cluster, key)
        await until(lambda: bool(service.problems))
        with pytest.raises(StoreError, match="version 9"):
            await service.change_settings(CHANGE)
        (outcome,) = await service.delete_topics(["t"])
        assert isinstance(outcome, StoreError)
        assert b'"v": 9' in (await pair_of(cluster, key)).value

    run_cluster(body)


def test_partitions_of_a_newer_topic_are_not_swept() -> None:
    """Their topic exists; this broker cannot read its key."""

    async def body(cluster: Cluster) -> None:
        service = await prepared(cluster)
        (topic,) = await service.create_topics([NewTopic(name="n")], validate_only=True)
        assert isinstance(topic, TopicImage)
        state = values.write_partition(topic.partitions[0])
        published = newer(values.write_topic(values.TopicValue(topic.id, 1)))
        part = cluster.keys.partition(topic.id, 0)
        await cluster.shared.transact(
            (), (Put(part, state), Put(cluster.keys.topic("n"), published))
        )
        await until(lambda: bool(service.problems))
        await service.create_topics([NewTopic(name="u")])
        await cluster.settle()
        assert service.image.topic("n") is None
        assert (await cluster.shared.read(part)).values
        with pytest.raises(StoreError, match="version 9"):
            raise (await service.create_topics([NewTopic(name="n")]))[0]  # type: ignore[misc]

    run_cluster(body)


@pytest.mark.parametrize("is_loaded", [False, True])
def test_metadata_that_contradicts_itself_is_reported(is_loaded: bool) -> None:
    async def body(cluster: Cluster) -> None:
        service = await prepared(cluster)
        before = service.image.topics["t"]
        part = cluster.keys.partition(before.id, 1)
        pair = await pair_of(cluster, part)
        await cluster.shared.transact((), (Delete(part),))
        if is_loaded:
            cluster.shared._hub.lose_track()
        await until(lambda: bool(service.problems))
        assert "t" in service.problems[0]
        assert service.image.topics["t"] == before
        await cluster.shared.transact((), (Put(part, pair.value),))
        await until(lambda: not service.problems)
        assert (await cluster.settle()) == await loaded(cluster.shared)

    run_cluster(body)


def test_a_broker_does_not_start_on_values_that_it_cannot_read() -> None:
    """It has no last image: logs of unknown topics would be set aside."""

    async def body(cluster: Cluster) -> None:
        await prepared(cluster)
        key = cluster.keys.topic("t")
        await upgrade(cluster, key)
        with pytest.raises(StoreError, match=rf"{key}.* version 9"):
            await MetadataService(cluster.shared).start(cluster.tasks)

    run_cluster(body)


def test_a_store_that_fails_while_it_is_followed_is_followed_again() -> None:
    async def body(cluster: Cluster) -> None:
        service = await cluster.start(1)
        pauses: list[float] = []
        goes_on = asyncio.Event()

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            await goes_on.wait()
            cluster.stores[1].is_cut_off = False

        service._link.followed._sleep = sleep
        cluster.stores[1].is_cut_off = True
        cluster.shared._hub.lose_track()
        await until(lambda: bool(pauses))
        assert "does not answer" in service.problems[0]
        goes_on.set()
        await until(lambda: not service.problems)
        (made,) = await service.create_topics([NewTopic(name="t")])
        assert isinstance(made, TopicImage)

    run_cluster(body)


def test_an_unreadable_value_does_not_cost_a_load_for_each_change() -> None:
    async def body(cluster: Cluster) -> None:
        service = await prepared(cluster)
        topic = service.image.topics["t"]
        await upgrade(cluster, cluster.keys.topic("t"))
        await until(lambda: bool(service.problems))
        loads = cluster.stores[1].loads
        for index in range(3):
            part = cluster.keys.partition(topic.id, index)
            await cluster.shared.transact((), (Put(part, (await pair_of(cluster, part)).value),))
        await cluster.settle()
        assert cluster.stores[1].loads == loads
        assert service.image.topics["t"].partitions[2].partition_epoch > topic.revision

    run_cluster(body)
