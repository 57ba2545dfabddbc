"""The composition root: the only module that knows every concrete class.

The order of starting, which is also the reverse of the order of stopping:

1. the data directory is locked;
2. metadata is loaded and the cluster id compared with the one in the directory;
3. logs are loaded; after a crash, those beyond their recovery point are verified;
4. the broker registers itself, and every partition placed here is served;
5. the listener accepts connections.

Stopping first refuses new connections and finishes what was accepted, then goes the same way back.
"""

import asyncio
import logging
import secrets
from contextlib import AsyncExitStack
from dataclasses import dataclass

from penstock.broker.context import BrokerServices
from penstock.broker.dispatch import Dispatcher
from penstock.broker.fetch_sessions import FetchSessionCache
from penstock.broker.handlers import HANDLERS
from penstock.broker.quotas.quotas import Quotas
from penstock.broker.quotas.rates import Windows
from penstock.broker.server import Listener
from penstock.cluster.broker_configs import describe_broker
from penstock.cluster.image import BrokerImage
from penstock.cluster.service import MetadataService
from penstock.cluster.sqlite_store import SqliteMetadataStore
from penstock.cluster.topic_rules import TopicRules
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import LogDirectoryOfflineError
from penstock.core.metrics import Family, Registry
from penstock.core.settings import Settings
from penstock.node.adapters import (
    ColdReads,
    DataDirectories,
    GroupTasks,
    LoopTimer,
    ProducerIdBlocks,
    RecordDeletions,
)
from penstock.node.coordinators import NodeCoordinators
from penstock.node.descriptors import claim_descriptors
from penstock.node.disk import ProduceGate
from penstock.node.group_administration import Groups
from penstock.node.identity import establish_identity, known_cluster_id
from penstock.node.log_loading import (
    first_free_producer_id,
    load_logs,
    settle_differences,
    topics_in,
)
from penstock.node.producer_expiration import expire_producers
from penstock.node.quota_administration import QuotaChanges
from penstock.node.topic_administration import Topics
from penstock.node.topic_rules import topic_defaults
from penstock.records import scan
from penstock.replication.manager import ReplicaManager
from penstock.storage.filesystem import DiskFileSystem, FileSystem
from penstock.storage.log_manager import LogManager
from penstock.storage.log_settings import FlushMode
from penstock.storage.memory_disk import MemoryDisk
from penstock.storage.partition_log import PartitionLog
from penstock.storage.service import StorageService

logger = logging.getLogger(__name__)

GROUP_LAG = "group_lag_records"
LAG_LABELS = ("group", "topic", "partition")
METADATA_FILE = "metadata.sqlite3"
MEMORY_PATH = "/penstock"
"""Where the logs of a broker without a disk are; a memory disk has no current directory."""
SESSION_ID_BITS = 31


@dataclass(frozen=True, slots=True)
class Parts:
    """What the owner of a running broker may ask."""

    metadata: MetadataService
    metrics: Registry
    advertised_host: str
    advertised_port: int


async def start_parts(
    settings: Settings, stack: AsyncExitStack, *, filesystem: FileSystem | None = None
) -> Parts:
    """Start everything; leaving `stack` stops it. A `filesystem` stands in for the disk."""
    _tell_if_slow()
    path, filesystem = _place(settings, filesystem)
    clock, metrics = SystemClock(), Registry()
    settings, files_max = _within_descriptors(settings)
    mode = FlushMode(settings.flush.mode)
    logs = LogManager(filesystem, [path], clock, flush_mode=mode, files_open_max=files_max)
    logs.lock()
    stack.callback(logs.unlock)
    tasks = await stack.enter_async_context(asyncio.TaskGroup())

    store_path = None if settings.node.storage == "memory" else f"{path}/{METADATA_FILE}"
    store = await SqliteMetadataStore.open(store_path, clock=clock)
    stack.push_async_callback(store.close)
    rules = TopicRules(partition_count_default=settings.topics.partitions_default)
    metadata = MetadataService(store, rules=rules)
    is_new = await metadata.start(tasks, cluster_id=known_cluster_id(filesystem, path))
    stack.push_async_callback(metadata.stop)
    directory_id = establish_identity(
        filesystem, path, node_id=settings.node.id, cluster_id=metadata.image.cluster_id
    )

    defaults = topic_defaults(settings.topics)
    await load_logs(logs, metadata.image, defaults)
    if is_new:
        found = topics_in(logs, settings.node.id)
        await metadata.adopt_topics(found, next_producer_id=first_free_producer_id(logs))
    settle_differences(logs, metadata.image)
    storage, replicas = _start_storage(settings, logs, clock, metrics, stack)
    topics = Topics(settings.node.id, metadata, storage, replicas, defaults)
    producer_ids = ProducerIdBlocks(metadata)
    coordinators = NodeCoordinators(
        settings, metadata, topics, storage, replicas, producer_ids, clock, tasks
    )
    quotas = _quotas(settings, clock, metrics)
    services = BrokerServices(
        settings=settings,
        node_id=settings.node.id,
        clock=clock,
        metadata=metadata,
        topics=topics,
        groups=Groups(metadata, settings.groups),
        quota_administration=QuotaChanges(metadata, quotas),
        producer_ids=producer_ids,
        replicas=replicas,
        cold_reader=ColdReads(replicas, storage),
        record_deletion=RecordDeletions(storage),
        log_directories=DataDirectories(storage),
        coordinators=coordinators,
        fetch_sessions=FetchSessionCache(lambda: secrets.randbits(SESSION_ID_BITS)),
        tasks=GroupTasks(tasks),
        api_ranges={int(key): handler.versions for key, handler in HANDLERS.items()},
        accepts_produce=ProduceGate(storage, path),
        topic_defaults=defaults,
        broker_configs=lambda: describe_broker(settings),
        quotas=quotas,
    )
    metrics.family(GROUP_LAG, Family("Records not read.", LAG_LABELS, coordinators.lag_rows))
    listener, host, port = _bind(services, metrics, stack)
    broker = BrokerImage(settings.node.id, host, port, None, directory_id, 0)
    await metadata.register_broker(broker, tasks)
    await topics.host_all()
    expiration = expire_producers(logs, clock, settings.transactions)
    for duty in (storage.run_duties(), topics.host_when_there_is_room(), expiration):
        stack.push_async_callback(_end, tasks.create_task(duty))
    await listener.start()
    coordinators.start()
    stack.push_async_callback(listener.stop)
    for stop in (replicas.stop_waiting, coordinators.stop):
        stack.callback(stop)
    return Parts(metadata, metrics, host, port)


async def _end(duty: asyncio.Task[None]) -> None:
    """Cancel a duty and wait for its end: what it uses is stopped next."""
    duty.cancel()
    await asyncio.wait([duty])


def _place(settings: Settings, filesystem: FileSystem | None) -> tuple[str, FileSystem]:
    """Where the data is, and on what."""
    if settings.node.storage == "memory":
        return MEMORY_PATH, filesystem or MemoryDisk()
    return settings.node.data_dir, filesystem or DiskFileSystem()


def _quotas(settings: Settings, clock: Clock, metrics: Registry) -> Quotas:
    """What counts the use of quotas; there are none yet."""
    given = settings.quotas
    quotas = Quotas(
        clock,
        Windows(given.window_count, given.window_seconds * 1000),
        Windows(given.controller_window_count, given.controller_window_seconds * 1000),
    )
    quotas.register(metrics)
    return quotas


def _bind(
    services: BrokerServices, metrics: Registry, stack: AsyncExitStack
) -> tuple[Listener, str, int]:
    """A listener that has its port and accepts nobody yet, and the address that clients get."""
    settings = services.settings.listener
    listener = Listener(settings, Dispatcher(services, HANDLERS, metrics), metrics)
    listener.bind()
    stack.callback(listener.close_sockets)
    host = settings.advertised_host or settings.host
    return listener, host, settings.advertised_port or listener.port


def _tell_if_slow() -> None:
    if not scan.COMPILED:
        logger.warning(
            "running without compiled modules: produce is slower. Install a C compiler and "
            "reinstall Penstock, or set PENSTOCK_COMPILE=1 if it was switched off."
        )


def _within_descriptors(settings: Settings) -> tuple[Settings, int]:
    """The settings with as many connections as there may be, and how many files may be open."""
    shares = claim_descriptors(settings.listener.connections_max)
    listener = settings.listener.model_copy(update={"connections_max": shares.connections})
    return settings.model_copy(update={"listener": listener}), shares.files


def _start_storage(
    settings: Settings, logs: LogManager, clock: Clock, metrics: Registry, stack: AsyncExitStack
) -> tuple[StorageService, ReplicaManager]:
    """The log engine and the replicas over it, each telling the other."""
    loop = asyncio.get_running_loop()
    timer = LoopTimer(loop)
    stack.callback(timer.cancel)

    def on_durable(moved: list[PartitionLog]) -> None:
        replicas.on_durable(moved)

    def on_failure(path: str, error: LogDirectoryOfflineError) -> None:
        logger.critical("%s is offline until a restart: %s", path, error)
        replicas.on_failure(logs.logs.values(), error)

    storage = StorageService(
        logs,
        clock,
        on_durable=on_durable,
        on_failure=on_failure,
        flush_interval_ms=settings.flush.interval_ms,
        free_bytes_min=settings.disk.free_bytes_min,
        free_share_min=settings.disk.free_percent_min / 100,
    )
    replicas = ReplicaManager(timer, storage.schedule_flush)
    storage.start(loop)
    stack.push_async_callback(storage.stop)
    metrics.gauge("partitions", "Partitions served here.", lambda: len(replicas))
    metrics.gauge("parked_requests", "Requests that wait.", lambda: len(replicas.waits))
    return storage, replicas
