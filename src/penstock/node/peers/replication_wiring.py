"""Connects replication to the metadata, the storage and the other brokers of a cluster.

A broker alone has none of this: it leads each partition. The order of a start: the broker registers
as `starting`, each replica gets its role and followers copy, then the broker is `running`. A stop
begins with `draining`: the controller moves leaders away, while this broker still answers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.broker.connections.server import Listener, WrapConnection
from penstock.broker.context import BrokerServices
from penstock.cluster.controller import MIN_ISR
from penstock.cluster.image import BrokerState, Endpoint
from penstock.cluster.link.lasting import kept, last
from penstock.cluster.service import MetadataService
from penstock.core.errors import PenstockError
from penstock.core.metrics import Registry
from penstock.core.settings.tree import Settings
from penstock.core.types import CLUSTER_LISTENER, TopicPartition
from penstock.node.peers.crash_watch import CrashWatch
from penstock.node.peers.lost_logs import disown, keep_disowned
from penstock.node.peers.peer_calls import PeerCalls
from penstock.node.peers.peer_connections import PeerConnections
from penstock.node.peers.peer_listener import bind_peers, peer_security
from penstock.node.peers.replication_metrics import register_replication
from penstock.node.security.certificates_in_use import CertificatesInUse
from penstock.replication.ended_tasks import end_tasks
from penstock.replication.fetcher import Identity
from penstock.replication.fetchers import Fetchers
from penstock.replication.followers.batched_cuts import BatchedCuts
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.hosting import Hosting
from penstock.replication.isr_writer import IsrWriter
from penstock.replication.log_cuts import LogCuts
from penstock.replication.manager import ReplicaManager
from penstock.replication.replica_hosting import ReplicaHosting
from penstock.replication.throttles import Throttles
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.service import StorageService

if TYPE_CHECKING:
    from penstock.node.workers.worker_login import WorkerLogins
    from penstock.node.workers.worker_parts import WorkerParts

logger = logging.getLogger(__name__)

CATCH_UP_SECONDS_MAX: Final = 30.0
"""A start waits for its followers this long; then the broker is elected for others."""
DRAIN_SECONDS_MAX: Final = 2.0
"""A stop waits for other leaders this long; all of it has less than five seconds."""


def open_peers(
    settings: Settings,
    metadata: MetadataService,
    stack: AsyncExitStack,
    worker: "WorkerParts | None" = None,
) -> PeerConnections:
    """Return the connections to other brokers; leaving `stack` closes them."""
    if worker is None:
        security = peer_security(settings.cluster)
    else:
        from penstock.node.workers.worker_login import worker_security

        security = worker_security(worker.secret)
    peers = PeerConnections(lambda: metadata.image, settings.node.id, security=security)
    metadata.subscribe(peers.follow)
    stack.push_async_callback(peers.close)
    return peers


class Replication:
    """The replicas of one broker of a cluster."""

    def __init__(
        self,
        settings: Settings,
        metadata: MetadataService,
        storage: StorageService,
        replicas: ReplicaManager,
        hosting: Hosting,
        peers: PeerConnections,
        worker: "WorkerParts | None" = None,
    ) -> None:
        self._settings = settings
        self._worker = worker
        self.peers = peers
        self.calls = PeerCalls(peers, settings.node.id, lambda: metadata.is_isolated)
        self._listener: Listener | None = None
        broker_id = settings.node.id
        self._metadata = metadata
        self._replicas = replicas
        self._cuts = LogCuts(replicas)
        self._throttles = Throttles(broker_id, metadata, replicas.waits)
        self.fetchers = Fetchers(
            peers,
            replicas,
            BatchedCuts(storage),
            self._cuts,
            lambda: Identity(broker_id, metadata.broker_epoch),
            lag_seconds=settings.cluster.replica_lag_seconds_max,
            throttle=self._throttles,
        )
        self._throttles.on_change = self.fetchers.look_again
        self.isr_writer = IsrWriter(
            replicas,
            metadata,
            self._min_isr,
            lag_seconds=settings.cluster.replica_lag_seconds_max,
        )
        self.roles = ReplicaHosting(
            broker_id, metadata, replicas, hosting, self.fetchers, self.isr_writer, self._cuts
        )
        self._crash_watch = CrashWatch(broker_id, metadata, peers)
        self._is_running = asyncio.Event()
        replicas.isr_watch = self.isr_writer
        replicas.throttle = self._throttles
        replicas.is_isolated = lambda: metadata.is_isolated
        replicas.on_logs_failed = self._logs_failed
        storage.on_damage = lambda log, problem: replicas.on_failure([log], problem)
        self._disowning: set[asyncio.Task[None]] = set()

    def _min_isr(self, partition: HostedPartition) -> int:
        topic = self._metadata.image.topic(partition.name.topic)
        own = {} if topic is None else topic.settings
        return int(own.get(MIN_ISR, self._metadata.topic_defaults.get(MIN_ISR, "1")))

    def bind(
        self,
        services: BrokerServices,
        metrics: Registry,
        certificates: CertificatesInUse,
        stack: AsyncExitStack,
        wrap_connection: WrapConnection | None,
    ) -> Endpoint:
        """Bind the listener for other brokers, and return its advertised address."""
        register_replication(
            metrics, self._metadata, services.replicas, self.isr_writer, self._crash_watch
        )
        self._listener, endpoint = bind_peers(
            services,
            self._settings.cluster,
            metrics,
            stack,
            context_source=certificates.context_source(CLUSTER_LISTENER),
            logins=self._logins(),
            wrap_connection=wrap_connection,
        )
        return endpoint

    def _logins(self) -> "WorkerLogins | None":
        """Return the logins of other workers; None for brokers, which have certificates."""
        if self._worker is None:
            return None
        from penstock.node.workers.worker_login import WorkerLogins

        return WorkerLogins(self._worker.secret)

    async def start(
        self,
        tasks: asyncio.TaskGroup,
        stack: AsyncExitStack,
        lost_logs: Sequence[TopicPartition],
    ) -> None:
        """Serve each replica in its role; leaving `stack` ends that. The broker has registered.

        `lost_logs` had durable records and are gone: the broker says that it lacks them, before it
        can be elected.
        """
        await disown(self._metadata, self._settings.node.id, lost_logs)
        self._metadata.subscribe_registration(self.roles.registration_changed)
        stack.callback(self._throttles.start())
        stack.callback(self._throttles.stop)
        await self.roles.start()
        assert self._listener is not None, "`bind` comes first"
        await self._listener.start()
        stack.push_async_callback(self.calls.stop)
        stack.push_async_callback(self._listener.stop)
        stack.push_async_callback(self.roles.stop)
        stack.push_async_callback(self._stop_disowning)
        self._crash_watch.start()
        stack.push_async_callback(self._crash_watch.stop)
        roles = last(tasks, self.roles.run())
        for task in (roles, tasks.create_task(self._become_running())):
            stack.push_async_callback(end_tasks, (task,))

    def _logs_failed(self, names: list[TopicPartition]) -> None:
        """A disk failed, or a log is damaged: other brokers lead, and do not count on this one."""
        self.fetchers.abandon(names)
        logs = {name: self._log_of(name) for name in names}

        def is_lost(name: TopicPartition) -> bool:
            return logs[name] is not None and self._log_of(name) is logs[name]

        work = partial(keep_disowned, self._metadata, self._settings.node.id, names, is_lost)
        task = asyncio.get_running_loop().create_task(kept(work, "disown"), name="disown")
        self._disowning.add(task)
        task.add_done_callback(self._disowning.discard)

    def _log_of(self, name: TopicPartition) -> PartitionLog | None:
        partition = self._replicas.find(name.topic, name.partition)
        return None if partition is None else partition.log

    async def _stop_disowning(self) -> None:
        await end_tasks(self._disowning)

    async def _become_running(self) -> None:
        await self.roles.caught_up(CATCH_UP_SECONDS_MAX)
        while True:
            try:
                await self._metadata.change_state(BrokerState.RUNNING)
                self._is_running.set()
                return
            except PenstockError as error:
                logger.warning("this broker is not announced as running yet: %s", error)
                await asyncio.sleep(1.0)

    async def when_running(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do this work when the broker can be elected, and gets replicas of new topics."""
        await self._is_running.wait()
        await work()

    async def drain(self) -> None:
        """Let other brokers lead the partitions of this one, as far as they can."""
        others = [
            broker
            for broker in self._metadata.image.brokers.values()
            if broker.epoch != self._metadata.broker_epoch and broker.state is BrokerState.RUNNING
        ]
        if not others:
            return
        try:
            await self._metadata.change_state(BrokerState.DRAINING)
        except PenstockError as error:
            logger.warning("other brokers take over only after this one is gone: %s", error)
            return
        await self.roles.drained(DRAIN_SECONDS_MAX)
