"""Each kind of client in this process, against a broker in this process: its report is true."""

import resource
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.bench import assignment as words
from penstock.bench import membership, offset_lookups
from penstock.bench.assignment import Assignment, Progress
from penstock.bench.lanes import Lanes
from penstock.bench.measurement import ClientResult
from penstock.bench.membership import JOINING, LEAVING, Group
from penstock.bench.offset_lookups import Finder, OffsetNotFoundError
from penstock.bench.producing import Producer
from penstock.bench.reading import Follower, NothingToReadError, Reader, RecordsMissingError
from penstock.bench.topics import bench_topic
from penstock.bench.workload import Workload
from penstock.client.calls import LATEST_TIMESTAMP, NewTopic, describe_brokers
from penstock.client.cluster import Cluster
from penstock.client.groups.groups import Groups
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.blocking import connect
from penstock.client.transport.call import Call
from penstock.core.errors import BrokerAnswerError, UnknownTopicOrPartitionError
from penstock.core.types import TopicPartition
from penstock.testing import Broker

pytestmark = pytest.mark.slow

TOPIC = "load"
RUN = 12345
SMALL = Workload(
    size_bytes=20, batch_records=5, count=50, warmup_seconds=0.0, partitions=2, timeout_seconds=30.0
)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(
        parse_addresses(broker.bootstrap_server),
        lambda address: connect(address, timeout_seconds=30.0),
        timeout_seconds=30.0,
    ) as opened:
        yield opened


@pytest.fixture
def topic(cluster: Cluster) -> Iterator[str]:
    cluster.create_topic(NewTopic(TOPIC, 2))
    yield TOPIC
    cluster.delete_topic(TOPIC)


@pytest.fixture
def work(broker: Broker, topic: str) -> Assignment:
    return Assignment(
        words.PRODUCER, SMALL, broker.bootstrap_server, topic, (0, 1), 0, 1, RUN, "group-of-load"
    )


def ends(cluster: Cluster) -> dict[int, int]:
    places = [TopicPartition(TOPIC, number) for number in (0, 1)]
    found = cluster.find_offsets(dict.fromkeys(places, LATEST_TIMESTAMP))
    return {at.partition: offset for at, offset in found.items()}


def produced(work: Assignment, seen: list[Progress] | None = None) -> ClientResult:
    producer = Producer(work)
    try:
        return producer.run(time.monotonic_ns(), (seen if seen is not None else []).append)
    finally:
        producer.close()


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("keys", ["none", "zipf"])
def test_what_a_producer_counts_is_in_the_log(
    work: Assignment, cluster: Cluster, acks: int, keys: str
) -> None:
    seen: list[Progress] = []
    result = produced(replace(work, workload=replace(SMALL, acks=acks, keys=keys)), seen)
    assert result.records == 50 == sum(ends(cluster).values())
    assert result.bytes == 50 * 20
    assert result.latency.count == result.requests == 10
    assert result.end_ns > result.begin_ns
    assert seen


def test_a_rate_is_kept_and_latency_counts_from_when_a_batch_was_due(work: Assignment) -> None:
    workload = replace(SMALL, count=20, batch_records=2, rate=200.0)
    begun = time.monotonic()
    result = produced(replace(work, workload=workload))
    # Ten batches, ten milliseconds apart: the last is due 90 ms after the first.
    assert time.monotonic() - begun >= 0.09
    assert result.records == 20


def test_a_refused_batch_ends_the_run(work: Assignment, cluster: Cluster) -> None:
    cluster.configure_topic(TOPIC, {"max.message.bytes": "10"})
    with pytest.raises(BrokerAnswerError, match="MESSAGE_TOO_LARGE"):
        produced(work)


def test_a_reader_counts_what_is_there_and_begins_anew_at_the_end(work: Assignment) -> None:
    produced(work)
    reader = Reader(replace(work, role=words.READER, workload=replace(SMALL, count=120)))
    result = reader.run(time.monotonic_ns(), lambda _progress: None)
    reader.close()
    assert result.records >= 120
    assert result.latency.count == result.requests > 0


def test_nothing_to_read_is_an_error(work: Assignment) -> None:
    with pytest.raises(NothingToReadError, match="produce to it first"):
        Reader(work)
    with pytest.raises(NothingToReadError, match="produce to it first"):
        Finder(work)


def test_a_finder_gets_the_batch_of_each_offset(work: Assignment) -> None:
    produced(work)
    finder = Finder(replace(work, role=words.FINDER, workload=replace(SMALL, count=50)))
    result = finder.run(time.monotonic_ns(), lambda _progress: None)
    finder.close()
    assert result.records == result.requests == result.latency.count == 50
    assert result.bytes > 0


def test_an_answer_before_the_offset_ends_the_lookups(
    work: Assignment, monkeypatch: pytest.MonkeyPatch
) -> None:
    produced(work)
    finder = Finder(replace(work, role=words.FINDER, workload=replace(SMALL, count=50)))
    monkeypatch.setattr(offset_lookups, "whole_batches", lambda *_: (0, 0))
    with pytest.raises(OffsetNotFoundError, match="was asked for offset"):
        finder.run(time.monotonic_ns(), lambda _progress: None)
    finder.close()


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_follower_times_exactly_what_this_run_wrote(
    work: Assignment, cluster: Cluster, compression: str
) -> None:
    workload = replace(SMALL, kind="end-to-end", compression=compression, rate=1000.0)
    work = replace(work, workload=workload)
    follower = Follower(replace(work, role=words.FOLLOWER))
    produced(replace(work, run=999, workload=replace(workload, count=5, rate=None)))
    written: list[ClientResult] = []
    thread = threading.Thread(target=lambda: written.append(produced(work)))
    thread.start()
    result = follower.run(
        time.monotonic_ns(),
        lambda _progress: None,
        lambda: ends(cluster) if written else None,
    )
    thread.join(5)
    follower.close()
    assert result.records_in_all == written[0].records_in_all > 0
    assert 0 < result.latency.max_us < 5_000_000


def test_records_that_never_come_are_an_error(work: Assignment, cluster: Cluster) -> None:
    workload = replace(SMALL, kind="end-to-end", timeout_seconds=0.2)
    follower = Follower(replace(work, workload=workload))
    with pytest.raises(RecordsMissingError, match="14 records of load"):
        follower.run(time.monotonic_ns(), lambda _progress: None, lambda: {0: 7, 1: 7})
    follower.close()


def test_a_group_forms_commits_and_is_gone(work: Assignment, cluster: Cluster) -> None:
    workload = replace(SMALL, kind="groups", members=3, count=30)
    group = Group(replace(work, role=words.MEMBERS, workload=workload))
    result = group.run(time.monotonic_ns(), lambda _progress: None)
    committed = Groups(cluster).committed("group-of-load")
    group.close()
    assert result.records == result.latency.count == 30
    assert max(one.offset for one in committed.values()) == 29
    assert set(result.figures) == {JOINING, LEAVING}
    assert Groups(cluster).list_all() == []


def test_members_heartbeat_while_no_commit_is_due(
    work: Assignment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "HEARTBEAT_NS", 20_000_000)
    heartbeats: Counter[int] = Counter()
    send = Lanes.send

    def count(lanes: Lanes[int, Any], key: int, call: Call[Any], note: Any) -> None:  # noqa: ANN401
        heartbeats[key] += not note.is_commit
        send(lanes, key, call, note)

    monkeypatch.setattr(Lanes, "send", count)
    workload = replace(SMALL, kind="groups", members=3, count=2, rate=1.0)
    group = Group(replace(work, role=words.MEMBERS, workload=workload))
    try:
        group.run(time.monotonic_ns(), lambda _progress: None)
    finally:
        group.close()
    assert sorted(heartbeats) == [0, 1, 2]
    assert min(heartbeats.values()) >= 4


def test_descriptors_beyond_those_of_select_are_waited_for(broker: Broker) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1100:
        pytest.skip("this process may not open so many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1100), hard))
    lanes: Lanes[int, str] = Lanes(1, 5.0)
    answers: list[str] = []
    with ExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        opened.callback(lanes.close)
        while opened.enter_context(Path("/dev/null").open("rb")).fileno() < 1024:
            pass
        lanes.open(0, parse_addresses(broker.bootstrap_server)[0])
        lanes.send(0, describe_brokers(None), "asked")
        given_up = time.monotonic() + 5.0
        while not answers and time.monotonic() < given_up:
            lanes.wait(1.0)
            lanes.collect(lambda _answer, note: answers.append(note))
    assert answers == ["asked"]


def test_a_topic_that_was_made_is_removed_whatever_happens(cluster: Cluster) -> None:
    during: list[str] = []

    def interrupted() -> None:
        with bench_topic(cluster, SMALL) as (name, partitions):
            assert partitions == (0, 1)
            during.extend(cluster.describe([name]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(during) == 1
    assert during[0] not in cluster.describe(None)


def test_a_topic_that_brokers_learn_of_late_is_waited_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth, asked = cluster.partitions_of, []

    def late(name: str) -> list[TopicPartition]:
        asked.append(name)
        if len(asked) < 3:
            raise UnknownTopicOrPartitionError("not yet")
        return list(truth(name))

    monkeypatch.setattr(cluster, "partitions_of", late)
    with bench_topic(cluster, SMALL) as (_, partitions):
        assert partitions == (0, 1)
    assert len(asked) == 3


def test_a_new_topic_is_used_when_its_leaders_answer(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[TopicPartition] = []
    monkeypatch.setattr(cluster, "find_offsets", asked.extend)
    with bench_topic(cluster, SMALL) as (name, partitions):
        assert asked == [TopicPartition(name, one) for one in partitions]


def test_a_topic_that_exists_stays(cluster: Cluster, topic: str) -> None:
    with bench_topic(cluster, replace(SMALL, topic=topic)) as (name, _):
        assert name == topic
    assert topic in cluster.describe(None)


def test_a_topic_that_does_not_exist_is_not_made(cluster: Cluster) -> None:
    with (
        pytest.raises(UnknownTopicOrPartitionError, match="penstock topic create missing"),
        bench_topic(cluster, replace(SMALL, topic="missing")),
    ):
        raise AssertionError("unreachable")
