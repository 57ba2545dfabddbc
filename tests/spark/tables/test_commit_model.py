"""The rule of commitment under crashes, zombies, lost answers and set-back checkpoints: a model.

Invariants at every moment: no offset is in the table twice, and the table holds exactly the offsets
of its notes. At the end an undisturbed driver commits the rest, and the table has every offset.
Then the same with one guard removed at a time: the model must find the failure.
"""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.spark.tables.commit.stops import StopReason
from tests.spark.tables.commit_world import FIRST_OFFSET, PARTITIONS, Fate, Guards, Run, World

EXAMPLES = int(os.environ.get("PENSTOCK_MODEL_EXAMPLES", "40"))
RUNS_ALIVE_MAX = 3
fates = st.sampled_from([Fate.ANSWERED, Fate.ANSWERED, *Fate])


class CommitModel(RuleBasedStateMachine):
    """Drivers of one pipeline, and a backfill, in any order of steps."""

    guards = Guards()

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.guards)
        self.runs: list[Run] = []
        self.expected_stops = {StopReason.FENCED, StopReason.BUSY}

    def alive(self) -> list[Run]:
        return [run for run in self.runs if run.is_alive]

    @precondition(lambda self: len(self.alive()) < RUNS_ALIVE_MAX)
    @rule(back=st.integers(0, 3), mode=st.sampled_from(["kept", "deleted", "deleted, not asked"]))
    def start_run(self, back: int, mode: str) -> None:
        """A restart or a second driver; the checkpoint is whole, set back or gone."""
        checkpoint = None
        if mode == "kept" and self.world.checkpoints:
            checkpoint = dict(
                self.world.checkpoints[-1 - min(back, len(self.world.checkpoints) - 1)]
            )
        name = f"run{len(self.runs)}"
        asks = mode != "deleted, not asked"
        self.runs.append(Run(self.world, name, checkpoint, asks_table=asks))

    @precondition(lambda self: len(self.alive()) < RUNS_ALIVE_MAX)
    @rule()
    def start_backfill(self) -> None:
        """What was there before the stream began, by a pipeline of its own."""
        stop_at = dict.fromkeys(PARTITIONS, FIRST_OFFSET)
        name = f"run{len(self.runs)}"
        self.runs.append(Run(self.world, name, None, pipeline="backfill", stop_at=stop_at))

    @precondition(lambda self: self.alive())
    @rule(
        which=st.integers(0, RUNS_ALIVE_MAX - 1),
        count=st.integers(1, 6),
        sizes=st.tuples(st.integers(0, 4), st.integers(0, 4)),
        fate=fates,
    )
    def go_on(self, which: int, count: int, sizes: tuple[int, int], fate: Fate) -> None:
        """Some steps of a driver; the others stand still meanwhile."""
        run = self.alive()[which % len(self.alive())]
        for _ in range(count):
            if not run.is_alive:
                assert run.stop is not None
                assert run.stop.reason in self.expected_stops, run.stop
                break
            if run.steps is None:
                run.offer_batch(sizes)
            else:
                run.advance(fate)

    @precondition(lambda self: self.alive())
    @rule(which=st.integers(0, RUNS_ALIVE_MAX - 1))
    def crash(self, which: int) -> None:
        self.alive()[which % len(self.alive())].is_alive = False

    @precondition(lambda self: self.world.under_way)
    @rule(which=st.integers(0, 9))
    def arrive_late(self, which: int) -> None:
        """A commit that its sender gave up reaches the table."""
        self.world.arrive(which % len(self.world.under_way))

    @rule(more=st.integers(1, 5))
    def produce(self, more: int) -> None:
        for at in PARTITIONS:
            self.world.ends[at] += more

    @rule()
    def compact(self) -> None:
        """A commit without a note, by anybody."""
        self.world.table.push(None, type(self.world.table.rows())())

    @precondition(lambda self: not self.was_rolled_back())
    @rule(keep_count=st.integers(1, 3))
    def expire(self, keep_count: int) -> None:
        """Not after a rollback: then a real table may refuse to say what it holds."""
        self.world.table.expire(keep_count)

    @precondition(lambda self: self.world.table.is_whole)
    @rule(steps=st.sampled_from([1, 2, 3, 99]))
    def roll_back(self, steps: int) -> None:
        """Somebody puts the table back; what is under way is as it was."""
        self.world.table.roll_back(steps)
        # A late commit may reach the version that was put back: its sender has gone on since.
        self.expected_stops |= {StopReason.WENT_BACK, StopReason.GAP}

    def was_rolled_back(self) -> bool:
        return StopReason.WENT_BACK in self.expected_stops

    @invariant()
    def nothing_is_there_twice(self) -> None:
        twice = [row for row, count in self.world.table.rows().items() if count > 1]
        assert not twice

    @invariant()
    def the_table_holds_what_its_notes_say(self) -> None:
        said = {
            (at, offset)
            for note in self.world.table.state().notes.values()
            for at, held in note.held.items()
            for offset in range(held.begin_offset, held.end_offset)
        }
        assert set(self.world.table.rows()) == said

    def teardown(self) -> None:
        """Undisturbed drivers commit the rest."""
        stop_at = dict.fromkeys(PARTITIONS, FIRST_OFFSET)
        last = [
            Run(self.world, "last", None),
            Run(self.world, "last backfill", None, pipeline="backfill", stop_at=stop_at),
        ]
        for run in last:
            for _ in range(200):
                if run.steps is None:
                    run.offer_batch((100, 100))
                run.advance(Fate.ANSWERED)
                if run.steps is None and run.positions == (run._stop_at or self.world.ends):
                    break
            assert run.stop is None, run.stop
        for at in PARTITIONS:
            held = sorted(offset for one, offset in self.world.table.rows() if one == at)
            assert held == list(range(self.world.ends[at])), at
        self.nothing_is_there_twice()


CommitModel.TestCase.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=40, deadline=None
)
TestCommitModel = pytest.mark.model(CommitModel.TestCase)


@pytest.mark.parametrize(
    "guards",
    [
        Guards(commits_are_conditional=False),
        Guards(keeps_a_copy_of_notes=False),
        Guards(commits_are_conditional=False, reads_before_repeating=False),
        Guards(searches_ancestors=False, keeps_a_copy_of_notes=False),
        Guards(rollback_ends_ownership=False),
    ],
    ids=["unconditional", "no copy", "repeats blindly", "current snapshot only", "still the owner"],
)
def test_each_guard_is_needed(guards: Guards) -> None:
    class Weakened(CommitModel):
        pass

    Weakened.guards = guards
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(
            Weakened,
            settings=settings(
                max_examples=1_000,
                stateful_step_count=40,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
