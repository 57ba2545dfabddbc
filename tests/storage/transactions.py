"""Transactional batches and markers for the tests of storage, and a reader's view of them.

`Writer` writes as a client and its coordinator do together, so that every batch that may be
appended is verified first. `Model` is the same partition as a list.
"""

from dataclasses import dataclass, field

from penstock.records.batch import iterate_headers, read_header
from penstock.records.builder import build_batch
from penstock.records.control import Marker, read_marker
from penstock.records.record import Record
from penstock.storage.log.log_types import AppendInfo
from penstock.storage.log.markers import append_marker
from penstock.storage.log.partition_log import PartitionLog
from tests.storage.logs import Batch, batch

NOW_MS = 5_000


def transactional_batch(
    producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0, size: int = 20
) -> Batch:
    """One batch of a transaction."""
    data = build_batch(
        [Record(value=b"t" * size, timestamp_ms=1_000 + i) for i in range(count)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )
    header = read_header(data)
    return Batch(header, memoryview(data), header.max_timestamp_ms, header.last_offset_delta)


def append_verified(log: PartitionLog, made: Batch, leader_epoch: int = 0) -> AppendInfo:
    """Append a batch of a transaction that its coordinator knows."""
    header = made.header
    guard = log.producers.verifications.begin(
        header.producer_id, header.base_sequence, header.producer_epoch, NOW_MS, adds=False
    )
    return log.append(made, leader_epoch=leader_epoch, guard=guard)


def end(
    log: PartitionLog,
    producer_id: int,
    *,
    commits: bool,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    leader_epoch: int = 0,
    is_strict: bool = False,
) -> AppendInfo:
    """Append a marker."""
    return append_marker(
        log,
        Marker(commits, coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=epoch,
        leader_epoch=leader_epoch,
        now_ms=NOW_MS,
        is_strict=is_strict,
    )


@dataclass
class Written:
    """One batch of the model; `commits` is set for markers."""

    base_offset: int
    last_offset: int
    producer_id: int = -1
    commits: bool | None = None
    is_transactional: bool = False


@dataclass
class Model:
    """A partition as a list of batches."""

    batches: list[Written] = field(default_factory=list)

    def forget_from(self, offset: int) -> None:
        """Keep what lies below `offset`."""
        self.batches = [entry for entry in self.batches if entry.base_offset < offset]

    def transactions(self) -> list[tuple[int, int, int, bool | None]]:
        """(producer, first offset, marker's offset or -1, whether it commits)."""
        found: list[tuple[int, int, int, bool | None]] = []
        begun: dict[int, int] = {}
        for entry in self.batches:
            if entry.commits is not None:
                first = begun.pop(entry.producer_id, -1)
                if first >= 0:
                    found.append((entry.producer_id, first, entry.base_offset, entry.commits))
            elif entry.is_transactional:
                begun.setdefault(entry.producer_id, entry.base_offset)
        return found + [(producer, first, -1, None) for producer, first in begun.items()]

    def stable_offset(self, high_watermark: int, start: int) -> int:
        """The last stable offset."""
        undecided = [
            first
            for _, first, marker, _ in self.transactions()
            if marker < 0 or marker >= high_watermark
        ]
        return min(max(min(undecided, default=high_watermark), start), high_watermark)

    def aborted(self, offset: int, limit: int) -> set[tuple[int, int, int]]:
        """(producer, first offset, marker) of aborted transactions with records in a range."""
        return {
            (producer, first, marker)
            for producer, first, marker, commits in self.transactions()
            if commits is False and marker >= offset and first < limit
        }

    def committed(self, start: int, limit: int) -> list[int]:
        """Base offsets of the batches that a reader of committed records keeps."""
        aborted = [found[:3] for found in self.transactions() if found[3] is False]
        return [
            entry.base_offset
            for entry in self.batches
            if entry.commits is None
            and start <= entry.base_offset < limit
            and not (
                entry.is_transactional
                and any(
                    entry.producer_id == producer and first <= entry.base_offset < marker
                    for producer, first, marker in aborted
                )
            )
        ]


def read_committed(log: PartitionLog, stable_offset: int, bytes_max: int = 300) -> list[int]:
    """Base offsets of the batches that a client keeps, which gets what a fetch gives it.

    It filters as clients do: a producer's transactional batches are left out from the first offset
    of an aborted transaction on, until the producer's next marker.
    """
    kept: list[int] = []
    offset = log.log_start_offset
    while offset < stable_offset:
        found = log.read(
            offset, bytes_max, offset_limit=stable_offset, at_least_one=True, nowait=True
        )
        if not found.records:
            break
        waiting = sorted(
            (entry.first_offset, entry.producer_id)
            for entry in log.aborted_transactions(offset, found.next_offset, nowait=False)
        )
        aborting: set[int] = set()
        for position, header in iterate_headers(found.records):
            while waiting and waiting[0][0] <= header.last_offset:
                aborting.add(waiting.pop(0)[1])
            if header.is_control:
                marker = read_marker(found.records, position)
                assert marker is not None
                if not marker.is_commit:
                    aborting.discard(header.producer_id)
            elif header.base_offset >= offset and not (
                header.is_transactional and header.producer_id in aborting
            ):
                kept.append(header.base_offset)
        offset = found.next_offset
    return kept


def plain_batch(size: int = 20) -> Batch:
    """A batch of nobody."""
    return batch(1, size=size)
