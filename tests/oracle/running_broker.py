"""One broker process of either kind: start it, look at it, stop or kill it, start it again.

Guarantees: after `start()` the broker has answered a Metadata request that names itself. `stop()`
ends it with SIGTERM and returns the exit code; `kill()` is kill -9. The process is asked to die
with the one that started it (`setpriv --pdeathsig`), so that a test run that is itself killed
leaves nothing behind. Only the own child is ever signalled, by its process id.

The readiness question is one small frame written by hand: this file must not depend on the code
under test.
"""

import contextlib
import dataclasses
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tests.oracle.cache import OracleError

HOST = "127.0.0.1"
PORTS_BELOW_EPHEMERAL = range(20_000, 32_000)
"""Linux gives outgoing connections ports from 32768 up: none of them takes a listener's port."""

START_TIMEOUT_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.004

_METADATA_V1_NO_TOPICS = struct.pack(">hhihi", 3, 1, 7, -1, 0)


_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PORTS = PORTS_BELOW_EPHEMERAL[_WORKER % 2 :: 2]
"""A broker takes its port a second after it was free: two processes of tests share none."""


def free_port() -> int:
    """A port that nobody listens on now."""
    for _ in range(200):
        port = random.choice(_PORTS)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((HOST, port))
            return port
    raise OracleError("no free port between 20000 and 32000")


@dataclasses.dataclass(frozen=True)
class Usage:
    """The resources that the process has used so far."""

    cpu_seconds: float
    rss_bytes: int


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a kind of broker is started: the same at each start of one `RunningBroker`."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    data_dir: Path


class RunningBroker:
    """A broker as a child process; a context manager that starts and stops it."""

    def __init__(self, recipe: Recipe, *, folder: Path, port: int) -> None:
        self.recipe = recipe
        self.folder = folder
        self.port = port
        self.ready_seconds = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """`kafka` or `penstock`."""
        return self.recipe.name

    @property
    def bootstrap(self) -> str:
        """The address clients are given."""
        return f"{HOST}:{self.port}"

    @property
    def data_dir(self) -> Path:
        """Where the partitions' folders are."""
        return self.recipe.data_dir

    @property
    def log_path(self) -> Path:
        """Both streams of the process, over all its starts."""
        return self.folder / "broker.log"

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The running child."""
        if self._process is None:
            raise OracleError(f"{self.name} is not running")
        return self._process

    @property
    def pid(self) -> int:
        """The process id of the running child."""
        return self.process.pid

    def start(self) -> Self:
        """Start the process and wait until it answers; `ready_seconds` tells how long that took."""
        assert self._process is None, "stop it first"
        setpriv = shutil.which("setpriv")
        guard = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        with self.log_path.open("ab") as log:
            begun = time.perf_counter()
            self._process = subprocess.Popen(
                [*guard, *self.recipe.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.recipe.environment},
                cwd=self.folder,
            )
        try:
            self._wait_until_it_answers(begun + START_TIMEOUT_SECONDS)
        except BaseException:
            self.kill()
            raise
        self.ready_seconds = time.perf_counter() - begun
        return self

    def _wait_until_it_answers(self, deadline: float) -> None:
        while not self.answers():
            if self.process.poll() is not None:
                raise OracleError(
                    f"{self.name} ended with {self.process.returncode} before it was ready:\n"
                    + self.log_text()[-4000:]
                )
            if time.perf_counter() > deadline:
                raise OracleError(
                    f"{self.name} was not ready in {START_TIMEOUT_SECONDS} s:\n"
                    + self.log_text()[-4000:]
                )
            time.sleep(POLL_SECONDS)

    def answers(self) -> bool:
        """Whether a Metadata request is answered with at least one broker, now."""
        try:
            with socket.create_connection((HOST, self.port), timeout=5) as connection:
                frame = _METADATA_V1_NO_TOPICS
                connection.sendall(struct.pack(">i", len(frame)) + frame)
                with connection.makefile("rb") as reader:
                    head = reader.read(12)
        except OSError:
            return False
        if len(head) < 12:
            return False
        _length, correlation_id, brokers = struct.unpack(">iii", head)
        return bool(correlation_id == 7 and brokers >= 1)

    def is_running(self) -> bool:
        """Whether the child lives."""
        return self._process is not None and self._process.poll() is None

    def stop(self, timeout_seconds: float = STOP_TIMEOUT_SECONDS) -> int:
        """SIGTERM, and wait for the end; returns the exit code."""
        process = self.process
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(timeout_seconds)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise OracleError(
                f"{self.name} did not stop in {timeout_seconds} s:\n" + self.log_text()[-2000:]
            ) from error
        self._process = None
        return code

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nothing is told."""
        process = self.process
        process.kill()
        process.wait()
        self._process = None

    def usage(self) -> Usage:
        """Processor time of all threads so far, and resident memory now."""
        process = psutil.Process(self.pid)
        with process.oneshot():
            times = process.cpu_times()
            return Usage(times.user + times.system, process.memory_info().rss)

    def log_text(self) -> str:
        """What it printed so far."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def __enter__(self) -> Self:
        return self if self.is_running() else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is None:
            return
        if kind is None:
            self.stop()
        else:
            # The error that is on its way says more than a slow stop would.
            self.kill()
