"""Decisions about leases: the leased segments, how long, and which lease ends first (pure).

Guarantees: a lease has sealed segments only, each wholly below the last stable offset, so that no
later append, marker or truncation of uncommitted records changes the leased bytes. A lease that a
former process granted ends if the clock was set back by more than a few minutes since, and has no
more time than it was granted. Every number of a request is within its bound.

It does NOT touch files: `lease_files` does.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from penstock.core.errors import StorageError
from penstock.core.lease_limits import (
    LEASE_CLOCK_STEP_MS_MAX,
    LEASE_SECONDS_MAX,
    LEASES_MAX,
    LEASES_OF_PRINCIPAL_MAX,
)
from penstock.core.types import TopicPartition

LEASE_ID: Final = re.compile(r"[0-9a-f]{32}")
_VERSION: Final = 1


class LeaseRefusedError(StorageError):
    """The request for a lease is outside its bounds."""


class LeaseUnavailableError(LeaseRefusedError):
    """The broker grants no lease now; nothing was linked."""


class LeaseWish(NamedTuple):
    """Offsets of one partition to lease."""

    partition: TopicPartition
    from_offset: int
    until_offset: int
    stable_offset: Callable[[], int]
    """The last stable offset, when it is needed."""
    topic_id: UUID | None = None
    """The id of the topic, if its log must have it."""


class SkippedCode(Enum):
    """Why segments of a partition are not leased; the names are part of the HTTP interface."""

    NOTHING_SEALED = "it has no sealed segment with these offsets"
    NOT_LED = "it cannot be read at this broker"
    NOT_SERVED = "its log is not served here"
    OTHER_TOPIC = "its log is of another topic with the same name"
    COMPACTING = "compaction exchanges its segments"
    OTHER_DIRECTORY = "its log is in another data directory: request it separately"
    TOO_MANY = "the lease has the largest number of segments: request the other offsets separately"


class Skipped(NamedTuple):
    """A partition without a leased segment, or with a part of them."""

    partition: int
    code: SkippedCode


class LeaseCounts(NamedTuple):
    """Leases whose files are not gone."""

    total: int
    own: int
    """Those of the principal that requests one."""


class SegmentSpan(NamedTuple):
    """A sealed segment of a log: its offsets and its size."""

    base_offset: int
    next_offset: int
    size_bytes: int


class LeaseNote(NamedTuple):
    """A lease, as its file describes it."""

    lease_id: str
    topic: str
    principal: str
    created_ms: int
    expires_ms: int
    ends: tuple[tuple[int, int], ...]
    """The end of the leased offsets of each partition."""
    segment_count: int
    size_bytes: int

    def ends_after(self, partition: TopicPartition, offset: int) -> bool:
        """Return whether the lease has records of the partition at or above `offset`."""
        return self.topic == partition.topic and any(
            number == partition.partition and end > offset for number, end in self.ends
        )


def spans_of(bases: Sequence[int], sizes: Sequence[int]) -> list[SegmentSpan]:
    """Return the sealed segments of a log, from all its segments: the last one is not sealed."""
    return [
        SegmentSpan(base, following, size)
        for base, following, size in zip(bases, bases[1:], sizes, strict=False)
    ]


def leased_spans(
    spans: Iterable[SegmentSpan], wish: LeaseWish, log_start_offset: int
) -> list[SegmentSpan]:
    """Return the segments of a wish, in order."""
    begin, stable_offset = max(wish.from_offset, log_start_offset), wish.stable_offset()
    return [
        one
        for one in spans
        if one.size_bytes > 0
        and one.next_offset > begin
        and one.base_offset < wish.until_offset
        and one.next_offset <= stable_offset
    ]


def require_possible(seconds: int, counts: LeaseCounts, *, is_disk_low: bool) -> None:
    """Raise the reason why no lease is granted."""
    if not 0 < seconds <= LEASE_SECONDS_MAX:
        raise LeaseRefusedError(
            f"a lease of {seconds} s is outside of 1 to {LEASE_SECONDS_MAX} s",
            hint="Ask for a shorter one, and renew it with a new lease.",
        )
    if counts.own >= LEASES_OF_PRINCIPAL_MAX:
        raise LeaseUnavailableError(
            f"the principal has {counts.own} leases, its limit is {LEASES_OF_PRINCIPAL_MAX}",
            hint="Release one (DELETE /api/v1/leases/{lease}), or read through Fetch.",
        )
    if counts.total >= LEASES_MAX:
        raise LeaseUnavailableError(
            f"there are {counts.total} leases, the limit is {LEASES_MAX}",
            hint="Release one (DELETE /api/v1/leases/{lease}), or read through Fetch.",
        )
    if is_disk_low:
        raise LeaseUnavailableError(
            "the disk is low, and a lease would keep deleted segments",
            hint="Free disk space, or read through Fetch.",
        )


def seconds_left(note: LeaseNote, now_ms: int) -> float:
    """Return the time that a lease of a former process has left.

    Its process has no monotonic clock in common with this one. A small step of the clock backwards
    (time synchronisation) does not end it and does not extend it.
    """
    if now_ms < note.created_ms - LEASE_CLOCK_STEP_MS_MAX:
        return 0.0
    left_ms = min(note.expires_ms - now_ms, note.expires_ms - note.created_ms)
    return min(max(left_ms / 1_000, 0.0), float(LEASE_SECONDS_MAX))


def by_age(notes: Iterable[LeaseNote]) -> list[LeaseNote]:
    """Return the leases, the oldest first."""
    return sorted(notes, key=lambda note: (note.created_ms, note.lease_id))


def note_bytes(note: LeaseNote) -> bytes:
    """Return the file of a lease."""
    fields = note._asdict()
    fields["ends"] = [list(end) for end in note.ends]
    return json.dumps({"version": _VERSION, **fields}).encode()


def read_note(data: bytes) -> LeaseNote | None:
    """Return the lease of a file; None if the file is not one."""
    try:
        fields = json.loads(data)
        if fields.pop("version") != _VERSION:
            return None
        ends = tuple((int(number), int(end)) for number, end in fields.pop("ends"))
        note = LeaseNote(ends=ends, **fields)
        texts = (note.lease_id, note.topic, note.principal)
        numbers = (note.created_ms, note.expires_ms, note.segment_count, note.size_bytes)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    is_sound = all(isinstance(one, str) for one in texts) and all(
        isinstance(one, int) for one in numbers
    )
    return note if is_sound and LEASE_ID.fullmatch(note.lease_id) else None
