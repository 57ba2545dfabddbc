"""Implements `admin.ports.BrokerView`: the state of this node.

All values are read from memory: a probe arrives every second and must not wait for a disk. The last
disk measurement is at most a second old.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal

from penstock.admin.health import DirectoryFacts, Facts
from penstock.admin.ports import Identity, WorkerFacts
from penstock.client.transport.addresses import Address
from penstock.core.clock import Clock
from penstock.core.metrics import Registry
from penstock.core.settings.tree import Settings
from penstock.core.version import penstock_version
from penstock.node.admin_parts import Served
from penstock.node.metrics.storage_metrics import count_offline_partitions
from penstock.storage.disk.disk_guard import DiskState
from penstock.storage.flusher import Flusher
from penstock.storage.service import StorageService

if TYPE_CHECKING:
    from penstock.node.workers.worker_parts import WorkerState

_ROOM: Final[dict[DiskState, Literal["enough", "low", "none"]]] = {
    DiskState.OPEN: "enough",
    DiskState.LOW: "low",
    DiskState.FULL: "none",
}


class NodeView:
    """`admin.ports.BrokerView` on this node."""

    def __init__(
        self,
        settings: Settings,
        metrics: Registry,
        clock: Clock,
        started: tuple[int, float],
        served: Callable[[], Served | None],
        is_stopping: Callable[[], bool],
        workers: "Callable[[], Sequence[WorkerState]] | None" = None,
    ) -> None:
        """`started` is the start time, in milliseconds since 1970 and on the monotonic clock."""
        self._workers = workers
        self._settings = settings
        self.metrics: Final = metrics
        self._clock = clock
        self._started = started
        self._served = served
        self._is_stopping = is_stopping
        self._version = penstock_version()

    @property
    def identity(self) -> Identity:
        """The broker's identity, as far as it is known."""
        served, listener = self._served(), self._settings.all_listeners[0]
        host = listener.advertised_host or listener.host
        address = Address(host, listener.port) if served is None else served.advertised
        return Identity(
            node_id=self._settings.node.id,
            cluster_id="" if served is None else served.metadata.image.cluster_id,
            version=self._version,
            host=address.host,
            port=address.port,
            started_at_ms=self._started[0],
        )

    def workers(self) -> tuple[WorkerFacts, ...]:
        """All workers of the supervisor; none for a broker without one."""
        if self._workers is None:
            return ()
        return tuple(
            WorkerFacts(
                worker=one.worker,
                node_id=one.node_id,
                condition=one.condition,
                pid=one.pid,
                restarts=one.restarts,
                address=one.address,
                admin=one.admin,
            )
            for one in self._workers()
        )

    def uptime_seconds(self) -> float:
        """Seconds since the process began to start the broker."""
        return self._clock.monotonic() - self._started[1]

    def facts(self) -> Facts:
        """Return the present state of the broker."""
        served, is_stopping = self._served(), self._is_stopping()
        if served is None:
            return Facts(is_started=False, is_stopping=is_stopping, directories=(), limits=())
        loading, failed = served.coordinators.unavailable()
        manager = served.storage.manager
        return Facts(
            is_started=True,
            is_stopping=is_stopping,
            directories=tuple(_directory(served.storage, one) for one in manager.flushers),
            limits=tuple(served.limits.rows()),
            offline_partitions=count_offline_partitions(served.storage, served.replicas),
            coordinators_loading=loading,
            coordinators_failed=failed,
            declared_topic_problems=len(served.declared.problems),
            settings_refusal=None if served.reload is None else served.reload.refusal,
            security_problems=served.security.problems,
            metadata_problems=served.metadata.problems,
            pipe_problems=served.pipes.problems,
            dead_letter_problems=() if served.shares is None else served.shares.problems,
        )


def _directory(storage: StorageService, flusher: Flusher) -> DirectoryFacts:
    directory = flusher.directory
    return DirectoryFacts(
        path=directory.path,
        room=_ROOM[storage.disk_guard(directory.path).state],
        failure=None if directory.failure is None else str(directory.failure),
        flush_seconds=flusher.under_way_seconds(),
    )
