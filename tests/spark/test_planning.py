"""Planning: shares are fair, pieces cover their range exactly, and both are bounded."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.types import TopicPartition
from penstock.spark.errors import OptionError
from penstock.spark.planning import (
    RECORD_BYTES_ASSUMED,
    TASK_BYTES,
    TASKS_BY_BYTES_MAX,
    OffsetRange,
    ReadLimits,
    Splitting,
    admit,
    estimate_record_bytes,
    must_wait,
    split_ranges,
)

A, B, C = (TopicPartition("t", index) for index in range(3))

offsets = st.integers(0, 10**15)
sizes = st.one_of(st.integers(0, 20), st.integers(0, 10**15))
worlds = st.dictionaries(
    st.integers(0, 50), st.tuples(offsets, sizes, st.floats(1.0, 10.0**7)), max_size=12
)
limits = st.builds(
    ReadLimits,
    offsets_max=st.none() | st.integers(1, 2**63 - 1),
    bytes_max=st.none() | st.integers(1, 2**63 - 1),
)


@given(worlds, limits)
def test_a_batch_stays_between_start_and_end_and_starves_nobody(
    world: dict[int, tuple[int, int, float]], limit: ReadLimits
) -> None:
    starts = {TopicPartition("t", i): start for i, (start, _, _) in world.items()}
    ends = {TopicPartition("t", i): start + size for i, (start, size, _) in world.items()}
    record_bytes = {TopicPartition("t", i): size for i, (_, _, size) in world.items()}
    found = admit(starts, ends, limit, record_bytes)
    assert found.keys() == ends.keys()
    for at, until in found.items():
        assert starts[at] <= until <= ends[at]
        if ends[at] > starts[at]:
            assert until > starts[at], "a partition with records gets on"
    taken = {at: found[at] - starts[at] for at in found}
    waiting = sum(1 for at in found if ends[at] > starts[at])
    if limit.offsets_max is not None:
        # One more for each partition: none is starved.
        assert sum(taken.values()) <= limit.offsets_max + waiting
    if limit.bytes_max is not None:
        spent = sum((count - 1) * record_bytes[at] for at, count in taken.items() if count)
        assert spent <= limit.bytes_max * 1.000001 + 1


@given(worlds)
def test_without_limits_everything_is_taken(world: dict[int, tuple[int, int, float]]) -> None:
    starts = {TopicPartition("t", i): start for i, (start, _, _) in world.items()}
    ends = {TopicPartition("t", i): start + size for i, (start, size, _) in world.items()}
    assert admit(starts, ends, ReadLimits(), {}) == ends


def test_a_limit_is_shared_in_proportion() -> None:
    starts, ends = {A: 0, B: 10, C: 5}, {A: 100, B: 210, C: 5}
    assert admit(starts, ends, ReadLimits(offsets_max=30), {}) == {A: 10, B: 30, C: 5}
    # As in Spark: a small partition is not starved, so the limit may be passed by one.
    assert admit(starts, ends, ReadLimits(offsets_max=1), {}) == {A: 1, B: 11, C: 5}


def test_a_limit_of_bytes_is_shared_by_bytes() -> None:
    starts, ends = {A: 0, B: 0}, {A: 1000, B: 1000}
    found = admit(starts, ends, ReadLimits(bytes_max=11_000), {A: 10.0, B: 100.0})
    assert found == {A: 100, B: 100}
    unknown = admit({A: 0}, {A: 10**9}, ReadLimits(bytes_max=10 * RECORD_BYTES_ASSUMED), {})
    assert unknown == {A: 10}


def test_the_stricter_limit_counts() -> None:
    starts, ends = {A: 0}, {A: 1000}
    both = ReadLimits(offsets_max=50, bytes_max=700)
    assert admit(starts, ends, both, {A: 10.0}) == {A: 50}
    assert admit(starts, ends, both, {A: 100.0}) == {A: 7}


def test_a_limit_of_long_max_does_not_overflow() -> None:
    assert admit({A: 5}, {A: 9}, ReadLimits(offsets_max=2**63 - 1), {}) == {A: 9}


def test_a_batch_waits_for_enough_or_long_enough() -> None:
    limit = ReadLimits(offsets_min=10, delay_ms_max=1000)
    assert must_wait({A: 0}, {A: 9}, limit, 999)
    assert not must_wait({A: 0}, {A: 9}, limit, 1000)
    assert not must_wait({A: 0, B: 5}, {A: 9, B: 6}, limit, 0)
    assert not must_wait({A: 0}, {A: 0}, ReadLimits(), 0)


ranges_of = st.lists(st.tuples(offsets, sizes), max_size=10).map(
    lambda found: [
        OffsetRange(TopicPartition("t", i), start, start + min(size, 10**12))
        for i, (start, size) in enumerate(found)
    ]
)
splittings = st.builds(
    Splitting,
    partitions_min=st.none() | st.integers(1, 200),
    records_max=st.none() | st.integers(10**9, 10**12),
    bytes_max=st.integers(10**6, 10**12),
)


@given(ranges_of, splittings, st.floats(0.5, 10.0**6))
def test_pieces_cover_their_ranges_exactly(
    ranges: list[OffsetRange], splitting: Splitting, record_bytes: float
) -> None:
    found = split_ranges(ranges, splitting, {one.at: record_bytes for one in ranges})
    by_partition: dict[TopicPartition, list[OffsetRange]] = {}
    for piece in found:
        assert piece.size > 0
        by_partition.setdefault(piece.at, []).append(piece)
    whole = {one.at: one for one in ranges if one.size}
    assert by_partition.keys() == whole.keys()
    for at, pieces in by_partition.items():
        pieces.sort()
        assert pieces[0].from_offset == whole[at].from_offset
        assert pieces[-1].until_offset == whole[at].until_offset
        for left, right in pairwise(pieces):
            assert left.until_offset == right.from_offset
        if splitting.records_max is not None:
            assert max(piece.size for piece in pieces) <= splitting.records_max
        assert max(piece.size for piece in pieces) - min(piece.size for piece in pieces) <= 1


@given(ranges_of, st.integers(1, 500))
def test_at_least_so_many_tasks_as_far_as_there_are_records(
    ranges: list[OffsetRange], wanted: int
) -> None:
    found = split_ranges(ranges, Splitting(partitions_min=wanted, bytes_max=2**62), {})
    records = sum(one.size for one in ranges)
    parts = sum(1 for one in ranges if one.size)
    # Rounding may cost one task for each partition, as in Spark.
    assert len(found) >= min(wanted - parts, records)
    assert len(found) <= wanted + parts


def test_small_ranges_stay_whole_and_large_ones_are_cut_as_in_spark() -> None:
    small, large = OffsetRange(A, 0, 10), OffsetRange(B, 0, 990)
    found = split_ranges([small, large], Splitting(partitions_min=4, bytes_max=2**40), {})
    assert found == [small, *(OffsetRange(B, edge, edge + 330) for edge in (0, 330, 660))]


def test_large_ranges_are_cut_by_bytes() -> None:
    record_bytes = {A: 100.0}
    one = OffsetRange(A, 7, 7 + 3 * TASK_BYTES // 100)
    assert len(split_ranges([one], Splitting(), record_bytes)) == 3
    assert split_ranges([one], Splitting(bytes_max=10 * TASK_BYTES), record_bytes) == [one]


def test_one_huge_record_is_one_task() -> None:
    one = OffsetRange(A, 0, 1)
    assert split_ranges([one], Splitting(bytes_max=1), {A: 10.0**9}) == [one]


def test_neighbours_read_different_partitions() -> None:
    ranges = [OffsetRange(at, 0, 100) for at in (A, B)]
    found = split_ranges(ranges, Splitting(records_max=50), {})
    assert [(piece.at, piece.from_offset) for piece in found] == [(A, 0), (B, 0), (A, 50), (B, 50)]


def test_more_tasks_than_a_driver_carries_are_refused() -> None:
    with pytest.raises(OptionError, match="maxRecordsPerPartition"):
        split_ranges([OffsetRange(A, 0, 10**9)], Splitting(records_max=1), {})


def test_a_thousand_partitions_with_a_billion_records_each() -> None:
    partitions = [TopicPartition("t", index) for index in range(1000)]
    starts = dict.fromkeys(partitions, 10**9)
    ends = dict.fromkeys(partitions, 2 * 10**9)
    record_bytes = dict.fromkeys(partitions, 200.0)
    began = time.perf_counter()
    untils = admit(starts, ends, ReadLimits(bytes_max=2**62), record_bytes)
    found = split_ranges(
        [OffsetRange(at, starts[at], untils[at]) for at in partitions], Splitting(), record_bytes
    )
    assert len(found) <= TASKS_BY_BYTES_MAX
    assert sum(piece.size for piece in found) == 10**12
    assert time.perf_counter() - began < 2


def test_an_estimate_is_the_mean_of_the_log() -> None:
    found = estimate_record_bytes({A: 1000, B: 0, C: 500}, {A: 10, B: 0, C: 7}, {A: 20, B: 5, C: 7})
    assert found == {A: 100.0}
