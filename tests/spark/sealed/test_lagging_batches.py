"""Micro-batches: only one that lags asks for leases, and each lease ends with its batch."""

from collections.abc import Mapping, Sequence

import pytest

from penstock.core.types import TopicPartition
from penstock.spark.planning import OffsetRange, ReadLimits, SealedPart, SealedSplit, lag_bytes
from penstock.spark.sealed.sealed_segments import Known, SealedSegments
from penstock.spark.source.micro_batches import SEALED_LAG_BYTES_MIN, MicroBatches
from tests.client.number_cluster import NumberCluster
from tests.spark.source_world import lookups_of, source_options

AT = TopicPartition("orders", 0)
SPLIT = SealedSplit((SealedPart("/x.log", 0, 10, 0, 9),), ())
RECORD_BYTES = 1_000


class FakeSegments(SealedSegments):
    """Leases everything, and counts."""

    def __init__(self) -> None:
        self.plans: list[tuple[Sequence[OffsetRange], str | None]] = []
        self.releases = 0

    @property
    def is_on(self) -> bool:
        return True

    def plan(
        self,
        ranges: Sequence[OffsetRange],
        known: Mapping[TopicPartition, Known],
        cluster_id: str | None,
        record_bytes: Mapping[TopicPartition, float],
    ) -> list[tuple[OffsetRange, SealedSplit | None]]:
        assert set(known) == {one.at for one in ranges}
        assert record_bytes
        self.plans.append((list(ranges), cluster_id))
        return [(one, SPLIT) for one in ranges]

    def release(self) -> None:
        self.releases += 1


def stream_with(cluster: NumberCluster, segments: FakeSegments) -> MicroBatches:
    options = source_options(startingOffsets="earliest", maxOffsetsPerTrigger="1000")
    return MicroBatches(lookups_of(cluster, options), options, cluster.clock, sealed=segments)


def test_a_batch_that_lags_reads_files_and_a_newer_one_fetches() -> None:
    over = SEALED_LAG_BYTES_MIN // RECORD_BYTES + 1
    cluster = NumberCluster()
    cluster.set_topic("orders", over + 1_000)
    cluster.sizes[AT] = (over + 1_000) * RECORD_BYTES
    segments = FakeSegments()
    stream = stream_with(cluster, segments)
    document = stream.initial_offset()
    used = []
    for _ in range(4):
        end = stream.latest_offset(document, ReadLimits(offsets_max=1_000))
        tasks = stream.plan(document, end)
        assert stream.plan(document, end) is tasks, "a plan that is repeated leases nothing"
        used.append([task.sealed for task in tasks])
        assert sum(task.range.size for task in tasks) == 1_000
        document = end
    assert used == [[SPLIT], [SPLIT], [None], [None]]
    assert [one.from_offset for (one,), _ in segments.plans] == [0, 1_000]
    assert {cluster_id for _, cluster_id in segments.plans} == {"fake-cluster"}
    assert segments.releases == 4, "the lease of each batch ends with the next plan"
    stream.stop()
    assert segments.releases == 5


def test_a_small_topic_never_asks_for_a_lease() -> None:
    cluster = NumberCluster()
    cluster.set_topic("orders", 5_000)
    cluster.sizes[AT] = 5_000 * RECORD_BYTES
    segments = FakeSegments()
    stream = stream_with(cluster, segments)
    document = stream.initial_offset()
    for _ in range(5):
        end = stream.latest_offset(document, ReadLimits(offsets_max=1_000))
        assert all(task.sealed is None for task in stream.plan(document, end))
        document = end
    assert segments.plans == []


@pytest.mark.parametrize(("begin", "expected"), [(0, 1_000), (40, 600), (100, 0)])
def test_the_lag_counts_to_the_end_of_the_partition(begin: int, expected: int) -> None:
    ranges = [OffsetRange(AT, begin, begin + 1)]
    assert lag_bytes(ranges, {AT: 100}, {AT: 10.0}) == expected
