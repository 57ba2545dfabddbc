"""Two pipelines of one topic and one table: the later one is refused, and leaves nothing behind.

Neither rejects nor a note of one that is refused at its start; of two that run at once, the later
one takes its rejects out again, at whatever moment it meets the other.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import SparkSession

from penstock.core.types import TopicPartition
from penstock.spark.offsets import PartitionPosition, StreamOffset
from penstock.spark.source.options import Mode, read_source_options
from penstock.spark.tables.commit.stops import CommitStoppedError, StopReason
from penstock.spark.tables.run import backfill, batches, table_pipeline
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.table_pipeline import TablePipeline
from tests.spark.tables.batch_world import (
    ENDS,
    RULES,
    TOPIC,
    BatchWorld,
    Drama,
    Life,
    operations,
    quick,
    survived,
)

pytestmark = pytest.mark.slow

FIRST = Life(RULES[0])
RENAMED = Life(RULES[0], pipeline="renamed")
REAL = ["delta", "iceberg"]
ROWS_OF_FIRST_BATCH = 6
"""The operation of RENAMED that commits rows: rejects of the same batch are there."""

NewWorld = Callable[[], BatchWorld]


@pytest.fixture(autouse=True)
def _quick() -> Iterator[None]:
    with quick():
        yield


def in_both(world: BatchWorld) -> set[str]:
    """The pipelines that either table knows of."""
    return {name for one in (world.rows, world.rejects) for name in one.open().load().notes}


@pytest.mark.parametrize("kind", REAL)
def test_one_that_is_refused_at_its_start_takes_no_table(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = BatchWorld(tmp_path, kind)
    world.live(FIRST)
    definition = world.definition(RULES[0], "renamed")
    first = {TopicPartition(TOPIC, part): PartitionPosition(0, 1) for part in range(len(ENDS))}
    reading = SimpleNamespace(
        options=read_source_options(definition.source_options(), Mode.STREAM),
        cluster=SimpleNamespace(close=lambda: None),
        close=lambda: None,
        first=StreamOffset(first, {TOPIC: "t1"}, "c1"),
    )
    monkeypatch.setattr(table_pipeline, "open_reading", lambda _definition: reading)
    prepared = world.prepared(RULES[0], Drama(), "renamed")
    monkeypatch.setattr(table_pipeline, "prepare", lambda *_given: prepared)
    with pytest.raises(CommitStoppedError) as stopped:
        TablePipeline(definition).start(cast("SparkSession", None), once=True)
    assert stopped.value.reason is StopReason.OTHER_PIPELINE
    assert in_both(world) == {"orders"}
    assert not world.wrong()


@pytest.mark.parametrize("kind", REAL)
def test_a_backfill_of_what_another_one_has_committed_takes_no_table(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = BatchWorld(tmp_path, kind)
    world.live(FIRST)
    place = TopicPartition(TOPIC, 0)
    latest = StreamOffset({place: PartitionPosition(ENDS[0], 1)}, {TOPIC: "t1"}, "c1")
    reading = SimpleNamespace(cluster=SimpleNamespace(close=lambda: None))
    prepared = world.prepared(RULES[0], Drama())
    monkeypatch.setattr(backfill, "open_reading", lambda _definition: reading)
    monkeypatch.setattr(backfill, "prepare", lambda *_given: prepared)
    monkeypatch.setattr(backfill, "_wanted", lambda *_given: ({place: (0, 9)}, latest))
    with pytest.raises(CommitStoppedError) as stopped:
        backfill.backfill(
            world.definition(RULES[0]), cast("SparkSession", None), start="earliest", end="latest"
        )
    assert stopped.value.reason is StopReason.OTHER_PIPELINE
    assert in_both(world) == {"orders"}


@pytest.mark.parametrize("kind", ["fake", *REAL])
def test_a_batch_that_is_refused_commits_no_rejects(kind: str, tmp_path: Path) -> None:
    """The table was taken: a partition that came later is another one's, or two began at once."""
    world = BatchWorld(tmp_path, kind)
    world.live(FIRST)
    with pytest.raises(CommitStoppedError) as stopped:
        world.live(RENAMED)
    assert stopped.value.reason is StopReason.OTHER_PIPELINE
    assert world.rejects.open().load().notes["renamed"].sequence == 1, "only taken"
    assert not world.wrong()


def met(world: BatchWorld, at: int) -> str:
    """What is wrong when the first pipeline does what it can in the middle of the other one."""
    other = partial(survived, partial(world.live, FIRST))
    survived(partial(world.live, RENAMED, Drama(at, before=other)))
    return world.wrong().partition(", claimed")[0]


def test_two_at_once_leave_each_offset_once(new_world: NewWorld) -> None:
    total = operations(partial(new_world().live, RENAMED))
    found = {at: met(new_world(), at) for at in range(total)}
    assert not {at: wrong for at, wrong in found.items() if "doubled" in wrong}
    assert any(not wrong for wrong in found.values())


@pytest.mark.parametrize("kind", REAL)
def test_rejects_of_rows_that_are_refused_are_taken_out_again(kind: str, tmp_path: Path) -> None:
    world = BatchWorld(tmp_path, kind)
    assert not met(world, ROWS_OF_FIRST_BATCH)
    assert set(world.rejects.read()["pipeline"].to_pylist()) == {"orders"}


def test_without_taking_them_out_rejects_are_doubled(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def left(_committer: TableCommitter, _offer: object) -> None:
        pass

    monkeypatch.setattr(batches, "withdraw_rejects", left)
    wrong = met(new_world(), ROWS_OF_FIRST_BATCH)
    print(f"guard rejects of refused rows are taken out again: {wrong}")
    assert "doubled" in wrong
