"""kill -9 of drivers at random moments, also of two at once, on real tables.

Afterwards the table has every offset from the first to the last once: rows committed before a kill
are kept, and none is duplicated.
"""

import os
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.spark.tables.commit_app import BATCH, drive, kind_of
from tests.spark.tables.table_kinds import offsets_in, span

pytestmark = pytest.mark.crash

ROUNDS = int(os.environ.get("PENSTOCK_TABLE_ROUNDS", "5"))
SEED = int(os.environ.get("PENSTOCK_SEED", "7"))
BATCHES_MAX = 1_000
"""More than a driver commits before it is killed."""


def started(name: str, folder: Path, run: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.spark.tables.commit_app"]
    process = subprocess.Popen(
        [*command, name, str(folder), run, str(BATCHES_MAX)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_drivers_are_killed(name: str, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    kind = kind_of(name, tmp_path)
    kind.create()
    for number in range(ROUNDS):
        drivers = [started(name, tmp_path, f"run-{number}")]
        if chance.random() < 0.5:
            drivers.append(started(name, tmp_path, f"run-{number}-second"))
        with suppress(subprocess.TimeoutExpired):
            drivers[-1].wait(chance.uniform(0.05, 1.5))
        for driver in drivers:
            driver.kill()
            driver.communicate()
        found = offsets_in(kind.read())
        assert found == span(0, 0, len(found)), f"round {number} of seed {SEED}"
    drive(kind, "last", 3)
    found = offsets_in(kind.read())
    assert found == span(0, 0, len(found))
    assert len(found) >= 3 * BATCH
    print(f"{name}: {ROUNDS} rounds of kill -9, {len(found)} offsets, each once")
