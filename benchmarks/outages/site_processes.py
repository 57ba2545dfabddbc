"""Processes of a run: start, kill, memory and disk."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

READY_SECONDS_MAX = 60.0


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """One server: the same command at each start."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        port: int | None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command = list(command)
        self._folder = folder
        self._port = port
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self.memory_bytes = 0

    def start(self) -> None:
        """Start, and wait until its port answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        setpriv = shutil.which("setpriv")
        guard = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*guard, *self._command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=self._environment,
            )
        if self._port is not None:
            wait_for_port(self._port)

    def look(self) -> None:
        """Note the memory in use."""
        if self._process is None:
            return
        try:
            for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    self.memory_bytes = max(self.memory_bytes, int(line.split()[1]) * 1024)
        except OSError:
            return

    def kill(self) -> None:
        """End the process at once (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def wait_for_port(port: int) -> None:
    """Wait until a port accepts connections."""
    ends_at = time.monotonic() + READY_SECONDS_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > ends_at:
                raise
            time.sleep(0.05)
        else:
            return


def folder_bytes(folder: Path) -> int:
    """Return the bytes that a folder uses on the disk."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except OSError:
            continue
    return total
