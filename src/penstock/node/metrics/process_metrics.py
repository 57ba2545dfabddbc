"""Metrics of this process: CPU, memory, descriptors, garbage; and the version of Penstock.

The metrics have the names of Prometheus' own clients, so general dashboards show this broker too.
All values are read when metrics are requested; nothing runs meanwhile. The numbers are of the whole
process: a broker inside a test's process counts the test too. Where the system does not report a
value (no `/proc`), the metric is missing rather than wrong.
"""

import gc
import os
import resource
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from penstock.core.clock import Clock
from penstock.core.metrics import Family, Registry, Row, Table, TableRow
from penstock.records import scan

_PROCESS: Final = Path("/proc/self")
_VIRTUAL_FIELD: Final = 0
_RESIDENT_FIELD: Final = 1
_PAGE_BYTES: Final = resource.getpagesize()

_GARBAGE_COLUMNS: Final = (
    ("python_gc_collections_total", "Times that Python looked for garbage."),
    ("python_gc_objects_collected_total", "Objects found to be garbage."),
    ("python_gc_objects_uncollectable_total", "Garbage that could not be freed."),
)


def register_process(metrics: Registry, clock: Clock) -> None:
    """Register the metrics of the process."""
    started_at = clock.now_ms() / 1_000
    metrics.gauge("process_start_time_seconds", "When the broker started.", lambda: started_at)
    metrics.gauge("process_cpu_seconds_total", "Time on a processor.", time.process_time)
    metrics.gauge(
        "process_max_fds",
        "Files and connections that may be open.",
        lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )
    if _PROCESS.exists():
        metrics.gauge("process_open_fds", "Files and connections open.", open_descriptors)
        metrics.gauge(
            "process_resident_memory_bytes", "Memory in use.", lambda: _memory(_RESIDENT_FIELD)
        )
        metrics.gauge(
            "process_virtual_memory_bytes", "Memory asked for.", lambda: _memory(_VIRTUAL_FIELD)
        )
    metrics.table(Table(_GARBAGE_COLUMNS, ("generation",), _garbage_rows))
    label_names = ("version", "python", "compiled")
    metrics.family("build_info", Family("Which Penstock this is: always 1.", label_names, _build))


def open_descriptors() -> int:
    """Return the number of open descriptors; new kernels report it without a list."""
    return os.stat(_PROCESS / "fd").st_size or len(os.listdir(_PROCESS / "fd"))


def _memory(field: int) -> int:
    return int((_PROCESS / "statm").read_text().split()[field]) * _PAGE_BYTES


def _garbage_rows() -> Iterator[TableRow]:
    for generation, stats in enumerate(gc.get_stats()):
        values = (stats["collections"], stats["collected"], stats["uncollectable"])
        yield TableRow((str(generation),), values)


def _build() -> Iterator[Row]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield Row((_installed_version(), python, str(bool(scan.COMPILED)).lower()), 1)


@cache
def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # keeps the start fast

    try:
        return version("penstock")
    except PackageNotFoundError:
        return "unknown"
