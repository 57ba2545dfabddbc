"""What the figures were made on: processor, kernel, file system, what syncs cost, noise.

Ratios of durable figures depend on the disk: with a slower sync, group commit wins more, and no
broker that waits for the disk writes faster than the disk. So the cost of a small sync and the
rate of large ones are measured beside them and printed with them.
"""

import contextlib
import os
import platform
import statistics
import time
from pathlib import Path

import psutil

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
    """How fast 1-MiB appends with an fdatasync after each go: the limit of durable streams."""
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
        f"Python {platform.python_version()}",
    ]


def own_cpu_seconds() -> float:
    """Processor time so far of this process and everything it started that still runs."""
    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += float(times.user + times.system)
    return total


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
