"""Searches by time: exact for every codec, in slices, stoppable, and mostly without decoding."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import WorkCancelledError
from penstock.core.limits import LOOKUP_SLICE_RECORDS
from penstock.records.batch import read_header
from penstock.records.builder import build_batch
from penstock.records.compression import CODEC_NAMES
from penstock.records.record import Record
from penstock.storage.log import log_search
from penstock.storage.log.log_types import TimestampAndOffset
from penstock.storage.log.partition_log import PartitionLog
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.logs import PARTITION, SMALL, Batch, batch, new_log, open_manager

LOG_APPEND_TIME = 1


def timed(times: list[int], *, codec: int = 0, timestamp_type: int = 0) -> Batch:
    """A batch whose records have these timestamps."""
    data = build_batch(
        [Record(value=b"v", timestamp_ms=time) for time in times],
        codec=codec,
        timestamp_type=timestamp_type,
    )
    header = read_header(data)
    highest = max(times)
    if timestamp_type == LOG_APPEND_TIME:
        return Batch(header, memoryview(data), highest, 0)
    return Batch(header, memoryview(data), highest, times.index(highest) if highest >= 0 else -1)


class Decodes:
    """Counts how often a batch is unfolded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        first_at = log_search._first_at

        def counted(*given: object) -> TimestampAndOffset | None:
            self.count += 1
            return first_at(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(log_search, "_first_at", counted)


BATCHES = st.lists(
    st.tuples(
        st.lists(st.integers(-1, 60), min_size=1, max_size=8),
        st.integers(0, len(CODEC_NAMES) - 1),
        st.sampled_from([0, 0, 0, LOG_APPEND_TIME]),
    ),
    min_size=1,
    max_size=6,
)


@given(batches=BATCHES, start=st.integers(0, 12), restarts=st.booleans())
def test_searches_equal_a_look_at_every_record(
    batches: list[tuple[list[int], int, int]], start: int, restarts: bool
) -> None:
    """Guards the answers of slices: first record at or after each time, first of the highest."""
    disk = MemoryDisk()
    manager, log = new_log(disk)
    records: list[tuple[int, int]] = []
    for times, codec, timestamp_type in batches:
        log.append(timed(times, codec=codec, timestamp_type=timestamp_type), leader_epoch=3)
        is_broker_time = timestamp_type == LOG_APPEND_TIME
        stored = [max(times)] * len(times) if is_broker_time else times
        records += [(time, len(records) + number) for number, time in enumerate(stored)]
    manager.flushers[0].sync_now()
    if restarts:
        manager.close()
        log = open_manager(disk).logs[PARTITION]
    highest = max(time for time, _ in records)
    found = None
    if highest >= 0:
        offset = next(offset for time, offset in records if time == highest)
        found = TimestampAndOffset(highest, offset, 3)
    assert log.max_timestamp() == log.max_timestamp() == found
    log.advance_start(min(start, log.end_offset))
    for target in range(62):
        wanted = next(
            (
                TimestampAndOffset(time, offset, 3)
                for time, offset in records
                if time >= target and offset >= log.log_start_offset
            ),
            None,
        )
        assert log.offset_for_timestamp(target) == wanted


def test_the_record_with_the_highest_timestamp_is_known_from_its_append(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guards defect 5: MAX_TIMESTAMP decoded a batch of a million records for each request."""
    _, log = new_log(MemoryDisk())
    log.append(timed([5, 9, 9, 2], codec=4), leader_epoch=1)
    log.append(timed([3, 4], codec=4), leader_epoch=1)
    decodes = Decodes(monkeypatch)
    assert log.max_timestamp() == TimestampAndOffset(9, 1, 1)
    assert decodes.count == 0
    log.append(timed([1, 12, 12]), leader_epoch=1)
    assert log.max_timestamp() == TimestampAndOffset(12, 7, 1)
    assert decodes.count == 0


def test_after_a_start_one_search_finds_it_and_it_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk)
    log.append(timed([5, 9, 9, 2], codec=4), leader_epoch=1)
    manager.flushers[0].sync_now()
    manager.close()
    log = open_manager(disk).logs[PARTITION]
    decodes = Decodes(monkeypatch)
    for _ in range(3):
        assert log.max_timestamp() == TimestampAndOffset(9, 1, 1)
    assert decodes.count == 1
    log.append(timed([7, 20]), leader_epoch=1)
    assert log.max_timestamp() == TimestampAndOffset(20, 5, 1)
    assert decodes.count == 1


def test_what_a_slow_search_found_does_not_replace_a_newer_append() -> None:
    """A search on a thread notes its record after an append on the loop made another the newest."""
    _, log = new_log(MemoryDisk())
    log.append(timed([5, 9]), leader_epoch=1)
    log.append(timed([5, 5, 11]), leader_epoch=1)
    log.active.note_max_record(1, 1)
    assert log.max_timestamp() == TimestampAndOffset(11, 4, 1)


def test_a_truncated_segment_forgets_its_highest_record() -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk)
    log.append(timed([5, 9, 1]), leader_epoch=1)
    log.append(timed([7, 8, 30]), leader_epoch=1)
    manager.flushers[0].sync_now()
    manager.truncate_log(PARTITION, 3)
    log.append(timed([7, 30, 30]), leader_epoch=1)
    assert log.max_timestamp() == TimestampAndOffset(30, 4, 1)


def large_log() -> PartitionLog:
    """One batch of several slices, as a start finds it."""
    disk = MemoryDisk()
    manager, log = new_log(disk, replace(SMALL, segment_bytes=1 << 20))
    log.append(batch(3 * LOOKUP_SLICE_RECORDS, size=1, timestamp_ms=0, codec=4), leader_epoch=0)
    manager.flushers[0].sync_now()
    manager.close()
    return open_manager(disk).logs[PARTITION]


def test_a_search_gives_others_their_turn_inside_a_batch() -> None:
    """Guards defect 5: a search held the interpreter for as long as its batch was large."""
    log = large_log()
    turns: list[int] = []
    found = log.offset_for_timestamp(3 * LOOKUP_SLICE_RECORDS - 1, lambda: turns.append(1))
    assert found == TimestampAndOffset(
        3 * LOOKUP_SLICE_RECORDS - 1, 3 * LOOKUP_SLICE_RECORDS - 1, 0
    )
    within_batch = len(turns)
    turns.clear()
    log.offset_for_timestamp(0, lambda: turns.append(1))
    assert within_batch - len(turns) == 2


@pytest.mark.parametrize("turns_before", range(6))
def test_a_search_can_be_stopped_at_every_turn(turns_before: int) -> None:
    """Guards defect 6: a stop waited until a search had decoded its batch to the end."""
    log, turns = large_log(), 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        if turns > turns_before:
            raise WorkCancelledError("enough")

    with pytest.raises(WorkCancelledError):
        log.offset_for_timestamp(3 * LOOKUP_SLICE_RECORDS - 1, turn)
    assert turns == turns_before + 1
