"""The offsets to commit for each group, and the time of each commit (pure: time is an argument).

A query that reads topics has a group, and always publishes its newest position: a newer position
replaces a waiting one. So the number of queries bounds the queue, however long a broker is
unreachable.

    newest position not published     once in `publish_seconds`; at once when the query ended
    published, query goes on          again after REPEAT_SECONDS, because brokers forget offsets of
                                      a group without commits (`offsets.retention.minutes`)
    publishing failed                 after a pause that doubles from a second to a minute
    published, query ended            forgotten; the group stays, with the last position

It sends nothing; `publisher` does.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.spark.progress.reading import QueryProgress

GROUP_PREFIX_DEFAULT: Final = "spark"
QUERIES_MAX: Final = 1_000
"""Far more queries than one driver can run; the oldest is dropped."""
REPEAT_SECONDS: Final = 3_600.0
"""Brokers keep offsets for a week by default, some for a day."""
PAUSE_SECONDS_FIRST: Final = 1.0
PAUSE_SECONDS_MAX: Final = 60.0


class Publication(NamedTuple):
    """The position of one query, for one group."""

    group_id: str
    progress: QueryProgress


@dataclass(slots=True)
class _Query:
    newest: QueryProgress
    group_id: str | None
    """None while the group is unknown: a position in a group of another name would mislead."""
    is_published: bool = False
    is_ended: bool = False
    last_seconds: float | None = None
    """The time of the last publication, successful or not."""
    pause_seconds: float = 0.0
    """The pause after a failure; 0 after a success."""


class Publications:
    """The positions that wait to be published."""

    def __init__(self, publish_seconds: float, group_prefix: str | None = None) -> None:
        """Use this prefix for every query; without it, each source may name its own."""
        self._publish_seconds = publish_seconds
        self._group_prefix = group_prefix
        self._queries: dict[str, _Query] = {}

    def has_waiting(self) -> bool:
        """Return whether a position is not published yet."""
        return any(
            query.group_id is not None and not query.is_published
            for query in self._queries.values()
        )

    def note(self, progress: QueryProgress) -> None:
        """Record the current position of a query."""
        if not progress.sources:
            return
        group_id = group_id_of(progress, self._group_prefix)
        query = self._queries.get(progress.query_id)
        if query is None:
            while len(self._queries) >= QUERIES_MAX:
                del self._queries[next(iter(self._queries))]
            self._queries[progress.query_id] = _Query(progress, group_id)
        else:
            query.newest = progress
            query.group_id = group_id or query.group_id
            query.is_published = query.is_ended = False

    def ended(self, run_id: str) -> None:
        """Record the end of a query; its last position is published without delay."""
        for query_id, query in list(self._queries.items()):
            if query.newest.run_id == run_id:
                query.is_ended = True
                if query.is_published or query.group_id is None:
                    del self._queries[query_id]

    def due(self, now_seconds: float) -> list[Publication]:
        """Return the publications that are due."""
        return [
            Publication(query.group_id, query.newest)
            for query in self._queries.values()
            if query.group_id is not None and self._seconds_left(query, now_seconds) <= 0
        ]

    def seconds_until_due(self, now_seconds: float) -> float | None:
        """Return the time until the next publication is due; None if none is waiting."""
        return min(
            (
                max(0.0, self._seconds_left(query, now_seconds))
                for query in self._queries.values()
                if query.group_id is not None
            ),
            default=None,
        )

    def succeeded(self, publication: Publication, now_seconds: float) -> None:
        """Record a successful publication."""
        query = self._queries.get(publication.progress.query_id)
        if query is None:
            return
        query.last_seconds = now_seconds
        query.pause_seconds = 0.0
        query.is_published = query.newest is publication.progress
        if query.is_published and query.is_ended:
            del self._queries[publication.progress.query_id]

    def failed(self, publication: Publication, now_seconds: float) -> None:
        """Record a failed publication; it, or a newer position, is retried."""
        query = self._queries.get(publication.progress.query_id)
        if query is None:
            return
        query.last_seconds = now_seconds
        query.pause_seconds = min(
            max(2 * query.pause_seconds, PAUSE_SECONDS_FIRST), PAUSE_SECONDS_MAX
        )

    def _seconds_left(self, query: _Query, now_seconds: float) -> float:
        if query.last_seconds is None:
            return 0.0
        if query.pause_seconds:
            wait_seconds = query.pause_seconds
        elif query.is_published:
            wait_seconds = REPEAT_SECONDS
        else:
            wait_seconds = 0.0 if query.is_ended else self._publish_seconds
        return query.last_seconds + wait_seconds - now_seconds


def group_id_of(progress: QueryProgress, group_prefix: str | None = None) -> str | None:
    """Return a query's group: `{prefix}-{name or id}`, or the one in its source's options.

    Return None if a source has to report the group and has not reported it.
    """
    if group_prefix is None:
        if not all(source.reports_group for source in progress.sources):
            return None
        for source in progress.sources:
            if source.group_id:
                return source.group_id
            group_prefix = group_prefix or source.group_prefix
    return f"{group_prefix or GROUP_PREFIX_DEFAULT}-{progress.name or progress.query_id}"
