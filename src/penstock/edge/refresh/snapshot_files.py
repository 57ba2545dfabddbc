"""Reads the batches of a snapshot, and verifies them against the manifest.

Guarantees: `verified_batches` yields whole batches whose checksums are right, whose offsets rise
within the bounds of their partition, and whose leader epochs are those of the manifest. At the end
of each file it compares size, number of records and CRC-32C. Any difference raises `SnapshotError`.
Memory is bounded by one batch and one chunk.

A consumer of batches must not use the data before the iteration of its partition has ended: the
checksum of a file is known only then.
"""

from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

from penstock.core.errors import RecordsError
from penstock.core.limits import SEGMENT_RELATIVE_OFFSET_MAX, STORED_BATCH_BYTES_MAX
from penstock.edge.refresh.manifest import SnapshotFile, SnapshotPartition
from penstock.edge.refresh.snapshot_errors import SnapshotError
from penstock.edge.refresh.snapshot_stores import SnapshotStore
from penstock.records.batch import (
    CONTROL,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    checksum_matches,
    read_header,
)
from penstock.records.builder import iterate_records
from penstock.records.crc32c import checksum
from penstock.records.record import Record

_FORBIDDEN: Final = CONTROL | TRANSACTIONAL


class VerifiedBatch(NamedTuple):
    """A batch of a snapshot, with the segment that it belongs to."""

    file: SnapshotFile
    header: BatchHeader
    data: memoryview


def verified_batches(store: SnapshotStore, partition: SnapshotPartition) -> Iterator[VerifiedBatch]:
    """Yield all batches of a partition."""
    next_offset, epoch = partition.start_offset, -1
    for file in partition.files:
        if file.base_offset < next_offset:
            raise SnapshotError(f"{file.name} begins before offset {next_offset}")
        walk = _FileWalk(file, partition, file.base_offset, epoch)
        try:
            with store.read(file.name) as stream:
                yield from walk.batches(stream)
        except OSError as error:
            raise SnapshotError(f"{file.name} cannot be read: {error}") from error
        next_offset, epoch = walk.next_offset, walk.epoch
    if next_offset != partition.end_offset:
        raise SnapshotError(
            f"partition {partition.partition} ends at {next_offset} instead of "
            f"{partition.end_offset}"
        )


class _FileWalk:
    def __init__(
        self, file: SnapshotFile, partition: SnapshotPartition, next_offset: int, epoch: int
    ) -> None:
        self._file = file
        self._partition = partition
        self.next_offset = next_offset
        self.epoch = epoch

    def batches(self, stream: BinaryIO) -> Iterator[VerifiedBatch]:
        file, crc, size, records = self._file, 0, 0, 0
        while head := stream.read(HEADER_BYTES):
            batch = memoryview(head + self._rest(stream, head))
            header = read_header(batch)
            self._check(header, batch)
            crc = checksum(batch, crc)
            size += len(batch)
            records += header.record_count
            yield VerifiedBatch(file, header, batch)
            self.next_offset, self.epoch = header.next_offset, header.leader_epoch
        if (size, crc, records) != (file.size_bytes, file.crc32c, file.records):
            raise SnapshotError(
                f"{file.name} is not the file of the manifest: {size} bytes, CRC {crc}, {records} "
                f"records; expected {file.size_bytes}, {file.crc32c}, {file.records}"
            )

    def _rest(self, stream: BinaryIO, head: bytes) -> bytes:
        if len(head) < HEADER_BYTES:
            raise SnapshotError(f"{self._file.name} ends in half a batch")
        size = read_header(head).batch_length + LOG_OVERHEAD_BYTES
        bound = min(STORED_BATCH_BYTES_MAX, self._file.size_bytes)
        if not HEADER_BYTES <= size <= bound + LOG_OVERHEAD_BYTES:
            raise SnapshotError(f"{self._file.name} has a batch of {size} bytes")
        rest = stream.read(size - HEADER_BYTES)
        if len(rest) < size - HEADER_BYTES:
            raise SnapshotError(f"{self._file.name} ends in half a batch")
        return rest

    def _check(self, header: BatchHeader, batch: memoryview) -> None:
        name, partition = self._file.name, self._partition
        if header.magic != MAGIC or not checksum_matches(batch, 0, header):
            raise SnapshotError(f"{name} has a damaged batch after offset {self.next_offset - 1}")
        in_order = self.next_offset <= header.base_offset <= header.last_offset
        is_near = header.last_offset - self._file.base_offset <= SEGMENT_RELATIVE_OFFSET_MAX
        if not in_order or header.last_offset >= partition.end_offset or not is_near:
            raise SnapshotError(f"{name} has a batch with offset {header.base_offset}")
        if header.attributes & _FORBIDDEN or header.producer_id >= 0 or header.record_count < 0:
            raise SnapshotError(f"{name} has a batch of a transaction or a producer")
        if header.leader_epoch < self.epoch or header.leader_epoch != partition.epoch_at(
            header.base_offset
        ):
            raise SnapshotError(
                f"{name} has leader epoch {header.leader_epoch} at offset {header.base_offset}; "
                f"the manifest has {partition.epoch_at(header.base_offset)}"
            )


def records_of(batch: VerifiedBatch) -> list[Record]:
    """Return the records of a batch; `SnapshotError` if they are not records with keys."""
    try:
        found = list(iterate_records(batch.data))
    except RecordsError as error:
        raise SnapshotError(
            f"{batch.file.name} has a batch that is not readable: {error}"
        ) from error
    previous = batch.header.base_offset - 1
    for record in found:
        if record.key is None or record.value is None:
            raise SnapshotError(f"{batch.file.name} has a record without a key or a value")
        if not previous < record.offset <= batch.header.last_offset:
            raise SnapshotError(f"{batch.file.name} has a record with offset {record.offset}")
        previous = record.offset
    return found
