"""Item 28 and the large requests of 11, 26 and 27: much of everything, on a broker short of room.

The broker may pause, answer or close; it may not grow without bound or keep others waiting. Its
budget for requests is 16 MiB here, so that a test has to send little to pass it. During a flood, a
second connection is served; after it, all its memory is released.
"""

import threading
from collections.abc import Callable, Iterator

import pytest

from penstock.core.limits import (
    FETCH_SESSIONS_MAX,
    FRAME_BYTES_MAX,
    UNSENT_ANSWER_BYTES_MAX,
)
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.create_topics import CreateTopicsResponse
from penstock.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.bad_input.batches import LARGE, VICTIM, changed, good, produce
from tests.bad_input.case import MEBIBYTE
from tests.bad_input.cases_requests import create, fetch
from tests.bad_input.cases_wire import METADATA_V12_NO_TOPICS
from tests.bad_input.ward import WITNESS_SECONDS_MAX, Ward
from tests.bad_input.wire import Peer, decoded, int16, int32, request, well_formed
from tests.oracle.penstock_broker import penstock_broker

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(120)]

BUDGET_BYTES = 16 * MEBIBYTE
ROOM_BYTES = 64 * MEBIBYTE
"""How much the broker may grow in a flood: the budget, what is being read and written, and the
allocator's habit to keep some of it."""

METADATA = request(ApiKey.METADATA, 12, METADATA_V12_NO_TOPICS)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    """A broker with a small budget, and 8 MB in one of its topics."""
    outside = tmp_path_factory.mktemp("narrow")
    environment = {"PENSTOCK_LISTENER__REQUEST_BYTES_IN_FLIGHT_MAX": str(BUDGET_BYTES)}
    with penstock_broker(outside / "broker", environment=environment) as broker:
        ward = Ward(broker, outside)
        with Peer(broker.port) as peer:
            for _ in range(8):
                peer.send(produce(good(1, size=1_000_000), topic=LARGE))
                assert peer.answer() is not None
        yield ward
        ward.close()


def in_background(action: Callable[[], None]) -> threading.Thread:
    """Start a sender that may be made to wait by the broker for as long as the test reads not."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def assert_served(ward: Ward, times: int = 3) -> None:
    for _ in range(times):
        assert ward.witness.round_trip() < WITNESS_SECONDS_MAX


def test_connecting_and_closing(narrow: Ward) -> None:
    with narrow.watched(memory_bytes_max=ROOM_BYTES):
        for number in range(3_000):
            peer = Peer(narrow.port)
            if number % 3 == 0:
                peer.reset()
            else:
                if number % 3 == 1:
                    peer.send(METADATA[: number % len(METADATA)])
                peer.close()
            if number % 500 == 0:
                assert_served(narrow, 1)


@pytest.mark.parametrize("count", [100_000])
def test_pipelining_without_reading(narrow: Ward, count: int) -> None:
    with narrow.watched(memory_bytes_max=ROOM_BYTES), Peer(narrow.port) as peer:
        sender = in_background(lambda: peer.send(METADATA * count))
        before = narrow.vitals()
        for _ in range(20):
            assert_served(narrow, 1)
            assert narrow.vitals().rss_bytes - before.rss_bytes < ROOM_BYTES
        for _ in range(count):
            assert peer.answer() is not None
        sender.join(10)
        assert not sender.is_alive()


def test_large_answers_that_nobody_reads(narrow: Ward) -> None:
    """64 fetches of 8 MB on each of four connections: 2 GB, were they all answered at once."""
    data = fetch(topic=LARGE, bytes_max=8_000_000) * 64
    with narrow.watched(memory_bytes_max=2 * ROOM_BYTES):
        before = narrow.vitals()
        peers = [Peer(narrow.port, receive_buffer_bytes=4_096) for _ in range(4)]
        for peer in peers:
            peer.send(data)
        for _ in range(20):
            assert_served(narrow, 1)
            assert narrow.vitals().rss_bytes - before.rss_bytes < 2 * ROOM_BYTES
        for peer in peers:
            peer.close()


def test_large_answers_on_many_connections(narrow: Ward) -> None:
    """80 clients that ask for 8 MB each and read nothing: 640 MB, of which 256 MiB are made."""
    bytes_max = UNSENT_ANSWER_BYTES_MAX + 2 * ROOM_BYTES
    with narrow.watched(memory_bytes_max=2 * ROOM_BYTES):
        before = narrow.vitals()
        peers = [Peer(narrow.port, receive_buffer_bytes=4_096) for _ in range(80)]
        for peer in peers:
            peer.send(fetch(topic=LARGE, bytes_max=8_000_000))
        for _ in range(20):
            assert_served(narrow, 1)
            assert narrow.vitals().rss_bytes - before.rss_bytes < bytes_max
        for peer in peers:
            peer.close()


def test_large_answers_that_come_at_once(narrow: Ward) -> None:
    """The same when the fetches wait first, and all end at the same moment."""
    waiting = fetch(topic=LARGE, bytes_max=8_000_000, bytes_min=2**31 - 1, wait_ms=500)
    with narrow.watched(memory_bytes_max=2 * ROOM_BYTES):
        before = narrow.vitals()
        peers = [Peer(narrow.port, receive_buffer_bytes=4_096) for _ in range(4)]
        for peer in peers:
            peer.send(waiting * 64)
        for _ in range(200):
            assert_served(narrow, 1)
            assert narrow.vitals().rss_bytes - before.rss_bytes < 2 * ROOM_BYTES
        for peer in peers:
            peer.close()


def test_announced_requests_hold_nobody_up(narrow: Ward) -> None:
    """A few bytes that announce a gigabyte in all: the budget counts what was sent."""
    head = int32(FRAME_BYTES_MAX) + int16(ApiKey.PRODUCE) + int16(9) + bytes(10)
    with narrow.watched(memory_bytes_max=ROOM_BYTES):
        peers = [Peer(narrow.port) for _ in range(10)]
        for peer in peers:
            peer.send(head)
        assert_served(narrow, 5)
        for peer in peers:
            peer.close()


def test_unfinished_requests_stay_within_the_budget(narrow: Ward) -> None:
    """Ten times 90 MiB of requests that never end."""
    head = int32(FRAME_BYTES_MAX) + int16(ApiKey.PRODUCE) + int16(9)
    with narrow.watched(memory_bytes_max=ROOM_BYTES):
        before = narrow.vitals()
        peers = [Peer(narrow.port) for _ in range(10)]
        senders = [
            in_background(lambda peer=peer: peer.send(head + bytes(90 * MEBIBYTE)))  # type: ignore[misc]
            for peer in peers
        ]
        for _ in range(50):
            assert narrow.vitals().rss_bytes - before.rss_bytes < FRAME_BYTES_MAX + ROOM_BYTES
        for peer in peers:
            peer.abandon()
        for sender in senders:
            sender.join(10)


def test_waiting_requests_hold_nobody_up(narrow: Ward) -> None:
    """Long polls that are padded to a megabyte: what waits long may not hold the budget."""
    body = fetch(bytes_min=2**31 - 1, wait_ms=60_000)[4:]
    padded = body + bytes(MEBIBYTE)
    with narrow.watched(memory_bytes_max=2 * ROOM_BYTES), Peer(narrow.port) as peer:
        sender = in_background(lambda: peer.send((int32(len(padded)) + padded) * 60))
        assert_served(narrow, 20)
        peer.abandon()
        sender.join(10)


def test_acks_zero_with_errors(narrow: Ward) -> None:
    bad = produce(changed(good(), crc=1), acks=0)
    with narrow.watched(memory_bytes_max=ROOM_BYTES):
        for _ in range(200):
            with Peer(narrow.port) as peer:
                peer.send(bad * 20)
                assert peer.answer() is None
        assert_served(narrow)


def test_acks_zero_without_errors_is_taken_whole(narrow: Ward) -> None:
    with narrow.watched(memory_bytes_max=ROOM_BYTES, grows_log=True), Peer(narrow.port) as peer:
        peer.send(produce(good(), acks=0) * 5_000 + METADATA)
        assert peer.answer() is not None


def test_sessions_are_bounded(narrow: Ward) -> None:
    with narrow.watched(memory_bytes_max=ROOM_BYTES), Peer(narrow.port) as peer:
        given = set()
        for _ in range(FETCH_SESSIONS_MAX + 500):
            peer.send(fetch(session=(0, 0)))
            answer = peer.answer()
            assert answer is not None
            found = decoded(ApiKey.FETCH, 12, answer)
            assert isinstance(found, FetchResponse)
            assert found.error_code == ErrorCode.NONE
            given.add(found.session_id)
        assert 0 < len(given - {0}) <= FETCH_SESSIONS_MAX
        assert 0 in given


def test_a_fetch_of_twenty_thousand_partitions(narrow: Ward) -> None:
    partitions = tuple(
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1)
        for number in range(20_000)
    )
    topic = FetchTopic(topic=VICTIM, topic_id=None, partitions=partitions)
    message = FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=(topic,))
    with narrow.watched(memory_bytes_max=3 * ROOM_BYTES), Peer(narrow.port) as peer:
        peer.send(well_formed(message, 12))
        assert_served(narrow)
        answer = peer.answer()
        assert answer is not None
        found = decoded(ApiKey.FETCH, 12, answer)
        assert isinstance(found, FetchResponse)
        assert len(found.responses[0].partitions) == 20_000


def test_a_topic_that_is_named_a_hundred_thousand_times(narrow: Ward) -> None:
    topic = MetadataRequestTopic(name=VICTIM)
    message = MetadataRequest(topics=(topic,) * 100_000, allow_auto_topic_creation=False)
    with narrow.watched(memory_bytes_max=2 * ROOM_BYTES), Peer(narrow.port) as peer:
        peer.send(well_formed(message, 9))
        assert_served(narrow)
        answer = peer.answer()
        assert answer is not None
        found = decoded(ApiKey.METADATA, 9, answer)
        assert isinstance(found, MetadataResponse)
        assert len(found.topics) == 1


def test_a_storm_of_automatic_topics(narrow: Ward) -> None:
    names = tuple(MetadataRequestTopic(name=f"t{number}") for number in range(10_001))
    with narrow.watched(memory_bytes_max=2 * ROOM_BYTES), Peer(narrow.port) as peer:
        found = peer.call(MetadataRequest(topics=names), 9)
        assert isinstance(found, MetadataResponse)
        assert {topic.error_code for topic in found.topics} == {ErrorCode.POLICY_VIOLATION}


def test_a_hundred_thousand_topics(narrow: Ward) -> None:
    with narrow.watched(memory_bytes_max=3 * ROOM_BYTES), Peer(narrow.port) as peer:
        found = peer.call(create("t", times=100_000), 5)
        assert isinstance(found, CreateTopicsResponse)
        assert found.topics[0].error_code == ErrorCode.POLICY_VIOLATION
