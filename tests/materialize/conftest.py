"""A broker, topics and a service for tests; Penstock in memory, or both brokers with `interop`."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.client.calls import NewTopic
from penstock.client.cluster import Cluster
from penstock.client.records.topic_writer import TopicWriter
from penstock.materialize.index_columns import columns_of, parse_index
from penstock.materialize.materializer import MaterializeOptions, Materializer
from tests.materialize.topic_model import cluster_at
from tests.oracle.both_brokers import kinds_of_brokers, running_bootstrap

WAIT_SECONDS_MAX = 30.0


@pytest.fixture(scope="module", params=kinds_of_brokers(pytest.mark.interop))
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with running_bootstrap(request.param, tmp_path_factory.mktemp) as address:
        yield address


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with cluster_at(bootstrap) as found:
        yield found


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A new topic of two partitions, with the name of the test."""
    name = f"t{abs(hash(request.node.nodeid)) % 10**9}"
    create_topic(cluster, name, 2)
    return name


def create_topic(cluster: Cluster, name: str, partitions: int) -> None:
    """Create a topic and wait for its leaders: Kafka informs its brokers a moment later."""
    cluster.create_topic(NewTopic(name, partitions, 1))

    def has_leaders() -> bool:
        found = cluster.describe([name]).get(name)
        return found is not None and all(one.leader_id >= 0 for one in found.partitions.values())

    eventually(has_leaders)
    cluster.forget_leaders()


Write = Callable[..., None]


@pytest.fixture
def write(cluster: Cluster) -> Write:
    def write_records(
        topic: str, *pairs: tuple[str | None, str | None], partition: int | None = None
    ) -> None:
        writer = TopicWriter(cluster, topic, partition=partition)
        for key, value in pairs:
            writer.append(
                None if key is None else key.encode(), None if value is None else value.encode()
            )
        writer.flush()

    return write_records


@contextmanager
def materializer(
    bootstrap: str,
    path: Path,
    topics: Sequence[str],
    indexes: Sequence[str] = (),
    **options: Any,  # noqa: ANN401 (those of MaterializeOptions)
) -> Iterator[Materializer]:
    parsed = [parse_index(text) for text in indexes]
    columns = {topic: columns_of(topic, parsed) for topic in topics}
    with cluster_at(bootstrap) as cluster:
        service = Materializer(MaterializeOptions(path, columns, **options), cluster)
        try:
            yield service
        finally:
            service.close()


@contextmanager
def following(
    bootstrap: str,
    path: Path,
    topics: Sequence[str],
    **options: Any,  # noqa: ANN401 (those of MaterializeOptions)
) -> Iterator[Materializer]:
    """A service that follows its topics in a thread."""
    with materializer(bootstrap, path, topics, **options) as service:
        thread = threading.Thread(target=service.follower.run)
        thread.start()
        try:
            yield service
        finally:
            service.follower.stop()
            thread.join(WAIT_SECONDS_MAX)
            assert not thread.is_alive()


def load(
    bootstrap: str,
    path: Path,
    topics: Sequence[str],
    **options: Any,  # noqa: ANN401 (those of MaterializeOptions)
) -> None:
    with materializer(bootstrap, path, topics, **options) as service:
        service.load()


def eventually(check: Callable[[], bool]) -> None:
    """Wait until a condition holds, without a fixed time."""
    pause = threading.Event()
    for _ in range(int(WAIT_SECONDS_MAX / 0.01)):
        if check():
            return
        pause.wait(0.01)
    raise AssertionError("the condition did not hold in time")
