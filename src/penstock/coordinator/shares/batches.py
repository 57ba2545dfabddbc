"""Merges batches of delivery state, as Apache Kafka's share coordinator does. Pure.

Where batches overlap, the higher delivery count stands, and the higher delivery state where the
counts are equal: a late message about a delivery never undoes a later one. Neighbours with one
state become one batch. Batches below the start offset are dropped or cut.

Guarantees of the result: sorted, without overlaps, no two neighbours that could be one. It does NOT
know who writes, and checks no epoch.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from operator import attrgetter
from typing import Final

from penstock.coordinator.shares.ports import StateBatch

ANY_START: Final = -1
"""A start offset that cuts nothing."""

_first = attrgetter("first_offset")
_last = attrgetter("last_offset")


def merged(
    current: Sequence[StateBatch], changes: Iterable[StateBatch], start_offset: int = ANY_START
) -> tuple[StateBatch, ...]:
    """Return `current`, a result of this function, with the changes, from the start offset on.

    Only the batches near a change are merged again: a change of a large state costs little.
    """
    kept = _from_start(current, start_offset)
    changed = [one for batch in changes if (one := _cut(batch, start_offset)) is not None]
    if not changed:
        return tuple(kept)
    low = min(batch.first_offset for batch in changed) - 1
    high = max(batch.last_offset for batch in changed) + 1
    begin = bisect_left(kept, low, key=_last)
    end = bisect_left(kept, high + 1, key=_first)
    between = _overlaid([*kept[begin:end], *changed])
    return (*kept[:begin], *between, *kept[end:])


def _from_start(batches: Sequence[StateBatch], start_offset: int) -> Sequence[StateBatch]:
    if start_offset == ANY_START or not batches or batches[0].first_offset >= start_offset:
        return batches
    kept = list(batches[bisect_left(batches, start_offset, key=_last) :])
    if kept:
        kept[0] = _cut(kept[0], start_offset) or kept[0]
    return kept


def _cut(batch: StateBatch, start_offset: int) -> StateBatch | None:
    """Return the part of a batch from the start offset on; None if there is none."""
    if batch.first_offset >= start_offset or start_offset == ANY_START:
        return batch
    if batch.last_offset < start_offset:
        return None
    return batch._replace(first_offset=start_offset)


def _overlaid(batches: list[StateBatch]) -> list[StateBatch]:
    """Sweep over the offsets; in each stretch the strongest batch stands."""
    batches.sort(key=_first)
    edges = {batch.first_offset for batch in batches}
    edges.update(batch.last_offset + 1 for batch in batches)
    strongest: list[tuple[int, int, int]] = []
    """The batches that cover the stretch: negative count and state, so the strongest is first."""
    result: list[StateBatch] = []
    position = 0
    for offset, behind in pairwise(sorted(edges)):
        while position < len(batches) and batches[position].first_offset <= offset:
            one = batches[position]
            heappush(strongest, (-one.delivery_count, -one.delivery_state, one.last_offset))
            position += 1
        while strongest and strongest[0][2] < offset:
            heappop(strongest)
        if not strongest:
            continue
        count, state, _ = strongest[0]
        _append(result, StateBatch(offset, behind - 1, -state, -count))
    return result


def _append(result: list[StateBatch], batch: StateBatch) -> None:
    """Add a batch behind the others; a neighbour with the same state grows instead."""
    if result:
        last = result[-1]
        if last.last_offset + 1 == batch.first_offset and last[2:] == batch[2:]:
            result[-1] = last._replace(last_offset=batch.last_offset)
            return
    result.append(batch)
