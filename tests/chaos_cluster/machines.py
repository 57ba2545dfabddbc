"""`Machine`: one process with its own network namespace, its own disk and a power switch.

Guarantees: a power cut is silent and real. The machine is taken off the network first, so that no
connection is closed; then its process stops, and its ext4 is shut down by the kernel without
flushing its journal; the process never runs again. After `restore_power` everything that was
synced is on the disk, and nothing else is sure. Only own children are signalled, by process id;
they die with the thread that started them, so machines are started in the main thread.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.chaos_cluster.network import Network
from tests.crash.loop_disk import LoopDisk, stop_processor
from tests.oracle.cache import OracleError, run, tool

FOLDER: Final = "machines-"
"""Folders of machines are named so, with the process id of their owner."""
STOP_SECONDS_MAX: Final = 30.0
_OWNED = re.compile(rf"/{FOLDER}(\d+)(?:/|$)")


class Machine:
    """A place in the network, a disk, and at most one process."""

    def __init__(self, name: str, folder: Path, network: Network) -> None:
        self.name = name
        self.place = network.add()
        self.disk = LoopDisk(folder / name)
        self.log_path = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """The address that other machines and tests reach it at."""
        return self.place.address

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start the process; it is ready later."""
        assert not self.is_running, f"{self.name} runs already"
        guard = [tool("setpriv", "install util-linux"), "--pdeathsig", "KILL", "--"]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*guard, *self.place.command(command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                cwd=self.log_path.parent,
            )

    @property
    def is_running(self) -> bool:
        """Whether the process lives; a paused one does."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code of a process that has ended."""
        return None if self._process is None else self._process.poll()

    def log_text(self) -> str:
        """The output of the process, over all its starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    # --- Faults of the process ---

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self, timeout_seconds: float = STOP_SECONDS_MAX) -> int | None:
        """SIGTERM, and wait for the end; None when the process did not end and was killed."""
        if self._process is None:
            return 0
        self._process.terminate()
        self.go_on()
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing is answered."""
        if self.is_running and self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        if self.is_running and self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    # --- Faults of the machine ---

    def cut_power(self) -> None:
        """The network is silent, the process stands still and the disk is dead."""
        cut_power_of_all([self])

    def stop_processor(self) -> None:
        """The process runs no further instruction; it can only be killed."""
        if self.is_running and self._process is not None:
            stop_processor(self._process.pid)

    def restore_power(self) -> None:
        """The process is gone, the disk has what was synced, the network is there."""
        self.kill()
        self.disk.restore()
        self.place.heal()

    def remove(self) -> None:
        """End the process and unmount the disk."""
        self.kill()
        self.disk.close()


def cut_power_of_all(machines: Sequence[Machine]) -> None:
    """Power ends for all of these machines, as near to one moment as signals are."""
    for machine in machines:
        machine.place.isolate()
    for machine in machines:
        machine.stop_processor()
    for machine in machines:
        machine.disk.cut()


def machines_folder(folder: Path) -> Path:
    """A folder for machines; disks of owners that are gone are unmounted first."""
    unmount = tool("umount", "install util-linux")
    for line in Path("/proc/mounts").read_text().splitlines():
        path = line.split(" ")[1]
        owner = _OWNED.search(path)
        if owner and not Path(f"/proc/{owner[1]}").exists():
            run([unmount, "--lazy", path])
            shutil.rmtree(Path(path).parent, ignore_errors=True)
    made = folder / f"{FOLDER}{os.getpid()}"
    if made.exists():
        raise OracleError(f"{made} is in use: one cluster at a time in a folder")
    made.mkdir(parents=True)
    return made
