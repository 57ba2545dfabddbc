"""The start of a pipeline's batches: the table's position (pure).

A checkpoint has Spark's position; the table has its own. They differ after a checkpoint was deleted
or set back, and after a table was rolled back, dropped or exchanged. The table is right:

    checkpoint position of a partition         the batch begins
    before the table's position                at the table's position
    after the table's position                 at the table's position: records are missing
    the table has no position                  at its earliest offset
    not subscribed to any more                 nowhere: it is dropped
    in a recreated topic                       there: it is offered, and the commit stops

Reading cannot correct one case: a log that ends before the table's position, or was rewritten from
there. Other records then have the offsets of rows in the table. This is an error with any value of
`failOnDataLoss`, because no batch can write the new records and delete the old ones.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from penstock.core.types import TopicPartition
from penstock.spark.errors import DataLossError
from penstock.spark.offsets import PartitionPosition, StreamOffset
from penstock.spark.source.subscription import Subscription
from penstock.spark.tables.commit.stops import RECREATED_REMEDY


def subscribed(offset: StreamOffset, subscription: Subscription) -> StreamOffset:
    """Return the position without partitions that are no longer read."""
    left = {at: one for at, one in offset.positions.items() if subscription.covers(at)}
    if len(left) == len(offset.positions):
        return offset
    begins = {at: begin for at, begin in offset.begins.items() if at in left}
    return replace(offset, positions=left, begins=begins)


def behind(planned: StreamOffset, held: StreamOffset) -> list[TopicPartition]:
    """Return partitions with records missing in the table: their first offsets are looked up."""
    return [
        at
        for at, position in planned.positions.items()
        if _is_same_topic(at, planned, held)
        and position.offset > (held.positions[at].offset if at in held.positions else 0)
    ]


def unknown(
    planned: StreamOffset, held: StreamOffset, subscription: Subscription
) -> list[TopicPartition]:
    """Return partitions that the table has and a checkpoint does not have."""
    return [at for at in held.positions if at not in planned.positions and subscription.covers(at)]


def met(planned: StreamOffset, held: StreamOffset, there: Iterable[TopicPartition]) -> StreamOffset:
    """Return the position with these partitions, which continue at the table's position."""
    more = {at: held.positions[at] for at in there}
    return replace(planned, positions={**planned.positions, **more}) if more else planned


def corrected(
    planned: StreamOffset, held: StreamOffset, earliest: Mapping[TopicPartition, int]
) -> StreamOffset:
    """Return the start of a batch, corrected by the table's position.

    `earliest` has the partitions of `behind` that exist. Deleted records are not requested again.
    The result is `planned` itself if nothing differs.
    """
    positions = dict(planned.positions)
    for at, position in planned.positions.items():
        place = held.positions.get(at)
        if not _is_same_topic(at, planned, held):
            continue
        if place is not None and place.offset > position.offset:
            positions[at] = place
        elif at in earliest and earliest[at] < position.offset:
            positions[at] = place or PartitionPosition(earliest[at])
    if positions == planned.positions:
        return planned
    return replace(planned, positions=positions, begins={})


def with_begins(end: StreamOffset, planned: StreamOffset, right: StreamOffset) -> StreamOffset:
    """Return the end of a batch, with `begins` where its start differs from the planned one."""
    begins = {
        at: min(place.offset, end.positions[at].offset)
        for at, place in right.positions.items()
        if at in end.positions and place.offset != _offset_at(planned, at)
    }
    return replace(end, begins={**end.begins, **begins}) if begins else end


def beginning(start: StreamOffset, end: StreamOffset) -> StreamOffset:
    """Return the start of a batch from its two documents, for their partitions."""
    places = {
        **{at: one for at, one in start.positions.items() if at in end.positions},
        **{at: PartitionPosition(one) for at, one in end.begins.items() if at in end.positions},
    }
    return StreamOffset(places, end.topic_ids, end.cluster_id)


@contextmanager
def second_log_refused() -> Iterator[None]:
    """Translate errors of losses: some have other remedies in a pipeline than in a query."""
    try:
        yield
    except DataLossError as error:
        if error.recreated:
            raise DataLossError(f"{error.recreated[0]}. {RECREATED_REMEDY}") from None
        if not error.other_logs:
            raise
        raise _second_log(error.other_logs) from None


def require_no_second_log(start: StreamOffset, end: StreamOffset) -> None:
    """Reject a batch that begins before `start`, the table's position."""
    lost = [
        f"the table holds {at} up to offset {start.positions[at].offset}, and its log ends at "
        f"{begin} or was written anew from there"
        for at, begin in sorted(end.begins.items())
        if at in start.positions
        and begin < start.positions[at].offset
        and _is_same_topic(at, end, start)
    ]
    if lost:
        raise _second_log(lost)


def _second_log(lost: Sequence[str]) -> DataLossError:
    return DataLossError(
        f"the topic lost records that the table has: {'; '.join(lost[:5])} (partitions: "
        f"{len(lost)}). Other records have their offsets now or will have them, so failOnDataLoss "
        "does not help. Find out what happened to the log (an unclean leader election, a restored "
        "disk), and compare it with the table. To continue, delete the rows that the topic no "
        "longer has, and give the pipeline a new name and the offsets at which it should "
        "continue. If the pipeline has committed nothing yet, startingOffsets was beyond the end: "
        "correct it, and give the pipeline a new name."
    )


def _offset_at(place: StreamOffset, at: TopicPartition) -> int | None:
    return place.positions[at].offset if at in place.positions else None


def _is_same_topic(at: TopicPartition, one: StreamOffset, other: StreamOffset) -> bool:
    """Return whether the ids are equal; unknown ids and topics of only one side are equal."""
    known, held = one.topic_ids.get(at.topic), other.topic_ids.get(at.topic)
    return known is None or held is None or known == held
