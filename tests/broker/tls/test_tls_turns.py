"""Clients that choose expensive records: tiny ones, and messages about keys without content."""

import itertools
import os
import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.tls.record_pieces import PIECE_BYTES_MIN, piece_end
from penstock.broker.tls.tls_limits import (
    BARREN_BYTES_MAX,
    PIECE_RECORDS_MAX,
    RAW_READ_BYTES,
    RECORD_BYTES_MAX,
    RECORD_HEADER_BYTES,
)
from penstock.core.limits import CONNECTION_TURN_SECONDS
from tests.broker.tls.handmade_records import handmade
from tests.broker.tls.tls_stage import Connection, Inner, Stage, client_context

READ_SECONDS = 5e-6
"""The time of one small record."""
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
BOTH_VERSIONS = pytest.mark.parametrize("version", VERSIONS, ids=["1.2", "1.3"])


def tiny_records(connection: Connection, data: bytes) -> bytes:
    return b"".join(connection.encrypt(bytes([byte])) for byte in data)


def busy_stage() -> Stage:
    stage = Stage()
    stage.step_seconds = READ_SECONDS
    return stage


# --- Tiny records ---


@BOTH_VERSIONS
def test_tiny_records_wait_for_their_turns(version: ssl.TLSVersion) -> None:
    stage = busy_stage()
    connection = stage.secured(client_context(version=version))
    inner, data = connection.inner, os.urandom(1_400)
    connection.deliver(tiny_records(connection, data))
    turn_records = round(CONNECTION_TURN_SECONDS / READ_SECONDS)
    assert 0 < len(inner.received) <= turn_records
    assert connection.raw.is_read_paused
    assert inner.out.is_reading(), "the connection above has paused nothing"
    while stage.loop.ready:
        before = len(inner.received)
        stage.loop.turn()
        stage.check()
        assert before < len(inner.received) <= before + turn_records
        assert data.startswith(inner.received)
    assert inner.received == data
    assert not connection.raw.is_read_paused


def test_others_are_served_between_tiny_records() -> None:
    stage = busy_stage()
    greedy, other = stage.secured(), stage.secured()
    greedy.deliver(tiny_records(greedy, os.urandom(1_400)))
    other.send(b"request")
    assert other.inner.received == b"request"
    assert 0 < len(greedy.inner.received) < 1_400
    stage.loop.settle()
    assert len(greedy.inner.received) == 1_400


def test_many_greedy_clients_share_one_turn() -> None:
    """However many they are, a turn of the loop ends."""
    stage = busy_stage()
    greedy = [stage.secured() for _ in range(15)]
    for one in greedy:
        one.deliver(tiny_records(one, bytes(400)))
    assert not greedy[-1].inner.received, "the turn was used up before"
    before = stage.seconds
    stage.loop.turn()
    assert stage.seconds - before < 3 * CONNECTION_TURN_SECONDS
    stage.loop.settle()
    assert all(len(one.inner.received) == 400 for one in greedy)


def test_an_end_waits_for_tiny_records_before_it() -> None:
    stage = busy_stage()
    connection = stage.secured()
    connection.deliver(tiny_records(connection, bytes(1_000)))
    assert connection.layer.eof_received()
    assert "end" not in connection.inner.calls
    stage.loop.settle()
    assert len(connection.inner.received) == 1_000
    assert connection.inner.calls[-1] == "end"


def test_an_end_loses_no_bytes_for_which_there_is_no_room() -> None:
    connection = Stage().secured(inner=Inner(1_000))
    inner = connection.inner
    inner.on_bytes = inner.out.pause_reading
    connection.deliver(connection.encrypt(b"a" * 3_500) + connection.encrypt(b"b" * 3_500))
    assert connection.layer.eof_received()
    inner.on_bytes = lambda: None
    inner.out.resume_reading()
    connection.stage.loop.settle()
    assert inner.received == b"a" * 3_500 + b"b" * 3_500
    assert inner.calls[-1] == "end"


def test_pauses_while_records_wait() -> None:
    stage = busy_stage()
    connection = stage.secured()
    inner, data = connection.inner, os.urandom(1_000)
    connection.deliver(tiny_records(connection, data))
    arrived = len(inner.received)
    inner.out.pause_reading()
    stage.loop.settle()
    assert len(inner.received) == arrived
    inner.out.resume_reading()
    assert len(inner.received) == arrived, "delivered in the same turn"
    stage.loop.settle()
    assert inner.received == data
    assert not connection.raw.is_read_paused


def test_a_resumed_connection_keeps_its_place() -> None:
    """Pausing and resuming is no way to get more turns."""
    stage = busy_stage()
    connection = stage.secured()
    inner = connection.inner
    connection.deliver(tiny_records(connection, bytes(1_000)))
    for _ in range(10):
        inner.out.pause_reading()
        inner.out.resume_reading()
    assert connection.raw.is_read_paused
    assert len(stage.loop.ready) == 1
    stage.loop.settle()
    assert len(inner.received) == 1_000


@pytest.mark.parametrize("ends", ["lost", "closed", "aborted"])
def test_a_connection_ends_while_records_wait(ends: str) -> None:
    stage = busy_stage()
    connection = stage.secured()
    connection.deliver(tiny_records(connection, bytes(1_000)))
    arrived = len(connection.inner.received)
    if ends == "lost":
        connection.lose()
    elif ends == "closed":
        connection.inner.out.close()
    else:
        connection.inner.out.abort()
    stage.loop.settle()
    assert len(connection.inner.received) == arrived
    stage.check()


# --- Messages about keys ---


def test_new_keys_of_a_client_are_used(tmp_path: Path) -> None:
    connection, sender = handmade(Stage(), tmp_path)
    for number in range(20):
        connection.deliver(sender.key_update() + sender.record(b"%d " % number))
    assert connection.inner.received == b"".join(b"%d " % number for number in range(20))
    assert not connection.raw.sent


def test_a_message_about_keys_is_answered(tmp_path: Path) -> None:
    connection, sender = handmade(Stage(), tmp_path)
    connection.deliver(sender.key_update(is_answered=True))
    connection.inner.out.write(b"with new keys")
    assert len(connection.raw.sent) == len(b"with new keys") + 22 + 27, "two records"
    assert connection.receive() == b"with new keys"


@pytest.mark.parametrize("is_answered", [True, False])
@pytest.mark.parametrize("has_content", [True, False])
def test_key_updates_without_content_end_the_connection(
    tmp_path: Path, is_answered: bool, has_content: bool, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()
    connection, sender = handmade(stage, tmp_path)
    if has_content:
        connection.deliver(sender.record(b"request"))
    sent_bytes = 0
    while connection.is_open() and sent_bytes < 2 * BARREN_BYTES_MAX:
        record = sender.key_update(is_answered=is_answered)
        connection.deliver(record)
        sent_bytes += len(record)
    assert connection.raw.is_aborted
    assert BARREN_BYTES_MAX < sent_bytes < BARREN_BYTES_MAX + 100
    assert stage.failed() == {"bad_record": 1}
    assert "too many records without content" in caplog.text


def test_one_read_full_of_key_updates_ends_the_connection_early(tmp_path: Path) -> None:
    stage = Stage()
    connection, sender = handmade(stage, tmp_path)
    request = sender.record(b"request")
    updates = [sender.key_update(is_answered=True) for _ in range(2 * BARREN_BYTES_MAX // 27)]
    connection.deliver(request + b"".join(updates))
    assert connection.raw.is_aborted
    answered = len(connection.raw.sent)
    assert 0 < answered <= BARREN_BYTES_MAX + 2 * PIECE_RECORDS_MAX * 27


def test_key_updates_between_content_wait_for_their_turns(tmp_path: Path) -> None:
    """Content keeps the connection; OpenSSL would handle all messages before it in one call."""
    stage = Stage()
    connection, sender = handmade(stage, tmp_path)
    stage.step_seconds = CONNECTION_TURN_SECONDS / 2
    parts = [sender.record(b"a")]
    for _ in range(5):
        parts += [sender.key_update(is_answered=True) for _ in range(200)]
        parts.append(sender.record(b"b"))
    connection.deliver(b"".join(parts))
    turns = 1
    while stage.loop.ready:
        before = len(connection.raw.sent)
        stage.loop.turn()
        turns += 1
        assert len(connection.raw.sent) - before <= 2 * PIECE_RECORDS_MAX * 27
    assert turns >= 1_000 // (2 * PIECE_RECORDS_MAX)
    assert connection.inner.received == b"abbbbb"
    assert connection.is_open()


# --- Pieces ---


def header(size: int) -> bytes:
    return bytes([0x17, 3, 3]) + size.to_bytes(2)


@given(
    st.lists(st.sampled_from([0, 1, 20, 300, RECORD_BYTES_MAX]), max_size=200),
    st.lists(st.integers(1, RAW_READ_BYTES), min_size=1, max_size=5),
    st.sampled_from([PIECE_BYTES_MIN, 65_536, RAW_READ_BYTES]),
)
def test_pieces_have_few_records_and_whole_headers(
    sizes: list[int], cuts: list[int], size_max: int
) -> None:
    stream = b"".join(header(size) + bytes(size) for size in sizes)
    begins = list(itertools.accumulate((RECORD_HEADER_BYTES + size for size in sizes), initial=0))
    within_headers = {begin + place for begin in begins[:-1] for place in range(1, 5)}
    done = record_left = arrived = 0
    for cut in itertools.cycle(cuts):
        arrived = min(len(stream), arrived + cut)
        while True:
            held = memoryview(stream)[done:arrived]
            size, record_left = piece_end(held, 0, size_max, record_left)
            assert size <= size_max
            if not size:
                break
            begun = sum(done <= begin < done + size for begin in begins[:-1])
            assert begun <= PIECE_RECORDS_MAX
            done += size
            assert done not in within_headers
            assert record_left == (min(end for end in begins if end >= done) - done)
        assert arrived - done < RECORD_HEADER_BYTES
        if arrived == len(stream):
            break
    assert done == len(stream)
    assert record_left == 0


def test_a_record_that_is_too_large_is_given_to_openssl() -> None:
    received = header(RECORD_BYTES_MAX + 1) + bytes(100)
    assert piece_end(received, 0, PIECE_BYTES_MIN, 0) == (len(received), 0)


@given(
    st.lists(st.integers(1, 20_000), max_size=12),
    st.lists(st.integers(1, 40_000), min_size=1, max_size=5),
    st.sampled_from([1_000, 16_384, 262_144]),
    st.sampled_from([0.0, CONNECTION_TURN_SECONDS / 3, 1.0]),
)
def test_records_of_any_size_arrive(
    sizes: list[int], cuts: list[int], buffer_bytes: int, step_seconds: float
) -> None:
    stage = Stage()
    connection = stage.secured(inner=Inner(buffer_bytes))
    stage.step_seconds = step_seconds
    data = b"".join(bytes([number % 256]) * size for number, size in enumerate(sizes))
    stream, start = b"", 0
    for size in sizes:
        stream += connection.encrypt(data[start : start + size])
        start += size
    place = 0
    for cut in itertools.cycle(cuts):
        if place >= len(stream):
            break
        connection.arrive(stream[place : place + cut])
        place += cut
    assert connection.inner.received == data
