"""Metrics of partitions, logs, syncs and disks.

All values are read at a scrape, from the parts that own them; nothing is counted twice. Metrics by
topic cost one pass over the partitions at a scrape, and nothing between two.
"""

from collections.abc import Iterator
from typing import Final

from penstock.core.metrics import HistogramRow, Histograms, Registry, Table, TableRow
from penstock.replication.manager import ReplicaManager
from penstock.storage.disk.disk_guard import DiskState
from penstock.storage.service import StorageService

_TOPIC_COLUMNS: Final = (
    ("topic_partitions", "Partitions of a topic."),
    ("topic_size_bytes", "Size of a topic's segments, without indexes."),
    ("topic_appended_records_total", "Records appended to a topic, markers of transactions too."),
    ("topic_appended_bytes_total", "Bytes of batches appended to a topic."),
    ("topic_fetched_bytes_total", "Bytes of batches in answers to fetches of a topic."),
)
_DISK_COLUMNS: Final = (
    ("disk_total_bytes", "Size of the disk that a data directory is on."),
    ("disk_free_bytes", "Free space on the disk of a data directory."),
    ("disk_used_bytes", "Used space on that disk, including files of other programs."),
    ("disk_full", "Whether produce is refused because the disk is full: 1 is yes."),
)
_DIRECTORY_COLUMNS: Final = (
    ("data_directory_offline", "Whether a write or sync failed: 1 is yes, until a restart."),
    ("flushed_bytes_total", "Bytes of batches that were synced to the disk."),
)


def register_storage(metrics: Registry, storage: StorageService, replicas: ReplicaManager) -> None:
    """Register the metrics of the log."""
    view = _View(storage, replicas)
    gauge = metrics.gauge
    gauge("partitions", "Partitions served here.", lambda: len(replicas))
    gauge(
        "partitions_offline",
        "Partitions that cannot be served.",
        lambda: count_offline_partitions(storage, replicas),
    )
    gauge(
        "parked_requests",
        "Requests that wait for records, for a sync or for their time.",
        lambda: len(replicas.waits),
    )
    gauge("appended_bytes_total", "Bytes of batches appended.", lambda: replicas.appended_bytes)
    gauge("appended_batches_total", "Batches appended.", lambda: replicas.appended_batches)
    gauge(
        "fetched_bytes_total",
        "Bytes of batches in answers to fetches.",
        lambda: replicas.fetched_bytes,
    )
    metrics.table(Table(_TOPIC_COLUMNS, ("topic",), view.topics))
    metrics.table(Table(_DISK_COLUMNS, ("directory",), view.disks))
    metrics.table(Table(_DIRECTORY_COLUMNS, ("directory",), view.directories))
    metrics.histograms(
        "flush_duration_seconds",
        Histograms("How long syncs took.", ("directory",), view.flush_durations),
    )


def count_offline_partitions(storage: StorageService, replicas: ReplicaManager) -> int:
    """Return the number of partitions whose log is damaged, missing, or on a failed directory."""
    failed = [
        f"{flusher.directory.path}/"
        for flusher in storage.manager.flushers
        if flusher.directory.failure is not None
    ]
    damaged = sum(
        partition.log.problem is not None
        or any(partition.log.directory.startswith(path) for path in failed)
        for partition in tuple(replicas)
    )
    return damaged + len(replicas.unserved)


class _View:
    """The log, as rows."""

    def __init__(self, storage: StorageService, replicas: ReplicaManager) -> None:
        self._storage = storage
        self._replicas = replicas

    def topics(self) -> Iterator[TableRow]:
        """Yield one row for each topic that has a partition here."""
        found: dict[str, list[int]] = {}
        for partition in tuple(self._replicas):
            log = partition.log
            row = found.get(partition.name.topic)
            if row is None:
                row = found[partition.name.topic] = [0] * len(_TOPIC_COLUMNS)
            row[0] += 1
            row[1] += sum([segment.size for segment in log.segments])
            row[2] += partition.appended_records
            row[3] += partition.appended_bytes
            row[4] += partition.fetched_bytes
        for topic, values in found.items():
            yield TableRow((topic,), tuple(values))

    def disks(self) -> Iterator[TableRow]:
        """Yield one row for each data directory whose disk was measured."""
        for flusher in self._storage.manager.flushers:
            path = flusher.directory.path
            guard = self._storage.disk_guard(path)
            free_bytes, total_bytes = guard.space
            if total_bytes:
                is_full = guard.state is DiskState.FULL
                values = (total_bytes, free_bytes, total_bytes - free_bytes, int(is_full))
                yield TableRow((path,), values)

    def directories(self) -> Iterator[TableRow]:
        """Yield one row for each data directory."""
        for flusher in self._storage.manager.flushers:
            values = (int(flusher.directory.failure is not None), flusher.flushed_bytes)
            yield TableRow((flusher.directory.path,), values)

    def flush_durations(self) -> Iterator[HistogramRow]:
        """Yield one histogram for each data directory."""
        for flusher in self._storage.manager.flushers:
            yield flusher.durations.read((flusher.directory.path,))
