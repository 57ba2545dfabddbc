"""The sending half: sizes, slow readers, memory, files, and ends."""

import asyncio
import os
import ssl
from pathlib import Path
from typing import cast

import pytest

from penstock.broker.tls.secured_transport import TlsTransport
from penstock.broker.tls.tls_limits import ENCRYPT_BYTES_MAX, ENCRYPT_TURN_BYTES_MAX
from penstock.storage.disk.file_range import CutFileError, is_in_file, sendable_range
from penstock.storage.disk.filesystem import DiskFile, DiskFileSystem
from tests.broker.tls.tls_stage import Connection, Inner, Stage, client_context

VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
SIZES = (1, 16_383, 16_384, 16_385, 262_143, 262_144, 262_145, 1_500_000)
RECORD_OVERHEAD = 1.01
"""Ciphertext has 22 to 29 bytes more for each record of 16 KiB."""


# --- Sizes ---


@pytest.mark.parametrize("version", VERSIONS, ids=["1.2", "1.3"])
def test_answers_of_all_sizes_arrive(version: ssl.TLSVersion) -> None:
    connection = Stage().secured(client_context(version=version))
    for size in SIZES:
        data = os.urandom(size)
        connection.inner.out.write(data)
        assert connection.receive() == data
        connection.inner.out.writelines([data[:10], memoryview(data)[10:], bytearray(b"end")])
        assert connection.receive() == data + b"end"


def test_empty_answers_send_nothing() -> None:
    connection = Stage().secured()
    connection.receive()
    connection.inner.out.write(b"")
    connection.inner.out.writelines([])
    connection.inner.out.writelines([b"", b""])
    assert not connection.raw.sent


def test_small_answers_are_one_record() -> None:
    connection = Stage().secured()
    connection.receive()
    connection.inner.out.writelines([b"answer"] * 100)
    header = connection.raw.sent[:5]
    assert len(connection.raw.sent) == 5 + int.from_bytes(header[3:], "big")
    assert connection.receive() == b"answer" * 100


def test_encryption_is_bounded() -> None:
    connection = Stage().secured()
    data = os.urandom(5_000_000)
    connection.inner.out.writelines([b"head", data, b"tail"])
    connection.stage.loop.settle()
    assert connection.receive() == b"head" + data + b"tail"
    assert connection.raw.largest_write <= ENCRYPT_BYTES_MAX * RECORD_OVERHEAD


# --- Slow readers ---


def test_a_slow_reader_holds_references_and_one_step_of_ciphertext() -> None:
    """A fetch of 55 MiB is not copied while its client reads nothing."""
    connection = Stage().secured()
    connection.raw.accepts = False
    answer = memoryview(bytes(55 << 20))
    out = connection.inner.out
    out.writelines([b"head", answer])
    assert len(connection.raw.waiting) <= ENCRYPT_BYTES_MAX * RECORD_OVERHEAD
    assert connection.inner.calls[-1] == "pause"
    assert len(answer) <= out.get_write_buffer_size() <= len(answer) * RECORD_OVERHEAD
    received = 0
    while connection.raw.waiting:
        assert len(connection.raw.waiting) <= ENCRYPT_BYTES_MAX * RECORD_OVERHEAD
        connection.raw.drain()
        received += len(connection.receive())
        connection.stage.loop.settle()
    assert received == 4 + len(answer)
    assert connection.inner.calls[2:] == ["pause", "resume"]
    assert out.get_write_buffer_size() == 0


def test_answers_keep_their_order_behind_a_slow_one() -> None:
    connection = Stage().secured()
    connection.raw.accepts = False
    answers = [os.urandom(size) for size in (300_000, 10, 70_000, 1, 262_144, 5)]
    for answer in answers:
        connection.inner.out.write(answer)
    for _ in range(10):
        connection.raw.drain()
        connection.stage.loop.settle()
    assert connection.receive() == b"".join(answers)
    assert connection.inner.calls[2:] == ["pause", "resume"]


def test_a_large_answer_takes_turns() -> None:
    """A client that reads fast does not hold up the others while its answer is encrypted."""
    connection = Stage().secured()
    answer = os.urandom(3 * ENCRYPT_TURN_BYTES_MAX)
    connection.inner.out.write(answer)
    assert len(connection.raw.sent) <= (ENCRYPT_TURN_BYTES_MAX + ENCRYPT_BYTES_MAX) * 1.01
    assert connection.inner.calls[-1] == "pause"
    connection.stage.loop.turn()
    assert connection.inner.calls[-1] == "pause"
    connection.stage.loop.settle()
    assert connection.inner.calls[-1] == "resume"
    assert connection.receive() == answer


def test_limits_are_those_of_the_socket() -> None:
    connection = Stage().secured()
    connection.inner.out.set_write_buffer_limits(high=1_000)
    connection.raw.accepts = False
    connection.inner.out.write(bytes(500))
    assert "pause" not in connection.inner.calls
    connection.inner.out.write(bytes(600))
    assert connection.inner.calls[-1] == "pause"
    connection.raw.drain()
    assert connection.inner.calls[-1] == "resume"


def test_an_answer_written_while_resuming_is_in_order() -> None:
    class Eager(Inner):
        def resume_writing(self) -> None:
            super().resume_writing()
            if self.calls.count("resume") == 1:
                self.out.write(b"second")

    connection = Stage().secured(inner=Eager())
    connection.raw.accepts = False
    connection.inner.out.write(bytes(500_000))
    while connection.raw.waiting:
        connection.raw.drain()
    assert connection.receive() == bytes(500_000) + b"second"


# --- Messages about keys ---


class HalfMessage:
    """A session that has received half of a message about keys: nothing is sent before its end."""

    def __init__(self, session: ssl.SSLObject) -> None:
        self._session = session
        self.is_half = True

    def write(self, data: bytes) -> int:
        if self.is_half:
            raise ssl.SSLWantReadError
        return self._session.write(data)


def test_an_answer_waits_for_the_rest_of_a_message_about_keys() -> None:
    connection = Stage().secured()
    transport = cast("TlsTransport", connection.inner.out)
    session = transport._ssl
    assert session is not None
    half = HalfMessage(session)
    transport.begin(cast("ssl.SSLObject", half))
    transport.write(b"first")
    transport.writelines([b"second", bytes(40_000)])
    connection.stage.check()
    assert connection.inner.calls[-1] == "pause"
    assert transport.get_write_buffer_size() == 40_011
    half.is_half = False
    connection.send(b"x")  # stands for the rest of the message
    assert connection.receive() == b"firstsecond" + bytes(40_000)
    assert connection.inner.calls[-1] == "resume"


# --- Files ---


class StoredAnswer:
    """Records in a file, as a fetch returns them."""

    def __init__(self, folder: Path, size: int = 3_000_000) -> None:
        self.content = os.urandom(size)
        self.path = folder / "0.log"
        self.path.write_bytes(self.content)
        self.file = DiskFileSystem().open_file(str(self.path))
        assert isinstance(self.file, DiskFile)
        self.view = self.file.view_nowait(0, size)
        assert is_in_file(self.view)
        found = sendable_range(self.view)
        assert found is not None
        self.range = found


class ColdFile:
    """A file whose bytes leave the page cache after some reads."""

    def __init__(self, file: DiskFile, warm_reads: int) -> None:
        self._file = file
        self.warm_reads = warm_reads
        self.error: OSError | None = None
        self.is_open = True

    def read_into_nowait(self, buffer: memoryview, position: int) -> int:
        if not self.warm_reads:
            raise BlockingIOError
        self.warm_reads -= 1
        return self._file.read_into_nowait(buffer, position)

    def load(self, position: int, size: int) -> None:
        if self.error is not None:
            raise self.error
        self.warm_reads = 4


def test_stored_records_are_sent(tmp_path: Path) -> None:
    stored = StoredAnswer(tmp_path)
    connection = Stage().secured()
    connection.inner.out.writelines([b"head", stored.view, b"tail", stored.view[:200_000]])
    connection.stage.loop.settle()
    whole = b"head" + stored.content + b"tail" + stored.content[:200_000]
    assert connection.receive() == whole
    connection.inner.out.write(stored.view)
    connection.stage.loop.settle()
    assert connection.receive() == stored.content


def test_a_part_of_stored_records_that_begins_elsewhere_is_sent(tmp_path: Path) -> None:
    stored = StoredAnswer(tmp_path)
    connection = Stage().secured()
    connection.inner.out.write(stored.view[1_000:])
    connection.stage.loop.settle()
    assert connection.receive() == stored.content[1_000:]


def test_records_outside_of_memory_are_loaded_on_a_thread(tmp_path: Path) -> None:
    stored = StoredAnswer(tmp_path)
    stage = Stage()
    connection = stage.secured()
    stored.range.source = ColdFile(stored.file, warm_reads=1)  # type: ignore[assignment, arg-type]
    connection.inner.out.writelines([b"head", stored.view])
    assert len(stage.loads.waiting) == 1
    assert connection.inner.calls[-1] == "pause"
    connection.inner.out.write(b"next")
    while stage.loads.waiting:
        load, done = stage.loads.waiting.pop()
        load()
        done(None)
        stage.loop.settle()
    assert connection.receive() == b"head" + stored.content + b"next"
    assert connection.inner.calls[-1] == "resume"


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "aborted"])
def test_a_load_for_a_client_that_is_gone_is_cancelled(tmp_path: Path, is_lost: bool) -> None:
    stored = StoredAnswer(tmp_path)
    stage = Stage()
    connection = stage.secured()
    stored.range.source = ColdFile(stored.file, warm_reads=0)  # type: ignore[assignment, arg-type]
    connection.inner.out.write(stored.view)
    if is_lost:
        connection.lose()
    else:
        connection.inner.out.abort()
    assert stage.loads.clients[0].is_cancelled
    stage.loads.waiting[0][1](None)
    assert not connection.receive()


def test_a_disk_that_cannot_be_read_ends_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored = StoredAnswer(tmp_path)
    stage = Stage()
    connection = stage.secured()
    stored.range.source = ColdFile(stored.file, warm_reads=0)  # type: ignore[assignment, arg-type]
    connection.inner.out.write(stored.view)
    with caplog.at_level("INFO"):
        stage.loads.waiting[0][1](OSError("bad sector"))
    assert connection.raw.is_aborted
    assert "bad sector" in caplog.text


def test_a_file_that_was_cut_ends_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored = StoredAnswer(tmp_path)
    connection = Stage().secured()
    with caplog.at_level("INFO"):
        os.truncate(stored.path, 1_000_000)
        connection.inner.out.write(stored.view)
    assert connection.raw.is_aborted
    assert CutFileError("a log file ends").args[0] in caplog.text


# --- Ends ---


def closes_cleanly(connection: Connection, expected: bytes) -> None:
    """The client reads the bytes, then the end."""
    assert connection.receive() == expected
    connection.client.unwrap()


def test_close_sends_close_notify() -> None:
    connection = Stage().secured()
    connection.inner.out.write(b"last")
    connection.inner.out.close()
    assert connection.raw.is_closed
    assert not connection.raw.is_aborted
    closes_cleanly(connection, b"last")


def test_close_waits_for_answers() -> None:
    connection = Stage().secured()
    connection.raw.accepts = False
    connection.inner.out.write(bytes(1_000_000))
    connection.inner.out.close()
    assert connection.is_open()
    assert connection.inner.out.is_closing()
    connection.inner.out.write(b"too late")
    while connection.is_open():
        connection.raw.drain()
        connection.stage.loop.settle()
    connection.raw.drain()
    closes_cleanly(connection, bytes(1_000_000))


def test_no_bytes_are_delivered_after_close() -> None:
    connection = Stage().secured()
    connection.raw.accepts = False
    connection.inner.out.write(bytes(1_000_000))
    connection.inner.out.close()
    assert connection.raw.is_read_paused
    connection.inner.out.resume_reading()
    assert connection.raw.is_read_paused


def test_abort_drops_everything() -> None:
    connection = Stage().secured()
    connection.receive()
    connection.raw.accepts = False
    connection.inner.out.write(bytes(1_000_000))
    connection.inner.out.abort()
    assert connection.raw.is_aborted
    assert connection.inner.out.get_write_buffer_size() == 0
    connection.stage.loop.settle()
    assert not connection.raw.sent


def test_close_before_the_end_of_the_handshake() -> None:
    stage = Stage()
    connection = stage.connect()
    connection.client_step()
    connection.arrive(connection.written())
    connection.inner.out.close()
    assert connection.raw.is_closed
    connection.lose()
    assert stage.turns.unfinished_count == 0
    assert stage.failed() == {}


def test_closing_twice_is_harmless() -> None:
    connection = Stage().secured()
    connection.inner.out.close()
    connection.inner.out.close()
    connection.inner.out.abort()
    connection.lose()
    assert connection.inner.calls.count("lost") == 1


def test_a_socket_that_fails_takes_no_more() -> None:
    connection = Stage().secured()
    connection.raw.accepts = False
    connection.inner.out.write(bytes(1_000_000))
    connection.raw.is_closed = True  # as after a reset
    connection.raw.is_write_paused = False
    out = connection.inner.out
    connection.layer.resume_writing()
    assert out.is_closing()
    connection.lose()
    out.write(b"after the end")
    out.close()


def test_unused_parts_of_a_transport() -> None:
    transport = Stage().secured().inner.out
    assert not transport.can_write_eof()
    with pytest.raises(NotImplementedError):
        transport.write_eof()
    with pytest.raises(NotImplementedError):
        transport.set_protocol(asyncio.Protocol())
    assert isinstance(transport.get_protocol(), Inner)
