"""Data loss: records that a query can no longer read, and where the query continues (pure).

    loss                                       symptom                          continues at
    another cluster responds                   cluster id differs               earliest, all topics
    topic deleted and created again            topic id differs                 earliest
    topic or partition deleted                 missing                          drops it
    records removed before they were read      first offset is after ours       first offset
    log truncated, then written on             our epoch ends before our offset where it ends
    log lost its end                           last offset is before ours       last offset
    new partition without its first records    first offset is not 0            first offset

Each is an error while `failOnDataLoss` is true, and a counted skip to the place in the last column
when it is false. Nothing is decided silently.

It is checked twice: before a batch is decided (`changes`), when the end is compared with the last
position, and when a batch is planned (`readable`), which may be days later, after a restart.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from penstock.core.types import TopicPartition
from penstock.spark.errors import DataLossError
from penstock.spark.offsets import NO_EPOCH, PartitionPosition, StreamOffset
from penstock.spark.planning import OffsetRange

LINES_MAX: Final = 10
"""The maximum number of losses in one text; further losses are only counted."""


class LossKind(Enum):
    """The kind of a loss."""

    OTHER_CLUSTER = "other cluster"
    RECREATED = "recreated"
    DELETED = "deleted"
    REMOVED = "removed"
    TRUNCATED = "truncated"
    BEYOND_END = "beyond the end"
    LATE_START = "late start"


REMEDIES: Final[Mapping[LossKind, str]] = {
    LossKind.OTHER_CLUSTER: (
        "Set kafka.bootstrap.servers to the cluster that the checkpoint belongs to, or start with "
        "a new checkpoint location."
    ),
    LossKind.RECREATED: "Start with a new checkpoint location to read the new topic.",
    LossKind.DELETED: "Take it out of the subscription, with a new checkpoint location.",
    LossKind.REMOVED: (
        "Raise retention.ms or retention.bytes of the topic, or run the query more often."
    ),
    LossKind.TRUNCATED: (
        "Find out what truncated the log (an unclean leader election, a restored disk), and "
        "whether what the query has written must be taken back."
    ),
    LossKind.BEYOND_END: (
        "Find out why the log is shorter (a restored disk, an unclean leader election), and "
        "whether what the query has written must be taken back. If startingOffsets or "
        "endingOffsets named the offset, correct it."
    ),
    LossKind.LATE_START: "Raise retention.ms or retention.bytes, or run the query more often.",
}


_OTHER_LOG: Final = (LossKind.TRUNCATED, LossKind.BEYOND_END)


class Loss(NamedTuple):
    """One loss, as a sentence."""

    kind: LossKind
    at: TopicPartition | None
    """None for a loss of the whole cluster."""
    what: str
    goes_on: str
    """The consequence with failOnDataLoss=false."""
    offsets: int = 0
    """The number of skipped offsets, as far as it is known."""


def suspects(start: StreamOffset, latest: StreamOffset) -> set[TopicPartition]:
    """Return deleted, recreated or shortened partitions: they are looked up again.

    A broker that has not caught up, or has just become leader, may return such ends for a moment.
    """
    if start.cluster_id != latest.cluster_id and start.cluster_id and latest.cluster_id:
        return set()
    return {
        at
        for at, position in start.positions.items()
        if _is_recreated(at.topic, start, latest)
        or at not in latest.positions
        or latest.positions[at].offset < position.offset
    }


def ends_early(start: StreamOffset, latest: StreamOffset) -> list[TopicPartition]:
    """Return suspects with unchanged identity and an earlier end."""
    return [
        at
        for at in suspects(start, latest)
        if at in latest.positions and not _is_recreated(at.topic, start, latest)
    ]


def within(latest: StreamOffset, target: StreamOffset, start: StreamOffset) -> StreamOffset:
    """Return the current ends, bounded by the later one of `target` and `start`.

    Partitions that neither of them has are left out.
    """
    positions = {}
    for at, end in latest.positions.items():
        # A position in a deleted topic of the same name is not a bound.
        same = [target] if _is_recreated(at.topic, start, latest) else [target, start]
        bounds = [one.positions[at].offset for one in same if at in one.positions]
        if bounds:
            positions[at] = PartitionPosition(min(end.offset, max(bounds)), end.leader_epoch)
    return StreamOffset(positions, latest.topic_ids, latest.cluster_id)


def doubtful_epochs(start: StreamOffset, latest: StreamOffset) -> dict[TopicPartition, int]:
    """Return partitions with a newer leader: look up the end of our position's epoch for them."""
    return {
        at: position.leader_epoch
        for at, position in start.positions.items()
        if position.leader_epoch != NO_EPOCH
        and position.offset > 0
        and at in latest.positions
        and latest.positions[at].leader_epoch > position.leader_epoch
        and not _is_recreated(at.topic, start, latest)
    }


def changes(
    start: StreamOffset, latest: StreamOffset, epoch_ends: Mapping[TopicPartition, int]
) -> list[Loss]:
    """Return the losses in the partitions of `start` since that position."""
    if start.cluster_id and latest.cluster_id and start.cluster_id != latest.cluster_id:
        what = (
            f"the checkpoint is of cluster {start.cluster_id}, and kafka.bootstrap.servers leads "
            f"to cluster {latest.cluster_id}"
        )
        return [Loss(LossKind.OTHER_CLUSTER, None, what, "every topic is read from its earliest")]
    found = (
        _change(at, position, start, latest, epoch_ends)
        for at, position in sorted(start.positions.items())
    )
    return [loss for loss in found if loss is not None]


def late_starts(
    start: StreamOffset, earliest: Mapping[TopicPartition, int], losses: Iterable[Loss]
) -> list[Loss]:
    """Return new partitions whose first records were deleted before the query read them.

    A query that reads its topics for the first time has missed nothing.
    """
    explained = {loss.at for loss in losses}
    if None in explained or not start.positions:
        return []
    return [
        Loss(
            LossKind.LATE_START,
            at,
            f"partition {at} is new and begins at offset {first}: its first {first} offsets were "
            "removed before the query saw it",
            f"it is read from offset {first}",
            first,
        )
        for at, first in sorted(earliest.items())
        if first > 0 and at not in start.positions and at not in explained
    ]


def begins(
    start: StreamOffset,
    latest: StreamOffset,
    losses: Sequence[Loss],
    epoch_ends: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the start of the next batch in every partition of `latest`.

    `earliest` has at least the partitions that `needs_earliest` returns.
    """
    kinds = {loss.at: loss.kind for loss in losses}
    places = {}
    for at, end in latest.positions.items():
        kind = LossKind.OTHER_CLUSTER if None in kinds else kinds.get(at)
        if at not in start.positions or kind in (LossKind.OTHER_CLUSTER, LossKind.RECREATED):
            places[at] = earliest[at]
        elif kind is LossKind.TRUNCATED:
            places[at] = epoch_ends[at]
        elif kind is LossKind.BEYOND_END:
            places[at] = end.offset
        else:
            places[at] = start.positions[at].offset
    return places


def needs_earliest(
    start: StreamOffset, latest: StreamOffset, losses: Iterable[Loss]
) -> list[TopicPartition]:
    """Return the partitions that begin at their earliest offset, which must be looked up."""
    kinds = {loss.at: loss.kind for loss in losses}
    return [
        at
        for at in latest.positions
        if None in kinds or at not in start.positions or kinds.get(at) is LossKind.RECREATED
    ]


def readable(
    ranges: Iterable[OffsetRange],
    planned: StreamOffset,
    latest: StreamOffset,
    earliest: Mapping[TopicPartition, int],
) -> tuple[list[OffsetRange], list[Loss]]:
    """Return the readable parts of decided ranges, and the losses in them.

    `planned` has the topic ids of the ranges; `latest` and `earliest` are current.
    """
    kept: list[OffsetRange] = []
    losses: list[Loss] = []
    for one in ranges:
        loss = _gone(one, planned, latest)
        if loss is not None:
            losses.append(loss)
            continue
        first, end = earliest[one.at], latest.positions[one.at].offset
        from_offset = min(max(one.from_offset, first), one.until_offset)
        until_offset = max(min(one.until_offset, end), from_offset)
        if from_offset > one.from_offset:
            losses.append(_removed(one, first, from_offset - one.from_offset))
        if until_offset < one.until_offset:
            losses.append(
                _beyond_end(one.at, one.until_offset, end, one.until_offset - until_offset)
            )
        kept.append(OffsetRange(one.at, from_offset, until_offset))
    return kept, losses


def describe_losses(losses: Sequence[Loss]) -> str:
    """Return the losses as lines, and their sum."""
    lines = [f"- {loss.what}; {loss.goes_on}" for loss in losses[:LINES_MAX]]
    if len(losses) > LINES_MAX:
        lines.append(f"- and {len(losses) - LINES_MAX} more")
    skipped = sum(loss.offsets for loss in losses)
    return "\n".join([*lines, f"partitions touched: {len(losses)}, offsets skipped: {skipped}"])


def data_loss_error(losses: Sequence[Loss]) -> DataLossError:
    """Return the error for failOnDataLoss=true: the losses, the remedies, and how to continue."""
    lines = [f"- {loss.what}." for loss in losses[:LINES_MAX]]
    if len(losses) > LINES_MAX:
        lines.append(f"- and {len(losses) - LINES_MAX} more.")
    kinds = dict.fromkeys(loss.kind for loss in losses)
    remedies = [REMEDIES[kind] for kind in kinds]
    skips = dict.fromkeys(loss.goes_on for loss in losses[:LINES_MAX])
    return DataLossError(
        "\n".join(
            [
                "records that this query has to read are gone, or are not the same any more:",
                *lines,
                *remedies,
                f"Or set failOnDataLoss to false to go on; then {'; '.join(skips)}.",
            ]
        ),
        [loss.what for loss in losses if loss.kind in _OTHER_LOG],
        [loss.what for loss in losses if loss.kind is LossKind.RECREATED],
        [loss.what for loss in losses],
        is_other_cluster=LossKind.OTHER_CLUSTER in kinds,
    )


def _is_recreated(topic: str, start: StreamOffset, latest: StreamOffset) -> bool:
    known, now = start.topic_ids.get(topic), latest.topic_ids.get(topic)
    return known is not None and now is not None and known != now


def _change(
    at: TopicPartition,
    position: PartitionPosition,
    start: StreamOffset,
    latest: StreamOffset,
    epoch_ends: Mapping[TopicPartition, int],
) -> Loss | None:
    if _is_recreated(at.topic, start, latest):
        return _recreated(at, start, latest, 0)
    if at not in latest.positions:
        return _deleted(at, 0)
    end = latest.positions[at].offset
    epoch_end = epoch_ends.get(at, -1)
    if 0 <= epoch_end < position.offset:
        what = (
            f"the log of {at} was truncated at offset {epoch_end} after the query had read to "
            f"{position.offset}: the truncated records are gone or were written anew"
        )
        return Loss(LossKind.TRUNCATED, at, what, f"{at} is read again from offset {epoch_end}")
    if end < position.offset:
        return _beyond_end(at, position.offset, end, 0)
    return None


def _gone(one: OffsetRange, planned: StreamOffset, latest: StreamOffset) -> Loss | None:
    if _is_recreated(one.at.topic, planned, latest):
        return _recreated(one.at, planned, latest, one.size)
    if one.at not in latest.positions:
        return _deleted(one.at, one.size)
    return None


def _recreated(at: TopicPartition, start: StreamOffset, latest: StreamOffset, size: int) -> Loss:
    ids = f"its id was {start.topic_ids[at.topic]} and is {latest.topic_ids[at.topic]}"
    what = f"topic {at.topic} was deleted and created again ({ids}): {at} is another partition"
    goes_on = f"the new {at.topic} is read from its earliest offset"
    return Loss(LossKind.RECREATED, at, what, goes_on, size)


def _deleted(at: TopicPartition, size: int) -> Loss:
    what = f"{at} does not exist any more: its topic was deleted"
    return Loss(LossKind.DELETED, at, what, f"{at} is forgotten", size)


def _removed(one: OffsetRange, first: int, count: int) -> Loss:
    what = (
        f"offsets {one.from_offset} to {one.from_offset + count - 1} of {one.at} were removed by "
        f"retention or DeleteRecords before they were read; it begins at {first} now"
    )
    goes_on = f"{one.at} is read from offset {min(first, one.until_offset)}"
    return Loss(LossKind.REMOVED, one.at, what, goes_on, count)


def _beyond_end(at: TopicPartition, wanted: int, end: int, size: int) -> Loss:
    what = f"offset {wanted} of {at} is wanted, and its log ends at {end}"
    return Loss(LossKind.BEYOND_END, at, what, f"{at} goes on at offset {end}", size)
