"""A stream on the driver: the sequence of offsets, repeated batches, the number of calls."""

import json
import pickle
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.spark.errors import OptionError
from penstock.spark.offsets import read_offset
from penstock.spark.planning import TASKS_BY_BYTES_MAX, OffsetRange, ReadLimits
from penstock.spark.source.micro_batches import MicroBatches
from tests.client.number_cluster import NumberCluster
from tests.spark.source_world import stream_of

A, B, C = (TopicPartition("orders", index) for index in range(3))
ALL = ReadLimits()


@pytest.fixture
def cluster() -> NumberCluster:
    made = NumberCluster()
    made.set_topic("orders", 100, 50)
    return made


def round_trip(document: Any) -> Any:  # noqa: ANN401 - any JSON
    """What comes back from Spark, which keeps documents as text."""
    return json.loads(json.dumps(document))


def ranges(tasks: list[Any]) -> list[OffsetRange]:
    return sorted(task.range for task in tasks)


def ends_of(document: dict[str, Any]) -> dict[TopicPartition, int]:
    return {at: one.offset for at, one in read_offset(document).positions.items()}


def batch(
    stream: MicroBatches, start: dict[str, Any], limits: ReadLimits = ALL
) -> tuple[dict[str, Any], list[OffsetRange]]:
    """The next batch, as Spark runs it."""
    end = round_trip(stream.latest_offset(start, limits))
    return end, ranges(stream.plan(start, end))


def test_batches_follow_each_other(cluster: NumberCluster) -> None:
    stream = stream_of(cluster)
    first, read = batch(stream, round_trip(stream.initial_offset()))
    assert read == [OffsetRange(A, 0, 100), OffsetRange(B, 0, 50)]
    cluster.set_topic("orders", 110, 50)
    second, read = batch(stream, first)
    assert read == [OffsetRange(A, 100, 110)]
    assert ends_of(second) == {A: 110, B: 50}


def test_without_news_the_same_document_comes_back(cluster: NumberCluster) -> None:
    stream = stream_of(cluster)
    first, _ = batch(stream, round_trip(stream.initial_offset()))
    text = json.dumps(first)
    cluster.leader_epochs[A] = 3  # A new leader changes nothing for the rows.
    cluster.epoch_ends[A, 0] = 100
    assert json.dumps(stream.latest_offset(json.loads(text), ALL)) == text
    assert stream.plan(first, first) == []


def test_a_repeated_first_batch_reads_what_it_read(cluster: NumberCluster) -> None:
    stream = stream_of(cluster, startingOffsets="latest")
    start = round_trip(stream.initial_offset())
    cluster.set_topic("orders", 120, 50)
    assert round_trip(stream.initial_offset()) == start, "latest is taken once in a run"
    end, read = batch(stream, start)
    assert read == [OffsetRange(A, 100, 120)]

    # It fails, more records arrive, and the query starts again: Spark requests the initial offset
    # again.
    cluster.set_topic("orders", 200, 60)
    again = stream_of(cluster, startingOffsets="latest")
    later_start = round_trip(again.initial_offset())
    assert ends_of(later_start) == {A: 200, B: 60}
    assert ranges(again.plan(later_start, end)) == [OffsetRange(A, 100, 120)]
    _, read = batch(again, end)
    assert read == [OffsetRange(A, 120, 200), OffsetRange(B, 50, 60)]


def test_an_empty_first_batch_loses_nothing(cluster: NumberCluster) -> None:
    stream = stream_of(cluster, startingOffsets="latest")
    end, read = batch(stream, round_trip(stream.initial_offset()))
    assert read == []
    cluster.set_topic("orders", 101, 50)
    again = stream_of(cluster, startingOffsets="latest")
    assert again.plan(round_trip(again.initial_offset()), end) == []
    _, read = batch(again, end)
    assert read == [OffsetRange(A, 100, 101)]


def test_a_new_partition_is_read_from_its_beginning(cluster: NumberCluster) -> None:
    stream = stream_of(cluster)
    first, _ = batch(stream, round_trip(stream.initial_offset()))
    cluster.set_topic("orders", 100, 50, 7)
    second, read = batch(stream, first)
    assert read == [OffsetRange(C, 0, 7)]
    # A repeat in another run reads the same, whatever has come since.
    cluster.set_topic("orders", 100, 50, 70)
    assert ranges(stream_of(cluster).plan(first, second)) == [OffsetRange(C, 0, 7)]


def test_a_new_empty_partition_is_known_at_once(cluster: NumberCluster) -> None:
    stream = stream_of(cluster)
    first, _ = batch(stream, round_trip(stream.initial_offset()))
    cluster.set_topic("orders", 100, 50, 0)
    second, read = batch(stream, first)
    assert read == []
    assert ends_of(second)[C] == 0


def test_new_topics_of_a_pattern_are_read(cluster: NumberCluster) -> None:
    stream = stream_of(cluster, subscribePattern="^o")
    first, _ = batch(stream, round_trip(stream.initial_offset()))
    cluster.set_topic("other", 5)
    _, read = batch(stream, first)
    assert read == [OffsetRange(TopicPartition("other", 0), 0, 5)]


def test_a_pattern_may_match_nothing_yet(cluster: NumberCluster) -> None:
    stream = stream_of(cluster, subscribePattern="^later$")
    first, read = batch(stream, round_trip(stream.initial_offset()))
    assert read == []
    cluster.set_topic("later", 5, starts={0: 3})
    _, read = batch(stream, first)
    assert read == [OffsetRange(TopicPartition("later", 0), 3, 5)]


def test_limits_of_offsets_and_bytes(cluster: NumberCluster) -> None:
    cluster.sizes = {A: 100 * 10, B: 50 * 1000}
    stream = stream_of(cluster)
    start = round_trip(stream.initial_offset())
    end, read = batch(stream, start, ReadLimits(offsets_max=30))
    assert ends_of(end) == {A: 20, B: 10}
    end, read = batch(stream, end, ReadLimits(bytes_max=4080))
    assert read == [OffsetRange(A, 20, 28), OffsetRange(B, 10, 14)]


def test_a_limit_of_bytes_needs_sizes(cluster: NumberCluster) -> None:
    cluster.sizes_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    stream = stream_of(cluster)
    start = round_trip(stream.initial_offset())
    with pytest.raises(OptionError, match="maxOffsetsPerTrigger"):
        stream.latest_offset(start, ReadLimits(bytes_max=100))
    assert batch(stream, start)[1], "splitting does without"


def test_a_batch_waits_for_its_minimum(cluster: NumberCluster) -> None:
    stream = stream_of(cluster)
    limits = ReadLimits(offsets_min=10, delay_ms_max=60_000)
    first, read = batch(stream, round_trip(stream.initial_offset()), limits)
    assert read, "the first batch does not wait"
    cluster.set_topic("orders", 109, 50)
    assert stream.latest_offset(first, limits) == first
    cluster.set_topic("orders", 110, 50)
    second, read = batch(stream, first, limits)
    assert read == [OffsetRange(A, 100, 110)]
    cluster.set_topic("orders", 111, 50)
    assert stream.latest_offset(second, limits) == second
    cluster.clock.seconds += 60
    third, read = batch(stream, second, limits)
    assert read == [OffsetRange(A, 110, 111)]
    assert stream.latest_offset(third, limits) == third


def test_available_now_ends_where_it_began(cluster: NumberCluster) -> None:
    stream = stream_of(cluster)
    stream.prepare_available_now()
    cluster.set_topic("orders", 500, 500, 500)
    document = round_trip(stream.initial_offset())
    read: list[OffsetRange] = []
    limits = ReadLimits(offsets_max=40, offsets_min=1000)
    for _ in range(20):
        end, some = batch(stream, document, limits)
        if end == document:
            break
        document = end
        read += some
    assert ends_of(document) == {A: 100, B: 50, C: 0}, "the third came after the first question"
    assert sum(one.size for one in read) == 150


def test_available_now_after_a_restart_with_an_unfinished_batch(cluster: NumberCluster) -> None:
    stream = stream_of(cluster)
    stream.prepare_available_now()
    start = round_trip(stream.initial_offset())
    end, read = batch(stream, start, ReadLimits(offsets_max=30))
    cluster.set_topic("orders", 200, 50, 9)
    again = stream_of(cluster)
    again.prepare_available_now()
    assert ranges(again.plan(round_trip(again.initial_offset()), end)) == read
    _, rest = batch(again, end)
    assert rest == [OffsetRange(A, 20, 200), OffsetRange(B, 10, 50), OffsetRange(C, 0, 9)]


def test_available_now_from_the_latest_reads_nothing(cluster: NumberCluster) -> None:
    stream = stream_of(cluster, startingOffsets="latest")
    stream.prepare_available_now()
    cluster.set_topic("orders", 105, 50)
    end, read = batch(stream, round_trip(stream.initial_offset()))
    assert read == []
    assert stream.latest_offset(end, ALL) == end


def test_a_checkpoint_of_sparks_own_source_goes_on(cluster: NumberCluster) -> None:
    stream = stream_of(cluster)
    _, read = batch(stream, {"orders": {"0": 90, "1": 50}})
    assert read == [OffsetRange(A, 90, 100)]
    # A batch that Spark's own source has begun is finished.
    unfinished = stream.plan({"orders": {"0": 80, "1": 40}}, {"orders": {"0": 90, "1": 50}})
    assert ranges(unfinished) == [OffsetRange(A, 80, 90), OffsetRange(B, 40, 50)]


def test_the_report_has_ends_group_and_no_skips(cluster: NumberCluster) -> None:
    stream = stream_of(cluster, groupIdPrefix="team", **{"kafka.group.id": "mine"})
    assert stream.report() is None
    batch(stream, round_trip(stream.initial_offset()), ReadLimits(offsets_max=3))
    report = stream.report()
    assert report is not None
    assert ends_of({**report}) == {A: 100, B: 50}
    assert report["group"] == {"id": "mine", "prefix": "team"}
    assert "skipped" not in report


def test_a_batch_asks_a_constant_number_of_questions() -> None:
    for brokers, partitions in ((1, 2), (3, 900)):
        cluster = NumberCluster(tuple(range(1, brokers + 1)))
        cluster.set_topic("orders", *[10**9] * partitions)
        stream = stream_of(cluster)
        first, read = batch(stream, round_trip(stream.initial_offset()))
        assert len(read) >= partitions
        asked = cluster.counted()
        # Metadata for the first offset and the ends; ListOffsets for the first offset, the ends,
        # the beginnings of the plan and of the estimate, at each broker.
        assert asked == {
            "Metadata": 2,
            "ListOffsets": 4 * brokers,
            "DescribeLogDirs": brokers,
        }
        cluster.set_topic("orders", *[10**9 + 5] * partitions)
        batch(stream, first)
        assert cluster.counted() == {"Metadata": 1, "ListOffsets": 2 * brokers}


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_happens_each_offset_is_read_once(data: st.DataObject) -> None:
    """Records come, partitions are added, runs end before or after their batch is committed."""
    cluster = NumberCluster((1, 2))
    ends = [data.draw(st.integers(0, 9)) for _ in range(2)]
    cluster.set_topic("orders", *ends)
    stream = stream_of(cluster)
    document = round_trip(stream.initial_offset())
    read: dict[TopicPartition, list[OffsetRange]] = {}
    for _ in range(data.draw(st.integers(1, 8))):
        ends = [end + data.draw(st.integers(0, 9)) for end in ends]
        if data.draw(st.booleans()):
            ends.append(data.draw(st.integers(0, 5)))
        cluster.set_topic("orders", *ends)
        limits = ReadLimits(offsets_max=data.draw(st.none() | st.integers(1, 12)))
        end, some = batch(stream, document, limits)
        if data.draw(st.booleans()):
            # The run ends before the batch is committed; another one repeats it.
            ends = [old + data.draw(st.integers(0, 9)) for old in ends]
            cluster.set_topic("orders", *ends)
            stream = stream_of(cluster)
            if document.get("is_initial"):
                document = round_trip(stream.initial_offset())
            assert ranges(stream.plan(document, end)) == some
        for one in some:
            read.setdefault(one.at, []).append(one)
        document = end
    last, some = batch(stream, document)
    for one in some:
        read.setdefault(one.at, []).append(one)
    for index, end_offset in enumerate(ends):
        pieces = read.get(TopicPartition("orders", index), [])
        assert [one.from_offset for one in pieces] == [0, *(one.until_offset for one in pieces)][
            : len(pieces)
        ]
        assert sum(one.size for one in pieces) == end_offset
    assert ends_of(last) == {
        TopicPartition("orders", index): end_offset for index, end_offset in enumerate(ends)
    }


def test_a_thousand_partitions_with_a_billion_records_each_are_planned_in_two_seconds() -> None:
    cluster = NumberCluster((1, 2, 3))
    count, records = 1000, 10**9
    cluster.set_topic("orders", *[2 * records] * count, starts=dict.fromkeys(range(count), records))
    cluster.sizes = dict.fromkeys(cluster.ends, 200 * records)
    stream = stream_of(cluster)
    # Of the processor, not of the wall: others may use the machine.
    began = time.process_time()
    start = round_trip(stream.initial_offset())
    end = round_trip(stream.latest_offset(start, ReadLimits(bytes_max=2**50)))
    tasks = stream.plan(start, end)
    pickled = sum(len(pickle.dumps(task)) for task in tasks)
    spent_seconds = time.process_time() - began
    assert spent_seconds < 2, spent_seconds
    assert len(tasks) <= TASKS_BY_BYTES_MAX
    assert sum(task.range.size for task in tasks) == count * records
    assert pickled < 5_000_000, "what travels to the scheduler stays small"
    assert sum(cluster.counted().values()) < 10 * len(cluster.broker_ids)
