"""`PartitionJournal`: `coordinator.ports.Journal` over a partition of this broker.

Records become one batch without compression, with the broker's time, as Kafka's coordinators write
them; batches become records again when a shard is loaded. It does NOT know what a record means: how
its bytes are read is given to it.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from penstock.coordinator.ports import LoadedBatch, OffsetRecord
from penstock.coordinator.shard import Producer, StoredRecord
from penstock.core.errors import BatchTooLargeError, PenstockError, StoredRecordError
from penstock.core.limits import COORDINATOR_BATCH_BYTES_MAX, COORDINATOR_LOAD_BYTES
from penstock.node.skipped_records import SkippedRecords
from penstock.protocol.stored.codec import TypedRecord, encode
from penstock.records.batch import BatchHeader, read_header
from penstock.records.builder import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, BatchBuilder
from penstock.records.control import read_marker
from penstock.records.record import Record
from penstock.records.stored_records import stored_records
from penstock.records.validation import ValidatedBatch
from penstock.replication.manager import HostedPartition, ReplicaManager
from penstock.replication.waits import CommitWait
from penstock.storage.service import StorageService

Decode = Callable[[bytes, bytes | None], TypedRecord | None]

COMMIT_WAIT_MS_MAX: Final = 3_600_000
"""An hour: a disk that syncs nothing for so long has failed, and the shard is to be loaded anew."""


class PartitionJournal:
    """One partition of an internal topic."""

    def __init__(
        self,
        partition: HostedPartition,
        replicas: ReplicaManager,
        storage: StorageService,
        decode: Decode,
        skipped: SkippedRecords,
    ) -> None:
        self.partition: Final = partition
        self._replicas = replicas
        self._storage = storage
        self._decode = decode
        self._skipped = skipped

    @property
    def start_offset(self) -> int:
        """Of the first record."""
        return self.partition.log.log_start_offset

    @property
    def end_offset(self) -> int:
        """Behind the last record, durable or not."""
        return self.partition.log.end_offset

    @property
    def committed_offset(self) -> int:
        """The high watermark."""
        return self.partition.state.high_watermark

    def append(
        self, records: Sequence[StoredRecord], producer: Producer | None, now_ms: int
    ) -> int:
        """Append one batch; the offset of its first record."""
        builder = BatchBuilder()
        for record in records:
            key, value = encode(record)
            builder.append(Record(key, value, (), now_ms))
            # Not when all of it is there: a long name in each of many records is gigabytes.
            if builder.size_bytes > COORDINATOR_BATCH_BYTES_MAX:
                raise BatchTooLargeError(
                    f"a change of {len(records)} records is too large for {self.partition.name}, "
                    f"which takes {COORDINATOR_BATCH_BYTES_MAX} bytes at once"
                )
        batch = memoryview(
            builder.build(
                producer_id=NO_PRODUCER_ID if producer is None else producer.producer_id,
                producer_epoch=NO_PRODUCER_EPOCH if producer is None else producer.producer_epoch,
                transactional=producer is not None,
            )
        )
        validated = ValidatedBatch(read_header(batch, 0), batch, now_ms, 0)
        return self._replicas.append(self.partition, validated).base_offset

    def when_committed(
        self, end_offset: int, on_done: Callable[[PenstockError | None], None]
    ) -> None:
        """Call once, when everything before `end_offset` is committed or never will be."""

        def done() -> None:
            on_done(wait.errors.get(self.partition.name))

        wait = CommitWait(done)
        try:
            self._replicas.wait_committed(
                wait, [(self.partition, end_offset - 1)], COMMIT_WAIT_MS_MAX
            )
        except PenstockError as error:
            on_done(error)

    async def read(self, offset: int) -> tuple[Sequence[LoadedBatch], int]:
        """Some batches from `offset` on, and the offset behind them."""
        # Others get their turn: a large log is read in thousands of pieces.
        await asyncio.sleep(0)
        log, end_offset = self.partition.log, self.end_offset
        try:
            found = log.read(
                offset,
                COORDINATOR_LOAD_BYTES,
                offset_limit=end_offset,
                at_least_one=True,
                nowait=True,
            )
        except BlockingIOError:
            found = await self._storage.read_cold(
                log, offset, COORDINATOR_LOAD_BYTES, offset_limit=end_offset, at_least_one=True
            )
        return self._loaded(memoryview(found.records), offset, end_offset)

    def note_skipped(self, offset: int, error: Exception) -> None:
        """Count and log that the record at `offset` cannot be used."""
        self._skipped.note(self.partition.name, offset, error)

    def _loaded(
        self, view: memoryview, offset: int, end_offset: int
    ) -> tuple[list[LoadedBatch], int]:
        """The records from `offset` on; what no transaction parts becomes one batch."""
        batches: list[LoadedBatch] = []
        plain: list[OffsetRecord] = []
        position, behind = 0, end_offset
        while position < len(view):
            header = read_header(view, position)
            behind = header.last_offset + 1
            if not header.is_transactional and not header.is_control:
                self._records_into(plain, view, position, header, offset)
            else:
                if plain:
                    batches.append(LoadedBatch(plain, None))
                    plain = []
                batches.append(self._transactional(view, position, header, offset))
            position += header.size_bytes
        if plain:
            batches.append(LoadedBatch(plain, None))
        return batches, behind

    def _transactional(
        self, view: memoryview, position: int, header: BatchHeader, offset: int
    ) -> LoadedBatch:
        producer = (
            Producer(header.producer_id, header.producer_epoch) if header.is_transactional else None
        )
        if header.is_control:
            marker = read_marker(view, position)
            if marker is None:
                return LoadedBatch((), producer)
            return LoadedBatch((), producer, marker.is_commit)
        records: list[OffsetRecord] = []
        self._records_into(records, view, position, header, offset)
        return LoadedBatch(records, producer)

    def _records_into(
        self,
        records: list[OffsetRecord],
        view: memoryview,
        position: int,
        header: BatchHeader,
        offset: int,
    ) -> None:
        decode = self._decode
        for record_offset, key, value in stored_records(view, position, header):
            if record_offset < offset:
                continue
            try:
                typed = decode(key or b"", value)
            except StoredRecordError as error:
                self.note_skipped(record_offset, error)
                continue
            if typed is not None:
                # Without the classes' own constructors, which cost as much as the decoding.
                record = tuple.__new__(StoredRecord, typed)
                records.append(tuple.__new__(OffsetRecord, (record_offset, record)))
