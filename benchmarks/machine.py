"""The measured machine: processor, kernel, file system, cost of syncs, and noise.

Ratios of durable figures depend on the disk: with a slower sync, group commit wins more, and no
broker that waits for the disk writes faster than the disk. So the cost of a small sync and the
rate of large ones are measured beside them and printed with them.
"""

import contextlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil

from tests.oracle.penstock_broker import ROOT

SYNCS = 200
# Enough to leave the burst behind that a virtual disk allows for the first few hundred megabytes.
APPENDED_BYTES = 1_500_000_000
APPEND_BYTES = 1 << 20


def processor() -> str:
    """The processor's name and the number of cores."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return f"{model}, {os.cpu_count()} cores"


def file_system(folder: Path) -> str:
    """The type of the file system that `folder` lies on."""
    place = folder.resolve()
    best = ("", "unknown")
    for partition in psutil.disk_partitions(all=True):
        inside = place.is_relative_to(partition.mountpoint)
        if inside and len(partition.mountpoint) >= len(best[0]):
            best = (partition.mountpoint, partition.fstype)
    return best[1]


def sync_us(folder: Path) -> float:
    """The median time of appending 4 KiB and fdatasync, in microseconds."""
    path = folder / "sync-probe"
    taken = []
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        for _ in range(SYNCS):
            os.write(descriptor, bytes(4096))
            begun = time.perf_counter()
            os.fdatasync(descriptor)
            taken.append(time.perf_counter() - begun)
    finally:
        os.close(descriptor)
        path.unlink()
    return statistics.median(taken) * 1e6


def append_mb_per_second(folder: Path) -> float:
    """Return the rate of 1-MiB appends with an fdatasync each: the limit of durable streams."""
    path = folder / "append-probe"
    block = os.urandom(APPEND_BYTES)
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        begun = time.perf_counter()
        for _ in range(APPENDED_BYTES // APPEND_BYTES):
            os.write(descriptor, block)
            os.fdatasync(descriptor)
        return APPENDED_BYTES / (time.perf_counter() - begun) / 1e6
    finally:
        os.close(descriptor)
        path.unlink()


def facts(folder: Path) -> list[str]:
    """Lines that a reader of the figures needs."""
    return [
        f"{processor()}, {psutil.virtual_memory().total / 1e9:.0f} GB of memory",
        f"Linux {platform.release()}, {file_system(folder)}",
        f"fdatasync after an append of 4 KiB: {sync_us(folder):.0f} µs",
        (
            "appends of 1 MiB with an fdatasync after each, 1.5 GB, no broker: "
            f"{append_mb_per_second(folder):.0f} MB/s"
        ),
        broker_build(),
    ]


_BUILD_SCRIPT = """
import json, platform, sysconfig
from penstock.broker.connections import listener
print(json.dumps({
    "version": platform.python_version(),
    "options": sysconfig.get_config_var("CONFIG_ARGS") or "",
    "module": listener.__file__,
}))
"""


def broker_build() -> str:
    """How the interpreter of the brokers and Penstock itself were built, as one line."""
    installed = os.environ.get("PENSTOCK_BROKER_PYTHON")
    path = "" if installed else str(ROOT / "src")
    command = [installed or sys.executable, "-c", _BUILD_SCRIPT]
    environment = {**os.environ, "PYTHONPATH": path}
    output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    return described_build(**json.loads(output))


def described_build(version: str, options: str, module: str) -> str:
    """The line for a report; the interpreter has a large share of each small request."""
    guided = "with" if "--enable-optimizations" in options else "without"
    linked = "with" if "--with-lto" in options else "without"
    kind = "from source, not compiled" if module.endswith(".py") else "compiled"
    return (
        f"Python {version}, built {guided} profile-guided optimization (PGO) and {linked} "
        f"link-time optimization; Penstock {kind}"
    )


def own_cpu_seconds() -> float:
    """Processor time so far of this process and everything it started that still runs."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += float(times.user + times.system)
    return total


def spent_cpu_seconds() -> float:
    """Return the same with every ended child; two calls measure the time between them."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own_cpu_seconds() + ended.ru_utime + ended.ru_stime


class Bystanders:
    """How much of the machine is used by processes that are not part of a measurement."""

    def __init__(self) -> None:
        self._busy = self._busy_seconds()
        self._begun = time.perf_counter()

    @staticmethod
    def _busy_seconds() -> float:
        times = psutil.cpu_times()
        return float(times.user + times.nice + times.system + times.irq + times.softirq)

    def share(self, own_seconds: float) -> float:
        """The share since the start, without `own_seconds` of broker and client."""
        wall = (time.perf_counter() - self._begun) * (os.cpu_count() or 1)
        others = self._busy_seconds() - self._busy - own_seconds
        return max(0.0, others / wall)
