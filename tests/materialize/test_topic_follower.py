"""The follower against a real broker: rows, transactions, growth, gaps, topics created again.

Fast on Penstock in memory; with the marker `interop` also on Penstock and Apache Kafka as
processes.
"""

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from penstock.client.calls import NewTopic
from penstock.client.cluster import Cluster
from penstock.client.records.batch_sender import BatchSender
from penstock.client.records.record_deletion import delete_before
from penstock.client.records.topic_writer import TopicWriter
from penstock.client.transactions.producer_transactions import ProducerTransactions
from penstock.core.errors import BrokerAnswerError, CorruptBatchError
from penstock.core.types import TopicPartition
from penstock.materialize import committed_records, topic_follower
from penstock.materialize.row_store import Portion, RowStore, StoreFullError
from penstock.materialize.store_health import Health, overall
from penstock.materialize.topic_decisions import REBUILD, TopicState
from penstock.materialize.topic_follower import UnreadableTopicError
from penstock.protocol.error_codes import ErrorCode
from penstock.records.builder import build_batch
from penstock.records.record import Record
from penstock.testing import Broker
from tests.materialize.conftest import Write, create_topic, eventually, following, load
from tests.materialize.topic_model import (
    cluster_at,
    compacted,
    stored_positions,
    stored_rows,
    topic_events,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.sqlite"


@pytest.fixture(autouse=True)
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_follower, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(topic_follower, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(topic_follower, "FETCH_WAIT_MS", 30)


def check_rows(bootstrap: str, path: Path, topic: str) -> None:
    events = topic_events(bootstrap, topic)
    assert stored_rows(path, topic) == compacted(events)


def test_rows_equal_the_compacted_topic(
    bootstrap: str, path: Path, topic: str, write: Write
) -> None:
    pairs = [(f"k{number % 7}", str(number)) for number in range(50)]
    write(topic, *pairs, ("k1", None), (None, "without a key"), ("k2", ""))
    load(bootstrap, path, [topic])
    check_rows(bootstrap, path, topic)
    write(topic, ("k1", "back"), ("k3", None))
    load(bootstrap, path, [topic])
    check_rows(bootstrap, path, topic)
    assert sum(stored_positions(path, topic).values()) == 55


def test_new_records_and_new_partitions_are_followed(
    bootstrap: str, path: Path, topic: str, write: Write, cluster: Cluster
) -> None:
    with following(bootstrap, path, [topic]) as service:
        write(topic, ("a", "1"))
        eventually(lambda: len(stored_rows_or_none(path, topic)) == 1)
        cluster.add_partitions(topic, 4)
        eventually(lambda: set(stored_positions(path, topic)) == {0, 1, 2, 3})
        write(topic, ("b", "2"), partition=3)
        eventually(lambda: stored_rows(path, topic).get((b"b", 3)) == (b"2", 0))
        eventually(lambda: overall(service.board.facts()) is Health.HEALTHY)
    check_rows(bootstrap, path, topic)


def stored_rows_or_none(path: Path, topic: str) -> dict[object, object]:
    try:
        return dict(stored_rows(path, topic))
    except sqlite3.OperationalError:
        return {}  # the table is not created yet


def test_deleted_offsets_are_a_declared_gap_and_a_refresh_ends_it(
    bootstrap: str, path: Path, topic: str, write: Write, cluster: Cluster
) -> None:
    write(topic, ("a", "1"), ("b", "1"), partition=0)
    load(bootstrap, path, [topic])
    write(topic, ("a", None), ("c", "2"), ("d", "3"), partition=0)
    delete_before(cluster, {TopicPartition(topic, 0): 4})
    with following(bootstrap, path, [topic]) as service:
        eventually(lambda: stored_positions(path, topic)[0] == 5)
        eventually(lambda: bool(service.board.facts().topics[topic].gaps))
        (gap,) = service.board.facts().topics[topic].gaps
        assert (gap.partition, gap.from_offset, gap.until_offset) == (0, 2, 4)
        assert overall(service.board.facts()) is Health.DEGRADED
    assert set(stored_rows(path, topic)) == {(b"a", 0), (b"b", 0), (b"d", 0)}
    load(bootstrap, path, [topic], wants_refresh=True)
    assert set(stored_rows(path, topic)) == {(b"d", 0)}
    with following(bootstrap, path, [topic]) as service:
        eventually(lambda: overall(service.board.facts()) is Health.HEALTHY)


def test_a_topic_that_was_created_again_is_not_mixed_with_the_old_one(
    bootstrap: str, path: Path, topic: str, write: Write, cluster: Cluster
) -> None:
    write(topic, ("a", "old"), ("b", "old"), partition=0)
    with following(bootstrap, path, [topic]) as service:
        eventually(lambda: len(stored_rows_or_none(path, topic)) == 2)
        recreate(cluster, topic, partitions=3)
        write(topic, ("a", "new"), ("x", "new"), ("y", "new"), partition=0)
        eventually(lambda: service.board.facts().topics[topic].state is TopicState.RECREATED)
        trouble = service.board.facts().topics[topic].trouble
        assert trouble is not None
        assert "--on-recreate rebuild" in trouble.remedy
    assert {value for value, _ in stored_rows(path, topic).values()} == {b"old"}
    with pytest.raises(UnreadableTopicError):
        load(bootstrap, path, [topic])
    load(bootstrap, path, [topic], on_recreate=REBUILD)
    check_rows(bootstrap, path, topic)
    assert len(stored_positions(path, topic)) == 3


def recreate(cluster: Cluster, topic: str, partitions: int) -> None:
    cluster.delete_topic(topic)
    eventually(lambda: topic not in cluster.describe([topic]))
    create_topic(cluster, topic, partitions)


def test_a_missing_topic_is_waited_for(
    bootstrap: str, path: Path, topic: str, write: Write, cluster: Cluster
) -> None:
    late = f"{topic}-late"
    with following(bootstrap, path, [late, topic]) as service:
        eventually(lambda: service.board.facts().topics[late].state is TopicState.MISSING)
        assert overall(service.board.facts()) is Health.UNHEALTHY
        write(topic, ("a", "1"))
        eventually(lambda: len(stored_rows_or_none(path, topic)) == 1)
        create_topic(cluster, late, 1)
        write(late, ("b", "2"))
        eventually(lambda: len(stored_rows_or_none(path, late)) == 1)
    with pytest.raises(UnreadableTopicError, match="not found"):
        load(bootstrap, path, [f"{topic}-never"])


def test_a_refresh_of_an_empty_topic_is_complete_at_once(
    bootstrap: str, path: Path, topic: str
) -> None:
    load(bootstrap, path, [topic])
    load(bootstrap, path, [topic], wants_refresh=True)
    assert stored_rows(path, topic) == {}
    assert stored_positions(path, topic) == {0: 0, 1: 0}


def test_only_committed_records_have_rows(
    bootstrap: str, path: Path, topic: str, write: Write, cluster: Cluster
) -> None:
    at = TopicPartition(topic, 0)
    transactions = ProducerTransactions(cluster)
    for key, is_committed in (("kept", True), ("aborted", False), ("kept-too", True)):
        begun = transactions.begin(f"{topic}-{key}", 60_000)
        records = [Record(key.encode(), b"1"), Record(b"shared", key.encode())]
        data = build_batch(
            records,
            producer_id=begun.producer_id,
            producer_epoch=begun.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        sender = BatchSender(cluster, transactional_id=begun.transactional_id)
        transactions.add_partitions(begun, [at])
        sender.send(at, data)
        sender.flush()
        transactions.end(begun, commits=is_committed)
    write(topic, ("plain", "2"), partition=0)
    rows: dict[bytes | None, bytes | None] = {}
    deadline = time.monotonic() + 20.0
    while b"plain" not in rows and time.monotonic() < deadline:
        # Apache Kafka acknowledges the end of a transaction before its marker is written.
        load(bootstrap, path, [topic])
        rows = {key: value for (key, _), (value, _) in stored_rows(path, topic).items()}
        assert b"aborted" not in rows
    assert rows == {b"kept": b"1", b"kept-too": b"1", b"shared": b"kept-too", b"plain": b"2"}


def test_an_open_transaction_holds_the_position(
    bootstrap: str, path: Path, topic: str, write: Write, cluster: Cluster
) -> None:
    at = TopicPartition(topic, 0)
    transactions = ProducerTransactions(cluster)
    begun = transactions.begin(f"{topic}-open", 60_000)
    data = build_batch(
        [Record(b"a", b"1")],
        producer_id=begun.producer_id,
        producer_epoch=begun.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    sender = BatchSender(cluster, transactional_id=begun.transactional_id)
    transactions.add_partitions(begun, [at])
    sender.send(at, data)
    sender.flush()
    write(topic, ("b", "2"), partition=0)
    load(bootstrap, path, [topic])
    assert stored_positions(path, topic)[0] == 0
    transactions.end(begun, commits=False)
    with following(bootstrap, path, [topic]):
        eventually(lambda: stored_positions(path, topic)[0] == 3)
    assert set(stored_rows(path, topic)) == {(b"b", 0)}


def test_a_broker_that_restarts_delays_records_and_loses_none(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_follower, "PAUSE_SECONDS_MAX", 0.1)
    with Broker(data_dir=tmp_path / "log") as broker:
        bootstrap = broker.bootstrap_server
        with cluster_at(bootstrap) as cluster:
            cluster.create_topic(NewTopic("price", 1, 1))
            writer = TopicWriter(cluster, "price")
            writer.append(b"a", b"1")
            writer.flush()
        with following(bootstrap, path, ["price"]) as service:
            eventually(lambda: len(stored_rows_or_none(path, "price")) == 1)
            with broker.crashed():
                eventually(lambda: service.board.facts().unreachable is not None)
                assert overall(service.board.facts()) is Health.DEGRADED
            with cluster_at(bootstrap) as cluster:
                writer = TopicWriter(cluster, "price")
                writer.append(b"b", b"2")
                writer.flush()
            eventually(lambda: len(stored_rows(path, "price")) == 2)
            eventually(lambda: overall(service.board.facts()) is Health.HEALTHY)


def test_a_full_disk_pauses_and_continues(
    bootstrap: str, path: Path, topic: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_follower, "PAUSE_SECONDS_MAX", 0.02)
    is_full = threading.Event()
    apply = RowStore.apply

    def apply_or_fail(store: RowStore, portion: Portion) -> list[str]:
        if is_full.is_set():
            raise StoreFullError("the disk of the store is full.", hint="Free disk space.")
        return apply(store, portion)

    monkeypatch.setattr(RowStore, "apply", apply_or_fail)
    with following(bootstrap, path, [topic]) as service:
        eventually(lambda: topic in service.store.topics())
        is_full.set()
        write(topic, ("a", "1"))
        eventually(lambda: service.board.facts().store is not None)
        assert overall(service.board.facts()) is Health.UNHEALTHY
        assert stored_rows(path, topic) == {}
        is_full.clear()
        eventually(lambda: len(stored_rows(path, topic)) == 1)
        eventually(lambda: overall(service.board.facts()) is Health.HEALTHY)


def test_a_requested_refresh_continues_a_build_and_ends_with_it(
    bootstrap: str, path: Path, topic: str, write: Write, cluster: Cluster
) -> None:
    write(topic, ("a", "1"), partition=0)
    load(bootstrap, path, [topic])
    store = RowStore.open(path)
    topic_id = cluster.describe([topic])[topic].topic_id
    store.begin_generation(topic, topic_id, {0: 0, 1: 0}, {0: 1, 1: 0})
    store.close()
    with following(bootstrap, path, [topic], wants_refresh=True) as service:
        eventually(lambda: service.board.facts().topics[topic].generation == 2)
        write(topic, ("b", "2"), partition=0)
        eventually(lambda: len(stored_rows(path, topic)) == 2)
    assert service.board.facts().topics[topic].generation == 2


def set_position(path: Path, offset: int) -> None:
    connection = sqlite3.connect(path)
    connection.execute(
        'UPDATE penstock_positions SET next_offset = ? WHERE "partition" = 0', [offset]
    )
    connection.commit()
    connection.close()


def test_a_log_that_is_shorter_than_the_position_is_not_read(
    bootstrap: str, path: Path, topic: str, write: Write
) -> None:
    write(topic, ("a", "1"), partition=0)
    load(bootstrap, path, [topic])
    set_position(path, 50)
    with following(bootstrap, path, [topic]) as service:
        eventually(lambda: service.board.facts().topics[topic].state is TopicState.DIVERGED)
        assert overall(service.board.facts()) is Health.UNHEALTHY
    with following(bootstrap, path, [topic], on_recreate=REBUILD):
        eventually(lambda: stored_positions(path, topic) == {0: 1, 1: 0})
    check_rows(bootstrap, path, topic)


def test_large_answers_are_written_in_several_transactions(
    bootstrap: str, path: Path, topic: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_follower, "PORTION_BYTES_MAX", 1)
    for number in range(5):
        write(topic, (f"k{number % 2}", str(number)), ("k0", None), ("x", str(number)), partition=0)
    load(bootstrap, path, [topic])
    check_rows(bootstrap, path, topic)


def test_a_corrupt_batch_is_reported_and_read_again(
    bootstrap: str, path: Path, topic: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_corrupt = threading.Event()
    is_corrupt.set()
    decode = committed_records.committed_batches

    def decode_or_fail(
        data: bytes, aborted: Sequence[committed_records.Aborted], position: int
    ) -> Iterator[committed_records.DecodedBatch]:
        if is_corrupt.is_set():
            raise CorruptBatchError("the checksum is wrong")
        return decode(data, aborted, position)

    monkeypatch.setattr(topic_follower, "committed_batches", decode_or_fail)
    write(topic, ("a", "1"), partition=0)
    with following(bootstrap, path, [topic]) as service:
        eventually(lambda: service.board.facts().topics[topic].state is TopicState.CORRUPT)
        is_corrupt.clear()
        eventually(lambda: len(stored_rows(path, topic)) == 1)
        eventually(lambda: overall(service.board.facts()) is Health.HEALTHY)


def test_a_topic_without_access_is_denied(
    bootstrap: str, path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with following(bootstrap, path, [topic]) as service:
        eventually(lambda: overall(service.board.facts()) is Health.HEALTHY)
        describe = Cluster.describe

        def refuse(_cluster: Cluster, _names: object) -> NoReturn:
            raise BrokerAnswerError(code.value, code.name, topic)

        monkeypatch.setattr(Cluster, "describe", refuse)
        eventually(lambda: service.board.facts().topics[topic].state is TopicState.DENIED)
        monkeypatch.setattr(Cluster, "describe", describe)
        eventually(lambda: overall(service.board.facts()) is Health.HEALTHY)
