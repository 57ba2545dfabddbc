"""Every kind of damage is found, at its place, and intact batches are shown."""

from struct import pack

import pytest

from penstock.cli.log.segment_dump import (
    Batch,
    Damage,
    IndexEntry,
    walk_offset_index,
    walk_segment,
    walk_time_index,
)
from penstock.records.builder import build_batch
from penstock.records.record import Record


def batch(base_offset: int, *values: bytes, codec: int = 0) -> bytearray:
    records = [Record(value=value, timestamp_ms=1) for value in values]
    return build_batch(records, base_offset=base_offset, codec=codec)


def walk(data: bytes | bytearray) -> list[Batch | Damage]:
    kept = bytes(data)
    return list(walk_segment(lambda at, count: kept[at : at + count], len(kept)))


def test_a_whole_segment() -> None:
    first, second = batch(0, b"a", b"b"), batch(2, b"c", codec=4)
    found = walk(first + second)
    assert all(isinstance(one, Batch) for one in found)
    batches = [one for one in found if isinstance(one, Batch)]
    assert [one.position for one in batches] == [0, len(first)]
    assert [r.value for one in batches for r in one.records] == [b"a", b"b", b"c"]
    assert [r.offset for one in batches for r in one.records] == [0, 1, 2]


def test_an_empty_segment() -> None:
    assert walk(b"") == []


@pytest.mark.parametrize("at", [21, 30, 60, 65])
def test_a_flipped_bit_is_told_and_the_rest_is_read(at: int) -> None:
    first, second = batch(0, b"aaaaaaaa"), batch(1, b"b")
    first[at] ^= 1
    damage, whole = walk(first + second)
    assert damage == Damage(0, "checksum of the batch at offset 0 is wrong")
    assert isinstance(whole, Batch)


@pytest.mark.parametrize(
    ("position", "value", "reason"),
    [
        (8, pack(">i", 10), "batch length 10 is impossible"),
        (8, pack(">i", -5), "batch length -5 is impossible"),
        (8, pack(">i", 5000), "a batch of 5012 bytes where the file has"),
        (16, b"\x01", "magic 1 where 2 must be"),
    ],
)
def test_a_head_that_cannot_be_followed_ends_the_walk(
    position: int, value: bytes, reason: str
) -> None:
    data = batch(0, b"a") + batch(1, b"b")
    data[position : position + len(value)] = value
    (damage,) = walk(data)
    assert isinstance(damage, Damage)
    assert damage.reason.startswith(reason)


@pytest.mark.parametrize("blocks", [0, 1, 16])
@pytest.mark.parametrize("value_bytes", [1, 3_990, 4_000, 4_020, 4_025])
def test_room_behind_the_last_batch_is_no_damage(value_bytes: int, blocks: int) -> None:
    """A broker that runs keeps zeros there for its next appends."""
    data = batch(0, b"v" * value_bytes)
    (whole,) = walk(data + bytes(-len(data) % 4_096 + blocks * 4_096))
    assert isinstance(whole, Batch)


@pytest.mark.parametrize("room", [5, 4_096 * 19, 4_096])
def test_zeros_that_are_no_room_are_told(room: int) -> None:
    """Too many, not up to the end of a block, or with something behind them."""
    data = batch(0, b"a")
    tail = bytes(room if room == 5 else -len(data) % 4_096 + room)
    if room == 4_096:
        tail = tail[:-1] + b"x"
    whole, damage = walk(data + tail)
    assert isinstance(whole, Batch)
    assert isinstance(damage, Damage)


@pytest.mark.parametrize("kept", [5, 61, 66])
def test_a_torn_end(kept: int) -> None:
    first = batch(0, b"a")
    whole, damage = walk(first + batch(1, b"bbbbbbbbbb")[:kept])
    assert isinstance(whole, Batch)
    assert isinstance(damage, Damage)
    assert damage.position == len(first)


def test_offsets_that_go_back() -> None:
    found = walk(batch(5, b"a", b"b") + batch(6, b"c"))
    assert [type(one) for one in found] == [Batch, Damage, Batch]
    assert isinstance(found[1], Damage)
    assert "base offset 6 where 7 or more must be" in found[1].reason


def test_a_gap_is_what_compaction_leaves() -> None:
    assert all(isinstance(one, Batch) for one in walk(batch(5, b"a") + batch(50, b"b")))


def test_an_offset_index_with_room_at_its_end() -> None:
    data = pack(">iiii", 3, 4096, 9, 8192) + bytes(16)
    assert list(walk_offset_index(data, 100)) == [IndexEntry(103, 4096), IndexEntry(109, 8192)]


def test_an_offset_whose_last_bytes_are_zero_is_no_room() -> None:
    assert list(walk_offset_index(pack(">ii", 3, 256 * 65536), 0)) == [IndexEntry(3, 256 * 65536)]


def test_index_entries_that_do_not_grow() -> None:
    data = pack(">iiii", 9, 4096, 3, 8192)
    assert any(isinstance(one, Damage) for one in walk_offset_index(data, 0))
    data = pack(">qiqi", 5000, 1, 4000, 2)
    assert any(isinstance(one, Damage) for one in walk_time_index(data, 0))


def test_a_time_index() -> None:
    data = pack(">qiqi", 5000, 1, 6000, 4) + bytes(24)
    assert list(walk_time_index(data, 10)) == [IndexEntry(11, 5000), IndexEntry(14, 6000)]


def test_odd_bytes_at_the_end_of_an_index() -> None:
    found = list(walk_offset_index(pack(">ii", 3, 4096) + b"\x00\x01", 0))
    assert found == [IndexEntry(3, 4096), Damage(8, "2 bytes after the last entry")]
