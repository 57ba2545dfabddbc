"""A replay of rejects inserts the claimed ones, all of them and no others.

A table returns its rows in any parts and any order: they differ from one read to the next, and
after a compaction. So limits count only for the claimed rejects.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from penstock.spark.tables.files import data_files
from penstock.spark.tables.formats import change_files
from penstock.spark.tables.formats.rejects import REJECTS
from penstock.spark.tables.run import replay
from tests.spark.tables import batch_world
from tests.spark.tables.batch_world import (
    RULES,
    BatchWorld,
    Drama,
    Life,
    StagedTable,
    crash,
    operations,
    quick,
    survived,
)

pytestmark = pytest.mark.slow

KINDS = ["fake", "delta", "iceberg"]
COUNT = 30
"""Records of one partition: all are bad at first, and 11 of them again by RULES[1]."""
ALL_BAD = "amount > 9"
ONE_FILE = Life(ALL_BAD, sizes=(COUNT, 1))
THREE_FILES = Life(ALL_BAD, sizes=(12, 1))
MANY_FILES = Life(ALL_BAD, sizes=(7, 1))

NewWorld = Callable[[], BatchWorld]


@pytest.fixture(autouse=True)
def _scaled_down(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Limits that stand to each other as the real ones do when a reject has 5 kB."""
    for module, name, value in (
        (replay, "CLAIM_BYTES_MAX", 1_500),
        (replay, "CLAIM_MAX", 100),
        (data_files, "HELD_BYTES_MAX", 1_500),
        (change_files, "_READ_ROWS", 16),
        (batch_world, "ENDS", (COUNT, 0)),
        (batch_world, "EVERYTHING", [(0, offset) for offset in range(COUNT)]),
    ):
        monkeypatch.setattr(module, name, value)
    with quick():
        yield


def replayed(world: BatchWorld, life: Life = ONE_FILE, drama: Drama | None = None) -> str:
    world.live(life)
    world.replay(RULES[1], drama)
    return world.wrong()


# --- Claimed rejects are inserted ---


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_claimed_comes_back_in_other_parts(kind: str, tmp_path: Path) -> None:
    """One part is claimed; Iceberg gives it back as two, of 16 rejects and the rest."""
    world = BatchWorld(tmp_path, kind)
    assert not replayed(world)
    assert world.rows.read().num_rows == COUNT - 11
    assert set(world.rejects.read()["attempt"].to_pylist()) == {2}


def cut_anew(seed: int) -> Callable[[StagedTable, Sequence[str]], list[pa.RecordBatch]]:
    """A table that gives its rows in other parts and another order each time."""
    random, real = Random(seed), StagedTable.scan

    def scan(table: StagedTable, columns: Sequence[str]) -> list[pa.RecordBatch]:
        rows = pa.Table.from_batches(real(table, columns), REJECTS)
        rows = rows.take(random.sample(range(rows.num_rows), rows.num_rows))
        size = random.randint(1, COUNT)
        return [
            batch
            for first in range(0, rows.num_rows, size)
            for batch in rows.slice(first, size).combine_chunks().to_batches()
        ]

    return scan


@pytest.mark.parametrize("seed", range(5))
def test_parts_and_order_are_others_at_each_look(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(StagedTable, "scan", cut_anew(seed))
    assert not replayed(new_world(), MANY_FILES)


@pytest.mark.crash
def test_parts_are_others_after_a_crash(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StagedTable, "scan", cut_anew(0))
    world = new_world()
    world.live(MANY_FILES)
    for at in range(operations(partial(world.replay, RULES[1]))):
        world = new_world()
        world.live(MANY_FILES)
        survived(partial(world.replay, RULES[1], Drama(at, after=crash)))
        world.replay(RULES[2])
        assert not world.wrong(), f"a crash after operation {at}: {world.wrong()}"


@pytest.mark.parametrize("kind", KINDS[1:])
def test_rejects_are_compacted_between_insertion_and_release(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = BatchWorld(tmp_path, kind)
    compacted: list[int] = []
    real = replay._Replay._release

    def release(work: replay._Replay, number: int) -> None:
        table = world.rejects.open()
        done = table.compact(table.load(), target_bytes=2**30)
        compacted.append(done.removed_count)
        table.close()
        real(work, number)

    monkeypatch.setattr(replay._Replay, "_release", release)
    assert not replayed(world, THREE_FILES)
    assert any(compacted)


# --- Without a guard ---


def test_with_a_limit_on_what_is_read_of_a_claim_records_are_lost(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def limited(work: replay._Replay) -> pa.Table:
        work._rejects.reload()
        return replay._as_many_as_fit(work._of(work._name))

    monkeypatch.setattr(replay._Replay, "_claimed", limited)
    monkeypatch.setattr(StagedTable, "scan", cut_anew(0))
    wrong = replayed(new_world(), MANY_FILES)
    print(f"guard all that is claimed is read: {wrong}")
    assert "missing" in wrong
