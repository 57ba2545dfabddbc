"""Batches, clocks and managers for the tests of storage."""

from typing import NamedTuple
from uuid import UUID

from penstock.core.types import TopicPartition
from penstock.records.batch import BatchHeader, iterate_headers, read_header
from penstock.records.builder import build_batch
from penstock.records.record import Record
from penstock.storage.disk.filesystem import FileSystem
from penstock.storage.log.log_settings import FlushMode, LogSettings
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log_manager import LogManager

PARTITION = TopicPartition("orders", 0)
TOPIC_ID = UUID("12345678-1234-5678-1234-567812345678")
SMALL = LogSettings(segment_bytes=1_000, index_interval_bytes=100, retention_ms=-1)


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.ms = 1_000_000
        self.seconds = 0.0

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.seconds


class Batch(NamedTuple):
    """The input of an append."""

    header: BatchHeader
    buffer: memoryview
    max_timestamp_ms: int
    offset_of_max_timestamp: int = 0


def batch(
    count: int = 1,
    *,
    size: int = 30,
    timestamp_ms: int = 1_000,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    codec: int = 0,
    fill: bytes = b"x",
) -> Batch:
    """A batch of `count` records whose timestamps grow by one."""
    data = build_batch(
        [Record(value=fill * size, timestamp_ms=timestamp_ms + i) for i in range(count)],
        producer_id=producer_id,
        producer_epoch=producer_epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
        codec=codec,
    )
    header = read_header(data)
    return Batch(header, memoryview(data), header.max_timestamp_ms, count - 1)


def producer_batch(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0) -> Batch:
    """A batch of an idempotent producer."""
    return batch(count, producer_id=producer_id, producer_epoch=epoch, sequence=sequence)


def open_manager(
    disk: FileSystem,
    settings: LogSettings = SMALL,
    *,
    path: str = "/data",
    flush_mode: FlushMode = FlushMode.ALWAYS,
) -> LogManager:
    """A manager that has loaded what is on the disk."""
    manager = LogManager(
        disk, [path], Clock(), flush_mode=flush_mode, new_id=lambda: "0123456789abcdef"
    )
    manager.start(lambda _topic: settings)
    return manager


def new_log(
    disk: FileSystem, settings: LogSettings = SMALL, *, flush_mode: FlushMode = FlushMode.ALWAYS
) -> tuple[LogManager, PartitionLog]:
    """A manager with one empty log."""
    manager = open_manager(disk, settings, flush_mode=flush_mode)
    return manager, manager.create_log(PARTITION, TOPIC_ID, settings)


def sync(manager: LogManager) -> None:
    """One flush round of every directory, and the producer snapshots that are due after it."""
    for flusher in manager.flushers:
        flusher.sync_now()
        flusher.snapshots.write_ready()
        for log in list(flusher.directory.snapshots_missed):
            log.snapshot_if_due()
        flusher.snapshots.write_ready()


def read_all(log: PartitionLog, *, limit: int | None = None, nowait: bool = True) -> bytes:
    """Everything in the log, read as a consumer reads it."""
    offset = log.log_start_offset
    end = log.end_offset if limit is None else limit
    data = b""
    while offset < end:
        answer = log.read(offset, 700, offset_limit=end, at_least_one=True, nowait=nowait)
        if not answer.records:
            break
        assert answer.first_offset <= offset < answer.next_offset
        data += bytes(answer.records)
        offset = answer.next_offset
    return data


def headers(data: bytes) -> list[BatchHeader]:
    """The headers of the batches in `data`."""
    return [header for _, header in iterate_headers(data)]


def let_go(manager: LogManager) -> None:
    """What the end of a process does: locks are gone, nothing else happens."""
    manager.unlock()
