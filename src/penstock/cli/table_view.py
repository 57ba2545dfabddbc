"""A running pipeline on a terminal, or as lines where nobody looks: thin drawing, no decisions.

Everything is on standard error. What is shown comes from `spark.tables.run_view`, which is pure. It
may be told of events from any thread.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from penstock.cli.output import is_live, note

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.core.clock import Clock
    from penstock.spark.tables.run.events import BatchDone, CareDone
    from penstock.spark.tables.run_view import RunView

REFRESHES_PER_SECOND = 2


class LineView:
    """One line for each event."""

    def __init__(self, view: RunView, clock: Clock) -> None:
        self._view = view
        self._clock = clock
        self._lock = Lock()

    def started(self, mode: str, reasons: Sequence[str]) -> None:
        """The query runs."""
        with self._lock:
            note(self._view.started(mode, reasons))

    def batch_done(self, event: BatchDone) -> None:
        """After each batch."""
        with self._lock:
            self._view.batch_done(event)
            note(self._view.batch_line(event))

    def care_done(self, event: CareDone) -> None:
        """After each care of the table."""
        with self._lock:
            self._view.care_done(event, self._clock.now_ms())
            note(self._view.care_line(event))


class ScreenView:
    """A table that is rewritten in place; rich asks for it twice a second."""

    def __init__(self, view: RunView, clock: Clock) -> None:
        self._view = view
        self._clock = clock
        self._lock = Lock()

    def started(self, mode: str, reasons: Sequence[str]) -> None:
        """The query runs."""
        with self._lock:
            self._view.started(mode, reasons)

    def batch_done(self, event: BatchDone) -> None:
        """After each batch."""
        with self._lock:
            self._view.batch_done(event)

    def care_done(self, event: CareDone) -> None:
        """After each care of the table."""
        with self._lock:
            self._view.care_done(event, self._clock.now_ms())

    def __rich__(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        with self._lock:
            table = Table(title=self._view.title, title_justify="left", show_header=False, box=None)
            for label, text in self._view.fields(self._clock.now_ms()):
                table.add_row(Text(label, style="bold"), Text(text))
        return table


@contextmanager
def shown(view: RunView, clock: Clock) -> Iterator[LineView | ScreenView]:
    """The view for this standard error, drawn until the end of the block."""
    if not is_live():
        yield LineView(view, clock)
        return
    from rich.console import Console
    from rich.live import Live

    screen = ScreenView(view, clock)
    # A descriptor of its own: while Spark starts, the standard one belongs to Spark's log.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal:
        console = Console(file=terminal)
        with Live(screen, console=console, refresh_per_second=REFRESHES_PER_SECOND):
            yield screen
