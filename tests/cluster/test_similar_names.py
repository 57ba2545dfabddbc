"""Topic names that differ only in `.` and `_`: two brokers cannot create both."""

import asyncio

import pytest

from penstock.cluster.controller import NewTopic
from penstock.cluster.image import TopicImage
from penstock.cluster.stores.port import Delete
from penstock.core.errors import InvalidTopicNameError, TopicExistsError
from tests.cluster.shared_store import Cluster, run_cluster


@pytest.mark.parametrize("count", [1, 150])
@pytest.mark.parametrize(
    ("names", "error"),
    [
        (("x.y", "x_y"), InvalidTopicNameError),
        (("a.b_c", "a_b.c"), InvalidTopicNameError),
        (("x.y", "x.y"), TopicExistsError),
    ],
)
def test_one_of_two_colliding_creations_succeeds(
    names: tuple[str, str], error: type[Exception], count: int
) -> None:
    async def body(cluster: Cluster) -> None:
        services = [await cluster.start(1), await cluster.start(2)]
        await cluster.settle()
        outcomes = await asyncio.gather(
            *(
                service.create_topics([NewTopic(name=name, partition_count=count)])
                for service, name in zip(services, names, strict=True)
            )
        )
        assert {type(outcome) for (outcome,) in outcomes} == {TopicImage, error}
        assert len((await cluster.settle()).topics) == 1

    run_cluster(body)


def test_a_deleted_topic_leaves_its_name() -> None:
    async def body(cluster: Cluster) -> None:
        service = await cluster.start(1)
        for name in ("x.y", "x_y", "x.y", "plain"):
            (made,) = await service.create_topics([NewTopic(name=name)])
            assert isinstance(made, TopicImage)
            found = (await cluster.shared.read_prefix(f"{cluster.keys.root}names/")).values
            assert len(found) == (name != "plain")
            (deleted,) = await service.delete_topics([name])
            assert isinstance(deleted, TopicImage)
            assert not (await cluster.shared.read_prefix(f"{cluster.keys.root}names/")).values

    run_cluster(body)


def test_topics_of_a_store_without_these_keys_are_protected_too() -> None:
    """An earlier version wrote none."""

    async def body(cluster: Cluster) -> None:
        first, second = await cluster.start(1), await cluster.start(2)
        await first.create_topics([NewTopic(name="x.y")])
        await cluster.shared.transact((), (Delete(cluster.keys.name("x_y")),))
        await cluster.settle()
        (outcome,) = await second.create_topics([NewTopic(name="x_y")])
        assert isinstance(outcome, InvalidTopicNameError)
        (outcome,) = await second.delete_topics(["x.y"])
        assert isinstance(outcome, TopicImage)
        (outcome,) = await second.create_topics([NewTopic(name="x_y")])
        assert isinstance(outcome, TopicImage)

    run_cluster(body)


def test_many_such_names_fit_into_transactions() -> None:
    async def body(cluster: Cluster) -> None:
        service = await cluster.start(1)
        names = [f"n.{number}" for number in range(300)]
        settings = {"flush.ms": "1"}
        made = await service.create_topics(
            [NewTopic(name=name, settings=settings) for name in names]
        )
        assert all(isinstance(one, TopicImage) for one in made)
        deleted = await service.delete_topics(names)
        assert all(isinstance(one, TopicImage) for one in deleted)
        assert not (await cluster.shared.read_prefix(f"{cluster.keys.root}names/")).values

    run_cluster(body)
