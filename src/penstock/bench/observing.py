"""`Observer`: collects counts, latencies and processor use of one client while it runs.

It knows the warm-up: records of the warm-up count only for progress.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.bench.assignment import Progress
from penstock.bench.measurement import ClientResult
from penstock.bench.pacing import SECOND_NS

REPORT_NS: Final = SECOND_NS // 4

Report = Callable[[Progress], None]


class Observer:
    """Collects the result of one client."""

    def __init__(self, measured_ns: int, end_ns: int | None, report: Report) -> None:
        """With `end_ns`, later requests count for latencies but not for the counts."""
        self._measured_ns = measured_ns
        self._end_ns = end_ns
        self._report = report
        self._reported_ns = 0
        self._cpu_ns = 0
        self._wall_ns = 0
        self._waited_ns = 0
        self._bytes_in_all = 0
        self.result = ClientResult(begin_ns=measured_ns, end_ns=measured_ns)

    def done(self, now_ns: int, due_ns: int, records: int, size_bytes: int) -> None:
        """Note that one request completed records at `now_ns` that were due at `due_ns`.

        With a duration, the records completed within it count; with a number, that number of
        records counts.
        """
        result = self.result
        result.records_in_all += records
        self._bytes_in_all += size_bytes
        if self._counts(now_ns if self._end_ns is not None else due_ns):
            result.records += records
            result.bytes += size_bytes
            result.requests += 1
            result.end_ns = max(result.end_ns, now_ns)
            result.timeline.add((now_ns - self._measured_ns) // 1_000_000, records)
        if self._counts(due_ns):
            result.latency.record((now_ns - due_ns) // 1000)

    def _counts(self, at_ns: int) -> bool:
        return at_ns >= self._measured_ns and (self._end_ns is None or at_ns < self._end_ns)

    def tick(self, now_ns: int) -> None:
        """Start to measure processor time when the warm-up is over, and report progress."""
        if not self._wall_ns and now_ns >= self._measured_ns:
            self._cpu_ns, self._wall_ns = time.process_time_ns(), now_ns
            self._waited_ns = waited_for_processor_ns()
        if now_ns - self._reported_ns >= REPORT_NS:
            self._reported_ns = now_ns
            result = self.result
            p99_us = result.latency.percentile(99) if result.latency.count else 0
            self._report(Progress(result.records_in_all, self._bytes_in_all, p99_us))

    def finish(self, now_ns: int) -> ClientResult:
        """Return the result."""
        result = self.result
        if self._wall_ns:
            result.cpu_seconds = (time.process_time_ns() - self._cpu_ns) / SECOND_NS
            result.wall_seconds = (now_ns - self._wall_ns) / SECOND_NS
            result.waiting_seconds = (waited_for_processor_ns() - self._waited_ns) / SECOND_NS
        if self._end_ns is not None:
            result.end_ns = self._end_ns
        return result


def waited_for_processor_ns() -> int:
    """Return how long this thread waited for a processor; 0 where the system does not report it."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0
