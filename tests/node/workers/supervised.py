"""`Supervised`: `penstock serve --workers` as a process, for tests that end its parts."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, Final, Self

ROOT: Final = Path(__file__).resolve().parents[3]
SECONDS_MAX: Final = 60.0


def free_ports(count: int) -> int:
    """Return the first port of a free range of `count` consecutive ports."""
    for first in range(21_000 + os.getpid() % 500 * 20, 32_000, 20):
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


class Supervised:
    """A supervisor and its workers on free ports."""

    def __init__(self, folder: Path, workers: int, settings: str = "") -> None:
        self.folder = folder
        self.workers = workers
        self.port = free_ports(workers * 2 + 1)
        self.admin_port = self.port + workers + 1
        self.file = folder / "penstock.toml"
        self.file.write_text(settings)
        self.process: subprocess.Popen[str] | None = None
        installed = os.environ.get("PENSTOCK_BROKER_PYTHON")
        self._python = installed or sys.executable
        self._environment = {**os.environ, "PENSTOCK_ADMIN__ENABLED": "true"}
        if installed is None:
            self._environment["PYTHONPATH"] = str(ROOT / "src")
        else:
            self._environment.pop("PYTHONPATH", None)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self, *words: str) -> list[str]:
        return [self._python, "-m", "penstock", *words]

    def start(self) -> str:
        """Start it; return its line, or what it said instead."""
        words = self.command(
            *("serve", "--workers", str(self.workers), "--port", str(self.port)),
            *("--admin-port", str(self.admin_port), "--config", str(self.file)),
            *("--data-dir", str(self.folder / "data")),
        )
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment
            )
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run another command."""
        return subprocess.run(
            self.command(*words),
            capture_output=True,
            text=True,
            env=self._environment,
            timeout=SECONDS_MAX,
            check=False,
        )

    def end(self, number: signal.Signals) -> int:
        """End the supervisor; return its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(SECONDS_MAX)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None
        return code

    def status(self, worker: int = 1) -> dict[str, Any]:
        """Return the status, as a worker's admin port has it."""
        url = f"http://127.0.0.1:{self.admin_port + worker - 1}/api/v1/status"
        with urllib.request.urlopen(url, timeout=SECONDS_MAX) as answer:
            document: dict[str, Any] = json.load(answer)
        return document

    def state(self, worker: int, asked: int) -> dict[str, Any]:
        """Return the state of a worker, as another one has it."""
        found: dict[str, Any] = self.status(asked)["workers"][worker - 1]
        return found

    def is_back(self, worker: int, asked: int) -> bool:
        """Whether a worker answers again after its first end."""
        state = self.state(worker, asked)
        return bool(state["restarts"] == 1 and state["condition"] == "running")

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.end(signal.SIGKILL)
