"""`Run`: one broker, three producers, a consumer, one ledger; crash after crash, checked each time.

A test causes the crash (`kill -9`, a power cut); this module does everything around it. After each
crash the same clients must continue by themselves: `wait_for_progress` fails when one of them does
not.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.crash.clients import PRODUCERS, LoadProcess, create_topic, read_everything
from tests.crash.ledger import Ledger, summary
from tests.oracle.running_broker import RunningBroker

IS_PROOF = os.environ.get("PENSTOCK_PROOF") == "1"
PROGRESS_SECONDS_MAX = 45.0
RECORDS_AFTER_A_CRASH = 20
"""From each client, before the round counts: it is connected again and its retries are through."""


def seed_of_this_run() -> int:
    """From PENSTOCK_SEED, or the default, which is fixed so that CI always does the same."""
    return int(os.environ.get("PENSTOCK_SEED", "1"))


class Run:
    """The clients of one run over one broker that comes and goes."""

    def __init__(self, broker: RunningBroker, seed: int) -> None:
        self.broker = broker
        self.seed = seed
        self.ledger = Ledger()
        self.dice = random.Random(seed)
        self.loads = [
            LoadProcess(client, broker.bootstrap, self.ledger, seed)
            for client in (*PRODUCERS, "watcher")
        ]

    def wait_for_progress(self, records: int = RECORDS_AFTER_A_CRASH) -> None:
        """Return when each producer has the given number of further acknowledgements."""
        deadline = time.monotonic() + PROGRESS_SECONDS_MAX
        goals = {name: self.ledger.acknowledged_count(name) + records for name in PRODUCERS}
        while goals:
            for load in self.loads:
                load.require_alive()
                count = self.ledger.acknowledged_count(load.client)
                if count >= goals.get(load.client, count + 1):
                    del goals[load.client]
            if time.monotonic() > deadline:
                raise AssertionError(f"nothing is acknowledged any more for {', '.join(goals)}")
            time.sleep(0.01)

    def violations(self) -> list[str]:
        """Read everything back and compare."""
        expected = self.ledger.expected()
        return self.ledger.violations(expected, read_everything(self.broker.bootstrap))

    def stop(self) -> None:
        """End the clients; the broker must be there, or they wait for it."""
        for load in self.loads:
            load.stop()

    def abandon(self) -> None:
        """End the clients without waiting."""
        for load in self.loads:
            load.abandon()


@contextmanager
def running(broker: RunningBroker, seed: int) -> Iterator[Run]:
    """A run on a started broker; whatever happens, its clients are ended at the end."""
    create_topic(broker.bootstrap)
    run = Run(broker, seed)
    try:
        run.wait_for_progress()
        yield run
    finally:
        run.abandon()


def crash_rounds(run: Run, rounds: int, crash: Callable[[Run, int], None]) -> None:
    """So many crashes, each followed by progress and a check of everything; then a quiet end."""
    for number in range(rounds):
        begun = time.monotonic()
        try:
            crash(run, number)
            run.wait_for_progress()
            _require_nothing_broken(run)
        except Exception as error:
            error.add_note(f"round {number}; the same again: PENSTOCK_SEED={run.seed}")
            error.add_note(f"the broker's log ends:\n{run.broker.log_text()[-2000:]}")
            raise
        seconds = time.monotonic() - begun
        print(f"round {number}: {seconds:.1f} s, {run.ledger.totals}", flush=True)
    run.stop()
    _require_nothing_broken(run)
    given_up = run.ledger.given_up
    assert not given_up, f"PENSTOCK_SEED={run.seed}: clients gave up: {given_up[:5]}"


def _require_nothing_broken(run: Run) -> None:
    violations = run.violations()
    assert not violations, summary(violations)
