"""Runs a pipeline again after failures that may pass, by the decisions of `pipeline_restarts`.

Guarantees: a failure that cannot pass is raised unchanged, and so is the last failure when there
are no restarts left. A stop ends a pause at once. This module starts nothing itself: it calls the
function that it gets, and that function opens and closes everything. It does not know the owner of
a table either: the function leaves a table that has another one since (`commit.owned_tables`).
"""

import random
from collections.abc import Callable
from threading import Event
from typing import Final, Protocol

from penstock.core.clock import Clock
from penstock.core.quantities import duration_text, printable
from penstock.spark.tables.operation.failures import Failure, failure_of
from penstock.spark.tables.operation.pipeline_restarts import End, Restart, RestartPolicy, Restarts

PROBLEM_CHARACTERS_MAX: Final = 500


class Attempt:
    """One start of a pipeline, with what is known about it when it fails."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started: float | None = None
        self.has_committed = False

    def started(self) -> None:
        """Record that the query runs."""
        self._started = self._clock.monotonic()

    @property
    def ran_ms(self) -> int | None:
        """The time since the start of the query; None if it did not start."""
        if self._started is None:
            return None
        return int((self._clock.monotonic() - self._started) * 1000)


class Listener(Protocol):
    """Is informed about failures and pauses."""

    def failed(self, failure: Failure) -> None:
        """Handle a failure that ended an attempt."""

    def waits(self, restart: Restart) -> None:
        """Handle the pause before the next attempt."""


def supervise(
    attempt: Callable[[Attempt], None],
    policy: RestartPolicy,
    *,
    stop: Event,
    clock: Clock,
    listener: Listener,
    log: Callable[[str], None],
    chance: Callable[[], float] = random.random,
) -> None:
    """Call `attempt` until it returns, a failure ends the command, or `stop` is set in a pause."""
    restarts = Restarts(policy)
    while True:
        now = Attempt(clock)
        try:
            attempt(now)
        except Exception as error:
            failure = failure_of(error)
            listener.failed(failure)
            restarts, step = restarts.after_failure(
                may_pass=failure.may_pass,
                ran_ms=now.ran_ms,
                has_committed=now.has_committed,
                chance=chance(),
            )
            if isinstance(step, End):
                if step.reason:
                    log(f"it ends {step.reason}")
                raise
            listener.waits(step)
            log(restart_line(failure, step, policy))
            if stop.wait(step.wait_ms / 1000):
                return
        else:
            return


def restart_line(failure: Failure, restart: Restart, policy: RestartPolicy) -> str:
    """Return the line of one restart, for a log."""
    limit = "" if policy.count_max is None else f" of {policy.count_max}"
    problem = printable(failure.text)[:PROBLEM_CHARACTERS_MAX]
    return (
        f"restart {restart.number}{limit} in {duration_text(restart.wait_ms)} "
        f"({failure.word}): {problem}"
    )
