"""Power cuts under load on a real ext4 (marker `crash`).

As `test_kill`, but the disk loses what was not synced: the broker is stopped, the file system of
the data directory is shut down by the kernel without flushing its journal, the broker is killed,
the file system is mounted again and the broker is started on it. Nothing that was acknowledged or
shown to a consumer may be gone. A broker that runs on over a dead disk is in `test_real_disks`.

The counter-proof runs the same with `--flush os`, where acknowledged records are lost: the cut is
real. CI runs 3 rounds; PENSTOCK_PROOF=1 runs 20. PENSTOCK_SEED repeats a failure.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.loop_disk import LoopDisk, stop_processor
from tests.crash.rounds import IS_PROOF, Run, crash_rounds, running, seed_of_this_run
from tests.oracle.penstock_broker import penstock_broker

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1_200)]

ROUNDS = 20 if IS_PROOF else 3
LOAD_SECONDS_MAX = 0.7


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    made = LoopDisk(tmp_path)
    yield made
    made.close()


def power_cut(disk: LoopDisk) -> Callable[[Run, int], None]:
    def crash(run: Run, _number: int) -> None:
        time.sleep(run.dice.uniform(0.05, LOAD_SECONDS_MAX))
        stop_processor(run.broker.pid)
        disk.cut()
        run.broker.kill()
        disk.restore()
        run.broker.start()

    return crash


def test_nothing_acknowledged_is_lost_by_a_power_cut(disk: LoopDisk, tmp_path: Path) -> None:
    seed = seed_of_this_run()
    broker = penstock_broker(tmp_path / "broker", data_dir=disk.path / "data")
    with broker, running(broker, seed) as run:
        crash_rounds(run, ROUNDS, power_cut(disk))
        print(f"{ROUNDS} power cuts: {run.ledger.totals}")


def test_the_cut_is_real(disk: LoopDisk, tmp_path: Path) -> None:
    """Without a sync before the acknowledgement the same cut does lose acknowledged records."""
    arguments = ("--flush", "os")
    broker = penstock_broker(tmp_path / "broker", data_dir=disk.path / "data", arguments=arguments)
    with broker, running(broker, seed_of_this_run()) as run:
        power_cut(disk)(run, 0)
        run.abandon()
        lost = [text for text in run.violations() if text.startswith("lost")]
        assert lost, "nothing was lost: the cut does not bite"
        print(f"flush os, one power cut: {len(lost)} acknowledged records lost, as it must be")
