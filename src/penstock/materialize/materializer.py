"""Composition of `penstock materialize`: store, follower, queries and server in one process.

The event loop serves HTTP, one thread follows the topics, four threads answer queries. If the
follower fails, the process ends with its error; a supervisor restarts it, and it continues at the
positions of the file.
"""

import asyncio
import signal
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.client.cluster import Cluster
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import PenstockError
from penstock.materialize.bounded_queries import BoundedQueries, QueryBounds
from penstock.materialize.file_export import delete_leftovers
from penstock.materialize.index_columns import IndexColumn
from penstock.materialize.progress_board import ProgressBoard
from penstock.materialize.rest_app import RestApp, Service
from penstock.materialize.rest_server import RestServer
from penstock.materialize.row_store import RowStore
from penstock.materialize.snapshot_loading import OpenedSnapshot
from penstock.materialize.store_health import TopicFacts
from penstock.materialize.topic_decisions import STOP
from penstock.materialize.topic_follower import TopicFollower
from penstock.materialize.topic_watch import TopicWatch


@dataclass(frozen=True, slots=True)
class MaterializeOptions:
    """Options of one process."""

    path: Path
    """The SQLite file."""
    columns: Mapping[str, Sequence[IndexColumn]]
    """The topics, with their generated columns."""
    on_recreate: str = STOP
    wants_refresh: bool = False
    snapshots: Mapping[str, OpenedSnapshot] = field(default_factory=dict)
    """By topic: they replace its rows at the start."""
    allowed_names: frozenset[str] = frozenset()
    token: bytes | None = None
    bounds: QueryBounds = field(default_factory=QueryBounds)


class Materializer:
    """One store and its follower."""

    def __init__(
        self, options: MaterializeOptions, cluster: Cluster, clock: Clock | None = None
    ) -> None:
        """Open the file; raise `StoreFileError` if it cannot be used."""
        self._options = options
        self._clock = clock or SystemClock()
        self.store = RowStore.open(options.path)
        try:
            delete_leftovers(options.path.parent)
            stored = self.store.topics()
            for topic, columns in options.columns.items():
                if topic in stored:
                    self.store.set_columns(topic, columns)
            self.board = ProgressBoard(dict.fromkeys(options.columns, TopicFacts()), self._clock)
            watch = TopicWatch(
                cluster,
                self.store,
                options.columns,
                on_recreate=options.on_recreate,
                wants_refresh=options.wants_refresh,
                snapshots=options.snapshots,
            )
            self.follower = TopicFollower(
                cluster,
                self.store,
                watch,
                self.board,
                list(options.columns),
                on_recreate=options.on_recreate,
                clock=self._clock,
            )
        except BaseException:
            self.store.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self.store.close()

    def load(self) -> None:
        """Load the topics up to their present ends."""
        self.follower.run(is_once=True)

    async def serve(
        self,
        bound: socket.socket,
        context: ssl.SSLContext | None = None,
        *,
        ready: Callable[[], None] = lambda: None,
        stop: asyncio.Event | None = None,
    ) -> None:
        """Follow the topics and serve requests until `stop`, or until a signal without it."""
        stopping = stop or _stop_by_signal()
        self.board.attach()
        queries = BoundedQueries(self._options.path, self._clock)
        app = RestApp(
            Service(
                self._options.path,
                self.board,
                queries,
                {topic: tuple(columns) for topic, columns in self._options.columns.items()},
                self._options.allowed_names,
                self._options.token,
                self._options.bounds,
            )
        )
        server = RestServer(app, context)
        try:
            async with asyncio.TaskGroup() as group:
                following = group.create_task(self._follow(stopping))
                group.create_task(server.run(bound, stopping))
                ready()
                await stopping.wait()
                self.follower.stop()
        finally:
            self.follower.stop()
            app.close()
            queries.close()
        failure = following.result()
        if failure is not None:
            raise failure

    async def _follow(self, stopping: asyncio.Event) -> PenstockError | None:
        """Run the follower in a thread; return its error, after the server was asked to stop."""
        try:
            await asyncio.to_thread(self.follower.run)
        except PenstockError as error:
            return error
        finally:
            stopping.set()
        return None


def _stop_by_signal() -> asyncio.Event:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    return stopping
