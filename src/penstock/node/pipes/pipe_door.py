"""`PipeDoor`: opens the pipes of a broker when they are needed.

A broker without pipes has this object and nothing else: no import, no task, no timer. The first
declared pipe, or the first request of an operator about pipes, imports the rest.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from penstock.cluster.service import MetadataService
from penstock.cluster.topic_rules import TopicRules
from penstock.core.clock import Clock
from penstock.core.errors import ConfigError
from penstock.core.metrics import Registry, Table, TableRow
from penstock.core.settings.tree import Settings
from penstock.node.coordination.coordinators import NodeCoordinators
from penstock.node.settings.live_settings import LiveSettings
from penstock.replication.hosting import Hosting
from penstock.replication.manager import ReplicaManager
from penstock.storage.service import StorageService

if TYPE_CHECKING:
    from penstock.node.pipes.pipe_book import PipeBook

Local = tuple[Hosting, StorageService, ReplicaManager, NodeCoordinators]

ALONE: Final = (
    "pipes need a broker that is alone: a cluster and `penstock serve --workers` have none. Run "
    "the pipe on a broker without [cluster]."
)


_HEALTH: Final = ("HEALTHY", "DEGRADED", "UNHEALTHY")
_COLUMNS: Final = (
    ("pipe_health", "Health of a pipe: 0 healthy, 1 degraded, 2 unhealthy."),
    ("pipe_lag_records", "Records of the parent that are not copied yet."),
    ("pipe_copied_records_total", "Records that a pipe has copied."),
    ("pipe_copied_bytes_total", "Bytes that a pipe has copied."),
    ("pipe_gap_records_total", "Offsets that the parent deleted before they were copied."),
    ("pipe_cut_records_total", "Offsets that were removed, because the parent has them not."),
    ("pipe_waiting_bytes", "Bytes that were not sent up yet, about."),
    ("pipe_silent_seconds", "Time since the last answer of the parent."),
)


def hold_unsent(settings: Settings, storage: StorageService) -> None:
    """Let retention keep all records of a broker with pipes up, until `PipeDoor` runs them."""
    if any(one.direction == "up" for one in settings.pipes):
        for flusher in storage.manager.flushers:
            flusher.directory.held_from = lambda _: 0


class Ground(Protocol):
    """The opened parts of a broker; `node.foundation.Foundation` has them."""

    @property
    def path(self) -> str:
        """The data directory."""
        ...

    @property
    def live(self) -> LiveSettings:
        """The settings in force."""
        ...

    @property
    def metrics(self) -> Registry:
        """The metrics."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock."""
        ...

    @property
    def tasks(self) -> asyncio.TaskGroup:
        """The tasks of the broker."""
        ...

    @property
    def metadata(self) -> MetadataService:
        """The metadata."""
        ...

    @property
    def settings(self) -> Settings:
        """The settings of the start."""
        ...

    @property
    def is_clustered(self) -> bool:
        """Whether other brokers may share the metadata."""
        ...


class PipeDoor:
    """The pipes of one broker, if it has some."""

    def __init__(
        self,
        ground: Ground,
        local: Local,
        rules: Callable[[Settings], TopicRules],
        on_stop: Callable[[Callable[[], Coroutine[object, object, None]]], None],
    ) -> None:
        """Run the declared pipes; `on_stop` gets the function that ends all pipes."""
        self._ground = ground
        self._rules = rules
        self._local = local
        self._book: PipeBook | None = None
        if ground.is_clustered and ground.settings.pipes:
            raise ConfigError(ALONE)
        ground.live.add_followers(self.follow)
        ground.metrics.table(Table(_COLUMNS, ("pipe",), self._rows))
        on_stop(self._stop)
        if any(one.direction == "up" for one in ground.settings.pipes):
            self.open()
        self.follow(ground.live.current.settings)

    def follow(self, settings: Settings) -> None:
        """Run the declared pipes."""
        if self._book is not None or (settings.pipes and not self._ground.is_clustered):
            self.open().follow(settings.pipes)

    @property
    def book(self) -> "PipeBook | None":
        """The pipes, if some were needed."""
        return self._book

    def open(self) -> "PipeBook":
        """Return the pipes; raise `ConfigError` on a broker of a cluster."""
        if self._ground.is_clustered:
            raise ConfigError(ALONE)
        if self._book is None:
            from secrets import randbelow

            from penstock.node.pipes.mirror_logs import MirrorLogs
            from penstock.node.pipes.mirror_topics import MirrorTopics
            from penstock.node.pipes.pipe_book import PipeBook
            from penstock.node.pipes.site_logs import SiteLogs

            ground = self._ground
            hosting, storage, replicas, coordinators = self._local
            topics = MirrorTopics(
                ground.metadata,
                hosting,
                replicas,
                lambda: self._rules(ground.live.current.settings),
                ground.clock,
                randbelow,
            )
            logs = MirrorLogs(
                topics,
                replicas,
                storage,
                coordinators,
                storage.disk_guard(ground.path),
                ground.metadata.topic_defaults,
            )
            settings = ground.settings
            is_memory = settings.node.storage == "memory"
            self._book = PipeBook(
                topics,
                logs,
                SiteLogs(ground.metadata, replicas, storage, logs),
                ground.clock,
                ground.tasks,
                site=settings.registry.node_id or f"node-{settings.node.id}",
                broker=ground.metadata.image.cluster_id,
                note_directory=None if is_memory else ground.path,
            )
        return self._book

    @property
    def problems(self) -> tuple[str, ...]:
        """The reasons of unhealthy pipes."""
        if self._book is None:
            return ()
        return tuple(
            f"pipe {one.options.name}: {one.health.reason}"
            for one in self._book.statuses()
            if one.health.state.value == "UNHEALTHY"
        )

    def _rows(self) -> Iterator[TableRow]:
        for one in () if self._book is None else self._book.statuses():
            yield TableRow(
                (one.options.name,),
                (
                    _HEALTH.index(one.health.state.value),
                    one.lag_records,
                    one.records,
                    one.size_bytes,
                    one.gap_records,
                    one.cut_records,
                    one.waiting_bytes,
                    one.silent_seconds,
                ),
            )

    async def _stop(self) -> None:
        if self._book is not None:
            await self._book.stop()
