"""The bounds of leases and the choice of segments: each number at its limit and beyond."""

from functools import partial

import pytest

from penstock.core.lease_limits import (
    LEASE_CLOCK_STEP_MS_MAX,
    LEASE_SECONDS_MAX,
    LEASES_MAX,
    LEASES_OF_PRINCIPAL_MAX,
)
from penstock.core.types import TopicPartition
from penstock.storage.leases.lease_rules import (
    LeaseCounts,
    LeaseNote,
    LeaseRefusedError,
    LeaseUnavailableError,
    LeaseWish,
    by_age,
    leased_spans,
    note_bytes,
    read_note,
    require_possible,
    seconds_left,
    spans_of,
)

AT = TopicPartition("orders", 0)
NOTE = LeaseNote("0" * 32, "orders", "User:a", 1_000, 61_000, ((0, 30), (2, 40)), 3, 3_000)


def wish(begin: int, end: int, stable: int) -> LeaseWish:
    return LeaseWish(AT, begin, end, partial(int, stable))


@pytest.mark.parametrize(
    ("begin", "end", "stable", "log_start", "expected"),
    [
        (0, 100, 100, 0, [0, 10, 20]),
        (0, 100, 30, 0, [0, 10, 20]),
        (0, 100, 29, 0, [0, 10]),
        (0, 100, 9, 0, []),
        (10, 20, 100, 0, [10]),
        (9, 21, 100, 0, [0, 10, 20]),
        (0, 100, 100, 10, [10, 20]),
        (0, 100, 100, 11, [10, 20]),
        (20, 20, 100, 0, []),
        (30, 40, 100, 0, []),
    ],
)
def test_the_leased_segments(
    begin: int, end: int, stable: int, log_start: int, expected: list[int]
) -> None:
    """Segments at 0, 10 and 20 are sealed; the one at 30 is active."""
    spans = spans_of([0, 10, 20, 30], [500, 500, 500, 100])
    found = leased_spans(spans, wish(begin, end, stable), log_start)
    assert [one.base_offset for one in found] == expected


def test_segments_without_records_are_not_leased() -> None:
    spans = spans_of([0, 10, 20], [500, 0, 100])
    assert [one.base_offset for one in leased_spans(spans, wish(0, 99, 99), 0)] == [0]


@pytest.mark.parametrize("seconds", [1, LEASE_SECONDS_MAX])
def test_a_lease_at_each_bound_is_granted(seconds: int) -> None:
    counts = LeaseCounts(LEASES_MAX - 1, LEASES_OF_PRINCIPAL_MAX - 1)
    require_possible(seconds, counts, is_disk_low=False)


@pytest.mark.parametrize("seconds", [-1, 0, LEASE_SECONDS_MAX + 1, 1 << 70])
def test_other_times_are_refused(seconds: int) -> None:
    with pytest.raises(LeaseRefusedError, match="outside of 1 to 86400"):
        require_possible(seconds, LeaseCounts(0, 0), is_disk_low=False)


def test_too_many_leases_and_a_low_disk_are_refused_for_now() -> None:
    with pytest.raises(LeaseUnavailableError, match="the limit is 100"):
        require_possible(60, LeaseCounts(LEASES_MAX, 0), is_disk_low=False)
    with pytest.raises(LeaseUnavailableError, match="its limit is 20"):
        require_possible(60, LeaseCounts(20, LEASES_OF_PRINCIPAL_MAX), is_disk_low=False)
    with pytest.raises(LeaseUnavailableError, match="disk is low"):
        require_possible(60, LeaseCounts(0, 0), is_disk_low=True)


def test_the_time_that_a_loaded_lease_has_left() -> None:
    assert seconds_left(NOTE, 2_000) == 59.0
    assert seconds_left(NOTE, 60_999) == 0.001
    assert seconds_left(NOTE, 61_000) == seconds_left(NOTE, 99_000) == 0.0
    assert seconds_left(NOTE, 999) == 60.0, "a small step backwards does not end a lease"
    assert seconds_left(NOTE, 1_000 - LEASE_CLOCK_STEP_MS_MAX) == 60.0
    assert seconds_left(NOTE, 999 - LEASE_CLOCK_STEP_MS_MAX) == 0.0
    damaged = NOTE._replace(expires_ms=1 << 60)
    assert seconds_left(damaged, 2_000) == LEASE_SECONDS_MAX


def test_a_lease_ends_after_a_cut_below_its_end() -> None:
    assert NOTE.ends_after(TopicPartition("orders", 0), 29)
    assert not NOTE.ends_after(TopicPartition("orders", 0), 30)
    assert NOTE.ends_after(TopicPartition("orders", 2), 39)
    assert not NOTE.ends_after(TopicPartition("orders", 1), 0)
    assert not NOTE.ends_after(TopicPartition("users", 0), 0)


def test_the_oldest_comes_first() -> None:
    other = NOTE._replace(lease_id="1" * 32, created_ms=999)
    assert by_age([NOTE, other]) == [other, NOTE]


def test_the_file_of_a_lease_is_read_back() -> None:
    assert read_note(note_bytes(NOTE)) == NOTE


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"version": 2}',
        b"[" * 100_000,
        note_bytes(NOTE).replace(b'"topic"', b'"theme"'),
        note_bytes(NOTE).replace(b"61000", b'"soon"'),
        note_bytes(NOTE).replace(b"0" * 32, b"../../../etc"),
        note_bytes(NOTE).replace(b"[0, 30]", b"[0]"),
        note_bytes(NOTE)[:-20],
    ],
)
def test_a_damaged_file_is_not_a_lease(data: bytes) -> None:
    assert read_note(data) is None
