"""The links and the description of a lease's segments.

Guarantees: a leased segment is described as it was when it was linked, with the aborted
transactions that its index does not have. More of them, or more leader epochs, than an answer may
have refuse the lease before a file is linked.

Blocking code for worker threads, while the lock over file removals is held.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.lease_limits import LEASE_ABORTED_MAX, LEASE_EPOCHS_MAX
from penstock.storage.leases.lease_files import LeaseFiles
from penstock.storage.leases.lease_rules import LeaseNote, LeaseRefusedError, SegmentSpan
from penstock.storage.log.leader_epochs import EpochEntry
from penstock.storage.log.open_transactions import AbortedTransaction
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log.segment import LOG_SUFFIX, Segment, segment_name

_INDEX_SUFFIX = ".index"
_TRANSACTIONS_SUFFIX = ".txnindex"


class LeasedSegment(NamedTuple):
    """A segment of a lease."""

    base_offset: int
    next_offset: int
    size_bytes: int
    has_offset_index: bool
    has_transaction_index: bool


class LeasedPartition(NamedTuple):
    """The leased part of a partition."""

    partition: int
    log_start_offset: int
    stable_offset: int
    segments: tuple[LeasedSegment, ...]
    epochs: tuple[EpochEntry, ...]
    """The leader epochs of the leased offsets."""
    aborted: tuple[AbortedTransaction, ...]
    """Aborted transactions that begin in a leased segment and end behind the last one."""


class Pick(NamedTuple):
    """Segments of one log to link."""

    log: PartitionLog
    segments: list[Segment]
    spans: list[SegmentSpan]
    stable_offset: int

    @property
    def end_offset(self) -> int:
        """The end of the leased offsets."""
        return self.spans[-1].next_offset


def link(files: LeaseFiles, note: LeaseNote, picks: Sequence[Pick]) -> tuple[LeasedPartition, ...]:
    """Link the segments of all picks; on a worker thread."""
    partitions, links = [], []
    for pick in picks:
        described = []
        for segment, span in zip(pick.segments, pick.spans, strict=True):
            stem = f"{segment.directory}/{segment_name(segment.base_offset)}"
            name = f"{pick.log.topic_partition.partition}-{segment_name(segment.base_offset)}"
            suffixes = [LOG_SUFFIX]
            # An index without entries has no file, or an empty one.
            if segment.offset_index.stored_bytes:
                suffixes.append(_INDEX_SUFFIX)
            if segment.transactions.size:
                suffixes.append(_TRANSACTIONS_SUFFIX)
            links += [(stem + suffix, name + suffix) for suffix in suffixes]
            described.append((span, suffixes))
        partitions.append(_described(pick, described))
    if sum(len(one.aborted) for one in partitions) > LEASE_ABORTED_MAX:
        raise LeaseRefusedError(
            f"more than {LEASE_ABORTED_MAX} aborted transactions end behind the sealed segments",
            hint="Read through Fetch, or ask for fewer partitions.",
        )
    if sum(len(one.epochs) for one in partitions) > LEASE_EPOCHS_MAX:
        raise LeaseRefusedError(
            f"the segments have more than {LEASE_EPOCHS_MAX} leader epochs",
            hint="Read through Fetch, or ask for fewer partitions.",
        )
    files.create(note, links)
    return tuple(partitions)


def _described(pick: Pick, segments: list[tuple[SegmentSpan, list[str]]]) -> LeasedPartition:
    log, end_offset = pick.log, pick.end_offset
    leased = [
        LeasedSegment(*span, _INDEX_SUFFIX in suffixes, _TRANSACTIONS_SUFFIX in suffixes)
        for span, suffixes in segments
    ]
    aborted = log.aborted_transactions(end_offset - 1, end_offset, nowait=False)
    first_offset = leased[0].base_offset
    entries = log.epochs.entries
    starts = [one.start_offset for one in entries[1:]] + [end_offset]
    return LeasedPartition(
        log.topic_partition.partition,
        log.log_start_offset,
        pick.stable_offset,
        tuple(leased),
        tuple(
            entry
            for entry, until in zip(entries, starts, strict=False)
            if entry.start_offset < end_offset and until > first_offset
        ),
        tuple(one for one in aborted if one.last_offset >= end_offset),
    )
