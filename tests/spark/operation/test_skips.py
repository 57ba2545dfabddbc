"""Skipped offsets: the plan, its commit on both formats, and that no other offset is touched."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.table.command import table
from penstock.core.types import TopicPartition
from penstock.spark.tables.commit.decisions import (
    Commit,
    Driver,
    Offer,
    TableState,
    decide,
)
from penstock.spark.tables.commit.note import (
    SKIPPED,
    BatchRanges,
    CommitNote,
    HeldPartition,
    LostRange,
    NoteKind,
    PartitionRange,
    read_note,
    write_note,
)
from penstock.spark.tables.commit.stops import CommitStoppedError, Stop, StopReason
from penstock.spark.tables.formats.opening import open_table
from penstock.spark.tables.inspection.status import table_status
from penstock.spark.tables.operation.skipping import skip_offsets, to_offset, to_time
from penstock.spark.tables.operation.skips import (
    Bounds,
    SkipPlan,
    SkipRefusedError,
    plan_skip,
    require_forward,
)
from penstock.spark.tables.run.committer import TableCommitter
from penstock.testing import Broker
from tests.spark.tables.inspection_world import VALUES, World, fill_tables, fill_topic, new_world

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
DRIVER = Driver("orders", "skip", 5)


def note_of(held: int, begin: int = 0, lost: int = 0) -> CommitNote:
    entry = HeldPartition(begin, held, held, 3, lost)
    return CommitNote("orders", NoteKind.TAKE, "skip", 5, 9, {P0: entry}, {"orders": "t"}, "c")


def plan_of(note: CommitNote, target: int, end: int = 1_000) -> SkipPlan:
    return plan_skip(note, {P0: target}, {P0: Bounds(0, end)}, {"orders": "t"}, "c")


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 60))
def test_a_skip_is_one_commit_that_moves_the_position_and_declares_the_loss(
    held: int, target: int, next_end: int
) -> None:
    note = note_of(held)
    plan = plan_of(note, target)
    if target <= held:
        assert not plan.ranges
        return
    state = TableState({"orders": note})
    decision = decide(state, plan.offer(DRIVER, 77))
    assert isinstance(decision, Commit)
    after = decision.note
    assert after.held[P0] == HeldPartition(0, held, target, 3, target - held)
    assert after.losses == (LostRange(*P0, held, target, 77, SKIPPED),)
    assert (after.counts.rows, after.sequence) == (0, note.sequence + 1)
    assert read_note(write_note(after)) == after
    # The next batch follows without a gap, and offsets before it are in no batch any more.
    if next_end > target:
        ranges = BatchRanges((PartitionRange(*P0, target, next_end, 3),), {"orders": "t"}, "c")
        assert isinstance(decide(TableState({"orders": after}), Offer(DRIVER, ranges)), Commit)


def test_without_the_skip_the_same_batch_is_a_gap() -> None:
    ranges = BatchRanges((PartitionRange(*P0, 20, 30, 3),), {"orders": "t"}, "c")
    stop = decide(TableState({"orders": note_of(10)}), Offer(DRIVER, ranges))
    assert isinstance(stop, Stop)
    assert stop.reason is StopReason.GAP


def test_a_partition_that_is_new_to_the_table_is_skipped_from_its_first_offset() -> None:
    bounds = {P0: Bounds(0, 50), P1: Bounds(7, 50)}
    plan = plan_skip(note_of(10), {P0: 10, P1: 20}, bounds, {}, None)
    assert plan.ranges == (PartitionRange(*P1, 7, 20),)
    decision = decide(TableState({"orders": note_of(10)}), plan.offer(DRIVER, 1))
    assert isinstance(decision, Commit)
    assert decision.note.held[P1] == HeldPartition(7, 7, 20, -1, 13)


def test_refused_skips_name_the_limit_and_the_remedy() -> None:
    with pytest.raises(SkipRefusedError, match="ends at offset 30, so offset 31 is not there yet"):
        plan_of(note_of(10), 31, end=30)
    with pytest.raises(SkipRefusedError, match=r"reads no partition orders-0\. It reads orders-1"):
        plan_skip(note_of(10), {P0: 20}, {P1: Bounds(0, 9)}, {}, None)
    with pytest.raises(SkipRefusedError, match="never goes back"):
        require_forward(note_of(10), P0, 10)


# --- On real tables, with a broker ---


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        address = f"{broker.host}:{broker.port}"
        fill_topic(address, VALUES)
        yield address


@pytest.fixture(params=["iceberg", "delta"])
def world(request: pytest.FixtureRequest, bootstrap: str, tmp_path: Path) -> World:
    """A table that holds the first four of five offsets."""
    made = new_world(tmp_path, bootstrap, request.param)
    fill_tables(made)
    return made


def run(world: World, *words: str) -> tuple[int, str]:
    command, *rest = words
    done = CliRunner().invoke(table, [command, str(world.file), *rest])
    return done.exit_code, done.output


@pytest.mark.slow
def test_the_command_skips_and_status_shows_the_loss(world: World) -> None:
    (before,) = table_status(world.definition).pipelines
    (held,) = [one.held_offset for one in before.partitions]
    words = ("--topic", "orders", "--partition", "0", "--to", "5")
    code, output = run(world, "skip", *words)
    assert code == 2  # without a terminal it needs --yes
    code, output = run(world, "skip", *words, "--yes", "--json")
    assert code == 0, output
    document = json.loads(output[output.index("{") :])
    assert document["skipped_offsets"] == 5 - held
    (after,) = table_status(world.definition).pipelines
    assert (after.epoch, after.lag, after.lost_count) == (before.epoch + 1, 0, 5 - held)
    assert [one.reason for one in after.losses] == [SKIPPED]
    code, output = run(world, "status")
    assert "skipped by the user" in output
    code, output = run(world, "resume-at", "latest", "--yes")
    assert "nothing to skip" in output


@pytest.mark.slow
def test_resume_at_a_time_and_a_driver_that_runs_is_fenced(world: World) -> None:
    rows = open_table(world.definition.table, "shop.orders")
    driver = TableCommitter(rows, "orders", "running")
    driver.take()
    plan = skip_offsets(world.definition, to_time(0), confirm=lambda _: None)
    assert not plan.ranges  # every record is younger
    plan = skip_offsets(world.definition, to_time(None), confirm=lambda _: None)
    assert [one.end_offset for one in plan.ranges] == [5]
    ranges = BatchRanges(plan.ranges, plan.topic_ids, plan.cluster_id)
    with pytest.raises(CommitStoppedError) as stopped:
        driver.commit(Offer(driver.driver, ranges), ())
    assert stopped.value.reason is StopReason.FENCED
    rows.close()


@pytest.mark.slow
def test_a_pipeline_that_commits_during_the_question_runs(world: World) -> None:
    def commits(_: SkipPlan) -> None:
        rows = open_table(world.definition.table, "shop.orders")
        TableCommitter(rows, "orders", "running").take()
        rows.close()

    (before,) = table_status(world.definition).pipelines
    with pytest.raises(SkipRefusedError, match="it runs"):
        skip_offsets(world.definition, to_offset(P0, 5), confirm=commits)
    (after,) = table_status(world.definition).pipelines
    assert (after.epoch, after.lost_count) == (before.epoch + 1, before.lost_count)
