"""`EdgeMachine`: one broker process with its own network namespace and its own small disk.

Guarantees: a cut is silent (packets vanish, connections stay open), and so is loss: the cable is
off for a third of the time, in turns of a tenth of a second, because many kernels lack the module
that loses single packets. A full disk is a tmpfs without a free byte. Only own children are
signalled, by process id; they die with the thread that started them.

It needs root. Without it, that is an error, never a skip.
"""

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.chaos_cluster.network import Network
from tests.oracle.cache import run, tool
from tests.oracle.kafka_broker import (
    _formatted_storage,
    _properties,
    _write_properties,
    make_class_data_archive,
)
from tests.oracle.kafka_jars import java_command

ROOT: Final = Path(__file__).resolve().parents[2]
PORT: Final = 9092
STOP_SECONDS_MAX: Final = 30.0
FREE_BYTES_MIN: Final = 4 * 1024 * 1024


class EdgeMachine:
    """A place in the network, a disk, and at most one process."""

    def __init__(self, name: str, folder: Path, network: Network, disk_megabytes: int) -> None:
        self.name = name
        self.place = network.add()
        self.disk = folder / name
        self.disk.mkdir()
        mount = tool("mount", "install util-linux")
        run([mount, "-t", "tmpfs", "-o", f"size={disk_megabytes}m", "x", self.disk])
        self.data_dir = self.disk / "data"
        self._log_path = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._command: Sequence[str] = ()
        self._environment: Mapping[str, str] = {}
        self.is_flapping = False
        self.is_plugged = True

    @property
    def address(self) -> str:
        """The address of the broker."""
        return f"{self.place.address}:{PORT}"

    def use(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Choose the broker of this machine."""
        self._command, self._environment = command, environment

    def start(self) -> None:
        """Start the broker; it is ready later."""
        assert not self.is_running, f"{self.name} runs already"
        guard = [tool("setpriv", "install util-linux"), "--pdeathsig", "KILL", "--"]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*guard, *self.place.command(self._command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._environment},
                cwd=self.disk,
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log_text(self) -> str:
        """The output of the process, over all its starts."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    # --- Faults ---

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """SIGTERM, and wait for the end."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    def unplug(self) -> None:
        """Pull the cable."""
        self.place.isolate()
        self.is_plugged = False

    def plug(self) -> None:
        """Connect the cable."""
        if not self.is_plugged:
            self.place.heal()
            self.is_plugged = True

    def fill(self) -> None:
        """Fill the disk to the last byte."""
        with (self.disk / "filler").open("ab", buffering=0) as filler:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        filler.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        """Free the disk."""
        (self.disk / "filler").unlink(missing_ok=True)

    def remove(self) -> None:
        """End the process and unmount the disk."""
        self.kill()
        run([tool("umount", "install util-linux"), "--lazy", self.disk])


def penstock_command(machine: EdgeMachine, settings: str, folder: Path) -> None:
    """Let a machine run `penstock serve` with these settings in TOML."""
    installed = os.environ.get("PENSTOCK_BROKER_PYTHON")
    config = folder / f"{machine.name}.toml"
    config.write_text(settings)
    modules = folder / "modules"
    modules.mkdir(exist_ok=True)
    # The schema classes register strategies with Hypothesis, which users do not have.
    (modules / "hypothesis.py").write_text('raise ImportError("not for a broker")\n')
    command = [installed or sys.executable, "-m", "penstock", "serve"]
    command += ["--host", machine.place.address, "--port", str(PORT)]
    command += ["--data-dir", str(machine.data_dir), "--config", str(config)]
    path = os.pathsep.join((str(modules), str(ROOT / "src")))
    machine.use(
        command,
        {
            "PYTHONPATH": "" if installed else path,
            "PENSTOCK_ADMIN__ENABLED": "false",
            "PENSTOCK_SECURITY__ALLOW_INSECURE": "true",
            "PENSTOCK_DISK__FREE_BYTES_MIN": str(FREE_BYTES_MIN),
        },
    )


def kafka_command(machine: EdgeMachine, folder: Path) -> None:
    """Let a machine run Apache Kafka, a fresh cluster of one node."""
    make_class_data_archive()
    shutil.copytree(_formatted_storage(), machine.data_dir)
    properties = _properties(machine.data_dir, PORT, PORT + 1, {})
    controller = f"CONTROLLER://127.0.0.1:{PORT + 1}"
    properties["listeners"] = f"PLAINTEXT://{machine.address},{controller}"
    settings = folder / f"{machine.name}.properties"
    _write_properties(settings, properties)
    machine.use(java_command("kafka.Kafka", [settings]), {})
