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
from penstock.broker.server import Listener
from penstock.cluster.broker_configs import describe_broker
from penstock.cluster.image import BrokerImage
from penstock.cluster.service import MetadataService
from penstock.cluster.sqlite_store import SqliteMetadataStore
from penstock.cluster.topic_rules import TopicRules
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import LogDirectoryOfflineError
from penstock.core.metrics import Registry
from penstock.core.settings import Settings
from penstock.node.adapters import ColdReads, GroupTasks, LoopTimer, ProducerIdBlocks
from penstock.node.descriptors import claim_descriptors
from penstock.node.disk import ProduceGate
from penstock.node.identity import establish_identity, known_cluster_id
from penstock.node.log_loading import (
    first_free_producer_id,
    load_logs,
    settle_differences,
    topics_in,
)
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
    is_memory = settings.node.storage == "memory"
    path = MEMORY_PATH if is_memory else settings.node.data_dir
    if filesystem is None:
        filesystem = MemoryDisk() if is_memory else DiskFileSystem()
    clock, metrics = SystemClock(), Registry()
    settings, files_max = _within_descriptors(settings)
    mode = FlushMode(settings.flush.mode)
    logs = LogManager(filesystem, [path], clock, flush_mode=mode, files_open_max=files_max)
    logs.lock()
    stack.callback(logs.unlock)
    tasks = await stack.enter_async_context(asyncio.TaskGroup())

    store = await SqliteMetadataStore.open(
        None if is_memory else f"{path}/{METADATA_FILE}", clock=clock
    )
    stack.push_async_callback(store.close)
    metadata = MetadataService(
        store, rules=TopicRules(partition_count_default=settings.topics.partitions_default)
    )
    is_new = await metadata.start(tasks, cluster_id=known_cluster_id(filesystem, path))
    stack.push_async_callback(metadata.stop)
    directory_id = establish_identity(
        filesystem, path, node_id=settings.node.id, cluster_id=metadata.image.cluster_id
    )

    defaults = topic_defaults(settings.topics)
    await load_logs(logs, metadata.image, defaults)
    if is_new:
        await metadata.adopt_topics(
            topics_in(logs, settings.node.id), next_producer_id=first_free_producer_id(logs)
        )
    settle_differences(logs, metadata.image)
    storage, replicas = _start_storage(settings, logs, clock, metrics, stack)
    topics = Topics(settings.node.id, metadata, storage, replicas, defaults)

    services = BrokerServices(
        settings=settings,
        node_id=settings.node.id,
        clock=clock,
        metadata=metadata,
        topics=topics,
        producer_ids=ProducerIdBlocks(metadata),
        replicas=replicas,
        cold_reader=ColdReads(replicas, storage),
        fetch_sessions=FetchSessionCache(lambda: secrets.randbits(SESSION_ID_BITS)),
        tasks=GroupTasks(tasks),
        api_ranges={int(key): handler.versions for key, handler in HANDLERS.items()},
        accepts_produce=ProduceGate(storage, path),
        topic_defaults=defaults,
        broker_configs=lambda: describe_broker(settings),
    )
    listener = Listener(settings.listener, Dispatcher(services, HANDLERS, metrics), metrics)
    listener.bind()
    stack.callback(listener.close_sockets)
    host = settings.listener.advertised_host or settings.listener.host
    port = settings.listener.advertised_port or listener.port
    await metadata.register_broker(
        BrokerImage(settings.node.id, host, port, None, directory_id, 0), tasks
    )
    await topics.host_all()
    for duty in (storage.run_duties(), topics.host_when_there_is_room()):
        stack.callback(tasks.create_task(duty).cancel)
    await listener.start()
    stack.push_async_callback(listener.stop)
    stack.callback(replicas.stop_waiting)
    return Parts(metadata, metrics, host, port)


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
