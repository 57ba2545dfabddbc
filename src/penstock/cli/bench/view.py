"""The progress of `penstock bench`: one live line on a terminal's standard error."""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from penstock.bench.assignment import Progress
from penstock.bench.figures_text import latency_text, rate_text, unit_of
from penstock.bench.runner import Watch
from penstock.bench.workload import Workload
from penstock.cli.output import console, is_live

_LEVELS: Final = "▁▂▃▄▅▆▇█"
_MOMENTS: Final = 32
_SAMPLE_SECONDS: Final = 0.3


def sparkline(values: Sequence[float]) -> str:
    """Return the values as a row of small bars."""
    most = max(values, default=0.0)
    if most <= 0:
        return ""
    return "".join(_LEVELS[min(7, int(value / most * 7.999))] for value in values)


class Rates:
    """The last few rates between two samples of a counter; the clock is an argument."""

    def __init__(self) -> None:
        self._part = ""
        self._at = 0.0
        self._records = 0
        self.recent: deque[float] = deque(maxlen=_MOMENTS)

    def look(self, part: str, now: float, records: int) -> None:
        """Add a sample of the record counter; a new part of the work starts a new series."""
        if part != self._part:
            self._part, self._at, self._records = part, now, records
            self.recent.clear()
        elif now - self._at >= _SAMPLE_SECONDS:
            self.recent.append((records - self._records) / (now - self._at))
            self._at, self._records = now, records


def line_of(part: str, progress: Sequence[Progress], rates: Rates, unit: str) -> str:
    """Return the progress line."""
    records = sum(one.records for one in progress)
    now = rate_text(rates.recent[-1]) if rates.recent else "-"
    slowest = max((one.p99_us for one in progress), default=0)
    latency = f"  p99 {latency_text(slowest)}" if slowest else ""
    return f"{part}: {records:,} {unit}  {now}/s{latency}  {sparkline(list(rates.recent))}"


@contextmanager
def live_view(workload: Workload) -> Iterator[Watch | None]:
    """Show the reported progress while the block runs, if standard error is a terminal."""
    if not is_live():
        yield None
        return
    from rich.status import Status

    rates = Rates()
    with Status("starting clients", console=console(stderr=True)) as status:

        def watch(part: str, progress: Sequence[Progress]) -> None:
            rates.look(part, time.monotonic(), sum(one.records for one in progress))
            status.update(line_of(part, progress, rates, unit_of(workload)))

        yield watch
