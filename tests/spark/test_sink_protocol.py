"""The sink's protocol under crashes, replays, zombies, timeouts and two drivers: a model.

Invariants at every moment: no row is visible twice; every row of a batch that Spark recorded as
committed is visible. Hypothesis looks for an order of events that breaks them.
"""

import contextlib
import os
from collections import Counter
from typing import get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.spark.sink import decisions as protocol
from penstock.spark.sink import steps as sink_steps
from tests.spark.sink_world import (
    ROWS_PER_BATCH,
    FencedError,
    Run,
    World,
    cut,
    rows_of,
    write_and_commit,
)

EXAMPLES = int(os.environ.get("PENSTOCK_MODEL_EXAMPLES", "100"))
RUNS_ALIVE_MAX = 3

LOSABLE = tuple(kind for kind in get_args(sink_steps.Step) if kind is not sink_steps.Warn)
"""Steps that ask brokers."""

parts_sizes = st.lists(st.integers(0, ROWS_PER_BATCH - 1), min_size=0, max_size=2)


class SinkModel(RuleBasedStateMachine):
    """Drivers of one query in any order, one small step at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.runs: list[Run] = []

    def alive(self) -> list[Run]:
        return [run for run in self.runs if run.is_alive]

    @precondition(lambda self: len(self.alive()) < RUNS_ALIVE_MAX)
    @rule()
    def start_run(self) -> None:
        """A restart, or a second driver while the first one lives."""
        name = f"run{len(self.runs)}"
        self.runs.append(Run(self.world, name, self.world.committed_batch + 1))

    @precondition(lambda self: self.alive())
    @rule(
        which=st.integers(0, RUNS_ALIVE_MAX - 1),
        count=st.integers(1, 4),
        sizes=parts_sizes,
        flags=st.integers(0, 7),
    )
    def go_on(self, which: int, count: int, sizes: list[int], flags: int) -> None:
        """What a driver does next: its tasks, the commit, or a step of the commit."""
        run = self.alive()[which % len(self.alive())]
        for _ in range(count):
            if not run.is_alive:
                break
            if run.steps is not None:
                run.advance()
            elif run.batch is None:
                run.write(cut(rows_of(run.batch_id), sizes), skips=bool(flags & 1))
            else:
                run.begin_commit(remembers=bool(flags & 2), sweeps=bool(flags & 4))

    @precondition(lambda self: self.alive())
    @rule(which=st.integers(0, RUNS_ALIVE_MAX - 1), is_carried_out=st.booleans())
    def crash(self, which: int, is_carried_out: bool) -> None:
        """A kill -9, before the step that is due or after it and before its answer."""
        run = self.alive()[which % len(self.alive())]
        if run.step is not None and is_carried_out:
            with contextlib.suppress(FencedError):
                run.carry_out(run.step)
        run.is_alive = False

    @precondition(lambda self: any(run.step for run in self.alive()))
    @rule(which=st.integers(0, RUNS_ALIVE_MAX - 1), is_carried_out=st.booleans())
    def brokers_are_away(self, which: int, is_carried_out: bool) -> None:
        """A step fails, or only its answer is lost; the driver lives on."""
        busy = [run for run in self.alive() if isinstance(run.step, LOSABLE)]
        if busy:
            busy[which % len(busy)].fail(is_carried_out=is_carried_out)

    @precondition(lambda self: any(run.batch and not run.steps for run in self.alive()))
    @rule()
    def task_fails(self) -> None:
        """A task failed too often: Spark aborts the batch, and the run is over."""
        next(run for run in self.alive() if run.batch and not run.steps).begin_abort()

    @precondition(lambda self: self.runs)
    @rule(which=st.integers(0, 9))
    def zombie_writes(self, which: int) -> None:
        """An attempt that lost, or a task of a run that is gone."""
        run = self.runs[which % len(self.runs)]
        self.world.open_transaction(run.name, rows_of(run.batch_id))

    @precondition(lambda self: bool(protocol.unfinished(self.world.ledger())))
    @rule(count=st.integers(1, 3))
    def task_finishes_early(self, count: int) -> None:
        """The first task of a run commits what an earlier run decided, or some of it."""
        for one in protocol.unfinished(self.world.ledger())[:count]:
            self.world.commit(one)

    @precondition(lambda self: self.world.open_ones())
    @rule(which=st.integers(0, 99))
    def pass_time(self, which: int) -> None:
        """The cluster aborts a transaction that was open for too long."""
        found = list(self.world.open_ones().values())
        self.world.pass_time(found[which % len(found)])

    @invariant()
    def nothing_is_visible_twice(self) -> None:
        twice = [row for row, count in Counter(self.world.visible_rows()).items() if count > 1]
        assert not twice

    @invariant()
    def committed_batches_are_whole(self) -> None:
        visible = set(self.world.visible_rows())
        for batch_id in range(self.world.committed_batch + 1):
            assert visible.issuperset(rows_of(batch_id)), batch_id

    def teardown(self) -> None:
        """Afterwards a new run that nobody disturbs gets on, and leaves nothing open."""
        if self.world.is_disturbed:
            return
        last = Run(self.world, "last", self.world.committed_batch + 1)
        for _ in range(2):
            write_and_commit(last, [1])
            assert last.failure is None, last.failure
            self.committed_batches_are_whole()
            self.nothing_is_visible_twice()
        assert not self.world.open_ones()


SinkModel.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=40, deadline=None)
TestSinkModel = pytest.mark.model(SinkModel.TestCase)
