"""Where a pipeline's batches begin: the table decides, whatever a checkpoint says."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.core.types import TopicPartition
from penstock.spark.errors import DataLossError
from penstock.spark.offsets import PartitionPosition, StreamOffset, read_offset, write_offset
from penstock.spark.planning import OffsetRange
from penstock.spark.source.subscription import Subscription
from penstock.spark.tables.run.once import batches_now
from penstock.spark.tables.run.plan_file import BatchPlan, PlanFile
from penstock.spark.tables.run.source import PLAN_OPTION, PipelineReader
from penstock.spark.tables.run.table_offsets import subscribed
from penstock.spark.tables.tasks.orders import TaskOrder
from tests.client.number_cluster import NumberCluster
from tests.spark.source_world import lookups_of, source_options, stream_of

A, B = (TopicPartition("orders", index) for index in range(2))
OLD = TopicPartition("old", 0)


class Source:
    """The source of a pipeline over a cluster in memory."""

    def __init__(self, cluster: NumberCluster, file: PlanFile, **given: str) -> None:
        self.cluster = cluster
        self.given = {"subscribe": "orders", **given}
        self.file = file
        self.restart()

    def restart(self) -> None:
        """Another process of the source."""
        self.reader = PipelineReader(
            {"kafka.bootstrap.servers": "fake:9000", PLAN_OPTION: self.file.path, **self.given}
        )
        self.reader._batches = stream_of(self.cluster, **self.given)

    def holds(self, **ends: int) -> None:
        """What the table holds from now on, of partitions of `orders`."""
        held = self.place({TopicPartition("orders", int(n[1:])): end for n, end in ends.items()})
        self.file.write(BatchPlan(b"plan", held, held))

    def place(self, offsets: Mapping[TopicPartition, int]) -> StreamOffset:
        latest = lookups_of(self.cluster, source_options()).latest()
        positions = {at: PartitionPosition(offset, 0) for at, offset in offsets.items()}
        return StreamOffset(positions, latest.topic_ids, latest.cluster_id)

    def checkpoint(self, offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
        return _from_spark(write_offset(self.place(offsets)))

    def decide(self, start: dict[str, Any]) -> dict[str, Any]:
        return _from_spark(self.reader.latestOffset(start, ReadAllAvailable()))

    def ranges(self, start: dict[str, Any], end: dict[str, Any]) -> list[OffsetRange]:
        orders: list[TaskOrder] = [
            one for partition in self.reader.partitions(start, end) for one in partition.value
        ]
        return sorted(one.task.range for one in orders)

    def batch(self, start: dict[str, Any]) -> list[OffsetRange]:
        """The next batch, and the same when it is planned again after a restart."""
        end = self.decide(start)
        found = self.ranges(start, end)
        self.restart()
        assert self.ranges(start, end) == found
        return found


def _from_spark(document: dict[str, Any]) -> dict[str, Any]:
    """What comes back from Spark, which keeps documents as text."""
    found: dict[str, Any] = json.loads(json.dumps(document))
    return found


@pytest.fixture
def cluster() -> NumberCluster:
    made = NumberCluster()
    made.set_topic("orders", 100, 50)
    return made


@pytest.fixture
def file() -> Iterator[PlanFile]:
    with closing(PlanFile()) as made:
        yield made


@pytest.fixture
def source(cluster: NumberCluster, file: PlanFile) -> Source:
    return Source(cluster, file)


def test_a_checkpoint_that_is_right_is_left_alone(source: Source) -> None:
    source.holds(p0=100, p1=50)
    start = source.checkpoint({A: 100, B: 50})
    assert source.decide(start) == start
    source.cluster.set_topic("orders", 110, 50)
    assert source.batch(start) == [OffsetRange(A, 100, 110)]


@pytest.mark.parametrize("option", ["true", "false"])
def test_a_checkpoint_that_is_ahead_leaves_nothing_out(
    cluster: NumberCluster, file: PlanFile, option: str
) -> None:
    source = Source(cluster, file, failOnDataLoss=option)
    source.holds(p0=30, p1=50)
    start = source.checkpoint({A: 90, B: 50})
    assert source.batch(start) == [OffsetRange(A, 30, 100)]
    source.holds(p0=100, p1=50)
    end = source.decide(start)
    assert source.ranges(start, end) == [], "a batch that was committed and is planned again"
    assert source.decide(end) == end


def test_a_partition_that_the_table_has_forgotten_is_read_from_its_beginning(
    source: Source,
) -> None:
    source.holds(p0=100)
    assert source.batch(source.checkpoint({A: 100, B: 40})) == [OffsetRange(B, 0, 50)]


def test_a_batch_that_was_planned_before_the_rollback_commits_what_is_missing(
    source: Source,
) -> None:
    source.holds(p0=80, p1=50)
    start = source.checkpoint({A: 80, B: 50})
    end = source.decide(start)
    source.holds(p0=10)
    source.restart()
    assert source.ranges(start, end) == [OffsetRange(A, 10, 100), OffsetRange(B, 0, 50)]


def test_a_batch_like_the_last_one_is_run_again_when_the_table_lost_it(source: Source) -> None:
    source.holds(p0=0, p1=0)
    initial = {**source.checkpoint({A: 0, B: 0}), "is_initial": True}
    first = source.decide(initial)
    assert source.ranges(initial, first) == [OffsetRange(A, 0, 100), OffsetRange(B, 0, 50)]
    source.restart()
    # The table is empty again, and nothing comes to the topic.
    back = source.decide(first)
    assert source.ranges(first, back) == []
    again = source.decide(back)
    assert source.ranges(back, again) == [OffsetRange(A, 0, 100), OffsetRange(B, 0, 50)]
    source.holds(p0=100, p1=50)
    assert source.decide(again) == again


def test_a_partition_that_only_the_table_knows_goes_on_where_it_is(source: Source) -> None:
    """It was taken out for a while, or came during a run that ended."""
    source.cluster.set_topic("orders", 100, 60, starts={1: 20})
    source.holds(p0=100, p1=50)
    start = source.checkpoint({A: 100})
    assert source.batch(start) == [OffsetRange(B, 50, 60)]
    source.cluster.set_topic("orders", 100, 50)
    end = source.decide(start)
    assert source.ranges(start, end) == []
    assert source.decide(end) == end
    source.holds(p0=100)
    with pytest.raises(DataLossError, match="orders-1 is new and begins at offset 20"):
        source.decide(start)


def test_an_empty_partition_that_is_new_runs_no_batches(source: Source) -> None:
    source.cluster.set_topic("orders", 100, 50, 0)
    source.holds(p0=100, p1=50)
    start = source.decide(source.checkpoint({A: 100, B: 50}))
    assert source.decide(start) == start
    source.cluster.set_topic("orders", 100, 50, 5)
    assert source.batch(start) == [OffsetRange(TopicPartition("orders", 2), 0, 5)]


def test_what_is_gone_from_the_topic_is_not_asked_for_again(
    cluster: NumberCluster, file: PlanFile
) -> None:
    source = Source(cluster, file, failOnDataLoss="false")
    source.holds(p0=30, p1=50)
    source.cluster.set_topic("orders", 100, 50, starts={0: 95})
    start = source.checkpoint({A: 95, B: 50})
    assert source.batch(start) == [OffsetRange(A, 95, 100)]
    start = source.checkpoint({A: 100, B: 50})
    source.cluster.set_topic("orders", 100, 50, starts={0: 100})
    assert source.decide(start) == start


@pytest.mark.parametrize("option", ["true", "false"])
def test_a_log_that_was_written_anew_is_an_error_whatever_the_option_says(
    cluster: NumberCluster, file: PlanFile, option: str
) -> None:
    source = Source(cluster, file, failOnDataLoss=option)
    source.holds(p0=100, p1=50)
    start = source.checkpoint({A: 100, B: 50})
    cluster.leader_epochs[A] = 2
    cluster.epoch_ends[A, 0] = 50
    cluster.set_topic("orders", 150, 50)
    with pytest.raises(DataLossError, match=r"lost records that the table has.* 50 "):
        source.decide(start)
    options = source_options(failOnDataLoss=option)
    held = source.place({A: 100, B: 50})
    with pytest.raises(DataLossError, match="does not help"):
        list(batches_now(lookups_of(cluster, options), options, held))


def test_a_log_that_ends_too_early_is_an_error_whatever_the_option_says(
    cluster: NumberCluster, file: PlanFile
) -> None:
    source = Source(cluster, file, failOnDataLoss="false")
    source.holds(p0=120, p1=50)
    with pytest.raises(DataLossError, match="holds orders-0 up to offset 120"):
        source.decide(source.checkpoint({A: 120, B: 50}))


def test_a_topic_that_was_taken_out_is_forgotten(source: Source) -> None:
    source.holds(p0=100, p1=50)
    start = source.checkpoint({A: 90, B: 50, OLD: 7})
    end = source.decide(start)
    assert read_offset(end).topics() == {"orders"}
    assert source.decide(end) == end
    planned = {**end, "topics": {**end["topics"], **start["topics"]}}
    assert source.ranges(start, planned) == []


def test_what_a_subscription_covers() -> None:
    place = StreamOffset({A: PartitionPosition(1), OLD: PartitionPosition(2)}, begins={OLD: 0})
    assert subscribed(place, Subscription(topics=("orders", "old"))) is place
    assert set(subscribed(place, Subscription(topics=("orders",))).positions) == {A}
    assert set(subscribed(place, Subscription(pattern="l")).positions) == {OLD}
    assert subscribed(place, Subscription(partitions=(A,))).begins == {}


@given(
    checkpoint=st.tuples(*[st.integers(0, 20)] * 2),
    held=st.tuples(*[st.none() | st.integers(0, 20)] * 2),
    earliest=st.tuples(*[st.integers(0, 20)] * 2),
)
def test_a_batch_commits_what_the_table_lacks_and_the_topic_has(
    checkpoint: tuple[int, int],
    held: tuple[int | None, int | None],
    earliest: tuple[int, int],
) -> None:
    cluster = NumberCluster()
    cluster.set_topic("orders", 20, 20, starts=dict(enumerate(earliest)))
    ends = {f"p{index}": end for index, end in enumerate(held) if end is not None}
    with closing(PlanFile()) as file:
        source = Source(cluster, file, failOnDataLoss="false")
        source.holds(**ends)
        found = source.batch(source.checkpoint({A: checkpoint[0], B: checkpoint[1]}))
    missing = [
        OffsetRange(at, max(end or 0, first), 20)
        for at, end, first in zip((A, B), held, earliest, strict=True)
    ]
    assert found == [one for one in missing if one.size > 0]


@pytest.mark.parametrize("planned", [0, 100])
def test_a_topic_that_was_created_again_has_a_remedy_of_its_own(
    source: Source, planned: int
) -> None:
    """In a query a new checkpoint helps; in a pipeline the table still holds the old topic."""
    source.holds(p0=100, p1=50)
    start = source.checkpoint({A: planned, B: 50})
    source.cluster.recreate_topic("orders", 500, 500)
    with pytest.raises(DataLossError) as caught:
        source.decide(start)
    text = str(caught.value)
    assert "was deleted and created again" in text
    assert "`penstock table forget FILE`" in text
    assert "set failOnDataLoss to false" not in text
