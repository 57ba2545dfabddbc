"""Publishes the positions of queries as committed offsets of consumer groups, to show their lag.

A separate thread commits: a query never waits for a broker. An unreachable broker, or a rejected
commit, is reported once and retried with growing pauses; the recovery is reported too. Meanwhile
only the newest position of each query waits.

The committed offsets are for people and monitoring. A query does NOT start from them; its position
is in its checkpoint.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.spark.progress.publications import Publication, Publications
from penstock.spark.progress.reading import QueryProgress, positions_of

CLOSE_SECONDS_MAX: Final = 5.0
"""How long the end of a program may wait for the publication of the last positions."""


class Committer(Protocol):
    """The operations on a cluster that a publisher needs; one thread uses it."""

    def cluster_id(self) -> str | None:
        """Return the id of the cluster; None if it has none."""
        ...

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets without being a member of the group."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class Publisher:
    """A thread that commits; it starts with the first position and ends with `close`."""

    def __init__(
        self,
        publications: Publications,
        open_committer: Callable[[], Committer],
        report: Callable[[str], None],
        clock: Clock | None = None,
    ) -> None:
        """Create the publisher; its thread calls `open_committer`, and again after a failure."""
        self._publications = publications
        self._open_committer = open_committer
        self._report = report
        self._clock: Clock = clock or SystemClock()
        self._committer: Committer | None = None
        self._has_failed = False
        self._reported_strangers: set[str] = set()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()

    def note(self, progress: QueryProgress) -> None:
        """Record the current position of a query; return immediately."""
        with self._changed:
            self._publications.note(progress)
            if self._thread is None and self._publications.has_waiting() and not self._is_closed:
                self._thread = threading.Thread(
                    target=self._run, name="penstock-progress", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def ended(self, run_id: str) -> None:
        """Record the end of a query; return immediately."""
        with self._changed:
            self._publications.ended(run_id)
            self._changed.notify_all()

    def flush(self, timeout_seconds: float = CLOSE_SECONDS_MAX) -> bool:
        """Wait until all positions are published; return False after the timeout."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._publications.has_waiting() or self._is_closed, timeout_seconds
            )

    def close(self, timeout_seconds: float = CLOSE_SECONDS_MAX) -> None:
        """Publish waiting positions within the timeout, and end the thread; may be repeated."""
        self.flush(timeout_seconds)
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            # A commit may be in flight; the thread is a daemon, so it blocks nothing.
            thread.join(timeout_seconds)

    def publish_due(self) -> None:
        """Commit all positions that are due."""
        with self._changed:
            due = self._publications.due(self._clock.monotonic())
        for publication in due:
            is_published = self._publish(publication)
            with self._changed:
                now_seconds = self._clock.monotonic()
                if is_published:
                    self._publications.succeeded(publication, now_seconds)
                else:
                    self._publications.failed(publication, now_seconds)
                self._changed.notify_all()

    def _run(self) -> None:
        try:
            while self._wait_until_due():
                self.publish_due()
        finally:
            self._drop_committer()

    def _wait_until_due(self) -> bool:
        """Wait for work; return False at the end of all work."""
        with self._changed:
            while not self._is_closed:
                seconds = self._publications.seconds_until_due(self._clock.monotonic())
                if seconds == 0:
                    return True
                self._changed.wait(seconds)
            return False

    def _publish(self, publication: Publication) -> bool:
        try:
            if self._committer is None:
                self._committer = self._open_committer()
            cluster_id = self._committer.cluster_id()
            self._report_strangers(publication, cluster_id)
            offsets = positions_of(publication.progress, cluster_id)
            if offsets:
                self._committer.commit(publication.group_id, offsets)
        except PenstockError as error:
            self._drop_committer()
            if not self._has_failed:
                self._has_failed = True
                self._report(
                    f"penstock: the progress of group {publication.group_id} could not be "
                    f"published: {error} The query goes on; publishing is tried again."
                )
            return False
        if self._has_failed:
            self._has_failed = False
            self._report("penstock: progress is published again.")
        return True

    def _report_strangers(self, publication: Publication, cluster_id: str | None) -> None:
        """Report sources of another cluster than the publisher's, once each."""
        for source in publication.progress.sources:
            stranger = source.cluster_id
            if stranger in {None, cluster_id} or cluster_id is None:
                continue
            if stranger not in self._reported_strangers:
                self._reported_strangers.add(stranger or "")
                self._report(
                    f"penstock: {publication.group_id} reads from cluster {stranger}, and progress "
                    f"is published to cluster {cluster_id}: its lag is not published. Give the "
                    "listener the bootstrap servers that the query reads from."
                )

    def _drop_committer(self) -> None:
        if self._committer is not None:
            self._committer.close()
            self._committer = None
