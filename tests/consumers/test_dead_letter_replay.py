"""Replay of dead letters: each record once, also after a crash in the middle; on three brokers."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.client.cluster import Cluster
from penstock.client.opening import open_cluster
from penstock.client.transactions.producer_transactions import ProducerTransactions
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.options import ClientOptions
from penstock.consumers import dead_letter_replay
from penstock.consumers.consumer_record import ConsumerRecord
from penstock.consumers.dead_letter_replay import (
    Chosen,
    Replayed,
    ReplayTo,
    original_topics,
)
from penstock.consumers.dead_letter_topics import (
    list_topics,
    read_dead_letter,
    read_dead_letters,
    replay_group,
    replay_positions,
)
from penstock.consumers.delivery.dead_letters import outgoing
from penstock.consumers.errors import ConsumerError
from penstock.core.errors import BrokerAnswerError
from penstock.core.types import TopicPartition
from penstock.testing import topic_records
from penstock.testing.topic_names import fresh_topic_name
from tests.oracle.both_brokers import kinds_of_brokers, running_bootstrap

DLQ_COUNT = 7
MARKER_SECONDS_MAX = 20.0


@pytest.fixture(scope="module", params=kinds_of_brokers(pytest.mark.interop))
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    new_folder: Callable[[str], Path] = tmp_path_factory.mktemp
    with running_bootstrap(request.param, new_folder) as address:
        yield address


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with open_cluster(ClientOptions(parse_addresses(bootstrap))) as opened:
        yield opened


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A topic of two partitions, with dead letters of it in `dlq.<topic>`."""
    name = fresh_topic_name("orders")
    topic_records.create_topic(bootstrap, name, 2, {})
    topic_records.create_topic(bootstrap, f"dlq.{name}", 1, {})
    for number in range(DLQ_COUNT):
        record = ConsumerRecord(
            name, number % 2, number, 5, b"k%d" % number, b"v%d" % number, (("trace", b"1"),), 3
        )
        written = outgoing(f"dlq.{name}", record, group="g", error=ValueError("bad"), now_ms=9)
        topic_records.produce(
            bootstrap,
            f"dlq.{name}",
            [written.value],
            written.key,
            {key: value for key, value in written.headers if value is not None},
            None,
        )
    return name


def values(bootstrap: str, topic: str, count: int = DLQ_COUNT) -> list[tuple[int, str | None]]:
    """What arrives; the end of a transaction is acknowledged before its markers are written."""
    deadline = time.monotonic() + MARKER_SECONDS_MAX
    while True:
        found = topic_records.arrived_records(bootstrap, topic)
        if len(found) >= count or time.monotonic() > deadline:
            return sorted((one.partition, one.value) for one in found)


def replay(cluster: Cluster, topic: str, limit: int | None = None) -> Replayed:
    chosen = Chosen(topic, limit=limit)
    to = ReplayTo(frozenset(original_topics(cluster, chosen)))
    return dead_letter_replay.replay(cluster, chosen, to)


EXPECTED = sorted((number % 2, f"v{number}") for number in range(DLQ_COUNT))


def test_each_record_is_replayed_once_to_its_partition(
    bootstrap: str, cluster: Cluster, topic: str
) -> None:
    done = replay(cluster, f"dlq.{topic}", limit=2)
    assert (done.records, done.passed_over) == ({topic: 2}, 0)
    assert replay(cluster, f"dlq.{topic}").count == DLQ_COUNT - 2
    assert replay(cluster, f"dlq.{topic}").count == 0
    assert values(bootstrap, topic) == EXPECTED
    record = topic_records.arrived_records(bootstrap, topic)[0]
    assert record.headers == {"trace": "1"}
    assert record.timestamp_ms > 10**12


def test_many_transactions_of_one_replay(
    bootstrap: str, cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_replay, "CHUNK_RECORDS_MAX", 2)
    assert replay(cluster, f"dlq.{topic}").count == DLQ_COUNT
    assert values(bootstrap, topic) == EXPECTED


def test_a_replay_that_dies_in_the_middle_is_repeated_without_a_double(
    bootstrap: str, cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_replay, "CHUNK_RECORDS_MAX", 3)
    ends = ProducerTransactions.end
    calls = []

    def dies(self: ProducerTransactions, *arguments: object, **options: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt  # records and position are written, not committed
        return ends(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(ProducerTransactions, "end", dies)
    with pytest.raises(KeyboardInterrupt):
        replay(cluster, f"dlq.{topic}")
    assert len(values(bootstrap, topic, 3)) == 3
    assert replay(cluster, f"dlq.{topic}").count == DLQ_COUNT - 3
    assert values(bootstrap, topic) == EXPECTED


def test_a_second_replay_fences_the_first(bootstrap: str, cluster: Cluster, topic: str) -> None:
    to = ReplayTo(frozenset({topic}))
    first = dead_letter_replay._Replay(cluster, Chosen(f"dlq.{topic}"), to)
    letters = list(read_dead_letters(cluster, f"dlq.{topic}"))
    assert replay(cluster, f"dlq.{topic}").count == DLQ_COUNT
    with pytest.raises(BrokerAnswerError):
        first.write(letters)
    assert values(bootstrap, topic) == EXPECTED


def test_records_of_other_programs_are_passed_over(
    bootstrap: str, cluster: Cluster, topic: str
) -> None:
    topic_records.produce(bootstrap, f"dlq.{topic}", ["foreign"], None, {}, None)
    done = replay(cluster, f"dlq.{topic}")
    assert (done.count, done.passed_over) == (DLQ_COUNT, 1)
    assert replay(cluster, f"dlq.{topic}").passed_over == 0


def test_a_letter_that_names_a_topic_that_was_not_confirmed_ends_the_replay(
    bootstrap: str, cluster: Cluster, topic: str
) -> None:
    other = fresh_topic_name("payments")
    topic_records.create_topic(bootstrap, other, 1, {})
    record = ConsumerRecord(other, 0, 9, 5, b"k", b"forged", (), 3)
    forged = outgoing(f"dlq.{topic}", record, group="g", error=ValueError("x"), now_ms=9)
    headers = {key: value for key, value in forged.headers if value is not None}
    topic_records.produce(bootstrap, f"dlq.{topic}", [forged.value], forged.key, headers, None)
    chosen = Chosen(f"dlq.{topic}")
    assert original_topics(cluster, chosen) == {topic: DLQ_COUNT, other: 1}
    done = dead_letter_replay.replay(cluster, chosen, ReplayTo(frozenset({topic})))
    assert (done.records, done.refused_topic) == ({topic: DLQ_COUNT}, other)
    assert values(bootstrap, other, 0) == []
    done = dead_letter_replay.replay(cluster, chosen, ReplayTo(topic=topic))
    assert (done.records, done.refused_topic) == ({topic: 1}, None)
    assert values(bootstrap, other, 0) == []


def test_lists_and_single_records(bootstrap: str, cluster: Cluster, topic: str) -> None:
    dlq = f"dlq.{topic}"
    replay(cluster, dlq, limit=3)
    (listed,) = [one for one in list_topics(cluster) if one.name == dlq]
    assert (listed.partitions, listed.waiting, listed.replayed) == (1, DLQ_COUNT - 3, 3)
    assert replay_positions(cluster, dlq) == {TopicPartition(dlq, 0): 3}
    assert replay_group(dlq) == f"dlq.replay.{dlq}"
    waiting = list(read_dead_letters(cluster, dlq))
    assert [one.record.offset for one in waiting] == [3, 4, 5, 6]
    assert len(list(read_dead_letters(cluster, dlq, is_all=True))) == DLQ_COUNT
    one = read_dead_letter(cluster, TopicPartition(dlq, 0), 4)
    assert one.origin is not None
    assert (one.origin.topic, one.origin.offset, one.origin.error_text) == (topic, 4, "bad")
    with pytest.raises(ConsumerError, match="no record at offset 99"):
        read_dead_letter(cluster, TopicPartition(dlq, 0), 99)


def share_letter(bootstrap: str, dlq: str, topic: str, offset: int) -> None:
    """Write a letter without a copy, as each producer of the topic can."""
    texts = {"topic": topic, "partition": "0", "offset": str(offset), "group": "packing"}
    headers = {f"__dlq.errors.{name}": text.encode() for name, text in texts.items()}
    topic_records.produce(bootstrap, dlq, [None], None, headers, None)


def test_a_forged_letter_does_not_copy_another_topic(
    bootstrap: str, cluster: Cluster, topic: str
) -> None:
    secret = fresh_topic_name("salaries")
    topic_records.create_topic(bootstrap, secret, 1, {})
    topic_records.produce(bootstrap, secret, ["secret"], None, {}, None)
    share_letter(bootstrap, f"dlq.{topic}", secret, 0)
    chosen = Chosen(f"dlq.{topic}")
    assert original_topics(cluster, chosen, is_source=True) == {secret: 1}
    done = dead_letter_replay.replay(cluster, chosen, ReplayTo(topic=topic))
    assert (done.count, done.refused_topic) == (DLQ_COUNT, secret)
    assert "secret" not in {value for _, value in values(bootstrap, topic)}
    confirmed = ReplayTo(frozenset({secret}), topic)
    assert dead_letter_replay.replay(cluster, chosen, confirmed).count == 1


@pytest.mark.parametrize(
    ("name", "offset"),
    [("own", 10**17), ("own", 3), ("a b", 0), ("", 0), ("x" * 300, 0), ("..", 0)],
)
def test_a_letter_whose_record_cannot_exist_is_passed_over(
    bootstrap: str, cluster: Cluster, topic: str, name: str, offset: int
) -> None:
    source = topic if name == "own" else name
    share_letter(bootstrap, f"dlq.{topic}", source, offset)
    chosen, to = Chosen(f"dlq.{topic}"), ReplayTo(frozenset({source}), topic)
    done = dead_letter_replay.replay(cluster, chosen, to)
    assert (done.count, done.passed_over) == (DLQ_COUNT, 1)
