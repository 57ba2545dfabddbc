"""The layer without sockets: handshakes, decrypted bytes, pauses, ends, and bad peers."""

import asyncio
import gc
import os
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.tls.layer import TlsLayer
from penstock.broker.tls.secured_transport import TlsTransport
from penstock.broker.tls.tls_limits import HANDSHAKE_BYTES_MAX, HANDSHAKE_READ_BYTES
from tests.broker.tls.tls_stage import (
    Connection,
    Inner,
    Stage,
    client_context,
    identities,
)

VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
BOTH_VERSIONS = pytest.mark.parametrize("version", VERSIONS, ids=["1.2", "1.3"])
SIZES = (
    1,
    2,
    100,
    16_383,
    16_384,
    16_385,
    32_768,
    262_143,
    262_144,
    262_145,
    1_000_000,
)


# --- Bytes ---


@BOTH_VERSIONS
@pytest.mark.parametrize("buffer_bytes", [1_000, 16_384, 262_144])
def test_bytes_of_all_sizes_arrive(version: ssl.TLSVersion, buffer_bytes: int) -> None:
    connection = Stage().secured(client_context(version=version), inner=Inner(buffer_bytes))
    for size in SIZES:
        data = os.urandom(size)
        connection.send(data)
        assert connection.inner.received == data
        connection.inner.received.clear()


@pytest.mark.parametrize("buffer_bytes", [1, 7])
def test_tiny_buffers_are_filled(buffer_bytes: int) -> None:
    connection = Stage().secured(inner=Inner(buffer_bytes))
    data = os.urandom(20_000)
    connection.send(data)
    assert connection.inner.received == data


@BOTH_VERSIONS
def test_records_arrive_byte_by_byte(version: ssl.TLSVersion) -> None:
    connection = Stage().secured(client_context(version=version))
    data = os.urandom(2_000)
    for byte in connection.encrypt(data):
        connection.deliver(bytes([byte]))
    assert connection.inner.received == data


@BOTH_VERSIONS
def test_a_handshake_arrives_byte_by_byte(version: ssl.TLSVersion) -> None:
    connection = Stage("required").connect(client_context(identities().client, version))
    for _ in range(4):
        connection.client_step()
        for byte in connection.written():
            connection.deliver(bytes([byte]))
            connection.stage.loop.settle()
    assert connection.inner.calls == ["made", "secured"]


@pytest.mark.parametrize("cut", [1, 4, 5, 6, 16_388, 16_406, 16_407, 30_000])
def test_records_are_cut_anywhere(cut: int) -> None:
    connection = Stage().secured()
    data = os.urandom(100_000)
    ciphertext = connection.encrypt(data)
    for start in range(0, len(ciphertext), cut if cut > 100 else 16_384 + cut):
        connection.deliver(ciphertext[start : start + (cut if cut > 100 else 16_384 + cut)])
    assert connection.inner.received == data


def test_many_small_records_arrive_in_one_read() -> None:
    connection = Stage().secured(inner=Inner(1_000))
    pieces = [os.urandom(size % 90 + 1) for size in range(1_000)]
    connection.deliver(b"".join(connection.encrypt(piece) for piece in pieces))
    assert connection.inner.received == b"".join(pieces)


def test_bytes_behind_the_handshake_in_one_read_arrive() -> None:
    connection = Stage().connect()
    connection.client_step()
    connection.arrive(connection.written())
    connection.client_step()
    finished = connection.written()
    connection.arrive(finished + connection.encrypt(b"first request"))
    assert connection.inner.calls == ["made", "secured"]
    assert connection.inner.received == b"first request"


def test_a_half_record_behind_the_handshake_is_kept() -> None:
    connection = Stage().connect()
    connection.client_step()
    connection.arrive(connection.written())
    connection.client_step()
    finished = connection.written()
    request = connection.encrypt(b"first request")
    connection.arrive(finished + request[:20])
    assert connection.inner.received == b""
    connection.deliver(request[20:])
    assert connection.inner.received == b"first request"


def test_connections_do_not_mix() -> None:
    """Two clients send halves of records in turn; an answer is written in between."""
    stage = Stage()
    one, other = stage.secured(), stage.secured()
    for _ in range(20):
        first, second = os.urandom(40_000), os.urandom(30_000)
        parts, others = one.encrypt(first), other.encrypt(second)
        one.deliver(parts[:20_001])
        other.deliver(others[:7])
        one.inner.out.write(b"answer")
        other.deliver(others[7:])
        one.deliver(parts[20_001:])
        assert one.inner.received == first
        assert other.inner.received == second
        assert one.receive() == b"answer"
        one.inner.received.clear()
        other.inner.received.clear()


def test_a_request_of_one_connection_may_answer_and_close_another() -> None:
    """A produce wakes a fetch: the other connection is used while this one is being decrypted."""
    stage = Stage()
    one, other = stage.secured(inner=Inner(1_000)), stage.secured()
    answered: list[int] = []

    def answer() -> None:
        if not answered:
            other.inner.out.write(b"x" * 50_000)
            other.inner.out.close()
        answered.append(1)
        stage.check()

    one.inner.on_bytes = answer
    data = os.urandom(200_000)
    one.send(data)
    assert one.inner.received == data
    assert other.receive() == b"x" * 50_000
    assert other.raw.is_closed


# --- The connection above ---


def test_a_connection_is_seen_before_its_handshake() -> None:
    connection = Stage().connect()
    assert connection.inner.calls == ["made"]
    assert connection.inner.out.get_extra_info("peername")[0] == "192.0.2.1"


def test_a_connection_above_a_limit_costs_no_handshake() -> None:
    class Refusing(Inner):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.out.abort()

    stage = Stage()
    connection = stage.connect(inner=Refusing())
    connection.client_step()
    connection.deliver(connection.written())
    assert connection.raw.is_aborted
    assert stage.turns.unfinished_count == 0
    connection.lose()
    assert stage.failed() == {}


def test_the_session_is_described() -> None:
    connection = Stage().connect()
    assert connection.inner.out.get_extra_info("cipher", "none") == "none"
    connection.shake_hands()
    assert connection.inner.out.get_extra_info("cipher")[1] == "TLSv1.3"
    assert connection.inner.out.get_extra_info("tls_version") == "TLSv1.3"


def test_a_principal_that_is_refused_gets_no_bytes() -> None:
    class Refusing(Inner):
        def secured(self, certificate: bytes | None) -> None:
            super().secured(certificate)
            self.out.abort()

    connection = Stage().connect(inner=Refusing())
    connection.client_step()
    connection.arrive(connection.written())
    connection.client_step()
    connection.arrive(connection.written() + connection.encrypt(b"request"))
    assert connection.inner.received == b""
    assert connection.raw.is_aborted


def test_a_defect_above_ends_the_connection() -> None:
    class Broken(Inner):
        def secured(self, certificate: bytes | None) -> None:
            raise RuntimeError("a defect")

    stage = Stage()
    connection, other = stage.connect(inner=Broken()), stage.secured()
    with pytest.raises(RuntimeError, match="a defect"):
        connection.shake_hands()
    assert connection.raw.is_aborted
    assert stage.counts() == (0, 0)
    stage.check()
    other.send(b"still here")
    assert other.inner.received == b"still here"


def test_a_defect_after_a_pause_ends_the_connection() -> None:
    connection = Stage().secured(inner=Inner(1_000))
    inner = connection.inner
    inner.on_bytes = inner.out.pause_reading
    connection.deliver(connection.encrypt(b"a" * 3_000))

    def fail() -> None:
        raise RuntimeError("a defect")

    inner.on_bytes = fail
    inner.out.resume_reading()
    with pytest.raises(RuntimeError, match="a defect"):
        connection.stage.loop.settle()
    assert connection.raw.is_aborted
    connection.stage.check()


def alive(*kinds: type) -> int:
    return sum(isinstance(found, kinds) for found in gc.get_objects())


def test_no_object_waits_for_the_collector() -> None:
    gc.collect()
    before = alive(TlsLayer, TlsTransport, Inner)
    gc.disable()
    try:
        stage = Stage()
        complete, unfinished, failed = stage.secured(), stage.connect(), stage.connect()
        complete.send(b"request")
        complete.inner.out.write(b"answer")
        failed.deliver(b"GET /")
        for connection in (complete, unfinished, failed):
            connection.lose()
            connection.raw.protocol = None  # as the transports of event loops
        del complete, unfinished, failed, connection
        assert alive(TlsLayer, TlsTransport, Inner) == before
    finally:
        gc.enable()


# --- Pauses ---


def test_nothing_is_decrypted_while_reading_is_paused() -> None:
    connection = Stage().secured(inner=Inner(1_000))
    inner = connection.inner
    inner.on_bytes = inner.out.pause_reading
    data = os.urandom(100_000)
    ciphertext = connection.encrypt(data)
    connection.layer.get_buffer(-1)[: len(ciphertext)] = ciphertext
    connection.layer.buffer_updated(len(ciphertext))
    connection.stage.check()
    assert inner.received == data[:1_000]
    assert connection.raw.is_read_paused
    assert not inner.out.is_reading()


def test_reading_continues_without_new_bytes_of_the_socket() -> None:
    connection = Stage().secured(inner=Inner(1_000))
    inner = connection.inner
    inner.on_bytes = inner.out.pause_reading
    data = os.urandom(50_500)
    ciphertext = connection.encrypt(data)
    connection.layer.get_buffer(-1)[: len(ciphertext)] = ciphertext
    connection.layer.buffer_updated(len(ciphertext))
    for number in range(1, 51):
        assert inner.received == data[: 1_000 * number]
        inner.out.resume_reading()
        assert inner.received == data[: 1_000 * number], "delivered in the same turn"
        connection.stage.loop.turn()
        connection.stage.check()
    assert inner.received == data


def test_new_bytes_come_behind_held_ones() -> None:
    connection = Stage().secured(inner=Inner(1_000))
    inner = connection.inner
    inner.on_bytes = inner.out.pause_reading
    connection.deliver(connection.encrypt(b"a" * 3_000))
    inner.on_bytes = lambda: None
    inner.out.resume_reading()
    connection.send(b"b" * 3_000)
    connection.stage.loop.settle()
    assert inner.received == b"a" * 3_000 + b"b" * 3_000


def test_a_pause_before_the_turn_keeps_everything() -> None:
    connection = Stage().secured(inner=Inner(1_000))
    inner = connection.inner
    inner.on_bytes = inner.out.pause_reading
    connection.deliver(connection.encrypt(b"a" * 3_000))
    inner.out.resume_reading()
    inner.out.pause_reading()
    connection.stage.loop.settle()
    assert inner.received == b"a" * 1_000
    inner.on_bytes = lambda: None
    inner.out.resume_reading()
    connection.stage.loop.settle()
    assert inner.received == b"a" * 3_000


def test_a_handshake_is_paused_and_continued() -> None:
    connection = Stage().connect()
    connection.inner.out.pause_reading()
    connection.client_step()
    connection.raw.is_read_paused = False  # some loops begin to read only now
    connection.deliver(connection.written())
    connection.stage.loop.settle()
    assert connection.raw.is_read_paused
    assert not connection.raw.sent
    connection.inner.out.resume_reading()
    connection.stage.loop.settle()
    assert connection.raw.sent
    connection.shake_hands()
    assert connection.inner.calls == ["made", "secured"]


def test_short_reads_while_memory_is_short() -> None:
    stage = Stage()
    connection = stage.secured(inner=Inner(4_096))
    assert len(connection.layer.get_buffer(-1)) == 262_144
    stage.is_memory_short = True
    assert 4_096 < len(connection.layer.get_buffer(-1)) < 5_000
    data = os.urandom(100_000)
    connection.send(data)
    assert connection.inner.received == data


# --- Ends ---


def end_of_client(connection: Connection) -> bytes:
    """The client's close_notify."""
    with pytest.raises(ssl.SSLWantReadError):
        connection.client.unwrap()
    return connection.written()


def test_answers_go_out_after_close_notify() -> None:
    connection = Stage().secured()
    connection.deliver(connection.encrypt(b"request") + end_of_client(connection))
    assert connection.inner.received == b"request"
    assert connection.inner.calls[-1] == "end"
    assert connection.layer.eof_received()
    connection.inner.out.write(b"answer")
    assert connection.raw.sent
    connection.inner.out.close()
    assert connection.raw.is_closed
    assert connection.inner.calls.count("end") == 1


def test_answers_go_out_after_an_end_without_close_notify() -> None:
    connection = Stage().secured()
    connection.send(b"request")
    assert connection.layer.eof_received()
    assert connection.inner.calls[-1] == "end"
    connection.inner.out.write(b"answer")
    assert connection.receive() == b"answer"


def test_a_connection_with_nothing_to_answer_is_closed_at_its_end() -> None:
    connection = Stage().secured()
    connection.inner.stays_open = False
    connection.deliver(end_of_client(connection))
    assert connection.raw.is_closed
    assert not connection.layer.eof_received()


def test_bytes_behind_close_notify_are_ignored() -> None:
    connection = Stage().secured()
    connection.deliver(end_of_client(connection) + b"anything")
    assert connection.inner.received == b""
    assert not connection.raw.is_aborted


def test_an_end_waits_for_bytes_before_it() -> None:
    connection = Stage().secured(inner=Inner(1_000))
    inner = connection.inner
    inner.on_bytes = inner.out.pause_reading
    connection.deliver(connection.encrypt(b"a" * 1_500))
    assert connection.layer.eof_received()
    assert "end" not in inner.calls
    inner.on_bytes = lambda: None
    inner.out.resume_reading()
    connection.stage.loop.settle()
    assert inner.received == b"a" * 1_500
    assert inner.calls[-1] == "end"


# --- Bad peers ---


@pytest.mark.parametrize(
    "data",
    [b"\0\0\0\x0c\0\x12\0\0", b"GET / HTTP/1.1\r\n", b"\x80\x2e\x01\x03\x01", b"\x16\x04", b"\xff"],
    ids=["kafka", "http", "sslv2", "other version", "one byte"],
)
def test_a_client_without_tls_is_closed_at_once(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()
    connection = stage.connect()
    connection.deliver(data)
    assert connection.raw.is_closed
    assert not connection.raw.sent
    assert stage.failed() == {"not_tls": 1}
    assert "does not use TLS" in caplog.text
    assert data[:8].hex(" ") in caplog.text


def test_failures_are_logged_once_a_minute_for_an_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    for _ in range(10):
        stage.connect(address="192.0.2.1").deliver(b"GET / ")
        stage.connect(address="192.0.2.2").deliver(b"GET / ")
    assert len(caplog.records) == 2
    stage.loop.advance(61)
    stage.connect(address="192.0.2.1").deliver(b"GET / ")
    assert len(caplog.records) == 3
    assert stage.failed() == {"not_tls": 21}


def test_a_log_cannot_be_filled_by_many_addresses(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    for number in range(3_000):
        stage.connect(address=f"192.0.{number // 256}.{number % 256}").deliver(b"GET / ")
    assert len(caplog.records) == 1_024
    assert stage.failed() == {"not_tls": 3_000}


def test_a_damaged_record_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    connection, other = stage.secured(), stage.secured()
    record = bytearray(connection.encrypt(b"request"))
    record[-1] ^= 1
    connection.deliver(bytes(record) + other.encrypt(b"of another"))
    other = stage.secured()
    assert connection.raw.is_aborted
    assert connection.inner.received == b""
    assert stage.failed() == {"bad_record": 1}
    assert "damaged TLS record" in caplog.text
    other.send(b"still here")
    assert other.inner.received == b"still here"


@pytest.mark.parametrize("place", [0, 1, 2, 3, 4, 10, 43, 100, -1])
def test_a_damaged_hello_ends_the_connection_or_is_answered(place: int) -> None:
    stage = Stage()
    connection = stage.connect()
    connection.client_step()
    hello = bytearray(connection.written())
    hello[place] ^= 0xFF
    connection.deliver(bytes(hello))
    stage.loop.settle()
    if not connection.raw.is_closed:
        assert connection.inner.calls == ["made"]
    connection.lose()
    assert stage.turns.unfinished_count == 0
    assert sum(stage.failed().values()) == 1


def test_a_handshake_of_too_many_bytes_is_ended() -> None:
    stage = Stage()
    connection = stage.connect()
    assert len(connection.layer.get_buffer(-1)) == HANDSHAKE_READ_BYTES
    record = b"\x16\x03\x01" + (16_000).to_bytes(2, "big") + b"\x01\x00\xff\xff" + bytes(15_996)
    for _ in range(HANDSHAKE_BYTES_MAX // len(record) + 1):
        if connection.raw.is_closed:
            break
        connection.deliver(record)
        stage.loop.settle()
    assert connection.raw.is_closed
    assert sum(stage.failed().values()) == 1


def test_a_client_that_goes_in_its_handshake_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    first, second, third = stage.connect(), stage.connect(), stage.connect()
    first.lose()
    assert not second.layer.eof_received()
    third.client_step()
    third.deliver(third.written())
    third.lose()
    assert stage.failed() == {"ended_by_client": 3}
    assert stage.turns.unfinished_count == 0
    assert not caplog.records


def test_old_versions_are_refused() -> None:
    context = ssl.create_default_context(cafile=str(identities().authority.certificate))
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.minimum_version = ssl.TLSVersion.TLSv1_1
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    stage = Stage()
    connection = stage.connect(context)
    with pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"):
        connection.shake_hands()
    assert stage.failed() == {"protocol_version": 1}
    assert connection.raw.is_closed


def test_ciphers_without_forward_secrecy_are_refused() -> None:
    context = ssl.create_default_context(cafile=str(identities().authority.certificate))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AES128-SHA:AES256-GCM-SHA384")
    stage = Stage()
    with pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"):
        stage.connect(context).shake_hands()
    assert stage.failed() == {"no_shared_cipher": 1}


def test_a_client_that_does_not_trust_the_broker_is_counted() -> None:
    context = ssl.create_default_context(cafile=str(identities().other_authority.certificate))
    stage = Stage()
    connection = stage.connect(context)
    connection.client_step()
    connection.arrive(connection.written())
    with pytest.raises(ssl.SSLCertVerificationError):
        connection.client_step()
    connection.arrive(connection.written())
    assert stage.failed() == {"refused_by_client": 1}
    assert connection.raw.is_closed


# --- Any bytes ---


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=10))
def test_any_bytes_before_the_handshake(pieces: list[bytes]) -> None:
    stage = Stage()
    connection = stage.connect()
    connection.deliver(b"\x16\x03\x01")
    for piece in pieces:
        if connection.is_open():
            connection.arrive(piece)
    assert connection.inner.calls == ["made"]
    connection.lose()
    assert stage.counts() == (0, 0)
    assert sum(stage.failed().values()) == 1


@given(st.integers(0, 3), st.integers(0, 2_000), st.binary(min_size=1, max_size=8), st.booleans())
def test_a_flight_of_the_client_is_damaged(
    flight: int, place: int, noise: bytes, is_inserted: bool
) -> None:
    """A connection ends, or its handshake succeeds with the bytes that were not damaged."""
    stage = Stage("required")
    connection = stage.connect(client_context(identities().client))
    for number in range(4):
        try:
            is_complete = connection.client_step()
        except ssl.SSLError:
            break
        data = connection.written()
        if is_complete and connection.is_open():
            data += connection.encrypt(b"request")
        if number == flight and data:
            place %= len(data)
            data = data[:place] + noise + data[place if is_inserted else place + len(noise) :]
        if connection.is_open():
            connection.arrive(data)
    if connection.inner.received:
        assert connection.inner.certificate is not None
    connection.lose()
    assert stage.counts() == (0, 0)


@given(st.integers(0, 60_000), st.binary(min_size=1, max_size=8), st.sampled_from([1, 1_000]))
def test_records_after_the_handshake_are_damaged(
    place: int, noise: bytes, buffer_bytes: int
) -> None:
    """The bytes that arrive are the beginning of those that were sent."""
    stage = Stage()
    connection = stage.secured(inner=Inner(buffer_bytes))
    data = bytes(range(256)) * 240
    ciphertext = bytearray(connection.encrypt(data))
    ciphertext[place : place + len(noise)] = noise
    connection.deliver(bytes(ciphertext))
    assert data.startswith(bytes(connection.inner.received))
    stage.check()
