"""`PartitionJournal`: `coordinator.ports.Journal` over a partition of this broker.

Records become one batch without compression, with the broker's time, as Kafka's coordinators write
them; batches become records again when a shard is loaded. It is bound to one role of the partition,
and so to one leader epoch: after another role has begun, it appends nothing and commits nothing. It
does NOT know what a record means: the decoder is an argument.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from penstock.coordinator.ports import LoadedBatch, OffsetRecord
from penstock.coordinator.shard import Producer, StoredRecord
from penstock.core.errors import (
    BatchTooLargeError,
    PenstockError,
    RequestTimedOutError,
    StoredRecordError,
    TooManyWaitersError,
)
from penstock.core.limits import (
    COORDINATOR_BATCH_BYTES_MAX,
    COORDINATOR_LOAD_BYTES,
    COORDINATOR_LOAD_RECORDS,
)
from penstock.core.types import OFFSETS_TOPIC
from penstock.node.coordination.skipped_records import SkippedRecords
from penstock.protocol.stored.codec import TypedRecord, encode
from penstock.records.batch import BatchHeader, read_header
from penstock.records.builder import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, BatchBuilder
from penstock.records.control import read_marker
from penstock.records.record import Record
from penstock.records.stored_records import StoredRecord as StoredBytes
from penstock.records.stored_records import stored_records, unfolded
from penstock.records.validation import ValidatedBatch
from penstock.replication.admission import require_enough
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.manager import ReplicaManager
from penstock.replication.waits import CommitWait
from penstock.storage.service import StorageService
from penstock.storage.worker_pool import WorkClass

Decode = Callable[[bytes, bytes | None], TypedRecord | None]

COMMIT_WAIT_MS_MAX: Final = 3_600_000
"""An hour: a disk without a sync for this long has failed, and the shard must be loaded again."""
GROUP_REPLY_MS_MAX: Final = 5_000
"""Kafka's offsets.commit.timeout.ms, which bounds each write of a group coordinator."""
TRANSACTION_REPLY_MS_MAX: Final = 30_000
"""Kafka's request.timeout.ms, which bounds each write of a transaction coordinator."""


class _HeavyBatch:
    """A batch that is read in portions."""

    __slots__ = ("header", "left", "next_offset", "place", "section")

    def __init__(self, header: BatchHeader, section: bytes) -> None:
        self.header = header
        self.section = section
        self.place = 0
        self.left = header.record_count
        self.next_offset = header.base_offset
        """The offset behind the records that were read."""


def _is_heavy(header: BatchHeader) -> bool:
    """Return whether the batch is too large to be decoded at once on the loop."""
    return not header.is_control and (
        header.codec != 0
        or header.record_count > COORDINATOR_LOAD_RECORDS
        or header.size_bytes > COORDINATOR_LOAD_BYTES
    )


def _producer_of(header: BatchHeader) -> Producer | None:
    if not header.is_transactional:
        return None
    return Producer(header.producer_id, header.producer_epoch)


class PartitionJournal:
    """One partition of an internal topic."""

    def __init__(
        self,
        partition: HostedPartition,
        replicas: ReplicaManager,
        storage: StorageService,
        decode: Decode,
        skipped: SkippedRecords,
        reply_ms_max: int | None = None,
    ) -> None:
        """`reply_ms_max` is the longest wait of a reply for followers; None: the topic's."""
        self.partition: Final = partition
        is_group = partition.name.topic == OFFSETS_TOPIC
        default_ms = GROUP_REPLY_MS_MAX if is_group else TRANSACTION_REPLY_MS_MAX
        self._reply_ms_max = default_ms if reply_ms_max is None else reply_ms_max
        self._replicas = replicas
        self._storage = storage
        self._decode = decode
        self._heavy: _HeavyBatch | None = None
        """The batch that a load has begun."""
        self._skipped = skipped

    @property
    def start_offset(self) -> int:
        """Offset of the first record."""
        return self.partition.log.log_start_offset

    @property
    def end_offset(self) -> int:
        """Offset behind the last record, durable or not."""
        return self.partition.log.end_offset

    @property
    def committed_offset(self) -> int:
        """The high watermark."""
        return self.partition.state.high_watermark

    def append(
        self, records: Sequence[StoredRecord], producer: Producer | None, now_ms: int
    ) -> int:
        """Append one batch; return the offset of its first record.

        Raises `NotLeaderError` after the role has ended, and `NotEnoughReplicasError` while a
        record could not be committed.
        """
        require_enough(self.partition.state)
        builder = BatchBuilder()
        for record in records:
            key, value = encode(record)
            builder.append(Record(key, value, (), now_ms))
            # Checked for each record: a long name in each of many records is gigabytes.
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
        """Call back once, when all records before `end_offset` are committed or never will be."""

        def done() -> None:
            on_done(wait.errors.get(self.partition.name))

        wait = CommitWait(done)
        try:
            self._replicas.wait_committed(
                wait, [(self.partition, end_offset - 1)], COMMIT_WAIT_MS_MAX
            )
        except PenstockError as error:
            on_done(error)

    def when_late(self, end_offset: int, on_late: Callable[[PenstockError], None]) -> None:
        """Call back if followers do not confirm the records in time; see `Journal`."""
        if self.partition.state.in_sync is None:
            return

        def done() -> None:
            error = wait.errors.get(self.partition.name)
            if isinstance(error, RequestTimedOutError):
                on_late(error)

        wait = CommitWait(done)
        waited = [(self.partition, end_offset - 1)]
        # Without room for it, the reply waits as long as the records do.
        with suppress(TooManyWaitersError):
            self._replicas.wait_committed(wait, waited, self._reply_ms_max)

    async def read(self, offset: int) -> tuple[Sequence[LoadedBatch], int]:
        """Return some batches starting at `offset`, or some records of one, and the next offset."""
        # Let other tasks run: a large log is read in thousands of pieces.
        await asyncio.sleep(0)
        heavy, self._heavy = self._heavy, None
        if heavy is None or heavy.next_offset != offset:
            view, end_offset = await self._read_bytes(offset)
            if view and _is_heavy(read_header(view)):
                heavy = await self._unfold(view)
            else:
                return self._loaded(view, offset, end_offset)
        portion = self._portion(heavy, offset)
        while heavy.next_offset <= offset:
            # The load begins within this batch.
            await asyncio.sleep(0)
            portion = self._portion(heavy, offset)
        if heavy.left:
            self._heavy = heavy
        return [portion], heavy.next_offset

    async def _read_bytes(self, offset: int) -> tuple[memoryview, int]:
        """Return whole batches starting at `offset`, and the end of the log at the read."""
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
        return memoryview(found.records), end_offset

    async def _unfold(self, view: memoryview) -> "_HeavyBatch":
        """Decompress the first batch on a thread."""
        header = read_header(view)
        section = await self._storage.pool.run(WorkClass.READS, partial(unfolded, view, 0, header))
        return _HeavyBatch(header, section)

    def _portion(self, heavy: "_HeavyBatch", offset: int) -> LoadedBatch:
        """Return the next records of a heavy batch."""
        header, count = heavy.header, min(heavy.left, COORDINATOR_LOAD_RECORDS)
        found, heavy.place = stored_records(heavy.section, heavy.place, count, header.base_offset)
        heavy.left -= count
        heavy.next_offset = found[-1][0] + 1 if heavy.left else header.last_offset + 1
        records: list[OffsetRecord] = []
        self._decode_into(records, found, offset)
        return LoadedBatch(records, _producer_of(header))

    def note_skipped(self, offset: int, error: Exception) -> None:
        """Count and log that the record at `offset` cannot be used."""
        self._skipped.note(self.partition.name, offset, error)

    def _loaded(
        self, view: memoryview, offset: int, end_offset: int
    ) -> tuple[list[LoadedBatch], int]:
        """Return the records from `offset`, and the next offset; plain neighbours share a batch."""
        batches: list[LoadedBatch] = []
        plain: list[OffsetRecord] = []
        position, behind, count = 0, end_offset, 0
        while position < len(view):
            header = read_header(view, position)
            count += header.record_count
            if position and (_is_heavy(header) or count > COORDINATOR_LOAD_RECORDS):
                # The next read begins here.
                break
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
        producer = _producer_of(header)
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
        section = unfolded(view, position, header)
        found, _ = stored_records(section, 0, header.record_count, header.base_offset)
        self._decode_into(records, found, offset)

    def _decode_into(
        self, records: list[OffsetRecord], found: Sequence[StoredBytes], offset: int
    ) -> None:
        decode = self._decode
        for record_offset, key, value in found:
            if record_offset < offset:
                continue
            try:
                typed = decode(key or b"", value)
            except StoredRecordError as error:
                self.note_skipped(record_offset, error)
                continue
            if typed is not None:
                # This skips the classes' constructors, which cost as much as the decoding.
                record = tuple.__new__(StoredRecord, typed)
                records.append(tuple.__new__(OffsetRecord, (record_offset, record)))
