"""Topic to table, while everything is killed: each committed offset once, in one of both tables.

The faults of `pipeline_rounds`, in turn and then as a seed chooses: kill -9 of the driver, of a
worker, of an executor and of the broker, a second driver, a checkpoint that is deleted or set back,
maintenance by another process that is killed too, a table that is rolled back. After each round the
table and the table of bad records are compared with the records of librdkafka. One round for each
format; with PENSTOCK_PROOF=1 fifty, or as many as PENSTOCK_TABLE_ROUNDS says, and the same without
each guard. PENSTOCK_SEED repeats the choices of a run.
"""

import os
import random
from pathlib import Path

import pytest

from tests.spark.tables.pipeline_rounds import FAULTS, run_rounds

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3_600)]

IS_PROOF = os.environ.get("PENSTOCK_PROOF") == "1"
ROUNDS = int(os.environ.get("PENSTOCK_TABLE_ROUNDS", "50"))
SEED = int(os.environ.get("PENSTOCK_SEED", "1"))
SAMPLE = {"delta": ["checkpoint deleted"], "iceberg": ["second"]}
GUARDS = {
    "notes": (
        "delta",
        ["driver", "checkpoint set back"],
        "a table's notes are read before a batch is committed",
    ),
    "epoch": ("delta", ["second", "driver"], "a driver's number is compared"),
    "condition": ("iceberg", ["second", "driver"], "a commit is conditional on what was read"),
}
"""Format, faults, and what the guard is."""


def kinds_of(format_: str) -> list[str]:
    """Each fault once, and then by chance."""
    if not IS_PROOF:
        return SAMPLE[format_]
    dice = random.Random(f"{SEED} {format_}")
    return [
        FAULTS[number] if number < len(FAULTS) else dice.choice(FAULTS) for number in range(ROUNDS)
    ]


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_each_offset_once_whatever_happens(format_: str, tmp_path: Path) -> None:
    found = run_rounds(tmp_path, format_, kinds_of(format_), seed=SEED)
    assert found.is_right, str(found)
    assert found.rejects


if IS_PROOF:

    @pytest.mark.parametrize("guard", GUARDS)
    def test_without_a_guard_offsets_are_doubled(guard: str, tmp_path: Path) -> None:
        format_, kinds, name = GUARDS[guard]
        found = run_rounds(tmp_path, format_, kinds, seed=SEED, without=guard)
        print(f"guard {name}: {found}")
        assert found.doubled
