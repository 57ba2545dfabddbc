"""The order of a driver's reads, decisions and commits, as generators of steps (pure).

`take_table` and `commit_offer` yield steps and receive their results, so that a test can stop,
crash or interleave them anywhere. `committer` carries out the steps.

If a commit is rejected because the table has changed, it is decided again from the table's new
state, up to `ATTEMPTS_MAX` times. A commit whose response was lost is not simply repeated: the
driver reads the table to find out whether it has the commit.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.spark.tables.commit import stops as commit_stops
from penstock.spark.tables.commit.decisions import (
    Commit,
    Decision,
    Driver,
    Offer,
    Skip,
    TableState,
    Trim,
    decide,
    take_over,
)
from penstock.spark.tables.commit.note import BatchRanges, CommitNote
from penstock.spark.tables.commit.owned_tables import acquired_since
from penstock.spark.tables.commit.stops import Stop

ATTEMPTS_MAX: Final = 20
"""With the waits between them about ten seconds: longer than consecutive commits of a
compaction."""
WAIT_MS_FIRST: Final = 10
WAIT_MS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Load:
    """Read the table's current state; the result is a `TableState`."""


@dataclass(frozen=True, slots=True)
class Append:
    """Commit the files of the batch and the note, conditionally; the result is an `Answer`."""

    commit: Commit


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait, so that other committers finish."""

    wait_ms: int


Step = Load | Append | Wait

Rule = Callable[[TableState, Offer], Decision]
"""A rule that decides about a batch from the table's state."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of an `Append`."""

    state: TableState | None
    """The table's state afterwards; None if the commit was rejected or its result is unknown."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Taken:
    """The result: the driver owns the table."""

    driver: Driver
    state: TableState


@dataclass(frozen=True, slots=True)
class Committed:
    """The result: the batch is in the table, committed by this driver with this note."""

    note: CommitNote
    state: TableState


def take_table(
    pipeline: str,
    run: str,
    starting: BatchRanges | None = None,
    before: Driver | None = None,
) -> Generator[Step, Any, Taken | Stop]:
    """Become the owner of the table for this pipeline.

    `before`: this driver, if an earlier start of it has acquired the table. Then it stops if
    another driver has acquired the table since.
    """
    problem = ""
    for attempt in range(ATTEMPTS_MAX):
        state: TableState = yield Load()
        note = state.notes.get(pipeline)
        if note is not None and note.run == run:
            return Taken(Driver(pipeline, run, note.epoch), state)  # the response had been lost
        stop = None if before is None else acquired_since(state, before)
        decision = stop or take_over(state, pipeline, run, starting)
        if isinstance(decision, Stop):
            return decision
        answer: Answer = yield Append(decision)
        if answer.state is not None:
            return Taken(Driver(pipeline, run, decision.note.epoch), answer.state)
        problem = answer.problem
        yield Wait(_wait_ms(attempt))
    return commit_stops.busy(pipeline, ATTEMPTS_MAX, problem)


def commit_offer(
    offer: Offer, known: TableState | None, rule: Rule = decide
) -> Generator[Step, Any, Committed | Skip | Trim | Stop]:
    """Commit a batch to the table exactly once.

    `known` is the state after the driver's last commit. With it the table is not read before the
    commit; the table rejects the commit if the state has changed.
    """
    problem = ""
    tried: CommitNote | None = None
    for attempt in range(ATTEMPTS_MAX):
        was_known = known is not None
        state: TableState = known if known is not None else (yield Load())
        known = None
        found = None if tried is None else state.notes.get(tried.pipeline)
        # The committer adds the file of deleted keys to the note.
        if tried and found and replace(found, deleted_keys=tried.deleted_keys) == tried:
            return Committed(found, state)  # the response had been lost
        decision = rule(state, offer)
        if not isinstance(decision, Commit):
            if was_known:
                continue  # the table checks only commits: read it before any other decision
            return decision
        tried = decision.note
        answer: Answer = yield Append(decision)
        if answer.state is not None:
            return Committed(decision.note, answer.state)
        problem = answer.problem
        yield Wait(_wait_ms(attempt))
    return commit_stops.busy(offer.driver.pipeline, ATTEMPTS_MAX, problem)


def _wait_ms(attempt: int) -> int:
    return int(min(WAIT_MS_MAX, WAIT_MS_FIRST * 2**attempt))
