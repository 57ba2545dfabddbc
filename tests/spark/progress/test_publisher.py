"""Publishing: an unreachable broker is reported once and never waited for; a real one shows lag."""

import threading
import time
from collections.abc import Mapping

import pytest

from penstock.client.groups.groups import Groups
from penstock.client.opening import open_cluster
from penstock.client.transport.options import parse_client_options
from penstock.core.errors import BrokerUnreachableError, ConfigError
from penstock.core.types import TopicPartition
from penstock.spark.progress.committer import committer_opener
from penstock.spark.progress.publications import Publications
from penstock.spark.progress.publisher import Committer, Publisher
from penstock.spark.progress.reading import TopicSource
from penstock.testing import Broker
from tests.oracle.running_broker import free_port
from tests.spark.progress.documents import progress, source


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now_ms(self) -> int:
        return round(self.seconds * 1_000)

    def monotonic(self) -> float:
        return self.seconds


class FakeCluster:
    """A cluster that can be unreachable."""

    def __init__(self) -> None:
        self.is_away = False
        self.committed: dict[str, Mapping[TopicPartition, int]] = {}
        self.opened_count = 0
        self.closed_count = 0

    def open(self) -> Committer:
        self.opened_count += 1
        return self

    def cluster_id(self) -> str | None:
        if self.is_away:
            raise BrokerUnreachableError("cannot reach a broker.")
        return "here"

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.committed[group_id] = offsets

    def close(self) -> None:
        self.closed_count += 1


class Stage:
    """A publisher whose thread does not run: a test takes its steps."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.cluster = FakeCluster()
        self.told: list[str] = []
        self.publications = Publications(5.0)
        self.publisher = Publisher(
            self.publications, self.cluster.open, self.told.append, self.clock
        )

    def position(self, offset: int, *more: TopicSource) -> None:
        one = source({("orders", 0): offset}, cluster_id="here")
        self.publications.note(progress(one, *more))

    def step(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.publisher.publish_due()


@pytest.fixture
def stage() -> Stage:
    return Stage()


ORDERS = TopicPartition("orders", 0)


def test_positions_are_committed(stage: Stage) -> None:
    stage.position(10)
    stage.step(0)
    stage.position(20)
    stage.step(1)
    assert stage.cluster.committed == {"spark-daily": {ORDERS: 10}}
    stage.step(4)
    assert stage.cluster.committed == {"spark-daily": {ORDERS: 20}}
    assert stage.cluster.opened_count == 1
    assert stage.told == []


def test_a_broker_that_is_away_is_told_once_and_connected_to_again(stage: Stage) -> None:
    stage.cluster.is_away = True
    for number in range(20):
        stage.position(number)
        stage.step(60)
    (told,) = stage.told
    assert told == (
        "penstock: the progress of group spark-daily could not be published: cannot reach a "
        "broker. The query goes on; publishing is tried again."
    )
    assert stage.cluster.opened_count == stage.cluster.closed_count == 20
    stage.cluster.is_away = False
    stage.step(60)
    assert stage.cluster.committed == {"spark-daily": {ORDERS: 19}}
    assert stage.told[1:] == ["penstock: progress is published again."]
    stage.cluster.is_away = True
    stage.position(30)
    stage.step(60)
    assert len(stage.told) == 3  # a new failure is news


def test_a_source_of_another_cluster_is_named_once_and_not_committed(stage: Stage) -> None:
    for number in range(3):
        stage.position(number, source({("clicks", 0): 7}, cluster_id="there"))
        stage.step(5)
    assert stage.cluster.committed == {"spark-daily": {ORDERS: 2}}
    (told,) = stage.told
    assert "reads from cluster there" in told
    assert "published to cluster here" in told
    assert "bootstrap servers" in told


def test_the_thread_publishes_and_ends() -> None:
    before = set(threading.enumerate())
    cluster = FakeCluster()
    publisher = Publisher(Publications(0.0), cluster.open, lambda text: None)
    for offset in (1, 2, 3):
        publisher.note(progress(source({("orders", 0): offset})))
        assert publisher.flush(30.0)
        assert cluster.committed == {"spark-daily": {ORDERS: offset}}
    publisher.ended("run-1")
    publisher.close(30.0)
    publisher.close(30.0)
    assert cluster.closed_count == 1
    assert set(threading.enumerate()) <= before
    publisher.note(progress(source({("orders", 0): 9})))  # too late, and harmless
    assert cluster.committed == {"spark-daily": {ORDERS: 3}}


def test_a_query_without_topics_starts_no_thread() -> None:
    before = set(threading.enumerate())
    publisher = Publisher(Publications(0.0), FakeCluster().open, lambda text: None)
    publisher.note(progress())
    assert set(threading.enumerate()) <= before
    publisher.close(30.0)


def test_closing_does_not_wait_for_a_broker_that_hangs() -> None:
    is_hanging = threading.Event()
    is_over = threading.Event()

    class Hanging(FakeCluster):
        def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
            is_hanging.set()
            is_over.wait(60)

    publisher = Publisher(Publications(0.0), Hanging().open, lambda text: None)
    publisher.note(progress(source({("orders", 0): 1})))
    assert is_hanging.wait(30)
    began = time.monotonic()
    publisher.note(progress(source({("orders", 0): 2})))
    publisher.close(0.01)
    assert time.monotonic() - began < 10
    is_over.set()
    publisher.close(30.0)


def test_no_broker_at_all() -> None:
    told: list[str] = []
    opener = committer_opener(f"127.0.0.1:{free_port()}", {})
    publications = Publications(0.0)
    publications.note(progress(source({("orders", 0): 1})))
    Publisher(publications, opener, told.append, Clock()).publish_due()
    assert told
    assert "could not be published: cannot reach a broker" in told[0]


def test_a_wrong_address_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="an address is host:port"):
        committer_opener("localhost:no-port", {})


def test_a_wrong_setting_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match=r"security\.protocol=TLS is unknown"):
        committer_opener("localhost:9092", {"security.protocol": "TLS"})


def test_a_real_broker_has_the_group() -> None:
    with (
        Broker() as broker,
        open_cluster(
            parse_client_options({"bootstrap.servers": broker.bootstrap_server})
        ) as cluster,
    ):
        told: list[str] = []
        cluster.topic("orders", auto_create=True)
        here = cluster.cluster_id()
        publisher = Publisher(
            Publications(0.0), committer_opener(broker.bootstrap_server, {}), told.append
        )
        publisher.note(progress(source({("orders", 0): 42}, cluster_id=here)))
        assert publisher.flush(30.0)
        publisher.close(30.0)
        groups = Groups(cluster)
        assert groups.committed("spark-daily")[ORDERS].offset == 42
        assert groups.describe("spark-daily").state == "Empty"
        assert told == []
