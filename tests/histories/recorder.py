"""Starts, stops, kills and replaces workers, and merges their output into one history.

Guarantees: whatever happens to a worker, its operation in hand ends up in the history: completed by
itself, or as `info` with its last update when it was killed. All workers read the same clock of the
machine, so their entries are put in order by it. Only own children are signalled, by process id.
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

from tests.checker.derived import Derived
from tests.checker.history import Op, op_from_json
from tests.histories.plan import Library, Plan

ROOT = Path(__file__).resolve().parents[2]
END_SECONDS_MAX = 40.0
"""For an operation in hand: longer than its timeouts together. Later the worker is killed."""

STACK_SECONDS = 0.5
"""For a worker that hangs to say where."""
BEGIN_SECONDS_MAX = 60.0
"""Until every worker has done something: a loaded machine opens three clients in seconds."""
FINAL_SECONDS_MAX = 90.0
"""More than a reader takes for itself."""
FIRST_READER_SLOT = 100
"""Readers of the final phase are not among the plan's workers."""


class SupervisedWorker:
    """One worker; its lines are read by a thread."""

    def __init__(
        self, plan: Plan, bootstrap: str, library: Library, slot: int, number: int, targets: str
    ) -> None:
        self.slot = slot
        self.number = number
        self.library = library
        self.is_killed = False
        self.entries: list[Op] = []
        self._update: Op | None = None
        words = [plan.to_json(), bootstrap, library, str(slot), str(number), targets]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.histories.worker", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONDEVMODE": ""},
        )
        self.complaints: deque[str] = deque(maxlen=40)
        self._readers = [
            threading.Thread(target=self._take_entries),
            threading.Thread(target=self._take_complaints),
        ]
        for reader in self._readers:
            reader.start()

    def _take_entries(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                return  # Cut off by a kill: the worker never got to say it.
            word, _, text = line.partition(" ")
            op = op_from_json(text)
            if word == "update":
                self._update = op
            else:
                self.entries.append(op)
                self._update = None

    def _take_complaints(self) -> None:
        assert self._process.stderr is not None
        self.complaints.extend(self._process.stderr)

    @property
    def has_worked(self) -> bool:
        """Whether an operation on records is over, and well."""
        return any(op.type == "ok" and op.actions for op in self.entries)

    @property
    def is_running(self) -> bool:
        """Whether the process lives (a stopped one does)."""
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """To the own child alone."""
        if self.is_running:
            self._process.send_signal(number)

    def ask_to_end(self) -> None:
        """It ends after the operation in hand."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def kill(self) -> None:
        """SIGKILL; what it knew becomes the completion."""
        self.is_killed = True
        self._process.kill()
        self.wait(END_SECONDS_MAX)

    def wait(self, seconds: float) -> int:
        """Its exit code; killed when it does not end in time."""
        try:
            self._process.wait(max(0.1, seconds))
        except subprocess.TimeoutExpired:
            self.is_killed = True
            self._process.send_signal(signal.SIGUSR1)
            time.sleep(STACK_SECONDS)
            self._process.kill()
            self._process.wait()
        for reader in self._readers:
            reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        self._complete_what_is_open()
        return self._process.returncode

    def _complete_what_is_open(self) -> None:
        if self.entries and self.entries[-1].type == "invoke":
            known = self._update or self.entries[-1]
            now_ns = time.monotonic_ns()
            op = dataclasses.replace(known, type="info", time_ns=now_ns, error="killed")
            self.entries.append(op)


class Recorder:
    """All workers of one run; a slot has one live worker, and at times a zombie."""

    def __init__(self, plan: Plan, bootstrap: str) -> None:
        self.plan = plan
        self._bootstrap = bootstrap
        self._started: list[SupervisedWorker] = []
        self.entries_of_others: list[Op] = []
        """What operators did."""
        self.live: dict[int, SupervisedWorker] = {}

    def start(self, slot: int) -> SupervisedWorker:
        """A worker in this slot; one that is there already becomes its zombie."""
        worker = self._start(self.plan.libraries[slot], slot, "")
        self.live[slot] = worker
        return worker

    def _start(self, library: Library, slot: int, targets: str) -> SupervisedWorker:
        number = len(self._started) + 1
        worker = SupervisedWorker(self.plan, self._bootstrap, library, slot, number, targets)
        self._started.append(worker)
        return worker

    def start_all(self) -> None:
        """One for each library of the plan; returns when each has done something."""
        for slot in range(len(self.plan.libraries)):
            self.start(slot)
        deadline = time.monotonic() + BEGIN_SECONDS_MAX
        while not all(worker.has_worked for worker in self.live.values()):
            failures = self.failures()
            assert not failures, "\n".join(failures)
            assert time.monotonic() < deadline, "a worker did nothing; is the broker well?"
            time.sleep(0.05)

    def end(self) -> None:
        """Let everybody finish."""
        running = [worker for worker in self._started if worker.is_running]
        for worker in running:
            worker.ask_to_end()
        deadline = time.monotonic() + END_SECONDS_MAX
        for worker in running:
            worker.wait(deadline - time.monotonic())
            if worker.is_killed:
                stack = "".join(worker.complaints)
                print(f"{worker.library} {worker.number} did not end and was killed:\n{stack}")

    def abandon(self) -> None:
        """Kill what still runs."""
        for worker in self._started:
            if worker.is_running:
                worker.kill()

    def failures(self) -> list[str]:
        """Workers that ended by a fault of their own."""
        return [
            f"{worker.library} {worker.number} ended with {code}:\n{''.join(worker.complaints)}"
            for worker in self._started
            if worker.slot < FIRST_READER_SLOT
            and not worker.is_running
            and not worker.is_killed
            and (code := worker.wait(1.0)) != 0
        ]

    def read_everything(self, libraries: tuple[Library, ...]) -> bool:
        """The final phase: each library reads all; whether they reached what was ever seen."""
        targets = json.dumps(reachable_offsets(self.history()))
        readers = [
            self._start(library, FIRST_READER_SLOT + n, targets)
            for n, library in enumerate(libraries)
        ]
        codes = [reader.wait(FINAL_SECONDS_MAX) for reader in readers]
        return not any(codes)

    def history(self) -> list[Op]:
        """Everything so far in the order of time, numbered."""
        entries = [op for worker in self._started for op in worker.entries]
        entries += self.entries_of_others
        entries.sort(key=lambda op: op.time_ns)
        begun_ns = entries[0].time_ns if entries else 0
        return [
            dataclasses.replace(op, index=index, time_ns=op.time_ns - begun_ns)
            for index, op in enumerate(entries)
        ]


def reachable_offsets(history: list[Op]) -> dict[int, int]:
    """`highest_offsets`, of keys where nobody can have removed the record."""
    derived = Derived(history)
    return {
        key: offset
        for key, offset in highest_offsets(history).items()
        if derived.has_one_log(key)
        and not any(derived.may_vanish(key, value) for value in derived.log[key][offset])
    }


def highest_offsets(history: list[Op]) -> dict[int, int]:
    """For each key the highest offset that was polled, or sent by what certainly happened."""
    highest: dict[int, int] = {}
    for op in history:
        for send in op.sends:
            if op.type == "ok" and send.offset is not None:
                highest[send.key] = max(send.offset, highest.get(send.key, 0))
        for poll in op.polls:
            for key, records in poll.records.items():
                if records:
                    highest[key] = max(records[-1][0], highest.get(key, 0))
    return highest
