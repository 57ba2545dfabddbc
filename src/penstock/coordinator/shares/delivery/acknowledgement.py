"""`plan_acknowledged`: the records that an acknowledgement changes, and their new states. Pure.

A member acknowledges ranges of offsets, each with one type for all of them or one for each:

    0 gap       the offset has no record     ARCHIVED
    1 accept    processed                    ACKNOWLEDGED
    2 release   deliver it again             AVAILABLE, ARCHIVED at the delivery limit
    3 reject    cannot be processed          ARCHIVED
    4 renew     needs more time              a new lock, the same count; nothing is written

With a dead-letter topic, 3, and 2 at the delivery limit, become ARCHIVING.

An acknowledgement is valid as a whole or refused as a whole. A range below the start offset is
ignored: its records are gone. This module changes nothing.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from penstock.coordinator.shares.delivery.runs import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    RunMap,
)
from penstock.coordinator.shares.ports import Refusal
from penstock.protocol.error_codes import ErrorCode

GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4

BATCHES_MAX: Final = 10_000
"""Batches for one partition, and types of one batch: the most records that can be in flight
(group.share.max.partition.max.record.locks)."""

_TARGETS: Final = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: ARCHIVED}


class Acknowledged(NamedTuple):
    """A range of offsets, and the types of their acknowledgements."""

    first: int
    last: int
    types: Sequence[int]
    """One for all records, or one for each."""


class Span(NamedTuple):
    """Consecutive offsets that are acknowledged with one type."""

    first: int
    last: int
    kind: int

    @property
    def target(self) -> int:
        """The state after it; RENEW has none."""
        return _TARGETS[self.kind]


def check_request(
    batches: Sequence[Acknowledged], *, types_max: int, may_renew: bool
) -> Refusal | None:
    """Return the error of an acknowledgement that no state could make valid."""
    if len(batches) > BATCHES_MAX:
        return _invalid(f"{len(batches)} batches for a partition; the limit is {BATCHES_MAX}")
    end = -1
    for batch in batches:
        count, size = len(batch.types), batch.last - batch.first + 1
        if size <= 0 or batch.first < end:
            return _invalid(f"offsets {batch.first} to {batch.last} do not follow each other")
        if count == 0 or (count > 1 and count != size):
            return _invalid(f"{count} acknowledge types for {size} offsets")
        if count > BATCHES_MAX:
            return _invalid(f"{count} acknowledge types in a batch; the limit is {BATCHES_MAX}")
        if any(kind < GAP or kind > types_max for kind in batch.types):
            return _invalid(f"an acknowledge type is not between {GAP} and {types_max}")
        if not may_renew and RENEW in batch.types:
            return _invalid("a renewal in a request that does not announce one")
        end = batch.last
    return None


def _invalid(why: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, f"invalid acknowledgement: {why}")


def plan_acknowledged(
    runs: RunMap, member: str, batches: Sequence[Acknowledged]
) -> list[Span] | Refusal:
    """Return the spans to change, or the reason why the member may not acknowledge them."""
    spans: list[Span] = []
    for batch in batches:
        if batch.last < runs.start:
            continue
        if spans and batch.first <= spans[-1].last:
            why = f"offset {batch.first} is acknowledged twice"
            return Refusal(ErrorCode.INVALID_RECORD_STATE, why)
        if batch.last >= runs.end:
            why = f"offset {batch.last} was not acquired; the last one is {runs.end - 1}"
            return Refusal(ErrorCode.INVALID_REQUEST, why)
        for run in runs.covering(batch.first, batch.last):
            if run.state != ACQUIRED or run.change is not None:
                why = f"offset {max(run.first, batch.first)} is not acquired"
                return Refusal(ErrorCode.INVALID_RECORD_STATE, why)
            if run.member != member:
                why = f"offset {max(run.first, batch.first)} is acquired by another member"
                return Refusal(ErrorCode.INVALID_RECORD_STATE, why)
        spans.extend(_spans(batch, runs.start))
    return spans


def _spans(batch: Acknowledged, start: int) -> Iterator[Span]:
    if len(batch.types) == 1:
        yield Span(max(batch.first, start), batch.last, batch.types[0])
        return
    begin = max(batch.first, start)
    kind = batch.types[begin - batch.first]
    for offset in range(begin + 1, batch.last + 1):
        if batch.types[offset - batch.first] != kind:
            yield Span(begin, offset - 1, kind)
            begin, kind = offset, batch.types[offset - batch.first]
    yield Span(begin, batch.last, kind)
