"""A table forgets a pipeline or a backfill: its entry is free, and no record comes twice."""

from pathlib import Path
from uuid import uuid4

import pytest

from penstock.core.types import TopicPartition
from penstock.spark.tables.commit import decisions
from penstock.spark.tables.commit.decisions import (
    Commit,
    Offer,
    decide,
    resume_positions,
    take_over,
)
from penstock.spark.tables.commit.note import HeldPartition, read_note, write_note
from penstock.spark.tables.commit.stops import Stop, StopReason
from penstock.spark.tables.formats.port import Table, TableMovedError
from penstock.spark.tables.run.forgetting import absorb_backfill, forget_pipeline
from tests.spark.tables.inspection_world import fill_tables, new_world
from tests.spark.tables.table_kinds import (
    DeltaKind,
    FakeKind,
    IcebergKind,
    Kind,
    batch_ranges,
    commit_of,
    taken,
    written,
)

P0 = TopicPartition("orders", 0)
LATER_MS = 2**62


@pytest.fixture(params=[FakeKind, DeltaKind, IcebergKind], ids=["fake", "delta", "iceberg"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    made: Kind = request.param(tmp_path)
    return made


def commit_offsets(table: Table, pipeline: str, start: int, end: int) -> None:
    """A pipeline that acquires the table and commits these offsets of one partition."""
    driver, state = taken(table, uuid4().hex, pipeline)
    table.append(commit_of(state, driver, (0, start, end)), written(table, (0, start, end)))


def forgotten(table: Table, pipeline: str) -> None:
    table.append(decisions.forget(table.load(), pipeline), ())


def test_a_forgotten_pipeline_holds_nothing_and_its_rows_stay(kind: Kind) -> None:
    table = kind.create()
    commit_offsets(table, "orders", 0, 5)
    forgotten(table, "orders")
    for one in (table, kind.open()):
        state = one.load()
        assert (state.live, resume_positions(state, "orders")) == ({}, None)
    assert kind.read().num_rows == 5


def test_it_stays_forgotten_when_the_history_expires(kind: Kind) -> None:
    """The copy of its last note outside of the history must not come back."""
    table = kind.create()
    commit_offsets(table, "orders", 0, 5)
    forgotten(table, "orders")
    for end in (20, 30):
        commit_offsets(table, "other", end - 10, end)
    table.expire(older_than_ms=LATER_MS, keep_count=1)
    assert list(kind.open().load().live) == ["other"]


def test_a_driver_that_runs_is_stopped(kind: Kind) -> None:
    table = kind.create()
    driver, state = taken(table, "run")
    forgotten(kind.open(), "orders")
    with pytest.raises(TableMovedError):
        table.append(commit_of(state, driver, (0, 0, 5)), written(table, (0, 0, 5)))
    stop = decide(table.load(), Offer(driver, batch_ranges((0, 0, 5))))
    assert isinstance(stop, Stop)
    assert stop.reason is StopReason.FORGOTTEN


def test_a_pipeline_of_the_same_name_begins_anew_behind_all_drivers_of_before(kind: Kind) -> None:
    table = kind.create()
    commit_offsets(table, "orders", 0, 5)
    forgotten(table, "orders")
    driver, state = taken(table, "again")
    assert driver.epoch == 3
    state = table.append(commit_of(state, driver, (0, 2, 4)), written(table, (0, 2, 4)))
    assert state.notes["orders"].held[P0] == HeldPartition(2, 2, 4, 1)


def test_the_limit_of_pipelines_is_of_those_that_are_not_forgotten(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The 101st pipeline or backfill was refused for ever."""
    monkeypatch.setattr(decisions, "PIPELINES_MAX", 2)
    table = kind.create()
    for name in ("first", "second"):
        taken(table, "run", name)
    stop = take_over(table.load(), "third", "run")
    assert isinstance(stop, Stop)
    assert "`penstock table forget FILE NAME`" in stop.text
    assert "first, second" in stop.text
    forgotten(table, "first")
    taken(table, "run", "third")
    assert sorted(table.load().live) == ["second", "third"]
    assert isinstance(take_over(table.load(), "first", "run"), Stop)


# --- Backfills ---


def test_a_finished_backfill_becomes_part_of_its_pipeline(kind: Kind) -> None:
    table = kind.create()
    commit_offsets(table, "orders", 10, 20)
    commit_offsets(table, "orders.backfill-1", 0, 10)
    rejects_folder = kind.folder / "rejects"
    rejects_folder.mkdir()
    rejects = FakeKind(rejects_folder).create()
    taken(rejects, "run", "orders.backfill-1")
    owner = table.load().notes["orders"].run
    assert absorb_backfill(table, rejects, "orders", "orders.backfill-1")
    state = kind.open().load()
    assert list(state.live) == ["orders"]
    assert state.notes["orders"].held[P0] == HeldPartition(0, 20, 20, 1)
    assert state.notes["orders"].run == owner, "its driver goes on"
    assert rejects.load().live == {}
    stop = decisions.held_by_others(state, "orders.backfill-1", batch_ranges((0, 0, 10)))
    assert stop is not None, "the same backfill commits nothing twice"
    note = state.notes["orders"]
    assert read_note(write_note(note)) == note


def test_a_backfill_that_ends_before_its_pipeline_begins_is_kept(kind: Kind) -> None:
    """Else nobody would hold its offsets, and the next backfill would commit them again."""
    table = kind.create()
    commit_offsets(table, "orders", 10, 20)
    commit_offsets(table, "orders.backfill-1", 0, 9)
    assert not absorb_backfill(table, table, "orders", "orders.backfill-1")
    assert sorted(table.load().live) == ["orders", "orders.backfill-1"]


def test_the_driver_that_runs_meanwhile_goes_on(kind: Kind) -> None:
    table = kind.create()
    driver, state = taken(table, "run")
    state = table.append(commit_of(state, driver, (0, 10, 20)), written(table, (0, 10, 20)))
    other = kind.open()
    commit_offsets(other, "orders.backfill-1", 0, 10)
    assert absorb_backfill(other, other, "orders", "orders.backfill-1")
    decision = decide(table.load(), Offer(driver, batch_ranges((0, 20, 30))))
    assert isinstance(decision, Commit)
    state = table.append(decision, written(table, (0, 20, 30)))
    assert state.notes["orders"].held[P0] == HeldPartition(0, 20, 30, 1)


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_both_tables_of_a_definition_forget(tmp_path: Path, format_: str) -> None:
    world = new_world(tmp_path, "127.0.0.1:1", format_)
    fill_tables(world)
    assert forget_pipeline(world.definition, "orders") == ("shop.orders", "shop.orders__dlq")
    assert forget_pipeline(world.definition, "orders") == ()
