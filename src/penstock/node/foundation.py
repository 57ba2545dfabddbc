"""Opens the data directory, its metadata and its logs, which every part of a broker needs.

The order is that of the composition root. The directory is locked. Metadata is loaded, and its
cluster id is compared with the directory's. Logs are loaded; after a crash, logs beyond their
recovery point are verified. Differences between metadata and logs are settled. The metadata of a
broker alone is in its directory, that of a cluster in etcd (`node.security.cluster_store`).

Guarantees: when it returns, logs and metadata agree, and no other process uses the directory. It
serves no clients: `node.wiring` does.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cluster.features.levels import Ranges, unsupported_level
from penstock.cluster.keys import DEFAULT_ROOT, Keys
from penstock.cluster.link.change_values import ClusterRules
from penstock.cluster.service import MetadataService
from penstock.cluster.stores.port import MetadataStore
from penstock.cluster.stores.sqlite_store import SqliteMetadataStore
from penstock.cluster.topic_rules import TopicRules
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import ConfigError
from penstock.core.metrics import Registry
from penstock.core.settings.tree import Settings
from penstock.core.types import TopicPartition
from penstock.node.admin import AdminPort
from penstock.node.descriptors import claim_descriptors, connections_within
from penstock.node.given_layers import GivenLayers
from penstock.node.identity import (
    ETCD,
    METADATA_FILE,
    SUPERVISOR,
    check_alone,
    check_founded,
    check_joining,
    establish_identity,
    known_cluster_id,
)
from penstock.node.log_loading import (
    first_free_producer_id,
    load_logs,
    settle_differences,
    topics_in,
)
from penstock.node.security.certificates_in_use import CertificatesInUse, load_certificates
from penstock.node.settings.live_settings import LiveSettings
from penstock.node.stand_ins import StandIns
from penstock.storage.disk.data_directory import CLEAN_FILE
from penstock.storage.disk.filesystem import DiskFileSystem, FileSystem
from penstock.storage.disk.memory_disk import MemoryDisk
from penstock.storage.log.log_settings import FlushMode
from penstock.storage.log_manager import LogManager

if TYPE_CHECKING:
    from penstock.node.workers.worker_parts import WorkerParts

MEMORY_PATH = "/penstock"
"""Path of the logs of a broker without a disk; a memory disk has no current directory."""


@dataclass(frozen=True, slots=True)
class Foundation:
    """The opened parts."""

    path: str
    live: LiveSettings
    given: GivenLayers
    clock: Clock
    metrics: Registry
    tasks: asyncio.TaskGroup
    logs: LogManager
    store: MetadataStore
    metadata: MetadataService
    directory_id: str
    admin: AdminPort
    certificates: CertificatesInUse
    worker: "WorkerParts | None" = None
    """The parts of the supervisor; None for a broker that has none."""
    lost_logs: tuple[TopicPartition, ...] = ()
    """Partitions that had durable records, and whose logs are gone or damaged."""

    @property
    def is_clustered(self) -> bool:
        """Whether other brokers may share the metadata."""
        return self.metadata.is_clustered

    @property
    def settings(self) -> Settings:
        """The settings of the start; `live` has the current ones."""
        return self.live.current.settings


async def lay_foundation(given: Settings, stack: AsyncExitStack, stand_ins: StandIns) -> Foundation:
    """Open everything; leaving `stack` closes it."""
    path, filesystem = _place(given, stand_ins.filesystem)
    clock, metrics = stand_ins.clock or SystemClock(), Registry()
    live, files_max = _within_descriptors(given)
    settings = live.current.settings
    mode = FlushMode(settings.flush.mode)
    logs = LogManager(filesystem, [path], clock, flush_mode=mode, files_open_max=files_max)
    _lock(logs, path)
    stack.callback(logs.unlock)
    tasks = await stack.enter_async_context(asyncio.TaskGroup())
    certificates = await load_certificates(settings, clock, metrics)
    worker = stand_ins.worker
    states = None if worker is None else worker.states
    admin = AdminPort.open(settings, metrics, clock, certificates, tasks, stack, states)

    is_clustered = settings.cluster.is_set or stand_ins.metadata_store is not None
    known_id = known_cluster_id(filesystem, path)
    store_mark = ETCD if worker is None else SUPERVISOR
    if is_clustered:
        check_joining(filesystem, path, METADATA_FILE, store_mark)
    else:
        check_alone(filesystem, path)
    store = stand_ins.metadata_store
    if store is None:
        store = await _open_store(settings, path, stand_ins, clock, stack)
    layers = GivenLayers(settings.node.id, live.current)
    features = stand_ins.features if is_clustered else None
    metadata = _metadata(settings, store, layers, clock, features)
    if is_clustered:
        await _find_cluster(filesystem, path, store, metadata.root, known_id)
    is_new = await metadata.start(tasks, cluster_id=known_id)
    stack.push_async_callback(metadata.stop)
    _check_levels(metadata, stand_ins.features)
    directory_id = establish_identity(
        filesystem,
        path,
        node_id=settings.node.id,
        cluster_id=metadata.image.cluster_id,
        is_clustered=is_clustered,
        store_mark=store_mark,
    )

    is_clean = CLEAN_FILE in filesystem.list_directory(path)
    # After an unclean stop in the other modes, reported records may not have reached the disk.
    metadata.may_have_lost = not is_clean and mode is not FlushMode.ALWAYS
    # Until the cluster knows it: a start that fails before must not pass for a clean stop.
    logs.withholds_clean_marker = is_clustered and metadata.may_have_lost
    await load_logs(logs, metadata.image, metadata.topic_defaults)
    if is_new and not is_clustered:
        found = topics_in(logs, settings.node.id)
        await metadata.adopt_topics(found, next_producer_id=first_free_producer_id(logs))
    lost_logs = (*logs.lost_logs(), *logs.damaged_logs())
    settle_differences(logs, metadata.image, node_id=settings.node.id if is_clustered else None)
    return Foundation(
        path,
        live,
        layers,
        clock,
        metrics,
        tasks,
        logs,
        store,
        metadata,
        directory_id,
        admin,
        certificates,
        worker,
        lost_logs,
    )


async def _find_cluster(
    filesystem: FileSystem, path: str, store: MetadataStore, root: str, known_id: str | None
) -> None:
    """Settle an interrupted import or export; raise an error if the known cluster is not there."""
    # A broker alone starts without this code.
    from penstock.node.transfer.settling import settle_at_start

    await settle_at_start(filesystem, path, store, root)
    if not (await store.read(Keys(root).cluster_id())).values:
        check_founded(path, known_id, root)


def _check_levels(metadata: MetadataService, ranges: Ranges) -> None:
    """Raise an error if the cluster uses features at levels that this version does not have."""
    problem = unsupported_level(metadata.image.features.levels, ranges)
    if problem is not None:
        raise ConfigError(f"{problem}.")


def _metadata(
    settings: Settings,
    store: MetadataStore,
    layers: GivenLayers,
    clock: Clock,
    features: Ranges | None,
) -> MetadataService:
    """Return the metadata of a broker that is alone, or one of a cluster with these features."""
    given = settings.cluster
    rules = None
    if features is not None:
        rebalance = given.leader_rebalance_seconds if given.leader_rebalance else None
        rules = ClusterRules(
            given.session_seconds, rebalance, features, given.internal_replication_factor
        )
    return MetadataService(
        store,
        rules=topic_rules(settings),
        defaults=layers.topic_defaults_in,
        root=DEFAULT_ROOT if features is None else given.root,
        clock=clock,
        cluster=rules,
    )


async def _open_store(
    settings: Settings, path: str, stand_ins: StandIns, clock: Clock, stack: AsyncExitStack
) -> MetadataStore:
    """Open the metadata store of the settings; leaving `stack` closes it."""
    if settings.cluster.is_set:
        # Only a broker of a cluster imports it: gRPC costs 20 MB.
        from penstock.node.security.cluster_store import open_cluster_store

        return await open_cluster_store(settings, clock, stack)
    is_memory = settings.node.storage == "memory"
    store_path = stand_ins.metadata_path if is_memory else f"{path}/{METADATA_FILE}"
    store = await SqliteMetadataStore.open(store_path, clock=clock)
    stack.push_async_callback(store.close)
    return store


def _lock(logs: LogManager, path: str) -> None:
    """Create and lock the data directory."""
    try:
        logs.lock()
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise ConfigError(
            f"the data directory {path} cannot be used: {reason}",
            hint="Check its permissions, or choose another with --data-dir (node.data_dir).",
        ) from error


def topic_rules(settings: Settings) -> TopicRules:
    """Return the rules for new topics."""
    return TopicRules(
        partition_count_default=settings.topic_defaults.partitions_default,
        replication_factor_default=settings.cluster.replication_factor_default,
    )


def _place(settings: Settings, filesystem: FileSystem | None) -> tuple[str, FileSystem]:
    """Return the data directory, and its file system."""
    if settings.node.storage == "memory":
        return MEMORY_PATH, filesystem or MemoryDisk()
    return settings.node.data_dir, filesystem or DiskFileSystem(is_mapped=settings.node.uvloop)


def _within_descriptors(given: Settings) -> tuple[LiveSettings, int]:
    """Return the settings with connections within the descriptors, and the open files limit."""
    files = claim_descriptors(given.listener.connections_max).files

    def adapt(settings: Settings) -> Settings:
        most = connections_within(settings.listener.connections_max, files)
        listener = settings.listener.model_copy(update={"connections_max": most})
        return settings.model_copy(update={"listener": listener})

    return LiveSettings(given, adapt), files
