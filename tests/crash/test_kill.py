"""kill -9 under load, round after round, on one data directory (marker `crash`).

Three real clients produce with idempotence on, and a consumer follows. In each round the broker is
killed at a moment that a seed chooses; in every third round it is killed again, up to three times,
while it starts and recovers. The clients get no signal: they must continue by their own retries.
After each round everything is read back and compared with the acknowledged and consumed records
(`ledger`).

CI runs 5 rounds; PENSTOCK_PROOF=1 runs 50. PENSTOCK_SEED repeats a failure.
"""

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.crash.rounds import IS_PROOF, Run, crash_rounds, running, seed_of_this_run
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1_200)]

ROUNDS = 50 if IS_PROOF else 5
LOAD_SECONDS_MAX = 0.7


def start_and_kill(broker: RunningBroker, seconds: float) -> bool:
    """Start the process and kill it after this time; whether it had not answered by then."""
    with broker.log_path.open("ab") as log:
        process = subprocess.Popen(
            broker.recipe.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **broker.recipe.environment},
            cwd=broker.folder,
        )
    time.sleep(seconds)
    had_answered = broker.answers()
    process.kill()
    process.wait()
    return not had_answered


def kill(run: Run, number: int) -> None:
    """One crash, in every third round with more of them inside the recovery."""
    broker, dice = run.broker, run.dice
    time.sleep(dice.uniform(0.05, LOAD_SECONDS_MAX))
    ready_seconds = broker.ready_seconds
    broker.kill()
    if number % 3 == 2:
        early = [
            start_and_kill(broker, dice.uniform(0.3, 0.95) * ready_seconds)
            for _ in range(dice.randrange(1, 4))
        ]
        print(f"round {number}: killed {sum(early)} times before it answered")
    broker.start()


def test_nothing_acknowledged_is_lost_by_kill(tmp_path: Path) -> None:
    seed = seed_of_this_run()
    with penstock_broker(tmp_path) as broker, running(broker, seed) as run:
        crash_rounds(run, ROUNDS, kill)
        print(f"{ROUNDS} rounds of kill -9: {run.ledger.totals}")
        logs = [path.name for path in broker.data_dir.rglob("*.log")]
        assert len(logs) > 4 * ROUNDS, "segments must have rolled in every round"
