"""Queries against a real broker: leases over HTTP, files on its disk, Fetch for the rest.

One broker for all tests; the tasks run as in Spark's workers, without a JVM.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.opening import open_cluster
from penstock.client.records.record_deletion import delete_before
from penstock.core.types import TopicPartition
from penstock.spark.errors import DataLossError
from penstock.spark.planning import OffsetRange, ReadTask
from penstock.spark.sealed.sealed_batches import SealedGoneError
from penstock.spark.sealed.sealed_segments import Known, SealedSegmentsError
from penstock.spark.source.segments import segments_of
from penstock.testing import Broker
from tests.spark.sealed.sealed_world import (
    Row,
    admin_url,
    ask,
    options_of,
    plan,
    read,
    sealed_broker,
)
from tests.spark.topic_set import random_records, transactional
from tests.spark.topics import Writer, create_topic, send, wait_until_decided


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with sealed_broker(tmp_path_factory.mktemp("sealed")) as running:
        yield running


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic with sealed segments in two partitions, and no lease before or after."""
    name = request.node.name.replace("[", "-").replace("]", "")[:200]
    create_topic(broker.bootstrap_server, name, partitions=2)
    writer = Writer(broker.bootstrap_server)
    for part, codec in enumerate(("none", "zstd", "lz4", "none")):
        for partition in (0, 1):
            writer.produce(name, random_records(part, 60, partition), codec=codec)
    yield name
    for lease in leases(broker):
        ask(broker, "DELETE", f"/{lease}")


def leases(broker: Broker) -> list[str]:
    status, found = ask(broker, "GET")
    assert status == 200
    return [one["id"] for one in found["leases"]]


def by_fetch(broker: Broker, topic: str, **given: str) -> list[Row]:
    options = options_of(broker, topic, segments="off", **given)
    return read(plan(options), options)


def sealed(tasks: list[ReadTask]) -> int:
    return sum(task.sealed is not None for task in tasks)


def test_the_rows_are_those_of_fetch_and_the_broker_serves_no_fetch(
    broker: Broker, topic: str
) -> None:
    expected = by_fetch(broker, topic)
    assert len(expected) == 480
    options = options_of(broker, topic, segments_url=admin_url(broker), segments="only")
    tasks = plan(options)
    files = [task for task in tasks if task.sealed is not None]
    assert len(files) == 2
    before = broker.metrics()["fetched_bytes_total"]
    rows = read(files, options)
    assert broker.metrics()["fetched_bytes_total"] == before
    assert len(rows) > 300
    assert read(tasks, options) == expected
    assert len(leases(broker)) == 1


def test_transactions_of_a_client(broker: Broker, topic: str) -> None:
    producer = transactional(broker.bootstrap_server, topic)
    for turn in range(6):
        producer.begin_transaction()
        send(producer, topic, random_records(90 + turn, 40, partition=turn % 2))
        if turn % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    wait_until_decided(broker.bootstrap_server, topic, 2)
    for isolation, count in (("read_committed", 600), ("read_uncommitted", 720)):
        given = {"kafka_isolation_level": isolation}
        expected = by_fetch(broker, topic, **given)
        assert len(expected) == count
        options = options_of(
            broker, topic, segments_url=admin_url(broker), maxBytesPerPartition="3k", **given
        )
        tasks = plan(options)
        assert sealed(tasks) > 8
        assert read(tasks, options) == expected


def test_an_open_transaction_ends_the_leased_offsets(broker: Broker, topic: str) -> None:
    producer = transactional(broker.bootstrap_server, topic)
    producer.begin_transaction()
    send(producer, topic, random_records(90, 5))
    Writer(broker.bootstrap_server).produce(topic, random_records(91, 200))
    options = options_of(broker, topic, segments_url=admin_url(broker))
    ends = [
        task.range.until_offset
        for task in plan(options)
        if task.sealed is not None and task.range.at.partition == 0
    ]
    assert 0 < max(ends) <= 240
    assert read(plan(options), options) == by_fetch(broker, topic)
    producer.abort_transaction(30)


def test_records_that_are_deleted_while_they_are_read(broker: Broker, topic: str) -> None:
    expected = by_fetch(broker, topic)
    options = options_of(broker, topic, segments_url=admin_url(broker))
    tasks = plan(options)
    with open_cluster(options.client) as cluster:
        delete_before(cluster, {TopicPartition(topic, 0): 150, TopicPartition(topic, 1): 150})
    assert len(by_fetch(broker, topic)) == 480 - 300
    assert read(tasks, options) == expected


@pytest.mark.parametrize("use", ["auto", "only"])
def test_a_lease_that_ends_before_it_is_read(broker: Broker, topic: str, use: str) -> None:
    expected = by_fetch(broker, topic)
    options = options_of(broker, topic, segments_url=admin_url(broker), segments=use)
    tasks = plan(options)
    (lease,) = leases(broker)
    assert ask(broker, "DELETE", f"/{lease}") == (204, None)
    if use == "auto":
        assert read(tasks, options) == expected
    else:
        with pytest.raises(SealedGoneError):
            read(tasks, options)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_lease_and_the_records_are_gone(broker: Broker, topic: str, fails: str) -> None:
    expected = by_fetch(broker, topic)
    options = options_of(broker, topic, segments_url=admin_url(broker), failOnDataLoss=fails)
    tasks = plan(options)
    with open_cluster(options.client) as cluster:
        delete_before(cluster, {TopicPartition(topic, 0): 150})
    (lease,) = leases(broker)
    assert ask(broker, "DELETE", f"/{lease}")[0] == 204
    if fails == "true":
        with pytest.raises(DataLossError):
            read(tasks, options)
    else:
        kept = [row for row in expected if row["partition"] or row["offset"] >= 150]
        assert read(tasks, options) == kept


def test_a_deleted_topic_takes_its_leases_along(broker: Broker, topic: str) -> None:
    options = options_of(broker, topic, segments_url=admin_url(broker))
    tasks = plan(options)
    assert len(leases(broker)) == 1
    with open_cluster(options.client) as cluster:
        cluster.delete_topic(topic)
    for _ in range(200):
        if not leases(broker):
            break
    assert leases(broker) == []
    with pytest.raises(DataLossError):
        read(tasks, options)


def test_a_path_that_executors_do_not_see(broker: Broker, topic: str, tmp_path: Path) -> None:
    expected = by_fetch(broker, topic)
    elsewhere = {"segments_url": admin_url(broker), "segments_path": str(tmp_path)}
    options = options_of(broker, topic, **elsewhere)
    tasks = plan(options)
    assert sealed(tasks) == 0
    assert leases(broker) == [], "a lease that is of no use is released"
    assert read(tasks, options) == expected
    with pytest.raises(SealedSegmentsError, match=r"segments\.path"):
        plan(options_of(broker, topic, segments="only", **elsewhere))


def test_another_name_of_the_data_directory(broker: Broker, topic: str, tmp_path: Path) -> None:
    """As a mount on another machine: the path of the broker means nothing there."""
    status, found = ask(
        broker,
        "POST",
        document={
            "topic": topic,
            "seconds": 60,
            "partitions": [{"partition": 0, "from_offset": 0, "until_offset": 1}],
        },
    )
    assert status == 201
    data_directory = Path(found["directory"]).parents[1]
    (tmp_path / "mount").symlink_to(data_directory)
    options = options_of(
        broker,
        topic,
        segments="only",
        segments_url=admin_url(broker),
        segments_path=f"{tmp_path}/mount/",
    )
    tasks = plan(options)
    assert all(
        part.path.startswith(f"{tmp_path}/mount/leases/")
        for task in tasks
        if task.sealed is not None
        for part in task.sealed.parts
    )
    assert read(tasks, options) == by_fetch(broker, topic)


def test_an_address_where_no_admin_port_is(broker: Broker, topic: str) -> None:
    expected = by_fetch(broker, topic)
    for url in ("http://127.0.0.1:1", f"http://{broker.bootstrap_server}"):
        options = options_of(broker, topic, segments_url=url)
        assert read(plan(options), options) == expected
        with pytest.raises(SealedSegmentsError, match="Set it to auto"):
            plan(options_of(broker, topic, segments_url=url, segments="only"))


def test_files_that_vanish_without_the_broker(broker: Broker, topic: str) -> None:
    """An operator removed them: the query continues through Fetch."""
    expected = by_fetch(broker, topic)
    options = options_of(broker, topic, segments_url=admin_url(broker), maxBytesPerPartition="3k")
    tasks = plan(options)
    last = [task for task in tasks if task.sealed is not None][-1]
    assert last.sealed is not None
    shutil.rmtree(Path(last.sealed.parts[0].path).parent)
    assert read(tasks, options) == expected


def test_a_small_query_asks_for_no_lease(broker: Broker, topic: str) -> None:
    options = options_of(broker, topic, segments_url=admin_url(broker))
    assert sealed(plan(options, bytes_min=1 << 20)) == 0
    assert leases(broker) == []
    only = options_of(broker, topic, segments_url=admin_url(broker), segments="only")
    assert sealed(plan(only, bytes_min=1 << 20)) > 0


def test_records_deleted_between_the_plan_and_the_lease_are_a_loss(
    broker: Broker, topic: str
) -> None:
    """The offsets were chosen before the deletion, and the lease is newer."""
    options = options_of(broker, topic, segments_url=admin_url(broker))
    tasks = [task for task in plan(options) if task.range.at.partition == 0]
    at = tasks[0].range.at
    first = next(task.sealed for task in tasks if task.sealed is not None)
    start = first.parts[0].next_offset - 2
    with open_cluster(options.client) as cluster:
        delete_before(cluster, {at: start})
    whole = OffsetRange(at, 0, max(task.range.until_offset for task in tasks))
    again = segments_of(options).plan([whole], {at: Known(tasks[0].topic_id, 0)}, None, {})
    late = [ReadTask(one, tasks[0].topic_id, 0, None, split) for one, split in again]
    assert sealed(late) > 0
    with pytest.raises(DataLossError):
        read(late, options)
    lenient = options_of(broker, topic, failOnDataLoss="false")
    assert min(row["offset"] for row in read(late, lenient)) == start
