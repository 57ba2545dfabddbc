"""The composition root: the only module that knows every concrete class.

The start order, which is also the reverse of the stop order:

1. the data directory is locked (1 to 3 are `node.foundation`);
2. metadata is loaded and the cluster id compared with the one in the directory;
3. logs are loaded; after a crash, those beyond their recovery point are verified;
4. the broker registers itself, and every partition placed here is served;
5. the listener accepts connections;
6. the admin port, which was bound first, is served. It is closed last.

A stop first rejects new connections and finishes accepted requests, then stops in reverse order.
All waits of a stop share one deadline (`core.stopping`).
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from penstock.broker.connections.server import Listener
from penstock.broker.context import BrokerServices
from penstock.broker.dispatch import Dispatcher
from penstock.broker.fetch_sessions import FetchSessionCache
from penstock.broker.handlers import HANDLERS
from penstock.broker.pacing.turns import TurnBudget
from penstock.client.transport.addresses import Address
from penstock.cluster.declaration_memory import DeclarationMemory
from penstock.cluster.image import BrokerImage, Endpoint
from penstock.cluster.link.lasting import last
from penstock.cluster.link.leader_elections import LeaderElections
from penstock.cluster.service import MetadataService
from penstock.core.errors import LogDirectoryOfflineError
from penstock.core.metrics import Registry
from penstock.core.settings.tree import Settings
from penstock.core.stopping import StopDeadline
from penstock.node.adapters import (
    ColdReads,
    DataDirectories,
    GroupTasks,
    HeavyBatches,
    LateStops,
    LoopTimer,
    ProducerIdBlocks,
    RecordDeletions,
)
from penstock.node.admin import AdminPort
from penstock.node.admin_parts import Served
from penstock.node.administration.broker_administration import Brokers
from penstock.node.administration.edge_sessions import EdgeSessions
from penstock.node.administration.group_administration import Groups
from penstock.node.administration.quota_administration import QuotaChanges, open_quotas
from penstock.node.administration.topic_administration import Topics
from penstock.node.coordination.coordinators import NodeCoordinators
from penstock.node.disk import ProduceGate
from penstock.node.duties import StorageDuties, disk_marks
from penstock.node.entrances import (
    endpoint_of,
    entrances_of,
    handshake_limits,
    push_endpoints,
)
from penstock.node.foundation import Foundation, lay_foundation, topic_rules
from penstock.node.garbage import prepare_threads
from penstock.node.metrics.coordinator_metrics import register_coordinators
from penstock.node.metrics.limits_view import LimitsView, show_limits
from penstock.node.metrics.loop_lag import LoopLag
from penstock.node.metrics.process_metrics import register_process
from penstock.node.metrics.storage_metrics import register_storage
from penstock.node.pipes.pipe_door import PipeDoor, hold_unsent
from penstock.node.producer_expiration import ProducerExpiration
from penstock.node.registry.following import follow_registry, report_pipes
from penstock.node.security.node_security import NodeSecurity, open_security
from penstock.node.settings.declared_topics import DeclaredTopics
from penstock.node.settings.live_settings import LiveSettings, follow_log_level
from penstock.node.settings.settings_reload import ReloadOutcomes, SettingsReload, SettingsSource
from penstock.node.shares.lazy_shares import NodeShares
from penstock.node.shares.share_metrics import register_shares
from penstock.node.stand_ins import StandIns
from penstock.replication.hosting import Hosting
from penstock.replication.manager import ReplicaManager
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.service import StorageService

if TYPE_CHECKING:
    from penstock.edge.registry.topology_client import TopologyClient
    from penstock.node.peers.replication_wiring import Replication

logger = logging.getLogger(__name__)
SESSION_ID_BITS = 31


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that the owner of a running broker may use."""

    metadata: MetadataService
    metrics: Registry
    limits: LimitsView
    endpoints: tuple[Endpoint, ...]
    """The advertised address of each listener; the first is that of programs without a choice."""
    listening_ports: Mapping[str, int]
    admin: AdminPort
    live: LiveSettings
    declared: DeclaredTopics
    reload: SettingsReload | None
    """None for a broker whose settings have no source."""
    security: NodeSecurity
    services: BrokerServices
    listener: Listener
    late: LateStops
    edge_sessions: EdgeSessions = field(default_factory=EdgeSessions)


async def start_parts(
    settings: Settings,
    stack: AsyncExitStack,
    stand_ins: StandIns,
    source: SettingsSource | None = None,
) -> Parts:
    """Start all parts; leaving `stack` stops them. With a `source`, settings are reloaded."""
    ground = await lay_foundation(settings, stack, stand_ins)
    settings, metadata, tasks, clock = ground.settings, ground.metadata, ground.tasks, ground.clock
    storage, replicas = _start_storage(ground, stack, deadline := StopDeadline(clock))
    topics = Topics(metadata, hosting := Hosting(settings.node.id, metadata, storage, replicas))
    cluster = _open_cluster(ground, (storage, replicas, hosting), stack)
    brokers, producer_ids = Brokers(metadata, ground.given, topics), ProducerIdBlocks(metadata)
    coordinators = _coordinators(ground, (topics, storage, replicas, producer_ids), cluster)
    groups, quotas = Groups(metadata, settings.groups), open_quotas(settings, clock, ground.metrics)
    security = await _secure(ground, stack)
    services = BrokerServices(
        current=ground.live.current,
        node_id=settings.node.id,
        clock=clock,
        metadata=metadata,
        topics=topics,
        groups=groups,
        brokers=brokers,
        quota_administration=QuotaChanges(metadata, quotas),
        producer_ids=producer_ids,
        replicas=replicas,
        cold_reader=ColdReads(replicas, storage),
        heavy_work=HeavyBatches(storage),
        record_deletion=RecordDeletions(storage),
        log_directories=DataDirectories(storage),
        coordinators=coordinators,
        fetch_sessions=FetchSessionCache(lambda: secrets.randbits(SESSION_ID_BITS)),
        tasks=GroupTasks(tasks),
        turns=TurnBudget(asyncio.get_running_loop().call_soon),
        api_ranges={int(key): handler.versions for key, handler in HANDLERS.items()},
        accepts_produce=ProduceGate(disk := storage.disk_guard(ground.path)),
        quotas=quotas,
        access=security.access,
        acls=security.acls,
        users=security.users,
        audit=security.audit,
        records_all_changes=security.has_identities,
        elections=LeaderElections(metadata) if ground.is_clustered else None,
        shares=(shares := NodeShares(ground, replicas, storage, coordinators)).offered,
    )
    _register(ground, services, (coordinators, shares, cluster), stack)
    listener, endpoints = _bind(services, security, ground.metrics, stack, stand_ins)
    registry = await _join(ground, services, hosting, endpoints, cluster, stack, stand_ins)
    _start_duties(ground, storage, topics, stack)
    _follow_settings(ground, brokers, coordinators.follow, listener.follow, groups.follow)
    declared, reload = await _follow_file(ground, topics, source, cluster, stack)
    await _accept(listener, coordinators, stack)
    for stop in (replicas.stop_waiting, coordinators.stop, shares.stop, ground.admin.stop_serving):
        stack.callback(stop)
    parts = Parts(
        metadata=metadata,
        metrics=ground.metrics,
        limits=show_limits(listener, services, disk, ground.metrics),
        endpoints=endpoints,
        listening_ports={one.name: one.port for one in listener.entrances},
        admin=ground.admin,
        live=ground.live,
        declared=declared,
        reload=reload,
        security=security,
        services=services,
        listener=listener,
        late=_stop_first(stack, deadline, cluster),
    )
    return _with_admin(ground, parts, (hosting, storage, replicas, coordinators), registry)


def _open_cluster(
    ground: Foundation,
    local: tuple[StorageService, ReplicaManager, Hosting],
    stack: AsyncExitStack,
) -> "Replication | None":
    """Return the replication between brokers; None for a broker alone."""
    if not ground.is_clustered:
        return None
    # A broker alone starts without this code.
    from penstock.node.peers.replication_wiring import Replication, open_peers

    settings, metadata, worker = ground.settings, ground.metadata, ground.worker
    peers = open_peers(settings, metadata, stack, worker)
    return Replication(settings, metadata, *local, peers, worker)


def _stop_first(
    stack: AsyncExitStack, deadline: StopDeadline, cluster: "Replication | None"
) -> LateStops:
    """Begin a stop with its deadline, then let others lead; the returned stops follow."""
    stack.push_async_callback((late := LateStops()).run)
    if cluster is not None:
        stack.push_async_callback(cluster.drain)
    stack.callback(deadline.begin)
    return late


def _coordinators(
    ground: Foundation,
    local: tuple[Topics, StorageService, ReplicaManager, ProducerIdBlocks],
    cluster: "Replication | None",
) -> NodeCoordinators:
    """Return the coordinators of this broker, which are not started yet."""
    peers = None if cluster is None else cluster.calls
    return NodeCoordinators(
        ground.settings, ground.metadata, *local, ground.clock, ground.tasks, peers
    )


async def _join(
    ground: Foundation,
    services: BrokerServices,
    hosting: Hosting,
    endpoints: tuple[Endpoint, ...],
    cluster: "Replication | None",
    stack: AsyncExitStack,
    stand_ins: StandIns,
) -> "TopologyClient | None":
    """Register this broker, serve its partitions, and follow the registry of sites."""
    node, metadata, tasks = ground.settings.node, ground.metadata, ground.tasks
    if cluster is not None:
        wrap = stand_ins.wrap_connection
        peer = cluster.bind(services, ground.metrics, ground.certificates, stack, wrap)
        endpoints += (peer, *push_endpoints(ground.settings, endpoints[0]))
    broker = BrokerImage(node.id, endpoints, node.rack, ground.directory_id, 0)
    await metadata.register_broker(broker, tasks)
    ground.logs.withholds_clean_marker = False
    if cluster is None:
        await hosting.host_all()
    else:
        await cluster.start(tasks, stack, ground.lost_logs)
    return await follow_registry(ground, endpoints, stack)


async def _secure(ground: Foundation, stack: AsyncExitStack) -> NodeSecurity:
    """Return identity and access of this broker; leaving `stack` stops their duties."""
    return await open_security(
        ground.settings,
        ground.metadata,
        ground.store,
        ground.certificates,
        ground.clock,
        ground.metrics,
        ground.tasks,
        stack,
    )


async def _accept(
    listener: Listener, coordinators: NodeCoordinators, stack: AsyncExitStack
) -> None:
    """Accept clients; leaving `stack` finishes their requests."""
    await listener.start()
    coordinators.start()
    stack.push_async_callback(listener.stop)


def _follow_settings(
    ground: Foundation, brokers: Brokers, *followers: Callable[[Settings], None]
) -> None:
    """Pass changed settings on to the parts, and to the cluster last."""
    ground.live.add_followers(*followers)
    ground.live.end_with(lambda _: brokers.follow())


def _with_admin(
    ground: Foundation,
    parts: Parts,
    local: tuple[Hosting, StorageService, ReplicaManager, NodeCoordinators],
    registry: "TopologyClient | None",
) -> Parts:
    """Run pipes and serve the admin port now, because the broker answers; return the parts."""
    pipes = PipeDoor(ground, local, topic_rules, parts.late.add)
    report_pipes(registry, pipes)
    _, storage, replicas, coordinators = local
    parts.admin.serve(
        Served(
            live=parts.live,
            metadata=parts.metadata,
            storage=storage,
            replicas=replicas,
            coordinators=coordinators,
            listener=parts.listener,
            limits=parts.limits,
            advertised=Address(parts.endpoints[0].host, parts.endpoints[0].port),
            declared=parts.declared,
            reload=parts.reload,
            security=parts.security,
            pipes=pipes,
            edge_sessions=parts.edge_sessions,
            shares=parts.services.shares,
        )
    )
    return parts


def _start_duties(
    ground: Foundation, storage: StorageService, topics: Topics, stack: AsyncExitStack
) -> None:
    """Start the periodic duties, at the intervals of the settings in force."""
    hold_unsent(ground.settings, storage)
    duties = StorageDuties(storage, ground.settings)
    expiration = ProducerExpiration(ground.logs, ground.clock, ground.settings.transactions)
    for duty in (duties.run(), topics.host_when_there_is_room(), expiration.run()):
        stack.push_async_callback(_end, last(ground.tasks, duty))
    ground.live.add_followers(
        follow_log_level,
        duties.follow,
        expiration.follow,
        lambda now: ground.metadata.follow_rules(topic_rules(now)),
    )


async def _follow_file(
    ground: Foundation,
    topics: Topics,
    source: SettingsSource | None,
    cluster: "Replication | None",
    stack: AsyncExitStack,
) -> tuple[DeclaredTopics, SettingsReload | None]:
    """Create declared topics, and watch the file if there is one.

    A broker alone creates them now, one of a cluster when it can have replicas of them.
    """
    memory = DeclarationMemory(ground.store, metadata=ground.metadata)
    declared = DeclaredTopics(ground.metadata, topics, memory)
    ground.metrics.gauge(
        "declared_topic_problems",
        "Topics that are not as the settings file declares them.",
        lambda: len(declared.problems),
    )
    reconcile = partial(declared.reconcile, source.first.topics if source else ())
    if cluster is None:
        await reconcile()
    else:
        work = ground.tasks.create_task(cluster.when_running(reconcile))
        stack.push_async_callback(_end, work)
    outcomes = ReloadOutcomes(ground.clock, ground.metrics)
    if source is None:
        return declared, None
    reload = SettingsReload(
        source,
        ground.live,
        declared,
        outcomes,
        lambda settings: ground.given.check(settings, ground.metadata.image),
    )
    stack.push_async_callback(_end, last(ground.tasks, reload.run()))
    return declared, reload


async def _end(duty: asyncio.Task[None]) -> None:
    """Cancel a duty and wait for its end: the parts it uses are stopped next."""
    duty.cancel()
    await asyncio.wait([duty])


def _bind(
    services: BrokerServices,
    security: NodeSecurity,
    metrics: Registry,
    stack: AsyncExitStack,
    stand_ins: StandIns,
) -> tuple[Listener, tuple[Endpoint, ...]]:
    """Return bound listeners that accept no client yet, and their advertised addresses."""
    settings = services.settings
    dispatcher = Dispatcher(services, HANDLERS, metrics)
    listener = Listener(
        settings.listener,
        entrances_of(settings, security, stand_ins.worker),
        dispatcher,
        metrics,
        stand_ins.wrap_connection,
        handshake_limits(settings.tls),
    )
    listener.bind()
    stack.callback(listener.close_sockets)
    pairs = zip(settings.all_listeners, listener.entrances, strict=True)
    return listener, tuple(endpoint_of(declared, entrance) for declared, entrance in pairs)


def _register(
    ground: Foundation,
    services: BrokerServices,
    parts: "tuple[NodeCoordinators, NodeShares, Replication | None]",
    stack: AsyncExitStack,
) -> None:
    """Register metrics that belong to no part; storage, listener and dispatch register theirs."""
    metrics, clock = ground.metrics, ground.clock
    coordinators, shares, cluster = parts
    shares.serve(services, None if cluster is None else cluster.peers)
    register_coordinators(metrics, coordinators, services.replicas)
    register_shares(metrics, shares)
    register_process(metrics, clock)
    lag = LoopLag(asyncio.get_running_loop(), metrics)
    lag.start()
    stack.callback(lag.stop)


def _start_storage(
    ground: Foundation, stack: AsyncExitStack, deadline: StopDeadline
) -> tuple[StorageService, ReplicaManager]:
    """Create the log engine and the replicas over it, and connect their callbacks."""
    prepare_threads()
    logs = ground.logs
    loop = asyncio.get_running_loop()
    timer = LoopTimer(loop)

    def on_durable(moved: list[PartitionLog]) -> None:
        replicas.on_durable(moved)

    def on_failure(path: str, error: LogDirectoryOfflineError) -> None:
        logger.critical("%s is offline until a restart: %s", path, error)
        replicas.on_failure(logs.logs.values(), error)

    storage = StorageService(
        logs,
        ground.clock,
        on_durable=on_durable,
        on_failure=on_failure,
        **disk_marks(ground.settings.disk),
    )
    replicas = ReplicaManager(timer, storage.schedule_flush, loop.call_soon)
    stack.callback(replicas.stop)
    storage.start(loop)
    stack.push_async_callback(storage.stop, deadline)
    register_storage(ground.metrics, storage, replicas)
    return storage, replicas
