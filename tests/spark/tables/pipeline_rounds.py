"""Rounds of faults around one pipeline: a supervisor that keeps it running and does harm to it.

Guarantees: a fault happened, or the round fails; a driver with a forbidden ending fails at once. A
driver that ended because of a fault is started again, as in production, with another mode, another
rule and sometimes one more column, so that records are judged and batches cut otherwise than
before. It only ever kills processes that it started.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
from deltalake.exceptions import DeltaError
from pyiceberg.exceptions import CommitFailedException

from penstock.spark.tables.formats.opening import open_table
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker
from tests.spark.tables.pipeline_app import AppSettings
from tests.spark.tables.pipeline_feeder import COLUMNS_MAX, PARTITIONS, Feeder, Finding, Ledger
from tests.spark.tables.pipeline_world import World
from tests.spark.topics import create_topic, end_offsets

ROOT = Path(__file__).resolve().parents[3]
TOPIC = "orders"
CLUSTER = "local-cluster[2,1,1024]"
BATCH_SECONDS_MAX = 180.0
"""Until the next batch is committed, over restarts of the driver and of the broker."""
END_SECONDS_MAX = 90.0
RESTARTS_MAX = 3
"""Of one wait: a driver that ends again and again will not do better."""
CARES = 2
ROLLBACK_STATES_MAX = 5
FAULTS = (
    "driver",
    "second",
    "checkpoint deleted",
    "broker",
    "worker",
    "checkpoint set back",
    "care",
    "executor",
    "rollback",
)


@dataclass
class App:
    """One process of a pipeline."""

    settings: AppSettings
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def batches(self) -> int:
        return self.text().count("\nbatch ")

    def text(self) -> str:
        return "\n" + self.log.read_text(errors="replace")

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def below(self, word: str) -> list[psutil.Process]:
        """Processes below this one, a part of whose command begins with the word."""
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if any(part.startswith(word) for part in process.cmdline()):
                    found.append(process)
        return found

    def kill(self) -> None:
        """Kill the JVM and Python; their workers notice."""
        if self.has_ended:
            return
        for process in self.below("org.apache.spark.deploy.SparkSubmit"):
            process.kill()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@dataclass
class Supervisor:
    """Keeps one pipeline running, and applies faults to it."""

    broker: RunningBroker
    world: World
    dice: random.Random
    without: str = ""
    faults: Mapping[str, Callable[[random.Random], None]] = field(default_factory=dict)
    """Further faults, of what is around the pipeline."""
    columns_max: int = COLUMNS_MAX
    """The number of columns that are added over the rounds."""
    restarts: int = 0
    apps: list[App] = field(default_factory=list)
    _older: Path | None = None
    """A copy of a checkpoint, from earlier."""

    @property
    def app(self) -> App:
        return self.apps[-1]

    def start(self, *, checkpoint: Path | None = None, master: str = "local[2]") -> App:
        """Start a driver; it goes about things otherwise than the one before."""
        number = len(self.apps)
        if checkpoint is None:
            own = self.world.folder / "checkpoint"
            checkpoint = Path(self.app.settings.checkpoint) if self.apps else own
        settings = AppSettings(
            str(self.world.folder),
            self.world.format,
            self.broker.bootstrap,
            TOPIC,
            str(checkpoint),
            str(self.world.folder / f"spark-{number}"),
            mode=("in_task", "dataframe")[number % 2],
            master=master,
            always_tasks=number % 4 == 2,
            columns=min(number // 3, self.columns_max),
            has_rule=number % 3 == 1,
            has_quick_care=number % 4 in {1, 2},
            without=self.without,
            remote=None if self.world.remote is None else dict(self.world.remote),
        )
        self.apps.append(self._launched(settings, f"app-{number}.log"))
        return self.app

    def _launched(self, settings: AppSettings, name: str) -> App:
        log = self.world.folder / name
        command = [sys.executable, "-m", "tests.spark.tables.pipeline_app", settings.text()]
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        return App(settings, log, process)

    def wait_for_batches(self, count: int) -> None:
        """Wait for so many more batches; a driver that ended is started again."""
        wanted, restarts = self.app.batches + count, 0
        deadline = time.monotonic() + BATCH_SECONDS_MAX
        while self.app.batches < wanted:
            if self.app.has_ended:
                assert restarts < RESTARTS_MAX, self.app.text()[-4_000:]
                restarts += 1
                self._start_again()
                wanted = count
            assert time.monotonic() < deadline, f"no batch:\n{self.app.text()[-4_000:]}"
            time.sleep(0.05)

    def ends(self) -> dict[int, int]:
        """What the table says that it holds."""
        settings = self.app.settings.definition().table
        table = open_table(settings, settings.name)
        try:
            positions = table.load().positions_of("orders")
        finally:
            table.close()
        return {at.partition: offset for at, offset in positions.items()}

    def drained(self) -> dict[int, int]:
        """Wait until the table holds the whole topic, to which nothing comes; gives its ends."""
        deadline = time.monotonic() + BATCH_SECONDS_MAX
        # Asked again each time: the markers of the last transaction may come after the first look.
        while (ends := self.ends()) != (wanted := self._committed_ends()):
            assert time.monotonic() < deadline, f"{ends}, {wanted}:\n{self.app.text()[-4_000:]}"
            if self.app.has_ended:
                self._start_again()
            time.sleep(0.2)
        return ends

    def _committed_ends(self) -> dict[int, int]:
        found = end_offsets(self.broker.bootstrap, TOPIC, PARTITIONS, is_read_committed=True)
        return dict(enumerate(found))

    def _start_again(self) -> None:
        """A driver has ended by itself; the tables have not told it to, if they are guarded."""
        told = self.app.text()
        assert self.without or "\nstopped " not in told, told[-4_000:]
        self.restarts += 1
        self.start()

    # --- Faults ---

    def fault(self, kind: str) -> None:
        """One fault; afterwards a driver runs, or the next wait starts one."""
        match kind:
            case _ if kind in self.faults:
                self.faults[kind](self.dice)
            case "worker":
                self._kill_one("pyspark.")
            case "executor":
                self.app.kill()
                self.start(master=CLUSTER)
                self.wait_for_batches(1)
                self._kill_one("org.apache.spark.executor.CoarseGrainedExecutorBackend")
            case "broker":
                self.broker.kill()
                self.broker.start()
            case "care":
                self._care()
            case "second":
                self._second()
            case "rollback":
                self._roll_back()
            case _:
                self.app.kill()
                self._change_checkpoint(kind)
                self.start()

    def _kill_one(self, word: str) -> None:
        deadline = time.monotonic() + BATCH_SECONDS_MAX
        while not (found := self.app.below(word)):
            assert time.monotonic() < deadline, f"no process of {word} to kill"
            if self.app.has_ended:
                self.start()
            time.sleep(0.02)
        self.dice.choice(found).kill()

    def _change_checkpoint(self, kind: str) -> None:
        checkpoint = Path(self.app.settings.checkpoint)
        older, self._older = self._older, self.world.folder / f"older-{len(self.apps)}"
        if checkpoint.exists():
            shutil.copytree(checkpoint, self._older)
        if kind == "checkpoint deleted":
            shutil.rmtree(checkpoint, ignore_errors=True)
        elif kind == "checkpoint set back":
            shutil.rmtree(checkpoint, ignore_errors=True)
            if older is not None and older.exists():
                older.rename(checkpoint)

    def _care(self) -> None:
        """Care by other processes; the last one is killed in the middle."""
        settings = replace(self.app.settings, is_care=True)
        for number in range(CARES):
            carer = self._launched(settings, f"care-{len(self.apps)}.log")
            wait_seconds = self.dice.uniform(1.5, 4.0) if number == CARES - 1 else 30.0
            with suppress(subprocess.TimeoutExpired):
                carer.process.wait(wait_seconds)
            carer.kill()

    def _second(self) -> None:
        """A second driver, as on another machine: the first one has to end by itself."""
        first = self.app
        self.start(checkpoint=self.world.folder / f"checkpoint-{len(self.apps)}")
        self.wait_for_batches(1)
        if self.without:
            return
        with suppress(subprocess.TimeoutExpired):
            first.process.wait(END_SECONDS_MAX)
        try:
            assert first.has_ended, f"the first driver goes on:\n{first.text()[-2_000:]}"
            told = first.text()
            assert "\nstopped FENCED" in told or "\nfailed " in told, told[-2_000:]
        finally:
            first.kill()

    def _roll_back(self) -> None:
        """The table is put back by some commits: the driver ends by itself, the next one mends it.

        Care may have removed the files of older states, and somebody may commit meanwhile.
        """
        driver, deadline = self.app, time.monotonic() + BATCH_SECONDS_MAX
        while True:
            older = self.world.states()[1 : ROLLBACK_STATES_MAX + 1]
            try:
                self.world.put_back(self.dice.choice(older))
                break
            except (DeltaError, CommitFailedException, OSError, ValueError):
                assert time.monotonic() < deadline, "no state to go back to"
        with suppress(subprocess.TimeoutExpired):
            driver.process.wait(END_SECONDS_MAX)
        told = driver.text()
        assert driver.has_ended, f"the driver goes on:\n{told[-2_000:]}"
        assert "\nstopped WENT_BACK" in told or "\nfailed " in told, told[-2_000:]
        self.start()

    def close(self) -> None:
        for app in self.apps:
            app.kill()


NewWorld = Callable[[str], World]
"""Makes the world of a pipeline, with the addresses of its broker."""


@contextmanager
def supervised(
    folder: Path,
    new_world: NewWorld,
    seed: int,
    without: str = "",
    faults: Mapping[str, Callable[[random.Random], None]] | None = None,
    columns_max: int = COLUMNS_MAX,
) -> Iterator[Supervisor]:
    with penstock_broker(folder / "broker") as broker:
        create_topic(broker.bootstrap, TOPIC, partitions=PARTITIONS)
        world = new_world(broker.bootstrap)
        supervisor = Supervisor(
            broker,
            world,
            random.Random(seed),
            without,
            {} if faults is None else faults,
            columns_max=columns_max,
        )
        try:
            yield supervisor
        finally:
            supervisor.close()


def run_rounds(
    folder: Path, format_: str, kinds: list[str], *, seed: int, without: str = ""
) -> Finding:
    """One round for each kind of fault; gives what the last look found, or the first bad one."""

    def new_world(bootstrap: str) -> World:
        return World(folder, format_, bootstrap, TOPIC)

    with supervised(folder, new_world, seed, without) as supervisor:
        return rounds_of(supervisor, format_, kinds, seed)


def rounds_of(supervisor: Supervisor, name: str, kinds: list[str], seed: int) -> Finding:
    """The rounds around a pipeline that has not started."""
    bootstrap, dice = supervisor.broker.bootstrap, supervisor.dice
    ledger = Ledger(bootstrap, TOPIC)
    feeder = Feeder(bootstrap, TOPIC, seed)
    try:
        supervisor.start()
        for number, kind in enumerate(kinds, start=1):
            supervisor.wait_for_batches(dice.randrange(1, 4))
            time.sleep(dice.uniform(0, 0.5))
            supervisor.fault(kind)
            supervisor.wait_for_batches(1)
            found = ledger.compare(supervisor.world, supervisor.ends())
            print(f"round {number} on {name}: {kind}: {found}", flush=True)
            if not found.is_right:
                return found
    finally:
        feeder.stop()
    found = ledger.compare(supervisor.world, supervisor.drained())
    print(
        f"{len(kinds)} rounds of faults around a pipeline into {name}: {found}, "
        f"{len(supervisor.apps)} drivers, {supervisor.restarts} of them after a failure"
    )
    ledger.close()
    return found
