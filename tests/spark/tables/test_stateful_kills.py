"""Totals of a stateful pipeline under kill -9 of its driver, its JVM and its workers.

The records are sent while it runs. At the end the totals are compared with those of all records,
less the late ones, which are among the rejects; and each record of the topic is in a total or a
reject, once. CI runs 2 kills for each format, PENSTOCK_PROOF=1 runs 20; PENSTOCK_SEED repeats their
moments.
"""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.oracle.penstock_broker import penstock_broker
from tests.spark.tables.pipeline_world import World
from tests.spark.tables.state_world import MINUTE, Sale, expected_totals, rows_in, send
from tests.spark.topics import create_topic

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3_600)]

ROOT = Path(__file__).resolve().parents[3]
ROUNDS = 20 if os.environ.get("PENSTOCK_PROOF") == "1" else 2
SEED = int(os.environ.get("PENSTOCK_SEED", "1"))
SALES_OF_A_ROUND = 300
WAIT_SECONDS_MAX = 300.0
TOPIC = "sales"
STARTS_MAX = 4
"""Of one wait: a driver that ends again and again will not do better."""


class Drivers:
    """Starts one driver after the other, and kills it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._number = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._log = world.folder / "app-0.log"

    def start(self) -> None:
        folder = self._world.folder
        self._number += 1
        self._log = folder / f"app-{self._number}.log"
        command = [sys.executable, "-m", "tests.spark.tables.state_app", str(folder)]
        command += [self._world.format, self._world.bootstrap, TOPIC]
        command.append(str(folder / f"spark-{self._number}"))
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def text(self) -> str:
        return "\n" + self._log.read_text(errors="replace")

    def wait_for(self, wanted: str, count: int = 1) -> None:
        """Wait until the log has this text so often; a driver that failed is started again."""
        deadline, starts = time.monotonic() + WAIT_SECONDS_MAX, 0
        while self.text().count(wanted) < count:
            assert "\nstopped " not in self.text(), self.text()[-4_000:]
            assert time.monotonic() < deadline, self.text()[-4_000:]
            starts += self.keep_running()
            assert starts < STARTS_MAX, self.text()[-4_000:]
            time.sleep(0.05)

    def keep_running(self) -> bool:
        """Start a driver if the last one has ended; return whether it had."""
        assert self._process is not None
        has_ended = self._process.poll() is not None
        if has_ended:
            assert "\nstopped " not in self.text(), self.text()[-4_000:]
            self.start()
        return has_ended

    def kill(self, *, worker_only: bool = False) -> None:
        """Kill the driver and its JVM, or only the Python workers of its tasks."""
        assert self._process is not None
        word = "pyspark." if worker_only else "org.apache.spark.deploy.SparkSubmit"
        for process in psutil.Process(self._process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if any(part.startswith(word) for part in process.cmdline()):
                    process.kill()
        if not worker_only:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()


def batch_sales(number: int, dice: random.Random) -> list[Sale]:
    """The sales of a round: in some disorder, and a few that come minutes late."""
    begin = number * 400
    sales = []
    for one in range(SALES_OF_A_ROUND):
        late = dice.choice([200, 700]) if dice.random() < 0.03 else 0
        second = max(0, begin + one + dice.randrange(-30, 31) - late)
        sales.append(Sale(second, f"shop-{dice.randrange(3)}", dice.randrange(1, 100)))
    return sales


def rejected(world: World) -> list[int]:
    return sorted(world.rejects()["offset"].to_pylist())


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_totals_are_those_of_the_records_whatever_is_killed(format_: str, tmp_path: Path) -> None:
    dice = random.Random(f"{SEED} {format_}")
    sent: list[Sale] = []
    with penstock_broker(tmp_path / "broker") as broker:
        create_topic(broker.bootstrap, TOPIC)
        world = World(tmp_path, format_, broker.bootstrap, TOPIC)
        drivers = Drivers(world)
        drivers.start()
        try:
            for number in range(ROUNDS):
                for sales in _portions(batch_sales(number, dice)):
                    sent += sales
                    send(world, *sales)
                drivers.wait_for("\nbatch ")
                time.sleep(dice.uniform(0, 3.0))
                drivers.kill(worker_only=number % 3 == 1)
                if number % 3 != 1:
                    drivers.start()
            last = Sale((ROUNDS + 10) * 400, "end", 1)
            sent.append(last)
            send(world, last)
            _wait_until_closed(world, drivers, expected_count=len(sent))
        finally:
            drivers.kill()
        late = rejected(world)
        assert len(late) == len(set(late))
        kept = [one for offset, one in enumerate(sent) if offset not in set(late)]
        found = rows_in(world, "minute", "shop", "amount", "sales")
        assert found == expected_totals(kept, last.at - 2 * MINUTE)
        assert late
        assert sum(row[3] for row in found) + len(late) == len(sent) - 1
        print(f"{ROUNDS} kills, {len(sent)} records, {len(late)} late, {len(found)} totals")


def _portions(sales: list[Sale]) -> list[list[Sale]]:
    return [sales[at : at + 60] for at in range(0, len(sales), 60)]


def _wait_until_closed(world: World, drivers: Drivers, *, expected_count: int) -> None:
    """Until every record but the last one is in a total or a reject."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while True:
        with suppress(Exception):  # no table yet, or files that are being removed
            counted = sum(row[0] for row in rows_in(world, "sales")) + len(rejected(world))
            if counted >= expected_count - 1:
                return
        assert time.monotonic() < deadline, drivers.text()[-4_000:]
        drivers.keep_running()
        time.sleep(0.5)
