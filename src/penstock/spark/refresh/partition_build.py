"""A task of `penstock refresh build`: reads one partition and writes its part of the snapshot.

Pass 1 fetches the batches below the end, with `read_committed`; it notes the last offset of each
key and the leader epochs, and keeps the batches in a temporary file. Pass 2 reads that file and
writes the kept records. Guarantees: the result is the state of the partition at the end offset, of
one moment of the log, also if compaction or retention works meanwhile. Memory is bounded by the
keys, not by their values. A failed or repeated task leaves files that no manifest names.

It does NOT choose offsets and does NOT publish: `snapshot_job` does.
"""

import tempfile
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple
from uuid import UUID, uuid4

from penstock.client.cluster import Cluster
from penstock.client.opening import open_cluster
from penstock.client.records.range_reader import FetchedBatches, RangeGoneError, RangeReader
from penstock.client.transport.options import ClientOptions
from penstock.core.limits import SEGMENT_RELATIVE_OFFSET_MAX
from penstock.core.types import TopicPartition
from penstock.edge.refresh.manifest import SnapshotFile, SnapshotPartition
from penstock.edge.refresh.snapshot_batches import LastOffsets, SnapshotBatch, SnapshotBatches
from penstock.edge.refresh.snapshot_stores import SnapshotStore, open_store
from penstock.records.batch import HEADER_BYTES, BatchHeader, iterate_headers, read_header
from penstock.records.builder import iterate_records
from penstock.records.control import read_marker
from penstock.records.crc32c import checksum
from penstock.records.record import Record
from penstock.spark.worker_process import settle

FILE_BYTES_MAX: Final = 134_217_728
STARTS_MAX: Final = 5
"""Attempts, if retention deletes the first records while they are read."""


class PartitionTask(NamedTuple):
    """The work of one task; it is sent to the executors."""

    client: ClientOptions
    place: str
    build_id: str
    at: TopicPartition
    topic_id: UUID | None
    start_offset: int
    end_offset: int
    codec: int
    file_bytes_max: int = FILE_BYTES_MAX


def run_task(task: PartitionTask) -> str:
    """Build one partition; return its part of the manifest as JSON."""
    settle()
    store = open_store(task.place)
    with open_cluster(task.client) as cluster:
        return build_partition(cluster, store, task).model_dump_json()


def build_partition(
    cluster: Cluster, store: SnapshotStore, task: PartitionTask
) -> SnapshotPartition:
    """Build one partition from an open cluster."""
    for attempt in range(STARTS_MAX):
        try:
            with tempfile.TemporaryFile() as spool:
                scan = _scan(cluster, task, spool)
                spool.seek(0)
                return _write(store, task, scan, spool)
        except RangeGoneError as error:
            # Retention deleted the first records: the state is that of the remaining ones.
            if attempt + 1 == STARTS_MAX or not error.log_start_offset <= task.end_offset:
                raise
            task = task._replace(start_offset=max(task.start_offset, error.log_start_offset))
    raise AssertionError("unreachable")


class _Scan:
    """The result of pass 1."""

    def __init__(self) -> None:
        self.last = LastOffsets()
        self.epochs: list[tuple[int, int]] = []

    def note_epoch(self, header: BatchHeader, start_offset: int) -> None:
        newest = self.epochs[-1][0] if self.epochs else -1
        if header.leader_epoch > newest:
            self.epochs.append((header.leader_epoch, max(header.base_offset, start_offset)))


def _scan(cluster: Cluster, task: PartitionTask, spool: BinaryIO) -> _Scan:
    scan = _Scan()
    reader = RangeReader(
        cluster,
        task.at,
        task.start_offset,
        task.end_offset,
        is_read_committed=True,
        expected_topic_id=task.topic_id,
    )
    for fetched in reader:
        for header, batch in _committed(fetched, scan, task):
            scan.last.add(_inside(batch, task))
            spool.write(batch)
            assert len(batch) == header.size_bytes
    return scan


def _committed(
    fetched: FetchedBatches, scan: _Scan, task: PartitionTask
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of an answer whose records are committed."""
    coming = sorted(fetched.aborted, key=lambda one: one.first_offset, reverse=True)
    aborting: set[int] = set()
    for position, header in iterate_headers(fetched.data):
        while coming and coming[-1].first_offset <= header.last_offset:
            aborting.add(coming.pop().producer_id)
        if header.next_offset <= task.start_offset or header.base_offset >= task.end_offset:
            continue
        scan.note_epoch(header, task.start_offset)
        batch = fetched.data[position : position + header.size_bytes]
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and not marker.is_commit:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            yield header, batch


def _inside(batch: memoryview | bytes, task: PartitionTask) -> Iterator[Record]:
    for record in iterate_records(batch):
        if task.start_offset <= record.offset < task.end_offset:
            yield record


def _write(
    store: SnapshotStore, task: PartitionTask, scan: _Scan, spool: BinaryIO
) -> SnapshotPartition:
    """Pass 2."""
    files = _write_files(store, task, _kept(task, scan, spool))
    return SnapshotPartition(
        partition=task.at.partition,
        start_offset=task.start_offset,
        end_offset=task.end_offset,
        records=sum(one.records for one in files),
        epochs=tuple(scan.epochs),
        files=tuple(files),
    )


def _kept(task: PartitionTask, scan: _Scan, spool: BinaryIO) -> Iterator[SnapshotBatch]:
    """Yield the batches of the snapshot."""
    if task.start_offset == task.end_offset:
        return
    batches = SnapshotBatches(task.codec)
    for header, batch in _spooled(spool):
        for record in _inside(batch, task):
            if scan.last.is_last(record):
                done = batches.add(record, header.leader_epoch)
                if done is not None:
                    yield done
    yield from batches.finish(task.end_offset, scan.epochs[-1][0] if scan.epochs else -1)


def _spooled(spool: BinaryIO) -> Iterator[tuple[BatchHeader, bytes]]:
    while head := spool.read(HEADER_BYTES):
        header = read_header(head)
        yield header, head + spool.read(header.size_bytes - HEADER_BYTES)


def _write_files(
    store: SnapshotStore, task: PartitionTask, batches: Iterator[SnapshotBatch]
) -> list[SnapshotFile]:
    """Write segments; each begins where the one before it ends, unless the gap is too long."""
    files: list[SnapshotFile] = []
    attempt, next_offset = uuid4().hex[:8], task.start_offset
    pending = next(batches, None)
    while pending is not None:
        base = next_offset
        if pending.next_offset - 1 - base > SEGMENT_RELATIVE_OFFSET_MAX:
            base = pending.base_offset
        name = f"{task.build_id}-{task.at.partition}-{attempt}-{base:020d}.log"
        size = crc = records = 0
        with store.create(name) as stream:
            while pending is not None:
                data = pending.data
                is_near = pending.next_offset - 1 - base <= SEGMENT_RELATIVE_OFFSET_MAX
                if size and (size + len(data) > task.file_bytes_max or not is_near):
                    break
                stream.write(data)
                size, crc = size + len(data), checksum(data, crc)
                records, next_offset = records + pending.records, pending.next_offset
                pending = next(batches, None)
        files.append(
            SnapshotFile(name=name, base_offset=base, size_bytes=size, crc32c=crc, records=records)
        )
    return files
