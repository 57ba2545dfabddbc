"""In which order a driver reads, decides and commits, as generators of steps (pure).

`take_table` and `commit_offer` yield what is to be done and are sent what came of it, so that a
test can stop, crash or interleave them anywhere. Who carries the steps out is `committer`.

A commit that is refused because the table has moved on is decided again from what the table says
now, up to `ATTEMPTS_MAX` times. A commit whose answer was lost is not repeated either: the table is
read, and it knows whether the commit is there.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Final

from penstock.spark.tables import commit_stops
from penstock.spark.tables.commit import (
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
from penstock.spark.tables.commit_note import BatchRanges, CommitNote
from penstock.spark.tables.commit_stops import Stop

ATTEMPTS_MAX: Final = 20
"""With the waits between them some ten seconds: more than a compaction's commits in a row take."""
WAIT_MS_FIRST: Final = 10
WAIT_MS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Load:
    """Read what the table says now; gives a `TableState`."""


@dataclass(frozen=True, slots=True)
class Append:
    """Commit the files of the batch and the note, conditionally; gives an `Answer`."""

    commit: Commit


@dataclass(frozen=True, slots=True)
class Wait:
    """Let others get on."""

    wait_ms: int


Step = Load | Append | Wait

Rule = Callable[[TableState, Offer], Decision]
"""What to do with a batch, by what the table holds."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of an `Append`."""

    state: TableState | None
    """What the table says afterwards; None when the commit was refused or nobody knows."""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Taken:
    """The table is the driver's."""

    driver: Driver
    state: TableState


@dataclass(frozen=True, slots=True)
class Committed:
    """The batch is in the table, by this driver and with this note."""

    note: CommitNote
    state: TableState


def take_table(
    pipeline: str, run: str, starting: BatchRanges | None = None
) -> Generator[Step, Any, Taken | Stop]:
    """Become the owner of the table for this pipeline."""
    problem = ""
    for attempt in range(ATTEMPTS_MAX):
        state: TableState = yield Load()
        note = state.notes.get(pipeline)
        if note is not None and note.run == run:
            return Taken(Driver(pipeline, run, note.epoch), state)  # the answer had been lost
        decision = take_over(state, pipeline, run, starting)
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
    """Bring a batch into the table once.

    `known` is what the driver's last commit left: with it nothing is read before the commit, which
    is refused when it is not true any more.
    """
    problem = ""
    tried: CommitNote | None = None
    for attempt in range(ATTEMPTS_MAX):
        was_known = known is not None
        state: TableState = known if known is not None else (yield Load())
        known = None
        if tried is not None and state.notes.get(tried.pipeline) == tried:
            return Committed(tried, state)  # the answer had been lost
        decision = rule(state, offer)
        if not isinstance(decision, Commit):
            if was_known:
                continue  # only a commit is checked by the table itself: look before anything else
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
