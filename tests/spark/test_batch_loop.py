"""The loop that has the place of a query: pauses, errors, the end."""

from collections.abc import Callable
from threading import Event, current_thread
from typing import Any

import pytest

from penstock.spark import batch_loop
from penstock.spark.batch_loop import THREAD, BatchLoop

PATIENCE_SECONDS = 30


class Cancelling:
    """Has the place of the jobs of a session."""

    def __init__(self, cancel: Callable[[], object] = lambda: None) -> None:
        self.cancel = cancel
        self.begun_in = ""

    def begin(self) -> None:
        self.begun_in = current_thread().name


def loop_of(
    commit_next: Callable[[], bool],
    interval_seconds: float,
    cancel: Callable[[], object] = lambda: None,
    lasting: tuple[type[BaseException], ...] = (),
) -> BatchLoop:
    jobs: Any = Cancelling(cancel)
    return BatchLoop(commit_next, interval_seconds, jobs, lasting)


class Batches:
    """Counts its calls; fails or blocks in one of them."""

    def __init__(self, fails_at: int | None = None, blocks_at: int | None = None) -> None:
        self.calls = 0
        self.reached = Event()
        self.released = Event()
        self._fails_at = fails_at
        self._blocks_at = blocks_at

    def commit_next(self) -> bool:
        self.calls += 1
        if self.calls == self._blocks_at:
            self.reached.set()
            self.released.wait(PATIENCE_SECONDS)
            raise InterruptedError("the job was cancelled")
        if self.calls == self._fails_at:
            raise ValueError("a batch failed")
        if self.calls % 3 == 0:
            self.reached.set()
        return self.calls % 3 == 0


def test_batches_follow_each_other_until_the_last_available_one() -> None:
    batches = Batches()
    loop = loop_of(batches.commit_next, 3_600)
    assert batches.reached.wait(PATIENCE_SECONDS)
    assert not loop.wait(0.05)
    assert batches.calls == 3  # now it pauses
    loop.stop()
    assert loop.wait()


def test_another_look_follows_after_the_interval() -> None:
    batches = Batches(fails_at=7)
    loop = loop_of(batches.commit_next, 0.001)
    with pytest.raises(ValueError, match="a batch failed"):
        loop.wait(PATIENCE_SECONDS)
    assert batches.calls == 7


def test_a_stop_cancels_the_job_and_its_error_is_no_failure() -> None:
    batches = Batches(blocks_at=2)
    loop = loop_of(batches.commit_next, 1, batches.released.set)
    assert batches.reached.wait(PATIENCE_SECONDS)
    loop.stop()
    assert loop.wait()
    assert batches.calls == 2


def test_a_server_that_is_gone_does_not_hinder_the_stop() -> None:
    batches = Batches()

    def gone() -> None:
        raise ConnectionError("no server")

    loop = loop_of(batches.commit_next, 3_600, gone)
    loop.stop()
    assert loop.wait()


def test_a_stop_of_the_commits_is_a_failure_also_after_a_stop() -> None:
    batches = Batches(blocks_at=1)
    loop = loop_of(batches.commit_next, 1, batches.released.set, (InterruptedError,))
    assert batches.reached.wait(PATIENCE_SECONDS)
    loop.stop()
    with pytest.raises(InterruptedError):
        loop.wait()


def test_a_job_that_begins_after_a_cancellation_is_cancelled_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_loop, "CANCEL_SECONDS", 0.01)
    batches = Batches(blocks_at=1)
    cancellations: list[int] = []

    def cancel() -> None:
        cancellations.append(1)
        if len(cancellations) == 3:
            batches.released.set()

    loop = loop_of(batches.commit_next, 1, cancel)
    assert batches.reached.wait(PATIENCE_SECONDS)
    loop.stop()
    assert loop.wait()
    assert len(cancellations) >= 3


def test_a_stop_ends_although_the_batch_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_loop, "CANCEL_SECONDS", 0.01)
    monkeypatch.setattr(batch_loop, "STOP_SECONDS_MAX", 0.05)
    batches = Batches(blocks_at=1)
    loop = loop_of(batches.commit_next, 1)
    assert batches.reached.wait(PATIENCE_SECONDS)
    loop.stop()
    assert not loop.wait(0.0)
    batches.released.set()
    assert loop.wait(PATIENCE_SECONDS)


def test_a_batch_may_stop_its_own_loop() -> None:
    loops: list[BatchLoop] = []
    begun = Event()

    def commit_next() -> bool:
        assert begun.wait(PATIENCE_SECONDS)
        assert current_thread().name == THREAD
        loops[0].stop()
        return True

    loops.append(loop_of(commit_next, 3_600))
    begun.set()
    assert loops[0].wait(PATIENCE_SECONDS)


def test_only_the_jobs_of_the_loop_are_cancelled() -> None:
    calls: list[tuple[str, str]] = []

    class Session:
        def addTag(self, tag: str) -> None:
            calls.append(("add", tag))

        def interruptTag(self, tag: str) -> None:
            calls.append(("interrupt", tag))

    session: Any = Session()
    jobs, others = batch_loop.Jobs(session), batch_loop.Jobs(session)
    jobs.begin()
    others.begin()
    jobs.cancel()
    (_, own), (_, other), (_, cancelled) = calls
    assert own == cancelled != other
