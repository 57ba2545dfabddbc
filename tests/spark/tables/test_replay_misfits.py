"""A replay after one of its two tables was dropped or rolled back: it asks, and each way out works.

No record is inserted twice, and only records of the drop or the rollback are in neither table.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, product
from pathlib import Path
from shutil import rmtree

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from penstock.spark.tables.commit.decisions import Offer
from penstock.spark.tables.commit.replay_steps import (
    ReplayStep,
    counted,
    misfit,
    next_step,
    replay_name,
    settled,
)
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.replay import ReplayRefusedError
from tests.spark.tables import batch_world
from tests.spark.tables.batch_world import (
    RULES,
    BatchWorld,
    Drama,
    Life,
    crash,
    operations,
    quick,
    survived,
)
from tests.spark.tables.fake_table import Store
from tests.spark.tables.table_kinds import DeltaKind, FakeKind, IcebergKind, Kind

pytestmark = pytest.mark.slow

KINDS = ["fake", "delta", "iceberg"]
ALL_BAD = Life("amount > 9")
CLAIM = 8
"""The operation of a replay that claims."""
LOST = "missing [(0, 0), (0, 1), (0, 3), (1, 0), (1, 1)]"
"""What a replay had put in, when a rollback has taken its rows; (0, 2) is no JSON."""
DROPPED = r"shop\.orders__dlq was dropped or rolled back.*replay once with --anew"
BACK = r"shop\.orders was dropped or rolled back.*roll shop\.orders__dlq back"

Grow = Callable[[], None]


@pytest.fixture(autouse=True)
def _quick() -> Iterator[None]:
    with quick():
        yield


@pytest.fixture
def grow(monkeypatch: pytest.MonkeyPatch) -> Grow:
    """Further records in the topic."""
    numbers = count(1)

    def more() -> None:
        ends = (4 + 4 * next(numbers), 2)
        monkeypatch.setattr(batch_world, "ENDS", ends)
        every = [(part, offset) for part, end in enumerate(ends) for offset in range(end)]
        monkeypatch.setattr(batch_world, "EVERYTHING", every)

    return more


@pytest.fixture(params=KINDS)
def world(tmp_path: Path, request: pytest.FixtureRequest) -> BatchWorld:
    return BatchWorld(tmp_path, request.param)


def dropped(kind: Kind) -> None:
    match kind:
        case FakeKind():
            kind.store = Store(str(kind.folder))
        case DeltaKind():
            rmtree(kind.uri)
        case IcebergKind():
            with load_catalog("default", **kind.catalog) as catalog:
                catalog.drop_table("shop.orders")
    kind.create()


def version(kind: Kind) -> int:
    table = kind.open()
    try:
        return table.load().version
    finally:
        table.close()


def rolled(kind: Kind, to: int) -> None:
    """Back, or forward again."""
    match kind:
        case FakeKind():
            kind.store.current = to
        case DeltaKind():
            DeltaTable(kind.uri).restore(to)
        case IcebergKind():
            with load_catalog("default", **kind.catalog) as catalog:
                table = catalog.load_table("shop.orders")
                table.manage_snapshots().set_current_snapshot(to).commit()


def refused(world: BatchWorld, text: str) -> None:
    """Each time, and without a change."""
    before = world.rows.read(), world.rejects.read()
    for _ in range(2):
        with pytest.raises(ReplayRefusedError, match=text):
            world.replay(RULES[2])
    assert (world.rows.read(), world.rejects.read()) == before


# --- The rejects' table ---


def test_rejects_were_dropped(world: BatchWorld, grow: Grow) -> None:
    world.live(ALL_BAD)
    world.replay(RULES[2])
    dropped(world.rejects)
    grow()
    world.live(ALL_BAD)
    refused(world, DROPPED)
    world.replay(RULES[2], anew=True)
    assert world.wrong() == "missing [(0, 2)]"  # not JSON, so it was in the dropped table
    grow()
    world.live(ALL_BAD)
    world.replay(RULES[2])
    assert world.wrong() == "missing [(0, 2)]"
    assert world.rejects.read().num_rows == 0


def test_a_rollback_of_rejects_is_undone(world: BatchWorld) -> None:
    world.live(ALL_BAD)
    before = version(world.rejects)
    world.replay(RULES[2])
    after = version(world.rejects)
    rolled(world.rejects, before)
    refused(world, DROPPED)
    rolled(world.rejects, after)
    world.replay(RULES[2])
    assert not world.wrong()


def test_rejects_of_a_rollback_that_are_rows_are_deleted(tmp_path: Path) -> None:
    world = BatchWorld(tmp_path, "iceberg")
    world.live(ALL_BAD)
    before = version(world.rejects)
    world.replay(RULES[2])
    rolled(world.rejects, before)
    refused(world, DROPPED)
    assert isinstance(world.rejects, IcebergKind)
    with load_catalog("default", **world.rejects.catalog) as catalog:
        catalog.load_table("shop.orders").delete("offset in (0, 1, 3)")
    world.replay(RULES[2], anew=True)
    assert not world.wrong()


# --- The rows' table ---


def test_both_are_rolled_back_to_the_same_moment(world: BatchWorld) -> None:
    world.live(ALL_BAD)
    rows, rejects = version(world.rows), version(world.rejects)
    world.replay(RULES[2])
    rolled(world.rows, rows)
    refused(world, BACK)
    rolled(world.rejects, rejects)
    world.replay(RULES[2])
    assert not world.wrong()
    assert world.rejects.read().num_rows == 1


def test_rows_were_rolled_back_under_a_claim(world: BatchWorld, grow: Grow) -> None:
    """What was claimed is put in, or committed again by the pipeline, and not both."""
    world.live(ALL_BAD)
    rows = version(world.rows)
    world.replay(RULES[2])
    grow()
    world.live(ALL_BAD)
    survived(partial(world.replay, RULES[2], Drama(CLAIM, after=crash)))
    assert "orders.replay" in world.rejects.read()["pipeline"].to_pylist()
    rolled(world.rows, rows)
    refused(world, BACK)
    world.replay(RULES[2], anew=True)
    world.live(Life(RULES[2]))
    world.replay(RULES[2])
    assert world.wrong() == LOST


def test_rows_were_dropped_under_a_claim(world: BatchWorld) -> None:
    """The counts fit, but the pipeline is going to commit what is claimed."""
    world.live(ALL_BAD)
    survived(partial(world.replay, RULES[2], Drama(CLAIM, after=crash)))
    dropped(world.rows)
    refused(world, BACK)
    world.replay(RULES[2], anew=True)
    world.live(Life(RULES[1]))
    world.replay(RULES[2])
    assert not world.wrong()


@pytest.mark.crash
def test_going_on_anew_crashes_at_each_operation(tmp_path: Path) -> None:
    def ready(number: int) -> BatchWorld:
        world = BatchWorld(tmp_path / str(number))
        world.live(ALL_BAD)
        rows = version(world.rows)
        world.replay(RULES[2])
        world.replay(RULES[2])
        survived(partial(world.replay, RULES[2], Drama(CLAIM, after=crash)))
        rolled(world.rows, rows)
        return world

    total = operations(partial(ready(0).replay, RULES[2], anew=True))
    assert total > CLAIM
    for at in range(total):
        world = ready(1 + at)
        survived(partial(world.replay, RULES[2], Drama(at, after=crash), anew=True))
        world.replay(RULES[2], anew=True)
        assert world.wrong() == LOST, f"a crash after operation {at}"


# --- The rule ---


def test_counts_that_fit_are_not_asked_about(tmp_path: Path) -> None:
    """Whoever says `anew` without need gets what an earlier replay left finished, as always."""
    world = BatchWorld(tmp_path / "0")
    world.live(ALL_BAD)
    for at in range(operations(partial(world.replay, RULES[1]))):
        world = BatchWorld(tmp_path / str(1 + at))
        world.live(ALL_BAD)
        survived(partial(world.replay, RULES[1], Drama(at, after=crash)))
        world.replay(RULES[2], anew=True)
        assert not world.wrong(), f"a crash after operation {at}: {world.wrong()}"


def test_settled_counts_fit_and_do_not_go_back() -> None:
    for rejects, rows in product(range(9), range(9)):
        new_rejects, new_rows = settled(rejects, rows)
        assert next_step(new_rejects, new_rows) is ReplayStep.CLAIM
        assert new_rejects >= rejects
        assert new_rows >= rows
        if next_step(rejects, rows) is ReplayStep.ASK and new_rows > rows and new_rejects > rejects:
            assert next_step(new_rejects, rows) is ReplayStep.ASK  # a crash in between


def test_each_misfit_names_the_table_that_is_behind() -> None:
    for rejects, rows in product(range(9), range(9)):
        if next_step(rejects, rows) is ReplayStep.ASK:
            behind = "dlq" if rejects < 2 * rows else "table"
            assert f": {behind} was dropped" in misfit(rejects, rows, "dlq", "table")


def test_another_pipeline_has_replays_in_the_same_tables(tmp_path: Path) -> None:
    world = BatchWorld(tmp_path)
    for kind in (world.rejects, world.rows):
        other = TableCommitter(kind.open(), replay_name("returns"), "another run")
        other.take()
        other.commit(Offer(other.driver, counted(0, 4)), ())
    world.live(ALL_BAD)
    world.replay(RULES[2])
    assert not world.wrong()
    assert world.rejects.read().num_rows == 1
