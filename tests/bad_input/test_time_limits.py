"""Item 4 and the rest of 28: peers that cost nothing but time, with limits of a tenth of a second.

Each limit is tried from both sides: a connection beyond it is closed and counted, and one that is
merely slow, waits for something, or is throttled by the broker itself is not.
"""

import time

import pytest

from tests.bad_input.batches import LARGE, good, produce
from tests.bad_input.cases_requests import fetch
from tests.bad_input.cases_wire import METADATA_V12_NO_TOPICS
from tests.bad_input.inside import InsideBroker
from tests.bad_input.ward import create_topics
from tests.bad_input.wire import Peer, decoded, int32, request

LIMIT_SECONDS = 0.1
MEBIBYTE = 1 << 20
GRACE_SECONDS = 5.0
"""For a busy machine; a broker without the limit would keep the connection far longer."""

UNFINISHED = 'connections_timed_out_total{reason="unfinished_request"}'
IDLE = 'connections_timed_out_total{reason="idle"}'
UNREAD = 'connections_timed_out_total{reason="unread_answers"}'
ADDRESS = 'connections_refused_total{reason="address"}'
ALL = 'connections_refused_total{reason="all"}'

METADATA = request(3, 12, METADATA_V12_NO_TOPICS)
LARGE_PRODUCE = int32(100_000_000) + b"\x00\x00\x00\x09" + bytes(50)


@pytest.mark.parametrize(
    "beginning",
    [b"\x00", b"\x00\x00\x00", METADATA[:4], METADATA[:9], METADATA[:-1], LARGE_PRODUCE],
    ids=["1-byte", "3-bytes", "length", "half-a-header", "all-but-one", "of-100-MB"],
)
def test_a_request_that_is_not_finished_ends_its_connection(beginning: bytes) -> None:
    with (
        InsideBroker(frame_completion_seconds_max=LIMIT_SECONDS) as broker,
        Peer(broker.port) as peer,
    ):
        peer.send(beginning)
        assert peer.is_closed_within(GRACE_SECONDS)
        assert broker.settles(UNFINISHED, 1)
        assert broker.settles("connections", 0)
        assert broker.metrics()["request_bytes_in_flight"] == 0


def test_dripping_bytes_do_not_buy_time() -> None:
    with (
        InsideBroker(frame_completion_seconds_max=LIMIT_SECONDS) as broker,
        Peer(broker.port) as peer,
    ):
        peer.send(int32(1_000))
        deadline = time.monotonic() + GRACE_SECONDS
        while not peer.is_closed_within(LIMIT_SECONDS / 20):
            assert time.monotonic() < deadline
            peer.send(b"\x00")
        assert broker.settles(UNFINISHED, 1)


def test_whole_requests_one_after_another_have_a_time_limit_each() -> None:
    with (
        InsideBroker(frame_completion_seconds_max=LIMIT_SECONDS) as broker,
        Peer(broker.port) as peer,
    ):
        end = time.monotonic() + 2 * LIMIT_SECONDS
        peer.send(METADATA[:5])
        while time.monotonic() < end:
            # Always a request that is begun, never the same one for long.
            peer.send(METADATA[5:] + METADATA[:5])
            assert peer.answer() is not None


def test_requests_that_the_broker_holds_back_are_not_slow() -> None:
    """A request behind a fetch that waits lies in the broker's own buffer."""
    with InsideBroker(frame_completion_seconds_max=LIMIT_SECONDS) as broker:
        create_topics(broker.port)
        with Peer(broker.port) as peer:
            wait_ms = round(3 * LIMIT_SECONDS * 1000)
            peer.send(fetch(wait_ms=wait_ms, bytes_min=1, bytes_max=100) + METADATA)
            assert peer.answer() is not None
            assert peer.answer() is not None
        assert broker.metrics()[UNFINISHED] == 0


def test_an_idle_connection_is_closed() -> None:
    with (
        InsideBroker(connection_idle_seconds_max=LIMIT_SECONDS) as broker,
        Peer(broker.port) as silent,
        Peer(broker.port) as spoke_once,
    ):
        spoke_once.send(METADATA)
        assert spoke_once.answer() is not None
        assert silent.is_closed_within(GRACE_SECONDS)
        assert spoke_once.is_closed_within(GRACE_SECONDS)
        assert broker.settles(IDLE, 2)


def test_who_waits_for_an_answer_is_not_idle() -> None:
    with InsideBroker(connection_idle_seconds_max=LIMIT_SECONDS) as broker:
        create_topics(broker.port)
        with Peer(broker.port) as peer:
            peer.send(fetch(wait_ms=round(3 * LIMIT_SECONDS * 1000), bytes_min=1))
            assert peer.answer() is not None


def test_a_fetch_that_waits_does_not_hold_up_a_stop() -> None:
    with InsideBroker() as broker:
        create_topics(broker.port)
        peer = Peer(broker.port)
        peer.send(fetch(wait_ms=60_000, bytes_min=2**31 - 1))
        assert broker.settles("parked_requests", 1)
        began = time.monotonic()
    assert time.monotonic() - began < GRACE_SECONDS
    assert peer.answer() is not None
    peer.close()


def test_what_was_sent_before_the_end_is_answered() -> None:
    """Far more than is handled at once, then FIN: the rest is in the broker's hands."""
    with InsideBroker() as broker, Peer(broker.port) as peer:
        peer.send(METADATA * 1_000)
        peer.finish_sending()
        for _ in range(1_000):
            assert peer.answer() is not None
        assert peer.answer() is None


def filled(broker: InsideBroker) -> None:
    """Put 8 MB into a topic, so that a few fetches fill any socket's buffer."""
    with Peer(broker.port) as peer:
        for _ in range(8):
            peer.send(produce(good(1, size=1_000_000), topic=LARGE))
            assert peer.answer() is not None


LARGE_FETCH = fetch(topic=LARGE, bytes_max=8_000_000)


def test_a_client_that_never_reads_is_closed() -> None:
    with InsideBroker(slow_reader_seconds_max=LIMIT_SECONDS) as broker:
        create_topics(broker.port)
        filled(broker)
        assert broker.settles("connections", 0)
        with Peer(broker.port, receive_buffer_bytes=4_096) as peer:
            peer.send(LARGE_FETCH * 20)
            assert broker.settles(UNREAD, 1)
            assert broker.settles("connections", 0)
        assert broker.metrics()["request_bytes_in_flight"] == 0
        assert broker.metrics()["unsent_answer_bytes"] == 0


def test_one_answer_that_nobody_takes_is_enough() -> None:
    """An answer below 1 MiB, as consumers ask for by default: it counts, and its time runs."""
    with InsideBroker(slow_reader_seconds_max=LIMIT_SECONDS) as broker:
        create_topics(broker.port)
        filled(broker)
        with Peer(broker.port, receive_buffer_bytes=4_096) as peer:
            # The kernel takes up to 4 MiB by itself; the last answer finds no room in it.
            for _ in range(8):
                peer.send(fetch(topic=LARGE, bytes_max=900_000))
            assert broker.rises("unsent_answer_bytes", 900_000)
            assert broker.settles(UNREAD, 1)
        assert broker.settles("unsent_answer_bytes", 0)


def test_a_client_that_reads_slowly_is_not_closed() -> None:
    """Not for its unsent answer, and not for the request that waits behind it either."""
    limits = {
        "slow_reader_seconds_max": 2 * LIMIT_SECONDS,
        "frame_completion_seconds_max": LIMIT_SECONDS,
    }
    with InsideBroker(**limits) as broker:
        create_topics(broker.port)
        filled(broker)
        with Peer(broker.port, receive_buffer_bytes=65_536) as peer:
            peer.send(LARGE_FETCH)
            peer.send(METADATA)
            expected = int.from_bytes(peer.socket.recv(4))
            read = 0
            while read < expected:
                part = peer.socket.recv(min(250_000, expected - read))
                assert part, f"closed after {read} of {expected} bytes"
                read += len(part)
                time.sleep(LIMIT_SECONDS / 40)
            answer = peer.answer()
            assert answer is not None
            decoded(3, 12, answer)
        assert broker.metrics()[UNREAD] == 0


def test_connections_of_one_address_are_bounded() -> None:
    with InsideBroker(connections_per_address_max=5) as broker:
        peers = [Peer(broker.port) for _ in range(5)]
        for peer in peers:
            peer.send(METADATA)
            assert peer.answer() is not None
        with Peer(broker.port) as late:
            assert late.is_closed_within(GRACE_SECONDS)
        assert broker.settles(ADDRESS, 1)
        peers.pop().close()
        assert broker.settles("connections", 4)
        with Peer(broker.port) as welcome:
            welcome.send(METADATA)
            assert welcome.answer() is not None
        for peer in peers:
            peer.close()


def test_all_connections_are_bounded() -> None:
    with InsideBroker(connections_max=3) as broker:
        peers = [Peer(broker.port) for _ in range(3)]
        assert broker.settles("connections", 3)
        with Peer(broker.port) as late:
            assert late.is_closed_within(GRACE_SECONDS)
        assert broker.settles(ALL, 1)
        assert broker.metrics()[ADDRESS] == 0
        peers[0].send(METADATA)
        assert peers[0].answer() is not None
        for peer in peers:
            peer.close()


def test_unfinished_requests_hold_up_only_large_ones() -> None:
    """The half for unfinished requests is spent by some that never end; others go on."""
    with InsideBroker(request_bytes_in_flight_max=2 * MEBIBYTE) as broker:
        create_topics(broker.port)
        with Peer(broker.port) as endless, Peer(broker.port) as small, Peer(broker.port) as large:
            endless.send(LARGE_PRODUCE[:8] + bytes(MEBIBYTE))
            assert broker.rises("request_bytes_in_flight", MEBIBYTE)
            data = produce(good(1, size=40_000), topic=LARGE)
            small.send(data[:10_000])
            assert broker.rises("request_bytes_in_flight", MEBIBYTE + 4_000)
            small.send(data[10_000:])
            assert small.answer() is not None
            large.send(produce(good(1, size=200_000), topic=LARGE))
            assert broker.rises('reads_paused_total{reason="unfinished_bytes"}', 1)
            endless.close()
            assert large.answer() is not None
