"""The line to show after each event of a query (pure: the time is an argument).

    started      nothing yet
    progress     a line, in a terminal each time, elsewhere once in an interval for each query
    idle         the line says so, by the same rule, and is not repeated
    ended        a last line, always

The run id identifies a query, so a restart under the same name has its own line.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.spark.progress.line import ended_text, progress_text, query_label
from penstock.spark.progress.reading import QueryProgress

QUERIES_MAX: Final = 1_000
"""Far more than one driver can run; the oldest is dropped, in case its end was never reported."""


class Line(NamedTuple):
    """One line to show: the live line of a query, or its last line."""

    run_id: str
    text: str
    is_last: bool = False


@dataclass(slots=True)
class _Query:
    label: str
    batch_count: int = 0
    row_count: int = 0
    progress: QueryProgress | None = None
    is_idle: bool = False
    """Whether the query's line shows that it is idle."""
    shown_seconds: float | None = None


class Board:
    """The queries of one session, by their events so far."""

    def __init__(self, line_seconds: float) -> None:
        """Allow each query one live line in `line_seconds`; 0 allows a line each time."""
        self._line_seconds = line_seconds
        self._queries: dict[str, _Query] = {}

    def started(self, query_id: str, run_id: str, name: str | None) -> None:
        """Record the start of a query."""
        self._query(query_id, run_id, name)

    def progressed(self, progress: QueryProgress, now_seconds: float) -> Line | None:
        """Return the line after a finished micro-batch, if one is due."""
        query = self._query(progress.query_id, progress.run_id, progress.name)
        query.batch_count += 1
        query.row_count += progress.row_count
        query.progress = progress
        query.is_idle = False
        if not self._is_due(query, now_seconds):
            return None
        query.shown_seconds = now_seconds
        return Line(progress.run_id, progress_text(query.label, progress))

    def idle(self, run_id: str, now_seconds: float) -> Line | None:
        """Return the line of a query that waits for data, if one is due."""
        query = self._queries.get(run_id)
        if query is None or query.progress is None or query.is_idle:
            return None
        if not self._is_due(query, now_seconds):
            return None
        query.shown_seconds = now_seconds
        query.is_idle = True
        return Line(run_id, progress_text(query.label, query.progress, is_idle=True))

    def ended(self, query_id: str, run_id: str, error: str | None) -> Line:
        """Return the last line of a query; `error` is the error that ended it."""
        query = self._queries.pop(run_id, None) or _Query(query_label(query_id, None))
        text = ended_text(query.label, query.batch_count, query.row_count, error)
        return Line(run_id, text, is_last=True)

    def _is_due(self, query: _Query, now_seconds: float) -> bool:
        if query.shown_seconds is None:
            return True
        return now_seconds - query.shown_seconds >= self._line_seconds

    def _query(self, query_id: str, run_id: str, name: str | None) -> _Query:
        if run_id not in self._queries:
            while len(self._queries) >= QUERIES_MAX:
                del self._queries[next(iter(self._queries))]
            self._queries[run_id] = _Query(query_label(query_id, name))
        return self._queries[run_id]
