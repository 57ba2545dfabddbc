"""A task's rows: every record of its range once and in order, or the losses."""

import logging
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.cluster import Cluster
from penstock.client.transport.addresses import Address
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import fetch
from penstock.records.builder import build_batch
from penstock.records.control import Marker, build_marker
from penstock.records.record import Record
from penstock.spark.errors import DataLossError
from penstock.spark.planning import OffsetRange, ReadTask
from penstock.spark.source.options import Mode
from penstock.spark.source.subscription import topic_id_text
from penstock.spark.source.task_reader import TaskSettings, read_range
from tests.client.conftest import StepClock
from tests.client.fake_broker import FakeCluster
from tests.client.stale_brokers import StaleBrokers
from tests.spark.source_world import source_options

AT = TopicPartition("orders", 0)


@pytest.fixture
def fake() -> FakeCluster:
    made = FakeCluster()
    made.add_topic("orders")
    return made


def fill(fake: FakeCluster, *spans: tuple[int, int]) -> None:
    """A batch for each span of offsets; between them are the gaps that compaction leaves."""
    for first, stop in spans:
        records = [Record(value=b"%d" % offset) for offset in range(first, stop)]
        fake.logs[AT].append(bytes(build_batch(records, base_offset=first)))


def task(fake: FakeCluster, first: int, until: int) -> ReadTask:
    return ReadTask(OffsetRange(AT, first, until), topic_id_text(fake.topic_ids["orders"]), 0)


def read(fake: FakeCluster, one: ReadTask, **given: str) -> list[int]:
    """The offsets of the rows; each row's value is its offset."""
    settings_of = TaskSettings.of(source_options(Mode.BATCH, **given))
    clock = StepClock()
    cluster = Cluster([Address("fake", 9000)], fake.connect, clock=clock, sleep=clock.sleep)
    rows: list[dict[str, Any]] = []
    for batch in read_range(cluster, one, settings_of):
        rows += batch.to_pylist()
    for row in rows:
        assert row["value"] == b"%d" % row["offset"]
        assert (row["topic"], row["partition"]) == AT
    return [row["offset"] for row in rows]


def test_a_range_within_batches(fake: FakeCluster) -> None:
    fill(fake, (0, 10), (10, 20), (20, 30))
    assert read(fake, task(fake, 5, 25)) == list(range(5, 25))
    assert read(fake, task(fake, 12, 13)) == [12]
    assert read(fake, task(fake, 7, 7)) == []


def spans_of(found: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    spans, position = [], 0
    for gap, size in found:
        spans.append((position + gap, position + gap + size))
        position += gap + size
    return spans


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    sizes=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), min_size=1, max_size=8),
)
def test_pieces_of_a_log_with_gaps_give_each_record_once(
    data: st.DataObject, sizes: list[tuple[int, int]]
) -> None:
    spans = spans_of(sizes)
    fake = FakeCluster()
    fake.add_topic("orders")
    fill(fake, *spans)
    end = spans[-1][1]
    edges = sorted({0, end, *data.draw(st.lists(st.integers(0, end), max_size=4))})
    found = [
        offset
        for first, until in pairwise(edges)
        for offset in read(fake, task(fake, first, until))
    ]
    assert found == [offset for first, stop in spans for offset in range(first, stop)]


def test_a_range_whose_end_is_compacted_away_ends(fake: FakeCluster) -> None:
    fill(fake, (0, 5), (50, 51))
    assert read(fake, task(fake, 0, 30)) == list(range(5))
    assert read(fake, task(fake, 10, 40)) == []


def test_transactions(fake: FakeCluster) -> None:
    log = fake.logs[AT]
    fill(fake, (0, 2))
    for producer_id, first in ((7, 2), (8, 5)):
        records = [Record(value=b"%d" % offset) for offset in range(first, first + 3)]
        log.append(
            bytes(
                build_batch(
                    records,
                    base_offset=first,
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=0,
                    transactional=True,
                )
            )
        )
    for offset, producer_id, is_commit in ((8, 7, False), (9, 8, True)):
        marker = build_marker(
            Marker(is_commit, 0),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp_ms=0,
            base_offset=offset,
        )
        log.append(bytes(marker))
    fake.aborted[AT] = [(7, 2)]
    committed = {"kafka.isolation.level": "read_committed"}
    assert read(fake, task(fake, 0, 10)) == list(range(8))
    assert read(fake, task(fake, 0, 10), **committed) == [0, 1, 5, 6, 7]
    assert read(fake, task(fake, 8, 10), **committed) == [], "only markers"


@pytest.mark.parametrize("how", ["lost", "unreachable", ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_faults_of_the_moment_are_not_noticed(fake: FakeCluster, how: ErrorCode | str) -> None:
    fill(fake, (0, 10), (10, 20), (20, 30), (30, 40))
    fake.fail_next(fetch.FetchRequest, how, times=2)
    assert read(fake, task(fake, 0, 40)) == list(range(40))


def test_removed_records_are_an_error(fake: FakeCluster) -> None:
    fill(fake, (0, 10), (10, 20))
    fake.log_starts[AT] = 10
    with pytest.raises(DataLossError, match="begins at offset 10 now"):
        read(fake, task(fake, 5, 20))


def test_removed_records_are_skipped_and_counted(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(fake, (0, 10), (10, 20))
    fake.log_starts[AT] = 10
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        assert read(fake, task(fake, 5, 20), failOnDataLoss="false") == list(range(10, 20))
    assert "offsets skipped: 5" in caplog.text
    fake.log_starts[AT] = 15
    assert read(fake, task(fake, 2, 12), failOnDataLoss="false") == []


def test_the_caller_gets_the_offsets_that_are_gone(fake: FakeCluster) -> None:
    """A pipeline writes them into its note."""
    fill(fake, (0, 10), (10, 20))
    fake.log_starts[AT] = 10
    given = TaskSettings.of(source_options(Mode.BATCH, failOnDataLoss="false"))
    clock = StepClock()
    cluster = Cluster([Address("fake", 9000)], fake.connect, clock=clock, sleep=clock.sleep)
    lost: list[OffsetRange] = []
    rows = [batch.num_rows for batch in read_range(cluster, task(fake, 5, 20), given, lost.append)]
    assert (sum(rows), lost) == (10, [OffsetRange(AT, 5, 10)])


def test_a_log_that_lost_its_end(fake: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    fill(fake, (0, 10))
    with pytest.raises(DataLossError, match="offset 20 of orders-0 is wanted"):
        read(fake, task(fake, 20, 30))
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        assert read(fake, task(fake, 5, 30), failOnDataLoss="false") == list(range(5, 10))
    assert "offsets skipped: 20" in caplog.text


def test_a_topic_that_is_another_one(fake: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    fill(fake, (0, 10))
    planned = task(fake, 0, 10)
    fake.topic_ids["orders"] = UUID(int=99)
    with pytest.raises(DataLossError, match="created again"):
        read(fake, planned)
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        assert read(fake, planned, failOnDataLoss="false") == []
    assert "offsets skipped: 10" in caplog.text


def test_a_topic_that_is_gone(fake: FakeCluster) -> None:
    fill(fake, (0, 10))
    planned = task(fake, 0, 10)
    del fake.logs[AT], fake.topic_ids["orders"]
    with pytest.raises(DataLossError, match="deleted"):
        read(fake, planned)
    assert read(fake, planned, failOnDataLoss="false") == []


@pytest.mark.parametrize("old_id", [None, UUID(int=77)])
@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_broker_that_has_not_caught_up_means_no_loss(
    old_id: UUID | None, fail_on_data_loss: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not know the new topic yet, or only the one before it of the same name."""
    fake = FakeCluster(broker_ids=(1, 2))
    fake.add_topic("orders")
    fill(fake, (0, 10))
    StaleBrokers(fake, {1}, old_id)
    found = read(fake, task(fake, 0, 10), failOnDataLoss=fail_on_data_loss)
    assert found == list(range(10))
    assert not caplog.records


def test_an_interrupted_read_leaves_nothing_behind(fake: FakeCluster) -> None:
    fill(fake, *((first, first + 10_000) for first in range(0, 60_000, 10_000)))
    clock = StepClock()
    with Cluster([Address("fake", 9000)], fake.connect, clock=clock, sleep=clock.sleep) as cluster:
        rows = read_range(cluster, task(fake, 0, 60_000), TaskSettings.of(source_options()))
        assert next(rows).num_rows < 60_000
        assert sum(one.answers_waiting for one in fake.opened) == 1, "the next fetch is under way"
        rows.close()
        assert sum(one.answers_waiting for one in fake.opened) == 0
    assert all(one.is_closed for one in fake.opened)
