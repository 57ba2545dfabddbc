"""The tasks of a batch query: both ends are looked up once, when Spark plans it.

Guarantees: the offsets of each task are decided here, so a repeated task reads the same offsets.
Requested records that are missing (removed before the start, or beyond the end of the log) are a
data loss, reported as in a stream.
"""

from typing import Final

from penstock.spark.errors import OptionError
from penstock.spark.loss.data_loss import readable
from penstock.spark.loss.losses import LossCounter
from penstock.spark.planning import OffsetRange, ReadTask, lag_bytes, split_ranges
from penstock.spark.sealed.sealed_options import SegmentsUse
from penstock.spark.sealed.sealed_segments import Known, SealedSegments
from penstock.spark.source.lookups import Lookups
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.segments import segments_of

SEALED_BYTES_MIN: Final = 67_108_864
"""The size of a query, 64 MiB, from which it asks for leases with `auto`: Spark reports no end to a
batch query, so each lease keeps its place for an hour."""


def plan_batch(
    lookups: Lookups,
    options: SourceOptions,
    losses: LossCounter,
    sealed: SealedSegments | None = None,
    sealed_bytes_min: int = SEALED_BYTES_MIN,
) -> list[ReadTask]:
    """Return the tasks, in starting order."""
    sealed = sealed or segments_of(options)
    assignment = lookups.first_assignment()
    starts = lookups.positions(options.start, assignment, may_be_latest=options.may_start_at_latest)
    ends = lookups.positions(options.end, assignment, may_be_latest=True)
    for at, start in starts.items():
        if start.offset > ends[at].offset:
            raise OptionError(
                options.start.option,
                f"{at} would start at offset {start.offset}, after its end at {ends[at].offset} "
                f"({options.end.option}).",
                "Set a start that is not after the end and not after the last record.",
            )
    latest = lookups.latest()
    ranges = [OffsetRange(at, start.offset, ends[at].offset) for at, start in starts.items()]
    present = [one.at for one in ranges if one.at in latest.positions]
    kept, found = readable(ranges, latest, latest, lookups.earliest(present))
    losses.report(found)
    sizes = lookups.record_bytes({at: latest.positions[at].offset for at in present})
    known = {
        one.at: Known(assignment.topic_ids.get(one.at.topic), latest.positions[one.at].leader_epoch)
        for one in kept
    }
    untils = {one.at: one.until_offset for one in kept}
    is_small = bool(sizes) and lag_bytes(kept, untils, sizes) < sealed_bytes_min
    if is_small and options.sealed.use is not SegmentsUse.ONLY:
        return [
            ReadTask(one, *known[one.at]) for one in split_ranges(kept, options.splitting, sizes)
        ]
    return [
        ReadTask(one, *known[one.at], sealed=split)
        for one, split in sealed.plan(kept, known, latest.cluster_id, sizes)
    ]
