"""Frames at every split, both ways in, with bounds and with owners that read slowly."""

import gc
import sys
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import FrameError
from penstock.protocol.framing import FRAME_BYTES_AT_ONCE, FrameReader, ReadArena

PRODUCE = b"\x00\x00"
FETCH = b"\x00\x01"


def make_reader(arena_bytes: int = 64) -> FrameReader:
    return FrameReader(ReadArena(arena_bytes), bytes_max=100, bytes_min=10, produce_bytes_max=5_000)


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4) + body


def feed_buffered(reader: FrameReader, data: bytes, step: int) -> None:
    """As an event loop does: at most `step` bytes into whatever `get_buffer` gives."""
    while data:
        buffer = reader.get_buffer(65_536)
        count = min(len(buffer), len(data), step)
        assert count > 0
        buffer[:count] = data[:count]
        del buffer
        reader.buffer_updated(count)
        data = data[count:]


def take_all(reader: FrameReader) -> list[bytes]:
    taken = []
    while (one := reader.next_frame()) is not None:
        taken.append(bytes(one))
    return taken


BODIES = [FETCH + b"a" * 8, PRODUCE + b"b" * 300, FETCH + b"c" * 60, FETCH + b"d" * 98]
STREAM = b"".join(map(frame, BODIES))


@pytest.mark.parametrize("arena_bytes", [16, 64, 1_000])
def test_two_reads_split_anywhere(arena_bytes: int) -> None:
    for split in range(len(STREAM) + 1):
        buffered, plain = make_reader(arena_bytes), make_reader(arena_bytes)
        seen: tuple[list[bytes], list[bytes]] = ([], [])
        for piece in (STREAM[:split], STREAM[split:]):
            feed_buffered(buffered, piece, 1_000)
            plain.receive_data(piece)
            seen[0].extend(take_all(buffered))
            seen[1].extend(take_all(plain))
        assert seen == (BODIES, BODIES)
        assert not buffered.frame_started
        assert not plain.frame_started


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 13])
def test_small_steps_with_an_owner_that_takes_nothing_until_the_end(step: int) -> None:
    buffered, plain = make_reader(), make_reader()
    feed_buffered(buffered, STREAM, step)
    for start in range(0, len(STREAM), step):
        plain.receive_data(STREAM[start : start + step])
    assert take_all(buffered) == take_all(plain) == BODIES


@settings(max_examples=50, derandomize=True, database=None, deadline=None)
@given(
    bodies=st.lists(
        st.builds(
            lambda key, size, fill: key + bytes([fill]) * size,
            st.sampled_from([PRODUCE, FETCH]),
            st.integers(8, 98),
            st.integers(0, 255),
        ),
        max_size=12,
    ),
    steps=st.lists(st.tuples(st.integers(1, 80), st.booleans(), st.booleans()), min_size=1),
)
def test_any_mix_of_reads_and_takes(
    bodies: list[bytes], steps: list[tuple[int, bool, bool]]
) -> None:
    reader = make_reader()
    data = b"".join(map(frame, bodies))
    seen = []
    turn = 0
    while data:
        size, is_buffered, is_taken = steps[turn % len(steps)]
        turn += 1
        if is_buffered:
            feed_buffered(reader, data[:size], size)
        else:
            reader.receive_data(data[:size])
        data = data[size:]
        if is_taken:
            seen += take_all(reader)
    assert seen + take_all(reader) == bodies


@pytest.mark.parametrize("size", [10, 100, 5_000])
def test_a_frame_is_writable_and_nobody_elses(size: int) -> None:
    reader = make_reader()
    body = PRODUCE + bytes(size - 2)
    feed_buffered(reader, frame(body), 64)
    first = reader.next_frame()
    assert first is not None
    first[:] = b"x" * size
    feed_buffered(reader, frame(body), 64)
    assert take_all(reader) == [body]
    assert bytes(first) == b"x" * size
    assert isinstance(first.obj, bytearray)
    assert len(first.obj) == size


@pytest.mark.parametrize(
    ("prefix", "is_refused"),
    [
        ("ffffffff", True),
        ("80000000", True),
        ("00000000", True),
        ("00000009", True),
        ("0000000a0001", False),
        ("000000640001", False),
        ("000000650001", True),
        ("000013880000", False),
        ("000013890000", True),
        ("00001389", True),
        ("7fffffff", True),
        ("47455420", True),
        ("16030100", True),
        ("00001388", False),
        ("0000138800", False),
        ("000013880001", True),
        ("00000065ffff", True),
    ],
)
def test_the_bound_is_held_as_soon_as_it_is_known(prefix: str, is_refused: bool) -> None:
    for split in range(len(prefix) // 2 + 1):
        reader = make_reader()
        data = bytes.fromhex(prefix)
        reader.receive_data(data[:split])
        reader.receive_data(data[split:])
        if is_refused:
            with pytest.raises(FrameError):
                take_all(reader)
            reader.receive_data(b"more")
            with pytest.raises(FrameError):
                reader.next_frame()
        else:
            assert reader.next_frame() is None
            assert reader.frame_started


def test_a_good_frame_before_a_bad_one_comes_out() -> None:
    reader = make_reader(1_000)
    feed_buffered(reader, frame(BODIES[0]) + b"\xff\xff\xff\xff", 1_000)
    taken = reader.next_frame()
    assert taken is not None
    assert bytes(taken) == BODIES[0]
    with pytest.raises(FrameError):
        reader.next_frame()


def test_bounds_may_change_with_the_state_of_the_connection() -> None:
    reader = make_reader()
    reader.bytes_max = 10
    reader.receive_data(frame(FETCH + bytes(8)))
    assert len(take_all(reader)) == 1
    reader.receive_data(frame(FETCH + bytes(9)))
    with pytest.raises(FrameError):
        reader.next_frame()


def test_what_a_started_frame_still_needs_is_known() -> None:
    reader = make_reader()
    assert (reader.frame_started, reader.needs_bytes, reader.received_bytes) == (False, 0, 0)
    reader.receive_data(b"\x00")
    assert reader.next_frame() is None
    assert (reader.frame_started, reader.needs_bytes) == (True, 0)
    reader.receive_data(b"\x00\x00\x14" + PRODUCE)
    assert reader.next_frame() is None
    assert (reader.frame_started, reader.needs_bytes, reader.received_bytes) == (True, 18, 2)
    reader.receive_data(bytes(18))
    assert (reader.frame_started, reader.needs_bytes, reader.received_bytes) == (False, 0, 0)


def test_a_large_announcement_takes_memory_only_as_bytes_arrive() -> None:
    announced = 100 * FRAME_BYTES_AT_ONCE
    reader = FrameReader(ReadArena(1_000), bytes_max=100, bytes_min=10, produce_bytes_max=announced)
    tracemalloc.start()
    try:
        feed_buffered(reader, announced.to_bytes(4) + PRODUCE, 1_000)
        assert reader.next_frame() is None
        assert tracemalloc.get_traced_memory()[0] < 2_000
        feed_buffered(reader, bytes(3_000), 1_000)
        assert tracemalloc.get_traced_memory()[1] < 1.1 * FRAME_BYTES_AT_ONCE
    finally:
        tracemalloc.stop()


def test_a_frame_above_one_mebibyte_grows_and_is_whole() -> None:
    body = PRODUCE + bytes(range(256)) * 13_000
    reader = FrameReader(
        ReadArena(65_536), bytes_max=100, bytes_min=10, produce_bytes_max=len(body)
    )
    feed_buffered(reader, frame(body) + frame(BODIES[0]), 300_000)
    assert take_all(reader) == [body, BODIES[0]]


def test_the_rest_of_a_large_frame_is_read_into_the_frame_itself() -> None:
    reader = make_reader()
    feed_buffered(reader, (1_000).to_bytes(4) + PRODUCE, 64)
    room = reader.get_buffer(65_536)
    assert len(room) == 998
    room[:] = b"z" * 998
    reader.buffer_updated(998)
    taken = reader.next_frame()
    assert taken is not None
    assert taken.obj is room.obj


def test_connections_share_one_arena() -> None:
    arena = ReadArena(64)
    readers = [FrameReader(arena, bytes_max=100, bytes_min=10) for _ in range(3)]
    for position in range(0, 40, 5):
        for number, reader in enumerate(readers):
            body = bytes([number]) * 36
            feed_buffered(reader, frame(body)[position : position + 5], 64)
    assert [take_all(reader) for reader in readers] == [[bytes([n]) * 36] for n in range(3)]


def test_many_small_frames_in_one_read_cost_one_copy_until_taken() -> None:
    reader = make_reader(20_000)
    data = frame(BODIES[0]) * 1_000
    tracemalloc.start()
    try:
        feed_buffered(reader, data, 20_000)
        assert tracemalloc.get_traced_memory()[0] < len(data) + 2_000
    finally:
        tracemalloc.stop()
    assert take_all(reader) == [BODIES[0]] * 1_000


@pytest.mark.uncompiled
def test_an_idle_reader_holds_next_to_nothing() -> None:
    reader = make_reader()
    feed_buffered(reader, STREAM, 64)
    assert take_all(reader) == BODIES
    gc.collect()
    held = sum(
        sys.getsizeof(getattr(reader, name)) for name in reader.__slots__ if name != "_arena"
    )
    assert sys.getsizeof(reader) + held < 1_000


def keeping_reader() -> FrameReader:
    size = 4 * FRAME_BYTES_AT_ONCE
    return FrameReader(
        ReadArena(1_000), bytes_max=size, bytes_min=4, at_once_bytes=size, buffers_kept_max=2
    )


def read_large(reader: FrameReader, body: bytes) -> memoryview:
    feed_buffered(reader, frame(body), 1_000_000)
    taken = reader.next_frame()
    assert taken is not None
    return taken


def test_memory_is_used_again_when_nobody_looks_at_the_frame() -> None:
    reader = keeping_reader()
    first = read_large(reader, b"a" * 2_000_000)
    memory = first.obj
    part = first[100:200]
    first.release()
    second = read_large(reader, b"b" * 2_000_000)
    assert second.obj is not memory
    assert bytes(part) == b"a" * 100
    part.release()
    third = read_large(reader, b"c" * 1_500_000)
    assert third.obj is memory
    assert bytes(third) == b"c" * 1_500_000
    assert bytes(second) == b"b" * 2_000_000


@given(
    frames=st.lists(st.tuples(st.integers(1, 3 * FRAME_BYTES_AT_ONCE), st.booleans()), max_size=8)
)
@settings(max_examples=25, deadline=None)
def test_kept_frames_never_change(frames: list[tuple[int, bool]]) -> None:
    reader = keeping_reader()
    held: list[tuple[memoryview, bytes]] = []
    for number, (size, is_held) in enumerate(frames):
        body = bytes([number]) * (size + 4)
        taken = read_large(reader, body)
        assert taken == body
        if is_held:
            held.append((taken, body))
        else:
            taken.release()
        assert all(view == expected for view, expected in held)


def test_only_so_many_buffers_are_kept() -> None:
    reader = keeping_reader()
    size = FRAME_BYTES_AT_ONCE + 5
    frames = [read_large(reader, bytes([number]) * size) for number in range(5)]
    kept = {id(one.obj) for one in frames[-2:]}
    for one in frames:
        one.release()
    assert {id(read_large(reader, b"x" * size).obj) for _ in range(5)} <= kept
    reader.forget_all()
    assert reader.next_frame() is None


def test_memory_that_is_too_small_is_not_used_again() -> None:
    reader = keeping_reader()
    read_large(reader, b"a" * 2_000_000).release()
    assert bytes(read_large(reader, b"b" * 3_000_000)) == b"b" * 3_000_000


def test_responses_have_one_bound_and_no_api_key() -> None:
    reader = FrameReader(ReadArena(64), bytes_max=50, bytes_min=4)
    reader.receive_data(frame(b"abcd") + frame(b"e" * 50))
    assert take_all(reader) == [b"abcd", b"e" * 50]
    reader.receive_data((51).to_bytes(4))
    with pytest.raises(FrameError):
        reader.next_frame()


def test_a_wrong_length_counts_as_unread() -> None:
    """An owner that puts a connection off asks this: a bad peer must not be forgotten then."""
    reader = make_reader()
    seen = [reader.has_unread]
    feed_buffered(reader, (101).to_bytes(4) + FETCH, 64)
    seen.append(reader.has_unread)
    assert seen == [False, True]
    with pytest.raises(FrameError):
        reader.next_frame()
