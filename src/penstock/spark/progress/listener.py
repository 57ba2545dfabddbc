"""`ProgressListener`: one line for each query, and its lag as a consumer group.

    listener = ProgressListener(bootstrap_servers="localhost:9092")
    spark.streams.addListener(listener)

Spark calls it after every micro-batch, in a thread that all listeners share. It calls
`onQueryStarted` in the thread that starts the query. So nothing here waits. `board` and
`publications` decide; this is the thin part that uses Spark.
"""

import atexit
import json
import sys
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self, TextIO

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from penstock.core.clock import Clock, SystemClock
from penstock.spark.progress.board import Board, Line
from penstock.spark.progress.committer import committer_opener
from penstock.spark.progress.display import Display
from penstock.spark.progress.publications import Publications
from penstock.spark.progress.publisher import CLOSE_SECONDS_MAX, Publisher
from penstock.spark.progress.reading import read_progress

LINE_SECONDS_DEFAULT: Final = 10.0
"""In a log: often enough to see that a query runs, rare enough to leave room for other lines."""
PUBLISH_SECONDS_DEFAULT: Final = 5.0
"""A commit writes a record to a broker's disk; monitoring reads it every 15 to 60 s."""


class ProgressListener(StreamingQueryListener):
    """Shows the progress of every streaming query of a session, and publishes it if configured."""

    def __init__(
        self,
        bootstrap_servers: str | None = None,
        *,
        group_id_prefix: str | None = None,
        client_options: Mapping[str, str] | None = None,
        stream: TextIO | None = None,
        line_seconds: float = LINE_SECONDS_DEFAULT,
        publish_seconds: float = PUBLISH_SECONDS_DEFAULT,
        clock: Clock | None = None,
    ) -> None:
        """Create the listener; with `bootstrap_servers`, queries appear as groups there.

        A group has the name `{prefix}-{query name or id}`. The prefix is `group_id_prefix`, else
        the source's `groupIdPrefix`, else "spark". `client_options` are Kafka's settings for
        clients. Lines go to `stream`, by default standard error. If it is not a terminal, each
        query writes one line in `line_seconds`.
        """
        self._clock: Clock = clock or SystemClock()
        self._display = Display(sys.stderr if stream is None else stream)
        self._board = Board(0.0 if self._display.is_terminal else line_seconds)
        self._publisher: Publisher | None = None
        self._unreported_runs: set[str] = set()
        """Started runs whose end Spark has not reported yet."""
        # Queries start in their own threads, and report progress in another one.
        self._changed = threading.Condition()
        if bootstrap_servers is not None:
            self._publisher = Publisher(
                Publications(publish_seconds, group_id_prefix),
                committer_opener(bootstrap_servers, client_options or {}),
                self._display.say,
                self._clock,
            )
            atexit.register(self.close)

    def close(self, timeout_seconds: float = CLOSE_SECONDS_MAX) -> None:
        """Publish the last positions, within the timeout. The end of the program also does this."""
        if self._publisher is not None:
            self._wait_for_reports(timeout_seconds)
            self._publisher.close(timeout_seconds)
            atexit.unregister(self.close)

    def _wait_for_reports(self, timeout_seconds: float) -> None:
        """Wait for Spark's reports of the last batch and the end: they follow a query's end."""
        active = active_runs(self.spark)
        if active is None:
            return
        with self._changed:
            ended = self._unreported_runs - active
            self._changed.wait_for(lambda: not self._unreported_runs & ended, timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Handle Spark's event: a query starts, and waits for this method to return."""
        with self._changed:
            self._board.started(str(event.id), str(event.runId), event.name)
            self._unreported_runs.add(str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Handle Spark's event: a micro-batch has ended."""
        # The event's JSON text has the offsets as JSON; its fields have them as Java's text.
        progress = read_progress(json.loads(event.progress.json))
        with self._changed:
            line = self._board.progressed(progress, self._clock.monotonic())
        self._show(line)
        if self._publisher is not None:
            self._publisher.note(progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Handle Spark's event: a query has no data to read."""
        with self._changed:
            line = self._board.idle(str(event.runId), self._clock.monotonic())
        self._show(line)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Handle Spark's event: a query stopped or failed."""
        with self._changed:
            line = self._board.ended(str(event.id), str(event.runId), event.exception)
        self._show(line)
        if self._publisher is not None:
            self._publisher.ended(str(event.runId))
        with self._changed:
            self._unreported_runs.discard(str(event.runId))
            self._changed.notify_all()

    def _show(self, line: Line | None) -> None:
        if line is not None:
            self._display.show(line)


def active_runs(session: SparkSession | None) -> set[str] | None:
    """Return the runs of active queries; None if Spark itself has ended."""
    try:
        session = session or SparkSession.getActiveSession()
        return None if session is None else {str(query.runId) for query in session.streams.active}
    except Exception:  # noqa: BLE001 (a session ends in many ways; then it reports nothing more)
        return None
