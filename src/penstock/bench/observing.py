"""`Observer`: what one client saw, while it runs: counts, latencies, its own use of the processor.

It knows which part is warm-up: that is counted for progress and nowhere else.
"""

import time
from collections.abc import Callable
from typing import Final

from penstock.bench.assignment import Progress
from penstock.bench.measurement import ClientResult
from penstock.bench.pacing import SECOND_NS

REPORT_NS: Final = SECOND_NS // 4

Report = Callable[[Progress], None]


class Observer:
    """Collects the result of one client."""

    def __init__(self, measured_ns: int, end_ns: int | None, report: Report) -> None:
        """With `end_ns` what comes later adds to latencies and not to what was done in time."""
        self._measured_ns = measured_ns
        self._end_ns = end_ns
        self._report = report
        self._reported_ns = 0
        self._cpu_ns = 0
        self._wall_ns = 0
        self._bytes_in_all = 0
        self.result = ClientResult(begin_ns=measured_ns, end_ns=measured_ns)

    def done(self, now_ns: int, due_ns: int, records: int, size_bytes: int) -> None:
        """Records that were due then are done now, by one request."""
        result = self.result
        result.records_in_all += records
        self._bytes_in_all += size_bytes
        is_in_time = self._end_ns is None or now_ns < self._end_ns
        if now_ns >= self._measured_ns and is_in_time:
            result.records += records
            result.bytes += size_bytes
            result.requests += 1
            result.end_ns = max(result.end_ns, now_ns)
            result.timeline.add((now_ns - self._measured_ns) // 1_000_000, records)
        if due_ns >= self._measured_ns and (self._end_ns is None or due_ns < self._end_ns):
            result.latency.record((now_ns - due_ns) // 1000)

    def tick(self, now_ns: int) -> None:
        """Time passes: begin to count the processor's time, and tell how far it is."""
        if not self._wall_ns and now_ns >= self._measured_ns:
            self._cpu_ns, self._wall_ns = time.process_time_ns(), now_ns
        if now_ns - self._reported_ns >= REPORT_NS:
            self._reported_ns = now_ns
            result = self.result
            p99_us = result.latency.percentile(99) if result.latency.count else 0
            self._report(Progress(result.records_in_all, self._bytes_in_all, p99_us))

    def finish(self, now_ns: int) -> ClientResult:
        """The result."""
        result = self.result
        if self._wall_ns:
            result.cpu_seconds = (time.process_time_ns() - self._cpu_ns) / SECOND_NS
            result.wall_seconds = (now_ns - self._wall_ns) / SECOND_NS
        if self._end_ns is not None:
            result.end_ns = self._end_ns
        return result
