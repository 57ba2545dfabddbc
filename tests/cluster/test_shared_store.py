"""Three brokers change one store at the same time, under faults, and agree on its state."""

import asyncio
from collections.abc import Awaitable

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster.configs.setting_changes import EditKind, SettingEdit, SettingsChange
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import MetadataImage, TopicImage, similar_name
from penstock.cluster.service import MetadataService
from penstock.cluster.topic_changes import MorePartitions
from penstock.core.errors import MetadataError
from penstock.testing.memory_store import Fault
from tests.cluster.shared_store import Cluster, run_cluster, until
from tests.cluster.test_service import loaded

BROKERS = (1, 2, 3)
STEPS = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(BROKERS),
            st.sampled_from(["create", "delete", "grow", "configure", "ids"]),
            st.sampled_from(["a.b", "a_b", "t"]),
            st.sampled_from([1, 3, 120, 230]),
            st.lists(st.sampled_from(Fault), max_size=2),
        ),
        min_size=1,
        max_size=4,
    ),
    max_size=5,
)
EVENTS = st.lists(st.sampled_from(["expire", "late", "lose track", "none"]), min_size=5, max_size=5)


async def carry_out(service: MetadataService, kind: str, name: str, count: int) -> object:
    """Return the outcome; what succeeds is in the broker's own image."""
    try:
        if kind == "create":
            (outcome,) = await service.create_topics([NewTopic(name=name, partition_count=count)])
            return outcome
        if kind == "delete":
            (outcome,) = await service.delete_topics([name])
            return outcome
        if kind == "grow":
            return await service.create_partitions(MorePartitions(name, count))
        if kind == "configure":
            edit = SettingEdit("retention.ms", EditKind.SET, str(count))
            return await service.change_settings(SettingsChange(name, (edit,)))
        return await service.allocate_producer_ids()
    except MetadataError as error:
        return error


def check(image: MetadataImage) -> None:
    similar = [similar_name(name) or name for name in image.topics]
    assert len(set(similar)) == len(similar)
    assert image.partition_count == sum(len(one.partitions) for one in image.topics.values())


@settings(max_examples=25, deadline=None)
@given(STEPS, EVENTS)
def test_brokers_with_faults_agree(
    steps: list[list[tuple[int, str, str, int, list[Fault]]]], events: list[str]
) -> None:
    async def body(cluster: Cluster) -> None:
        for broker_id in BROKERS:
            await cluster.start(broker_id)
        for service in cluster.services.values():
            service._link.followed.wait_seconds = 0.05
        given_ids: set[int] = set()
        for requests, event in zip(steps, events, strict=False):
            outcomes = await at_once(cluster, requests, event)
            for outcome in outcomes:
                if isinstance(outcome, range):
                    assert given_ids.isdisjoint(outcome)
                    given_ids.update(outcome)
                assert isinstance(outcome, TopicImage | range | MetadataError)
            for store in cluster.stores.values():
                store.faults.clear()
                store.deliver()
            # Applies a late transaction.
            await cluster.shared.transact((), ())
            for service in cluster.services.values():
                await service.allocate_producer_ids()
            await until(lambda: not any(left(one) for one in cluster.services.values()))
            image = await cluster.settle()
            assert image == await loaded(cluster.shared)
            check(image)

    run_cluster(body)


def left(service: MetadataService) -> bool:
    """Whether the controller has something to do yet."""
    image = service.image
    return bool(image.unpublished) or image.controller is None or bool(image.creating)


async def at_once(
    cluster: Cluster, requests: list[tuple[int, str, str, int, list[Fault]]], event: str
) -> list[object]:
    work: list[Awaitable[object]] = []
    for broker_id, kind, name, count, faults in requests:
        cluster.stores[broker_id].faults.extend(faults)
        work.append(carry_out(cluster.services[broker_id], kind, name, count))
    first = requests[0][0]
    if event == "late":
        cluster.stores[first].delay_watch()
    doing = asyncio.gather(*work)
    await asyncio.sleep(0)
    if event == "expire" and (await cluster.shared.read(cluster.keys.broker(first))).values:
        await cluster.expire(first)
    if event == "lose track":
        cluster.shared._hub.lose_track()
    return list(await doing)
