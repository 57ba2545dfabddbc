"""Retention deletes by time, by size, by start; never uncommitted records."""

from typing import NamedTuple

from penstock.storage.log.retention import expired_count


class Aged(NamedTuple):
    size: int
    max_timestamp_ms: int
    modified_ms: int = -(10**9)
    """Of no account while a record has a timestamp."""


SEGMENTS = [Aged(100, 1_000), Aged(100, 2_000), Aged(50, 3_000)]
ENDS = [10, 20, 25]


def count(
    segments: list[Aged] = SEGMENTS,
    *,
    now_ms: int = 0,
    retention_ms: int = -1,
    retention_bytes: int = -1,
    log_start_offset: int = 0,
    offset_limit: int = 25,
) -> int:
    return expired_count(
        segments,
        ENDS[: len(segments)],
        now_ms=now_ms,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        log_start_offset=log_start_offset,
        offset_limit=offset_limit,
    )


def test_nothing_goes_by_default() -> None:
    assert count(now_ms=10**15) == 0


def test_by_time_the_last_one_goes_too() -> None:
    assert count(now_ms=2_001, retention_ms=1_000) == 1
    assert count(now_ms=2_000, retention_ms=1_000) == 0
    assert count(now_ms=9_999, retention_ms=1_000) == 3


def test_by_size_the_last_one_stays() -> None:
    assert count(retention_bytes=250) == 0
    assert count(retention_bytes=151) == 0
    assert count(retention_bytes=150) == 1
    assert count(retention_bytes=0) == 2


def test_by_start() -> None:
    assert count(log_start_offset=19) == 1
    assert count(log_start_offset=20) == 2
    assert count(log_start_offset=25) == 2


def test_what_is_not_committed_stays() -> None:
    assert count(now_ms=9_999, retention_ms=1_000, offset_limit=19) == 1
    assert count(retention_bytes=0, offset_limit=9) == 0


def test_segments_without_timestamps_are_as_old_as_their_files() -> None:
    """Or one of them keeps everything behind it for ever, whatever `retention.ms` says."""
    segments = [Aged(100, -1, 1_500), Aged(100, 1_000), Aged(50, 1_200)]
    assert count(segments, now_ms=2_500, retention_ms=1_000) == 0
    assert count(segments, now_ms=2_501, retention_ms=1_000) == 3
    assert count(segments, now_ms=10**15) == 0, "not without retention.ms"


def test_the_file_of_a_segment_with_timestamps_does_not_count() -> None:
    assert count([Aged(100, 0, 10**15)], now_ms=2_000, retention_ms=1_000) == 1


def test_it_stops_at_the_first_that_stays() -> None:
    assert count([Aged(100, 5_000), Aged(100, 1), Aged(1, 1)], now_ms=3_000, retention_ms=1) == 0


def test_an_empty_segment_stays() -> None:
    assert count([Aged(0, -1)], retention_bytes=0) == 0
