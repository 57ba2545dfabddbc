"""Compacted logs for tests: written from steps, cleaned without threads, and read back.

`Model` has the required content: a list of records with the state of each. It has no segments or
batches, so it cannot make the cleaner's mistakes.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.core.types import TopicPartition
from penstock.records.batch import iterate_headers, read_header
from penstock.records.builder import build_batch, iterate_records
from penstock.records.control import Marker
from penstock.records.record import Record
from penstock.storage.compaction.cleaner import CleaningJob
from penstock.storage.compaction.log_cleaner import source_of, view_of
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log.markers import append_marker as append_end
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log_manager import LogManager
from tests.storage.logs import PARTITION, TOPIC_ID, Batch, sync

COMPACTED = LogSettings(
    segment_bytes=600,
    index_interval_bytes=100,
    retention_ms=-1,
    is_compacted=True,
    compacts=True,
    dirty_ratio_min=0.0,
    delete_retention_ms=1_000,
)


class Seen(NamedTuple):
    """A record as a reader gets it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


def compacted_log(
    manager: LogManager,
    settings: LogSettings = COMPACTED,
    *,
    partition: TopicPartition = PARTITION,
) -> PartitionLog:
    """A new log with compaction."""
    return manager.create_log(partition, TOPIC_ID, settings)


def keyed(
    pairs: list[tuple[bytes | None, bytes | None]],
    *,
    timestamp_ms: int = 1_000,
    codec: int = 0,
    producer_id: int = -1,
    sequence: int = -1,
    epoch: int = 0,
    transactional: bool = False,
    timestamp_type: int = 0,
) -> Batch:
    """A batch of records with keys."""
    data = build_batch(
        [
            Record(key=key, value=value, timestamp_ms=timestamp_ms + number)
            for number, (key, value) in enumerate(pairs)
        ],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
        transactional=transactional,
        timestamp_type=timestamp_type,
    )
    header = read_header(data)
    return Batch(header, memoryview(data), header.max_timestamp_ms, header.last_offset_delta)


def append_marker(
    log: PartitionLog,
    producer_id: int,
    *,
    is_commit: bool,
    timestamp_ms: int = 1_000,
    epoch: int = 0,
) -> int:
    """End a producer's transaction; the marker's offset."""
    return append_end(
        log,
        Marker(is_commit, 0),
        producer_id=producer_id,
        producer_epoch=epoch,
        leader_epoch=0,
        now_ms=timestamp_ms,
        is_strict=False,
    ).base_offset


def put(log: PartitionLog, *pairs: tuple[bytes | None, bytes | None], **words: int) -> int:
    """Append one batch; its base offset."""
    return log.append(keyed(list(pairs), **words), leader_epoch=0).base_offset  # type: ignore[arg-type]


def put_in_transaction(
    log: PartitionLog,
    producer_id: int,
    sequence: int,
    pairs: list[tuple[bytes | None, bytes | None]],
    *,
    timestamp_ms: int = 1_000,
    codec: int = 0,
) -> int:
    """Append a batch of a transaction, verified if it is the first; its base offset."""
    verifications = log.producers.verifications
    guard = verifications.begin(producer_id, sequence, 0, 0, adds=False)
    verifications.confirm(producer_id, guard)
    made = keyed(
        pairs,
        timestamp_ms=timestamp_ms,
        codec=codec,
        producer_id=producer_id,
        sequence=sequence,
        transactional=True,
    )
    return log.append(made, leader_epoch=0, guard=guard).base_offset


def seal(manager: LogManager, log: PartitionLog) -> None:
    """Sync everything and begin a new segment, so that all of it may be cleaned."""
    log.roll()
    sync(manager)


def clean(
    manager: LogManager, log: PartitionLog, now_ms: int = 10_000, *, keys_max: int = 1_000
) -> CleaningJob:
    """One pass, all of it on this thread; checkpoints as the cleaner does."""
    home = manager.home_of(log.topic_partition)
    view = view_of(log, home)
    job = CleaningJob(source_of(view, home), view.cleanable(now_ms), now_ms, keys_max=keys_max)
    if log.topic_partition not in home.cleaned_offsets:
        home.cleaned_offsets[log.topic_partition] = view.cleanable(now_ms).first_dirty_offset
        home.write_cleaned_offsets()
    for outcome in job.steps():
        if outcome is not None:
            outcome.decide()
            outcome.exchange(log)
            outcome.finish()
    home.cleaned_offsets[log.topic_partition] = job.end_offset
    home.write_cleaned_offsets()
    return job


def all_batches(log: PartitionLog, *, nowait: bool = False, bytes_max: int = 700) -> list[bytes]:
    """Every batch, each read from the offset after the one before it, as a client asks."""
    found, offset = [], log.log_start_offset
    while offset < log.end_offset:
        answer = log.read(
            offset, bytes_max, offset_limit=log.end_offset, at_least_one=True, nowait=nowait
        )
        if not answer.records:
            break
        records = bytes(answer.records)
        for position, header in iterate_headers(records):
            if header.last_offset >= offset:
                found.append(records[position : position + header.size_bytes])
                offset = header.next_offset
    return found


def all_records(log: PartitionLog, *, committed: bool = True) -> list[Seen]:
    """Every record of data, without the aborted ones, as a consumer of committed data sees them."""
    end = log.end_offset
    aborted = log.aborted_transactions(log.log_start_offset, end, nowait=False)
    seen = []
    for batch in all_batches(log):
        header = read_header(batch)
        if header.is_control:
            continue
        is_aborted = header.is_transactional and any(
            entry.producer_id == header.producer_id
            and entry.first_offset <= header.last_offset
            and header.base_offset < entry.last_offset
            for entry in aborted
        )
        if committed and is_aborted:
            continue
        seen += [
            Seen(record.offset, record.key, record.value, record.timestamp_ms)
            for record in iterate_records(batch)
        ]
    return seen


@dataclass
class Model:
    """The required content of a log."""

    records: list[Seen] = field(default_factory=list)
    """Data that is committed, in order of offsets."""

    def latest(self, boundary: int, *, with_tombstones: bool = True) -> list[Seen]:
        """What stays when everything below `boundary` was cleaned."""
        last: dict[bytes, int] = {}
        for record in self.records:
            if record.offset < boundary and record.key is not None:
                last[record.key] = record.offset
        return [
            record
            for record in self.records
            if record.offset >= boundary
            or (
                record.key is not None
                and last[record.key] == record.offset
                and (with_tombstones or record.value is not None)
            )
        ]
