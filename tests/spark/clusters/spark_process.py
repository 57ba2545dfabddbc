"""A process of Spark's own classes: a master, a worker, a Connect server.

Guarantees: the process runs the `spark-class` of the installed PySpark, listens on loopback, and
ends with the process of the tests. It is stopped by its process id, and so are its children.
Nothing here imports PySpark: its folder is found without it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import psutil

ROOT: Final = Path(__file__).resolve().parents[3]
USERS_MODULES: Final = Path(__file__).with_name("users_modules")
HOST: Final = "127.0.0.1"
READY_SECONDS_MAX: Final = 240.0
"""A Java process starts in 3 seconds on a quiet machine, and in minutes on a loaded one."""
QUICK_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class NotReadyError(Exception):
    """A process of Spark ended, or did not answer in time."""


def spark_home() -> Path:
    """The folder of the installed PySpark, which is a whole Spark."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def environment() -> dict[str, str]:
    """The variables of every process: this interpreter, this source tree, loopback."""
    return {
        **os.environ,
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(map(str, (USERS_MODULES, ROOT, ROOT / "src"))),
    }


class SparkProcess:
    """One process, from its start to its end."""

    def __init__(
        self, program: str, words: Sequence[str], log: Path, extra: Mapping[str, str] | None = None
    ) -> None:
        """Start a program of Spark's folder `bin`."""
        setpriv = shutil.which("setpriv")
        guard = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*guard, str(spark_home() / "bin" / program), *words],
                cwd=log.parent,
                env={**environment(), **(extra or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process.poll() is None

    def wait_until(self, is_ready: Callable[[], bool]) -> None:
        """Wait for a state; the end of the process is an error."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not is_ready():
            told = self.log.read_text(errors="replace")[-3_000:]
            if not self.is_running:
                raise NotReadyError(f"ended with {self._process.returncode}:\n{told}")
            if time.monotonic() > deadline:
                raise NotReadyError(f"not ready in {READY_SECONDS_MAX} s:\n{told}")
            time.sleep(0.1)

    def below(self, word: str) -> list[psutil.Process]:
        """The processes that this one started, whose command has the word."""
        found = []
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self._process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if any(word in part for part in process.cmdline()):
                        found.append(process)
        return found

    def kill(self) -> None:
        """Kill -9 this process alone; its executors notice the end themselves."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """End the process and everything that it started."""
        if not self.is_running:
            return
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()


def document_at(address: str) -> dict[str, Any] | None:
    """The JSON document of a page; None while the page does not answer."""
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except (urllib.error.URLError, OSError, ValueError):
        return None
