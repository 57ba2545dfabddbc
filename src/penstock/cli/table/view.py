"""A running pipeline on a terminal, or as lines elsewhere: only drawing, no decisions.

All output goes to standard error. The content is from `inspection.run_view`, which is pure. Any
thread can report events.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from penstock.cli.output import is_live, note

if TYPE_CHECKING:
    from rich.console import Group

    from penstock.core.clock import Clock
    from penstock.spark.tables.inspection.run_view import RunView
    from penstock.spark.tables.run.events import BatchDone, MaintenanceDone

REFRESHES_PER_SECOND = 2


class LineView:
    """One line for each event."""

    def __init__(self, view: RunView, clock: Clock) -> None:
        self._view = view
        self._clock = clock
        self._lock = Lock()

    def started(self, mode: str, reasons: Sequence[str]) -> None:
        """Show that the query runs."""
        with self._lock:
            note(self._view.started(mode, reasons))

    def restarts(self, line: str) -> None:
        """Show a failure after which the pipeline is started again."""
        with self._lock:
            note(self._view.restarts(line))

    def stopping(self) -> None:
        """Show that the pipeline stops. A signal handler calls it: no lock, no buffers."""
        self._view.is_stopping = True
        os.write(sys.stderr.fileno(), b"stopping\n")

    def batch_done(self, event: BatchDone) -> None:
        """Show a finished batch."""
        with self._lock:
            self._view.batch_done(event)
            note(self._view.batch_line(event))

    def maintenance_done(self, event: MaintenanceDone) -> None:
        """Show finished maintenance of the table."""
        with self._lock:
            self._view.maintenance_done(event, self._clock.now_ms())
            _note(self._view.maintenance_line(event))

    def broker_seen(self, lags: Mapping[str, int]) -> None:
        """Show that a broker answers."""
        with self._lock:
            _note(self._view.broker_seen(lags, self._clock.now_ms()))

    def broker_away(self, problem: str) -> None:
        """Show that no broker answers."""
        with self._lock:
            _note(self._view.broker_away(problem, self._clock.now_ms()))


def _note(line: str) -> None:
    if line:
        note(line)


class ScreenView:
    """A table that is rewritten in place; rich asks for it twice a second."""

    def __init__(self, view: RunView, clock: Clock) -> None:
        self._view = view
        self._clock = clock
        self._lock = Lock()

    def started(self, mode: str, reasons: Sequence[str]) -> None:
        """Show that the query runs."""
        with self._lock:
            self._view.started(mode, reasons)

    def restarts(self, line: str) -> None:
        """Show a failure after which the pipeline is started again."""
        with self._lock:
            self._view.restarts(line)

    def stopping(self) -> None:
        """Show that the pipeline stops. A signal handler calls it, so it uses no lock."""
        self._view.is_stopping = True

    def batch_done(self, event: BatchDone) -> None:
        """Show a finished batch."""
        with self._lock:
            self._view.batch_done(event)

    def maintenance_done(self, event: MaintenanceDone) -> None:
        """Show finished maintenance of the table."""
        with self._lock:
            self._view.maintenance_done(event, self._clock.now_ms())

    def broker_seen(self, lags: Mapping[str, int]) -> None:
        """Show that a broker answers."""
        with self._lock:
            self._view.broker_seen(lags, self._clock.now_ms())

    def broker_away(self, problem: str) -> None:
        """Show that no broker answers."""
        with self._lock:
            self._view.broker_away(problem, self._clock.now_ms())

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        with self._lock:
            table = Table(show_header=False, box=None)
            for label, text in self._view.fields(self._clock.now_ms()):
                table.add_row(Text(label, style="bold"), Text(text))
            # Not the table's title: it would be limited to the table's width.
            title = Text(self._view.title, style="italic")
        return Group(title, table, Text("Ctrl-C stops", style="dim"))


@contextmanager
def shown(view: RunView, clock: Clock) -> Iterator[LineView | ScreenView]:
    """Yield the view for this standard error, drawn until the end of the block."""
    if not is_live():
        yield LineView(view, clock)
        return
    from rich.console import Console
    from rich.live import Live

    screen = ScreenView(view, clock)
    # A separate descriptor: while Spark starts, standard error belongs to Spark's log.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal:
        console = Console(file=terminal)
        with Live(screen, console=console, refresh_per_second=REFRESHES_PER_SECOND):
            yield screen
