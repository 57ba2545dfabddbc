"""Lost data is reported: an error with a remedy, or a counted skip to the documented place."""

import logging
from uuid import UUID

import pytest

from penstock.core.types import TopicPartition
from penstock.spark.errors import DataLossError, OptionError
from penstock.spark.loss.data_loss import LINES_MAX, REMEDIES, Loss, LossKind, data_loss_error
from penstock.spark.loss.losses import LossCounter
from penstock.spark.offsets import read_offset
from penstock.spark.planning import OffsetRange, ReadLimits
from penstock.spark.source.batch_plan import plan_batch
from penstock.spark.source.lookups import Lookups
from penstock.spark.source.micro_batches import MicroBatches
from penstock.spark.source.options import Mode
from tests.client.number_cluster import NumberCluster
from tests.client.stale_brokers import StaleBrokers
from tests.spark.source_world import ALL, Query, lookups_of, source_options, stream_of

A, B, C = (TopicPartition("orders", index) for index in range(3))


def lenient() -> Query:
    return Query(failOnDataLoss="false")


# --- Retention passes the position ---


def remove(query: Query) -> None:
    query.cluster.set_topic("orders", 400, 50, starts={0: 250})


def test_removed_records_are_an_error() -> None:
    query = Query()
    remove(query)
    text = query.fails()
    assert "offsets 100 to 249 of orders-0 were removed" in text
    assert "retention.ms" in text


def test_removed_records_are_skipped_and_counted() -> None:
    query = lenient()
    remove(query)
    assert query.run() == [OffsetRange(A, 250, 400)]
    assert query.skipped() == {"records": 150, "partitions": 1}
    query.cluster.set_topic("orders", 410, 50)
    assert query.run() == [OffsetRange(A, 400, 410)]
    assert query.skipped() == {"records": 150, "partitions": 1}, "told once"


def test_removed_records_are_in_the_progress_of_the_batch_that_misses_them() -> None:
    """Spark asks for the progress after the end is decided, and before the batch is planned."""
    query = lenient()
    remove(query)
    end = query.decide()
    assert query.skipped() == {"records": 150, "partitions": 1}
    query.stream.plan(query.document, end)
    assert query.skipped() == {"records": 150, "partitions": 1}, "told once"


def test_removed_records_are_in_the_progress_of_the_only_batch() -> None:
    query = lenient()
    remove(query)
    query.stream.prepare_available_now()
    end = query.decide()
    assert query.skipped() == {"records": 150, "partitions": 1}
    query.cluster.set_topic("orders", 400, 50, starts={0: 260})
    (task,) = query.stream.plan(query.document, end)
    assert task.range == OffsetRange(A, 260, 400)
    assert query.skipped() == {"records": 160, "partitions": 2}, "what went since"


def test_a_topic_that_is_deleted_while_available_now_runs() -> None:
    query = lenient()
    query.cluster.set_topic("orders", 120, 50)
    query.stream.prepare_available_now()
    query.cluster.delete_topic("orders")
    end = query.decide()
    assert query.stream.plan(query.document, end) == []
    assert query.skipped() == {"records": 20, "partitions": 1}


def test_a_whole_batch_may_be_removed_before_its_repeat() -> None:
    query = lenient()
    query.cluster.set_topic("orders", 400, 50)
    end = query.decide()
    query.cluster.set_topic("orders", 900, 50, starts={0: 800})
    query.restart()
    assert query.stream.plan(query.document, end) == []
    query.document = end
    assert query.run() == [OffsetRange(A, 800, 900)]
    assert query.skipped() == {"records": 700, "partitions": 2}


def test_spark_asks_for_a_plan_twice_and_a_loss_counts_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    query = lenient()
    remove(query)
    end = query.decide()
    with caplog.at_level(logging.WARNING, "penstock.spark"):
        first = query.stream.plan(query.document, end)
        assert query.stream.plan(query.document, end) == first
    assert len(caplog.records) == 1
    assert "offsets skipped: 150" in caplog.text


# --- The topic is another one ---


def test_a_recreated_topic_is_an_error() -> None:
    query = Query()
    old_id = read_offset(query.document).topic_ids["orders"]
    query.cluster.recreate_topic("orders", 500, 500)
    text = query.fails()
    assert f"topic orders was deleted and created again (its id was {old_id}" in text
    assert "new checkpoint location" in text


@pytest.mark.parametrize("ends", [(500, 500), (3, 0), (100, 50)])
def test_a_recreated_topic_is_read_from_its_beginning(ends: tuple[int, int]) -> None:
    query = lenient()
    query.cluster.recreate_topic("orders", *ends)
    expected = [OffsetRange(at, 0, end) for at, end in zip((A, B), ends, strict=True) if end]
    assert query.run() == expected
    assert query.skipped()["partitions"] == 2
    assert query.run() == []
    assert query.skipped()["partitions"] == 2, "told once"


def test_a_topic_recreated_before_a_repeat_is_not_read_as_the_old_one() -> None:
    query = lenient()
    query.cluster.set_topic("orders", 120, 50)
    end = query.decide()
    query.cluster.recreate_topic("orders", 300, 0)
    query.restart()
    assert query.stream.plan(query.document, end) == []
    query.document = end
    assert query.run() == [OffsetRange(A, 0, 300)]
    assert query.skipped()["records"] == 20


def test_a_repeat_on_a_recreated_topic_is_an_error() -> None:
    query = Query()
    query.cluster.set_topic("orders", 120, 50)
    end = query.decide()
    query.cluster.recreate_topic("orders", 300, 0)
    query.restart()
    with pytest.raises(DataLossError, match="created again"):
        query.stream.plan(query.document, end)


def test_a_topic_recreated_while_available_now_runs_is_an_error() -> None:
    query = Query()
    query.cluster.set_topic("orders", 120, 50)
    query.stream.prepare_available_now()
    end = query.decide()
    query.cluster.recreate_topic("orders", 300, 300)
    with pytest.raises(DataLossError, match="created again"):
        query.stream.plan(query.document, end)


def test_a_topic_recreated_before_available_now_is_read_to_its_end_of_then() -> None:
    query = lenient()
    query.cluster.recreate_topic("orders", 3, 0)
    query.stream.prepare_available_now()
    query.cluster.set_topic("orders", 70, 70)
    assert query.run() == [OffsetRange(A, 0, 3)]


def test_a_recreated_topic_has_no_offsets_that_were_read_as_uncommitted() -> None:
    query = lenient()
    query.restart(**{"kafka.isolation.level": "read_committed"})
    query.cluster.recreate_topic("orders", 120, 60)
    query.cluster.stable_offsets[A] = 30
    assert query.run() == [OffsetRange(A, 0, 30), OffsetRange(B, 0, 60)]


@pytest.mark.parametrize("old_id", [None, UUID(int=77)])
def test_a_broker_that_has_not_caught_up_means_no_loss(old_id: UUID | None) -> None:
    """It does not know the new topic yet, or only the one before it of the same name."""
    query = Query(broker_ids=(1, 2))
    StaleBrokers(query.cluster, {1}, old_id)
    query.cluster.set_topic("orders", 120, 50)
    assert query.run() == [OffsetRange(A, 100, 120)]


# --- The topic is deleted ---


def test_a_deleted_topic_is_an_error() -> None:
    query = Query()
    query.cluster.delete_topic("orders")
    assert "orders-0 does not exist any more" in query.fails()
    assert query.cluster.clock.seconds >= 2 * 0.7, "it was looked at again before it was believed"


def test_a_deleted_topic_is_forgotten_and_read_when_it_is_back() -> None:
    query = lenient()
    query.cluster.delete_topic("orders")
    assert query.run() == []
    assert query.positions() == {}
    assert query.skipped()["partitions"] == 2
    query.cluster.set_topic("orders", 7)
    assert query.run() == [OffsetRange(A, 0, 7)]


def test_a_topic_of_a_pattern_may_go_away() -> None:
    query = Query(failOnDataLoss="false", subscribePattern="^o")
    query.cluster.set_topic("other", 5)
    query.run()
    query.cluster.delete_topic("other")
    query.cluster.set_topic("orders", 101, 50)
    assert query.run() == [OffsetRange(A, 100, 101)]


def test_a_loss_is_written_down_though_the_batch_would_wait() -> None:
    query = Query(failOnDataLoss="false", subscribePattern="^o")
    query.cluster.set_topic("other", 5)
    query.run()
    limits = ReadLimits(offsets_min=1000)
    query.stream.latest_offset(query.document, limits)  # The first one never waits.
    query.cluster.delete_topic("other")
    for _ in range(3):
        query.document = query.stream.latest_offset(query.document, limits)
    assert query.skipped()["partitions"] == 1, "told once"
    assert query.positions().keys() == {A, B}


# --- The log is shorter, or another one ---


def test_a_log_that_lost_its_end_is_an_error() -> None:
    query = Query()
    query.cluster.set_topic("orders", 60, 50)
    assert "offset 100 of orders-0 is wanted, and its log ends at 60" in query.fails()


def test_a_log_that_lost_its_end_goes_on_there() -> None:
    query = lenient()
    query.cluster.set_topic("orders", 60, 50)
    assert query.run() == []
    assert query.positions() == {A: 60, B: 50}
    query.cluster.set_topic("orders", 65, 50)
    assert query.run() == [OffsetRange(A, 60, 65)]
    assert query.skipped() == {"records": 0, "partitions": 1}


def test_a_leader_that_is_behind_for_a_moment_is_no_loss() -> None:
    query = Query()
    query.cluster.set_topic("orders", 60, 50)
    sleep = query.cluster.clock.sleep

    def catch_up(seconds: float) -> None:
        sleep(seconds)
        query.cluster.set_topic("orders", 130, 50)

    options = source_options()
    lookups = Lookups(query.cluster.client(), options, catch_up)
    query.stream = MicroBatches(lookups, options, query.cluster.clock)
    assert query.run() == [OffsetRange(A, 100, 130)]


def test_a_truncated_log_that_has_grown_again_is_an_error() -> None:
    query = Query()
    query.cluster.leader_epochs[A] = 2
    query.cluster.epoch_ends[A, 0] = 80
    query.cluster.set_topic("orders", 300, 50)
    text = query.fails()
    assert "truncated at offset 80 after the query had read to 100" in text


def test_a_truncated_log_is_read_again_from_where_it_differs() -> None:
    query = lenient()
    query.cluster.leader_epochs[A] = 2
    query.cluster.epoch_ends[A, 0] = 80
    query.cluster.set_topic("orders", 300, 50)
    assert query.run() == [OffsetRange(A, 80, 300)]
    assert query.run() == []


def test_a_new_leader_with_the_same_log_is_asked_once() -> None:
    query = Query()
    query.cluster.leader_epochs[A] = 2
    query.cluster.epoch_ends[A, 0] = 100
    query.cluster.counted()
    assert query.run() == []
    assert query.cluster.counted()["OffsetForLeaderEpoch"] == 1
    assert query.run() == []
    assert "OffsetForLeaderEpoch" not in query.cluster.counted()
    query.cluster.set_topic("orders", 101, 50)
    assert query.run() == [OffsetRange(A, 100, 101)]
    assert read_offset(query.document).positions[A].leader_epoch == 2


def test_a_batch_beyond_a_restored_log_is_cut_and_counted() -> None:
    query = lenient()
    query.cluster.set_topic("orders", 200, 50)
    end = query.decide()
    query.cluster.set_topic("orders", 150, 50)
    query.restart()
    tasks = query.stream.plan(query.document, end)
    assert [task.range for task in tasks] == [OffsetRange(A, 100, 150)]


def test_readers_of_committed_records_wait_for_open_transactions() -> None:
    query = Query()
    query.restart(**{"kafka.isolation.level": "read_committed"})
    query.cluster.stable_offsets[A] = 70
    assert query.run() == [], "read before, as uncommitted; not lost"
    query.cluster.stable_offsets[A] = 100
    query.cluster.set_topic("orders", 130, 50)
    query.cluster.stable_offsets[A] = 120
    assert query.run() == [OffsetRange(A, 100, 120)]


# --- The cluster is another one ---


def test_another_cluster_is_an_error() -> None:
    query = Query()
    query.cluster.cluster_id = "another"
    text = query.fails()
    assert "the checkpoint is of cluster fake-cluster" in text
    assert "kafka.bootstrap.servers leads to cluster another" in text


def test_another_cluster_is_read_from_the_beginning() -> None:
    query = lenient()
    query.cluster.cluster_id = "another"
    query.cluster.set_topic("orders", 30, 60, starts={1: 20})
    assert query.run() == [OffsetRange(A, 0, 30), OffsetRange(B, 20, 60)]
    assert query.run() == []


# --- New partitions ---


def test_a_new_partition_without_its_first_records_is_an_error() -> None:
    query = Query()
    query.cluster.set_topic("orders", 100, 50, 30, starts={2: 20})
    assert "partition orders-2 is new and begins at offset 20" in query.fails()


def test_a_new_partition_without_its_first_records_is_counted() -> None:
    query = lenient()
    query.cluster.set_topic("orders", 100, 50, 30, starts={2: 20})
    assert query.run() == [OffsetRange(C, 20, 30)]
    assert query.skipped() == {"records": 20, "partitions": 1}


# --- Starting offsets that do not exist ---


def test_a_start_behind_the_end_is_an_error_that_names_the_option() -> None:
    cluster = NumberCluster()
    cluster.set_topic("orders", 10)
    stream = stream_of(cluster, startingOffsets='{"orders":{"0":50}}')
    with pytest.raises(DataLossError, match="startingOffsets"):
        stream.latest_offset(stream.initial_offset(), ALL)


def test_a_start_before_the_beginning_is_a_loss() -> None:
    cluster = NumberCluster()
    cluster.set_topic("orders", 100, starts={0: 40})
    offsets = {"startingOffsets": '{"orders":{"0":5}}'}
    stream = stream_of(cluster, **offsets)
    start = stream.initial_offset()
    with pytest.raises(DataLossError, match="offsets 5 to 39"):
        stream.plan(start, stream.latest_offset(start, ALL))
    stream = stream_of(cluster, failOnDataLoss="false", **offsets)
    tasks = stream.plan(start, stream.latest_offset(start, ALL))
    assert [task.range for task in tasks] == [OffsetRange(A, 40, 100)]


# --- Batch ---


def plan(cluster: NumberCluster, **given: str) -> tuple[list[OffsetRange], LossCounter]:
    options = source_options(Mode.BATCH, **given)
    losses = LossCounter(fail_on_data_loss=options.fail_on_data_loss)
    tasks = plan_batch(lookups_of(cluster, options), options, losses)
    return [task.range for task in tasks], losses


def test_a_batch_reads_all_there_is() -> None:
    cluster = NumberCluster((1, 2))
    cluster.set_topic("orders", 100, 50, 0, starts={0: 30})
    assert plan(cluster)[0] == [OffsetRange(A, 30, 100), OffsetRange(B, 0, 50)]
    assert plan(cluster, subscribePattern="nothing")[0] == []


def test_a_batch_between_two_positions() -> None:
    cluster = NumberCluster()
    cluster.set_topic("orders", 100, 50)
    cluster.times = {(A, 5): 20, (B, 5): 10, (A, 9): 40}
    found, _ = plan(cluster, startingTimestamp="5", endingTimestamp="9")
    assert found == [OffsetRange(A, 20, 40), OffsetRange(B, 10, 50)]
    found, _ = plan(
        cluster,
        startingOffsets='{"orders":{"0":1,"1":-2}}',
        endingOffsets='{"orders":{"0":2,"1":-1}}',
    )
    assert found == [OffsetRange(A, 1, 2), OffsetRange(B, 0, 50)]
    with pytest.raises(OptionError, match="startingOffsets"):
        plan(cluster, startingOffsets='{"orders":{"0":41,"1":0}}', endingTimestamp="9")


def test_a_batch_tells_of_what_is_not_there() -> None:
    cluster = NumberCluster()
    cluster.set_topic("orders", 100, starts={0: 40})
    given = {
        "startingOffsets": '{"orders":{"0":10}}',
        "endingOffsets": '{"orders":{"0":150}}',
    }
    with pytest.raises(DataLossError) as caught:
        plan(cluster, **given)
    assert "offsets 10 to 39" in str(caught.value)
    assert "offset 150 of orders-0 is wanted, and its log ends at 100" in str(caught.value)
    found, losses = plan(cluster, failOnDataLoss="false", **given)
    assert found == [OffsetRange(A, 40, 100)]
    assert losses.offsets == 80


def test_an_error_with_a_thousand_losses_can_be_read() -> None:
    query = Query()
    query.cluster.set_topic("orders", *[100] * 1000)
    query.run()
    query.cluster.recreate_topic("orders", *[10] * 1000)
    text = query.fails()
    assert f"and {1000 - LINES_MAX} more" in text
    assert len(text) < 4000


def test_every_kind_has_a_remedy() -> None:
    for kind in LossKind:
        loss = Loss(kind, A, "something happened", "it goes on")
        assert REMEDIES[kind] in str(data_loss_error([loss]))
