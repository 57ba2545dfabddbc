"""Sparse indexes: search, zero tails, soundness; and the file with its tail in memory."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.storage.disk.open_files import OpenFiles
from penstock.storage.log.index import (
    OFFSET_ENTRY,
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY,
    TIME_ENTRY_BYTES,
    OffsetEntry,
    TimeEntry,
    entries_below,
    floor_by_offset,
    floor_by_position,
    floor_by_time,
    offsets_are_sound,
    times_are_sound,
    times_below,
    trimmed_size,
)
from penstock.storage.log.index_file import IndexFile
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk

ENTRIES = [(10, 100), (20, 250), (35, 300)]
OFFSETS = b"".join(OFFSET_ENTRY.pack(*entry) for entry in ENTRIES)
TIMES = b"".join(TIME_ENTRY.pack(1_000 + number, number) for number in (10, 20, 35))


def test_floor_by_offset() -> None:
    assert floor_by_offset(OFFSETS, 9) is None
    assert floor_by_offset(OFFSETS, 10) == OffsetEntry(10, 100)
    assert floor_by_offset(OFFSETS, 34) == OffsetEntry(20, 250)
    assert floor_by_offset(OFFSETS, 999) == OffsetEntry(35, 300)
    assert floor_by_offset(b"", 5) is None


def test_floor_by_position_and_time() -> None:
    assert floor_by_position(OFFSETS, 99) is None
    assert floor_by_position(OFFSETS, 299) == OffsetEntry(20, 250)
    assert floor_by_time(TIMES, 1_009) is None
    assert floor_by_time(TIMES, 1_021) == TimeEntry(1_020, 20)


def test_counting_entries() -> None:
    assert [entries_below(OFFSETS, limit) for limit in (10, 11, 35, 36)] == [0, 1, 2, 3]
    assert [times_below(TIMES, limit) for limit in (10, 11, 35, 36)] == [0, 1, 2, 3]


def test_reserved_zeros_do_not_count() -> None:
    assert trimmed_size(OFFSETS + bytes(800), OFFSET_ENTRY_BYTES) == len(OFFSETS)
    assert trimmed_size(OFFSETS + bytes(3), OFFSET_ENTRY_BYTES) == len(OFFSETS)
    assert trimmed_size(bytes(80), OFFSET_ENTRY_BYTES) == 0
    ends_in_zero = OFFSET_ENTRY.pack(1, 256)
    assert trimmed_size(ends_in_zero + bytes(8), OFFSET_ENTRY_BYTES) == OFFSET_ENTRY_BYTES


def test_soundness() -> None:
    assert offsets_are_sound(OFFSETS, 301)
    assert not offsets_are_sound(OFFSETS, 300), "an entry behind the end of the data"
    assert not offsets_are_sound(OFFSETS + bytes(8) + OFFSETS, 9_999)
    assert times_are_sound(TIMES)
    assert not times_are_sound(TIMES + TIMES)


def index_file(disk: MemoryDisk | FaultyDisk, path: str = "/x.index") -> IndexFile:
    return IndexFile(disk, OpenFiles(), path, OFFSET_ENTRY_BYTES)


def lookup(index: IndexFile, relative_offset: int) -> OffsetEntry | None:
    target = relative_offset.to_bytes(4, "big")
    return floor_by_offset(index.block_for(target, slice(0, 4), nowait=True), relative_offset)


@settings(deadline=None)
@given(st.integers(0, 900), st.integers(0, 300), st.integers(0, 4_000))
def test_a_file_with_a_tail_searches_like_a_list(stored: int, pending: int, target: int) -> None:
    index = index_file(MemoryDisk())
    for number in range(stored):
        index.append(OFFSET_ENTRY.pack(number * 3 + 1, number * 50))
    index.write_pending()
    for number in range(stored, stored + pending):
        index.append(OFFSET_ENTRY.pack(number * 3 + 1, number * 50))
    entries = [OffsetEntry(number * 3 + 1, number * 50) for number in range(stored + pending)]
    below = [entry for entry in entries if entry.relative_offset <= target]
    assert lookup(index, target) == (below[-1] if below else None)
    assert index.size == len(entries) * OFFSET_ENTRY_BYTES


def test_an_index_that_kafka_reserved_is_trimmed_when_finished() -> None:
    disk = MemoryDisk()
    disk.create_file("/x.index").write_at(OFFSETS + bytes(10_000), 0)
    index = index_file(disk)
    assert index.size == len(OFFSETS)
    index.append(OFFSET_ENTRY.pack(50, 400))
    index.finish()
    assert disk.read_file("/x.index") == OFFSETS + OFFSET_ENTRY.pack(50, 400)


def test_truncate_in_the_tail_and_in_the_file() -> None:
    disk = MemoryDisk()
    index = index_file(disk)
    for entry in ENTRIES:
        index.append(OFFSET_ENTRY.pack(*entry))
    index.write_pending()
    index.append(OFFSET_ENTRY.pack(40, 400))
    index.truncate(3 * OFFSET_ENTRY_BYTES)
    assert index.read_all() == OFFSETS
    index.truncate(OFFSET_ENTRY_BYTES)
    assert index.read_all() == OFFSETS[:OFFSET_ENTRY_BYTES]
    assert index.last() == OFFSETS[:OFFSET_ENTRY_BYTES]


def test_a_cold_index_does_not_make_the_caller_wait() -> None:
    disk = FaultyDisk(MemoryDisk())
    index = index_file(disk)
    for entry in ENTRIES:
        index.append(OFFSET_ENTRY.pack(*entry))
    index.write_pending()
    disk.is_cold = True
    try:
        lookup(index, 20)
    except BlockingIOError:
        disk.is_cold = False
    assert lookup(index, 20) == OffsetEntry(20, 250)
    assert TIME_ENTRY_BYTES == 12


def test_open_files_are_bounded_and_the_used_one_stays() -> None:
    disk = MemoryDisk()
    table = OpenFiles(files_max=2)
    indexes = [IndexFile(disk, table, f"/{n}.index", OFFSET_ENTRY_BYTES) for n in range(3)]
    for index in indexes:
        index.append(OFFSETS)
        index.write_pending()
        index.was_used = index is indexes[0]
    assert len(table) == 2
    assert [index._file is not None for index in indexes] == [True, False, True]
    assert indexes[1].read_all() == OFFSETS, "it opens again by itself"
    for index in indexes:
        index.close()
    assert len(table) == 0
