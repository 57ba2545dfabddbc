"""kill -9 of drivers that upsert, at random moments, also of two at once, on real tables.

After each kill the table equals a dictionary after the records up to the table's position: no
change is missing, none counts twice, and none was committed without its note.
"""

import os
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.spark.tables.change_batches import applied, rows_in, stream
from tests.spark.tables.table_kinds import Kind
from tests.spark.tables.upsert_app import BATCH, drive, kind_of

pytestmark = pytest.mark.crash

ROUNDS = int(os.environ.get("PENSTOCK_TABLE_ROUNDS", "5"))
SEED = int(os.environ.get("PENSTOCK_SEED", "7"))
BATCHES_MAX = 1_000
"""More than a driver commits before it is killed."""


def started(name: str, folder: Path, run: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.spark.tables.upsert_app"]
    process = subprocess.Popen(
        [*command, name, str(folder), run, str(BATCHES_MAX)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def position_of(kind: Kind) -> int:
    """Up to which offset the table says that it has the changes."""
    positions = kind.open().load().positions_of("orders")
    return next(iter(positions.values()), 0)


@pytest.mark.parametrize("name", ["delta", "iceberg", "merge_on_read"])
def test_drivers_are_killed(name: str, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    kind = kind_of(name, tmp_path)
    kind.create()
    for number in range(ROUNDS):
        drivers = [started(name, tmp_path, f"run-{number}")]
        if chance.random() < 0.5:
            drivers.append(started(name, tmp_path, f"run-{number}-second"))
        output = drivers[-1].stdout
        if chance.random() < 0.7 and output is not None:
            output.readline()  # the others are killed in their first commit
        with suppress(subprocess.TimeoutExpired):
            drivers[-1].wait(chance.uniform(0.0, 1.0))
        for driver in drivers:
            driver.kill()
            driver.communicate()
        expected = applied({}, stream(0, position_of(kind)))
        assert rows_in(kind.read()) == expected, f"round {number} of seed {SEED}"
    end = drive(kind, "last", 3)
    assert rows_in(kind.read()) == applied({}, stream(0, end))
    assert end > 3 * BATCH + ROUNDS, "the drivers got somewhere before they were killed"
    print(f"{name}: {ROUNDS} rounds of kill -9, {end} changes, each once")
