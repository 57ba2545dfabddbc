"""A driver of batches, crashed or interrupted at each operation on its two tables.

Whatever happens, and however the next driver cuts its batches and judges their records: at the end
every offset is in one of both tables, once. Each guard taken out makes a check here fail. The fake
table is enumerated, since it is quick; the real ones are tried at the moments that matter most.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from penstock.spark.tables.commit.decisions import Offer
from penstock.spark.tables.commit.rejects import reject_rule
from penstock.spark.tables.run import batches, replay
from penstock.spark.tables.run.batches import BatchDriver
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.tasks.report import BatchReport
from tests.spark.tables.batch_world import (
    EVERYTHING,
    RULES,
    BatchWorld,
    Drama,
    Life,
    completed,
    crash,
    lose_answer,
    operations,
    quick,
    survived,
)

pytestmark = pytest.mark.slow

FIRST = Life(RULES[0])
LATER = (
    Life(RULES[1], sizes=(3, 1)),
    Life(RULES[2], sizes=(1, 2), checkpoint=(0, 0)),
    Life(RULES[1], sizes=(4, 2), checkpoint=(2, 0)),
)
"""Who comes after: with other rules, other cuts, and a checkpoint that is gone or set back."""
REAL = ["delta", "iceberg"]
REJECTS_OF_BATCHES = (5, 7)
"""The operations of FIRST that commit rejects: two of each table's taking come before."""
INSERTION = 12
"""The operation of a replay by RULES[1] that commits its rows."""

NewWorld = Callable[[], BatchWorld]


@pytest.fixture(autouse=True)
def _quick() -> Iterator[None]:
    with quick():
        yield


def crashed(at: int) -> Drama:
    """A crash after an operation, which is one before the next; at -1 before the first."""
    return Drama(0, before=crash) if at < 0 else Drama(at, after=crash)


def length(new_world: NewWorld, life: Life = FIRST) -> int:
    """Operations of a driver that nothing happens to."""
    return operations(partial(new_world().live, life))


# --- One driver after the other ---


def crashed_and_followed(world: BatchWorld, at: int, later: Life) -> str:
    survived(partial(world.live, FIRST, crashed(at)))
    world.live(later)
    return world.wrong()


def test_a_crash_at_each_operation(new_world: NewWorld) -> None:
    total = length(new_world)
    assert total == 9
    for at in range(-1, total):
        for later in LATER:
            wrong = crashed_and_followed(new_world(), at, later)
            assert not wrong, f"a crash after operation {at}, then {later}: {wrong}"


def test_the_part_that_the_table_lacks_is_offered(new_world: NewWorld) -> None:
    """A batch that begins before the end of the table is counted without its first records."""
    held_before = set()
    for at in range(length(new_world)):
        world = new_world()
        survived(partial(world.live, FIRST, crashed(at)))
        held = sum(world.rows.open().load().positions_of("orders").values())
        held_before.add(held)
        world.offered.clear()
        world.live(Life(sizes=(4, 2), checkpoint=(0, 0)))
        assert sum(world.offered) == len(EVERYTHING) - held
    assert len(held_before) > 2, "some batches are offered in part"


@pytest.mark.parametrize("kind", REAL)
def test_a_crash_between_rejects_and_rows_of_real_tables(kind: str, tmp_path: Path) -> None:
    assert not crashed_and_followed(BatchWorld(tmp_path, kind), REJECTS_OF_BATCHES[0], LATER[1])


def test_two_crashes_in_a_row(new_world: NewWorld) -> None:
    first, second = length(new_world), length(new_world, LATER[0])
    for number in range(12):
        world = new_world()
        one, two = number * 5 % first, number * 7 % second
        survived(partial(world.live, FIRST, crashed(one)))
        survived(partial(world.live, LATER[number % 3], crashed(two)))
        world.live(LATER[(number + 1) % 3])
        assert not world.wrong(), f"after {one}, then after {two}: {world.wrong()}"


def test_answers_are_lost(new_world: NewWorld) -> None:
    appends = (1, 3, 5, 6)
    for at in appends:
        world = new_world()
        world.live(FIRST, Drama(at, after=lose_answer))
        assert not world.wrong(), f"the answer of operation {at} was lost: {world.wrong()}"


# --- Two drivers at once ---


def replaced_in_the_middle(world: BatchWorld, at: int, later: Life) -> str:
    successor = partial(completed, partial(world.live, later))
    survived(partial(world.live, FIRST, Drama(at, before=successor)))
    return world.wrong()


def test_a_second_driver_does_everything_in_the_middle_of_the_first(new_world: NewWorld) -> None:
    for at in range(length(new_world)):
        later = LATER[at % len(LATER)]
        wrong = replaced_in_the_middle(new_world(), at, later)
        assert not wrong, f"{later} before operation {at}: {wrong}"


def test_a_second_driver_is_itself_interrupted(new_world: NewWorld) -> None:
    first, second = length(new_world), length(new_world, LATER[0])
    for number in range(10):
        world = new_world()
        other = partial(world.live, LATER[0], crashed(number * 3 % second))
        zombie = Drama(number * 5 % first, before=partial(survived, other))
        survived(partial(world.live, FIRST, zombie))
        world.live(LATER[1])
        assert not world.wrong(), f"number {number}: {world.wrong()}"


# --- Replays ---


def replayed_twice(world: BatchWorld, at: int) -> str:
    world.live(FIRST)
    survived(partial(world.replay, RULES[1], crashed(at)))
    world.replay(RULES[2])
    return world.wrong()


def test_a_replay_crashes_at_each_operation(new_world: NewWorld) -> None:
    world = new_world()
    world.live(FIRST)
    for at in range(operations(partial(world.replay, RULES[1]))):
        wrong = replayed_twice(new_world(), at)
        assert not wrong, f"a crash after operation {at}: {wrong}"


@pytest.mark.parametrize("kind", REAL)
def test_a_replay_of_a_real_table_crashes_after_its_insertion(kind: str, tmp_path: Path) -> None:
    assert not replayed_twice(BatchWorld(tmp_path, kind), INSERTION)


def judged_again_meanwhile(world: BatchWorld, crashed_at: int, at: int) -> str:
    """The rejects of a batch that is not in the table yet change under the replay's hands."""
    survived(partial(world.live, FIRST, crashed(crashed_at)))
    meanwhile = partial(completed, partial(world.live, Life(RULES[2])))
    world.replay(RULES[1], Drama(at, before=meanwhile))
    world.live(LATER[0])
    return world.wrong()


def test_a_driver_does_everything_in_the_middle_of_a_replay(new_world: NewWorld) -> None:
    for crashed_at in REJECTS_OF_BATCHES:
        for at in range(3, 9):
            wrong = judged_again_meanwhile(new_world(), crashed_at, at)
            assert not wrong, f"crash after {crashed_at}, driver before {at}: {wrong}"


def test_a_replay_does_everything_in_the_middle_of_a_driver(new_world: NewWorld) -> None:
    for at in range(length(new_world)):
        world = new_world()
        survived(partial(world.live, FIRST, crashed(6)))
        meanwhile = partial(completed, partial(world.replay, RULES[2]))
        world.live(LATER[0], Drama(at, before=meanwhile))
        assert not world.wrong(), f"replay before operation {at}: {world.wrong()}"


# --- Without a guard ---


def rejects_after_rows(driver: BatchDriver, report: BatchReport, _on_offer: object) -> None:
    rows, rejects = driver.rows, driver.rejects
    offers = [Offer(one.driver, report.ranges, report.counts) for one in (rows, rejects)]
    rows.commit(offers[0], report.files, report.schema)
    rejects.commit(offers[1], report.reject_files, rule=reject_rule)


def added_rejects(
    committer: TableCommitter, offer: Offer, report: BatchReport, _pipeline: str
) -> None:
    if report.reject_files:
        committer.commit(offer, report.reject_files, rule=reject_rule)


def found_wrong(new_world: NewWorld) -> str:
    """The first thing that a crash leads to."""
    for at in range(9):
        for later in LATER:
            wrong = crashed_and_followed(new_world(), at, later)
            if wrong:
                return f"a crash after operation {at}: {wrong}"
    return ""


def test_without_the_order_of_rejects_and_rows_records_are_lost(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BatchDriver, "commit", rejects_after_rows)
    wrong = found_wrong(new_world)
    print(f"guard rejects are committed before rows: {wrong}")
    assert "missing" in wrong


def test_without_replacing_rejects_records_are_doubled(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "commit_rejects", added_rejects)
    wrong = found_wrong(new_world)
    print(f"guard rejects of an earlier attempt are replaced: {wrong}")
    assert "doubled" in wrong


def test_without_a_look_at_the_rows_before_a_replay_records_are_doubled(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = replay._Replay._claim

    def claim_by_old_rejects(work: replay._Replay, number: int) -> bool:
        work._rejects.reload()
        with patch.object(work._rejects, "reload", lambda: None):
            return real(work, number)

    monkeypatch.setattr(replay._Replay, "_claim", claim_by_old_rejects)
    found = [judged_again_meanwhile(new_world(), 5, at) for at in range(5, 8)]
    wrong = next(filter(None, found), "")
    print(f"guard a replay reads the rows before the rejects: {wrong}")
    assert "doubled" in wrong
