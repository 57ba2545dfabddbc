"""What the figures were made on: processor, kernel, file system, the cost of one sync, noise.

Ratios of durable figures depend on the disk: with a slower sync, group commit wins more. So the
cost of a sync is measured beside them and printed with them.
"""

import os
import platform
import statistics
import time
from pathlib import Path

import psutil

SYNCS = 200


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


def facts(folder: Path) -> list[str]:
    """Lines that a reader of the figures needs."""
    return [
        f"{processor()}, {psutil.virtual_memory().total / 1e9:.0f} GB of memory",
        f"Linux {platform.release()}, {file_system(folder)}",
        f"fdatasync after an append of 4 KiB: {sync_us(folder):.0f} µs",
        f"Python {platform.python_version()}",
    ]


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
