"""Topic, transform, topic, while everything is killed: each input once in the output.

Each round kills something at a moment that a seed chooses: the driver, an executor, a Python
worker, the broker; or the driver, whose checkpoint is then set back to before its last commit. A
supervisor starts the query again when it ended, as it would in production; an independent feeder
continues to produce. At the end the output, read by librdkafka with read_committed, is compared
with the input, record by record. Three rounds, thirty with PENSTOCK_PROOF=1; PENSTOCK_SEED repeats
a run.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker
from tests.spark.streams import topic_reader
from tests.spark.topics import create_topic, end_offsets, new_producer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3_600)]

ROOT = Path(__file__).resolve().parents[2]
IS_PROOF = os.environ.get("PENSTOCK_PROOF") == "1"
ROUNDS = 30 if IS_PROOF else 5
FAULTS = ("driver", "executor", "checkpoint", "broker", "worker")
SEED = int(os.environ.get("PENSTOCK_SEED", "1"))

INPUT_PARTITIONS = 3
OUTPUT_PARTITIONS = 2
RECORDS_PER_SECOND = 200
COMMIT_SECONDS_MAX = 180.0
"""Until the next micro-batch is committed, over restarts of the query and of the broker."""
DRAIN_SECONDS_MAX = 300.0


class Feeder:
    """Produces numbers to the input until it is stopped, whatever happens to the broker."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = new_producer(bootstrap, {"message.timeout.ms": "300000"})
        self._topic = topic
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="feeder")
        self.count = 0
        self._thread.start()

    def _feed(self) -> None:
        pause_seconds = 0.02
        while not self._ended.wait(pause_seconds):
            for _ in range(round(RECORDS_PER_SECOND * pause_seconds)):
                value = b"%d" % self.count
                partition = self.count % INPUT_PARTITIONS
                self._producer.produce(self._topic, value, key=value, partition=partition)
                self.count += 1
            self._producer.poll(0)

    def stop(self) -> None:
        """Stop, and wait until everything is acknowledged."""
        self._ended.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


class Supervisor:
    """Keeps one query running, and kills processes for the test."""

    def __init__(self, broker: RunningBroker, folder: Path, sink: str) -> None:
        self.broker = broker
        self.folder = folder
        self.sink = sink
        self.checkpoint = folder / "checkpoint"
        self.log = folder / "app.log"
        self.restarts = 0
        self._app: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the query."""
        command = [sys.executable, "-m", "tests.spark.kill_rounds_app", str(self.folder / "app")]
        topics = [self.broker.bootstrap, "input", "output", str(self.checkpoint), self.sink]
        with self.log.open("ab") as log:
            self._app = subprocess.Popen(
                [*command, *topics],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def last_commit(self) -> int:
        """The number of the last micro-batch that Spark noted as committed."""
        place = self.checkpoint / "commits"
        names = [one.name for one in place.iterdir()] if place.exists() else []
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def wait_for_commits(self, count: int) -> None:
        """Wait for so many more micro-batches; a query that ended is started again."""
        wanted = self.last_commit() + count
        deadline = time.monotonic() + COMMIT_SECONDS_MAX
        while self.last_commit() < wanted:
            assert self._app is not None
            if self._app.poll() is not None:
                self.restarts += 1
                self.start()
            assert time.monotonic() < deadline, (
                f"no batch {wanted}:\n{self.log.read_text()[-6000:]}"
            )
            time.sleep(0.02)

    def _processes(self, word: str) -> list[psutil.Process]:
        """Processes below the query whose command has the word."""
        assert self._app is not None
        found = []
        for process in psutil.Process(self._app.pid).children(recursive=True):
            try:
                if any(word in part for part in process.cmdline()):
                    found.append(process)
            except psutil.NoSuchProcess:
                continue
        return found

    def kill_driver(self) -> None:
        """Kill the driver's Python and its JVM; executors notice, or go on for a moment."""
        assert self._app is not None
        for process in self._processes("org.apache.spark.deploy.SparkSubmit"):
            process.kill()
        self._app.send_signal(signal.SIGKILL)
        self._app.wait()

    def kill_one(self, word: str, dice: random.Random) -> None:
        """Kill one of the processes whose command has the word; a round that hits nothing fails."""
        deadline = time.monotonic() + COMMIT_SECONDS_MAX
        while not (found := self._processes(word)):
            assert time.monotonic() < deadline, f"no process of {word} to kill"
            time.sleep(0.02)
        dice.choice(found).kill()

    def set_back(self) -> None:
        """Restore the checkpoint to the state before its last commit."""
        last = self.last_commit()
        for name in (f"{last}", f".{last}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)

    def fault(self, kind: str, dice: random.Random) -> None:
        """One fault."""
        if kind == "executor":
            self.kill_one("CoarseGrainedExecutorBackend", dice)
        elif kind == "worker":
            self.kill_one("pyspark.daemon", dice)
        elif kind == "broker":
            self.broker.kill()
            self.broker.start()
        else:
            self.kill_driver()
            if kind == "checkpoint":
                self.set_back()
            self.start()

    def close(self) -> None:
        """End the query, if it runs."""
        if self._app is not None and self._app.poll() is None:
            self.kill_driver()


@contextmanager
def supervised(folder: Path, sink: str) -> Iterator[Supervisor]:
    with penstock_broker(folder / "broker") as broker:
        create_topic(broker.bootstrap, "input", partitions=INPUT_PARTITIONS)
        create_topic(broker.bootstrap, "output", partitions=OUTPUT_PARTITIONS)
        supervisor = Supervisor(broker, folder, sink)
        try:
            yield supervisor
        finally:
            supervisor.close()


def values_of(broker: RunningBroker, topic: str, partitions: int) -> Counter[bytes]:
    """What a reader of committed records gets."""
    with topic_reader(broker.bootstrap, topic, partitions=partitions) as reader:
        while reader.poll(3.0) is not None:
            pass
        return Counter(one.value() or b"" for one in reader.messages)


def drain(supervisor: Supervisor) -> None:
    """Wait until the query has read the whole input: commits that stand still at its end."""
    bootstrap = supervisor.broker.bootstrap
    deadline = time.monotonic() + DRAIN_SECONDS_MAX
    wanted = sum(end_offsets(bootstrap, "input", INPUT_PARTITIONS))
    while sum(end_offsets(bootstrap, "output", OUTPUT_PARTITIONS, is_read_committed=True)) < wanted:
        assert time.monotonic() < deadline, f"not drained:\n{supervisor.log.read_text()[-6000:]}"
        time.sleep(0.2)
    before = -1
    while supervisor.last_commit() != before:  # a query without input commits nothing
        before = supervisor.last_commit()
        time.sleep(3.0)


def run_rounds(folder: Path, sink: str, rounds: int, faults: tuple[str, ...]) -> str:
    """Run the rounds; gives what a reader finds wrong at the end, or nothing."""
    dice = random.Random(SEED)
    with supervised(folder, sink) as supervisor:
        feeder = Feeder(supervisor.broker.bootstrap, "input")
        try:
            supervisor.start()
            for number in range(rounds):
                kind = faults[number] if number < len(faults) else dice.choice(faults)
                supervisor.wait_for_commits(dice.randrange(1, 4))
                time.sleep(dice.uniform(0, 1.0))
                before = supervisor.last_commit()
                supervisor.fault(kind, dice)
                print(f"round {number}: {kind} after batch {before}, {feeder.count} produced")
            supervisor.wait_for_commits(2)
        finally:
            feeder.stop()
        drain(supervisor)
        batches = supervisor.last_commit() + 1
        supervisor.close()
        sent = values_of(supervisor.broker, "input", INPUT_PARTITIONS)
        found = values_of(supervisor.broker, "output", OUTPUT_PARTITIONS)
    expected = Counter({b"seen " + value: count for value, count in sent.items()})
    missing, doubled = expected - found, found - expected
    print(
        f"{rounds} rounds of kill -9 around {sink}: {sent.total()} records in, {batches} batches, "
        f"{supervisor.restarts} failed queries started again, "
        f"{missing.total()} missing, {doubled.total()} too many"
    )
    assert sent.total() >= feeder.count
    wrong = [f"{missing.total()} missing"] if missing else []
    return ", ".join([*wrong, *([f"{doubled.total()} doubled"] if doubled else [])])


def test_each_input_once_whatever_is_killed(tmp_path: Path) -> None:
    assert run_rounds(tmp_path, "penstock", ROUNDS, FAULTS) == ""


def test_without_the_guard_there_are_duplicates(tmp_path: Path) -> None:
    wrong = run_rounds(tmp_path, "penstock-forgetful", 3, ("driver", "checkpoint", "checkpoint"))
    print(f"guard the log of decisions is read before a batch is decided: {wrong}")
    assert "doubled" in wrong
    assert "missing" not in wrong
