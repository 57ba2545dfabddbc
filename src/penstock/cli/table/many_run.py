"""`penstock table run` for a definition with a table for each topic: drawing and dispatch only.

All output goes to standard error, the totals to standard output. Events arrive in the threads of
the workers; one lock orders them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from penstock.cli.output import is_live, note
from penstock.cli.table.view import REFRESHES_PER_SECOND

if TYPE_CHECKING:
    from rich.console import Group

    from penstock.core.clock import Clock
    from penstock.spark.tables.definition.model import PipelineDefinition
    from penstock.spark.tables.inspection.many_view import ManyView
    from penstock.spark.tables.inspection.run_view import RunView
    from penstock.spark.tables.run.events import BatchDone, MaintenanceDone


class ManyDrawn:
    """The listener of all tables: lines, or a view that is rewritten in place."""

    def __init__(self, view: ManyView, clock: Clock, *, has_lines: bool) -> None:
        self._view = view
        self._clock = clock
        self._has_lines = has_lines
        self._lock = Lock()

    def observer_of(self, definition: PipelineDefinition) -> TopicDrawn:
        """Return the observer of one topic's pipeline."""
        from penstock.spark.tables.definition.model import WriteMode
        from penstock.spark.tables.inspection.run_view import RunView

        line = RunView(
            definition.pipeline.name,
            definition.table.name,
            interval_ms=definition.trigger.interval_ms,
            row_word="change" if definition.table.mode is WriteMode.UPSERT else "row",
        )
        return TopicDrawn(self, definition.source.topics[0], line)

    def topic_failed(self, topic: str, problem: str, retry_seconds: float | None) -> None:
        """Show a failure."""
        with self._lock:
            self._show(self._view.topic_failed(topic, problem, retry_seconds))

    def looked(self, worker: int, topics: int, behind: int) -> None:
        """Show the number of topics."""
        with self._lock:
            self._show(self._view.looked(worker, topics, behind))

    def broker_away(self, problem: str) -> None:
        """Show that no broker answers."""
        with self._lock:
            self._show(self._view.broker_away(problem))

    def batch_done(self, topic: str, line: RunView, event: BatchDone) -> None:
        """Show a batch of one topic."""
        with self._lock:
            self._show(self._view.batch_done(topic, line, event))

    def maintenance_done(self, line: RunView, event: MaintenanceDone) -> None:
        """Show maintenance of one table."""
        with self._lock:
            self._show(self._view.maintenance_done(line, event))

    def stopping(self) -> None:
        """Show that the run stops. A signal handler calls it: no lock, no buffers."""
        self._view.is_stopping = True
        if self._has_lines:
            os.write(sys.stderr.fileno(), b"stopping\n")

    def _show(self, line: str) -> None:
        if line and self._has_lines:
            note(line)

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        with self._lock:
            table = Table(show_header=False, box=None)
            for label, text in self._view.fields(self._clock.now_ms()):
                table.add_row(Text(label, style="bold"), Text(text))
            title = Text(self._view.title, style="italic")
        return Group(title, table, Text("Ctrl-C stops", style="dim"))


class TopicDrawn:
    """The observer of one topic."""

    def __init__(self, drawn: ManyDrawn, topic: str, line: RunView) -> None:
        self._drawn = drawn
        self._topic = topic
        self._line = line

    def batch_done(self, event: BatchDone) -> None:
        """Show a finished batch."""
        self._drawn.batch_done(self._topic, self._line, event)

    def maintenance_done(self, event: MaintenanceDone) -> None:
        """Show finished maintenance of the table."""
        self._drawn.maintenance_done(self._line, event)


@contextmanager
def many_shown(view: ManyView, clock: Clock) -> Iterator[ManyDrawn]:
    """Yield the listener for this standard error, drawn until the end of the block."""
    if not is_live():
        yield ManyDrawn(view, clock, has_lines=True)
        return
    from rich.console import Console
    from rich.live import Live

    drawn = ManyDrawn(view, clock, has_lines=False)
    # A separate descriptor: while Spark starts, standard error belongs to Spark's log.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal:
        console = Console(file=terminal)
        with Live(drawn, console=console, refresh_per_second=REFRESHES_PER_SECOND):
            yield drawn
