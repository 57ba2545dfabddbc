"""Versions are agreed on, and a failure says whether the request can have been carried out.

The other end of a socket pair holds the answers before they are asked for, so no thread is needed.
"""

import socket
import threading
import tomllib
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.calls import DELETE_TOPICS_VERSION_MAX, delete, describe_brokers, send_batches
from penstock.client.transport.addresses import Address
from penstock.client.transport.blocking import ANSWER_BYTES_AT_ONCE, BlockingConnection, connect
from penstock.client.transport.versions import CLIENT_VERSION
from penstock.core.errors import (
    AnswerLostError,
    BrokerAnswerError,
    BrokerUnreachableError,
    FrameError,
    MalformedResponseError,
)
from penstock.core.limits import REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX
from penstock.core.types import TopicPartition
from penstock.protocol import codec, headers
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from penstock.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from penstock.protocol.messages.metadata import MetadataResponse
from tests.client.conftest import StepClock

SERVED = {
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.METADATA: (0, 12),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.PRODUCE: (0, 13),
}


class Peer:
    """The broker's end."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.answered = 0

    def answer(self, api_key: ApiKey, version: int, message: codec.Message) -> None:
        body = codec.encode_response(message, version)
        head = headers.write_response_frame_head(api_key, version, self.answered, len(body))
        self.end.sendall(head + body)
        self.answered += 1

    def answer_versions(self, version: int = 4, code: ErrorCode = ErrorCode.NONE) -> None:
        keys = tuple(
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in SERVED.items()
        )
        message = ApiVersionsResponse(api_keys=keys, error_code=code)
        self.answer(ApiKey.API_VERSIONS, version, message)

    def requests(self) -> list[tuple[int, int]]:
        """API key and version of each request that came."""
        self.end.setblocking(False)
        data = self.end.recv(1_000_000)
        found = []
        while data:
            length = int.from_bytes(data[:4])
            found.append((int.from_bytes(data[4:6]), int.from_bytes(data[6:8])))
            data = data[4 + length :]
        return found


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def peer(sockets: tuple[socket.socket, socket.socket]) -> Peer:
    return Peer(sockets[1])


@pytest.fixture
def connection(sockets: tuple[socket.socket, socket.socket]) -> BlockingConnection:
    return BlockingConnection(sockets[0], Address("fake", 9092), timeout_seconds=0.05)


def test_calls_use_the_highest_version_both_know(
    peer: Peer, connection: BlockingConnection
) -> None:
    peer.answer_versions()
    connection.negotiate()
    peer.answer(ApiKey.METADATA, 12, MetadataResponse(brokers=(), topics=(), cluster_id="c"))
    assert connection.carry(describe_brokers(None)).cluster_id == "c"
    assert peer.requests() == [(ApiKey.API_VERSIONS, 4), (ApiKey.METADATA, 12)]


def test_the_callers_own_bound_is_kept(peer: Peer, connection: BlockingConnection) -> None:
    peer.answer_versions()
    connection.negotiate()
    peer.answer(
        ApiKey.DELETE_TOPICS,
        DELETE_TOPICS_VERSION_MAX,
        DeleteTopicsResponse(responses=(DeletableTopicResult(name="a"),)),
    )
    (result,) = connection.carry(delete(["a"], 1000))
    assert (result.name, result.error_code) == ("a", ErrorCode.NONE)
    assert peer.requests()[1] == (ApiKey.DELETE_TOPICS, 5)


def test_an_older_broker_is_asked_again(peer: Peer, connection: BlockingConnection) -> None:
    low = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=2)
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=(low,))
    peer.answer(ApiKey.API_VERSIONS, 0, refusal)
    peer.answer_versions(version=2)
    connection.negotiate()
    assert peer.requests() == [(ApiKey.API_VERSIONS, 4), (ApiKey.API_VERSIONS, 2)]


def test_a_refusal_to_tell_versions_is_an_error(peer: Peer, connection: BlockingConnection) -> None:
    peer.answer_versions(code=ErrorCode.INVALID_REQUEST)
    with pytest.raises(BrokerAnswerError, match="INVALID_REQUEST"):
        connection.negotiate()


def test_what_the_broker_does_not_serve_is_not_sent(
    peer: Peer, connection: BlockingConnection
) -> None:
    with pytest.raises(BrokerAnswerError, match="serves METADATA not at all"):
        connection.carry(describe_brokers(None))


def test_acks_zero_waits_for_nothing(peer: Peer, connection: BlockingConnection) -> None:
    peer.answer_versions()
    connection.negotiate()
    batches = {TopicPartition("orders", 0): b"batch"}
    assert connection.carry(send_batches(batches, acks=0, timeout_ms=1)) == {}
    assert peer.requests()[1] == (ApiKey.PRODUCE, 12)


def test_closed_before_sending_is_safe(
    sockets: tuple[socket.socket, socket.socket], peer: Peer, connection: BlockingConnection
) -> None:
    peer.answer_versions()
    connection.negotiate()
    sockets[0].shutdown(socket.SHUT_WR)
    with pytest.raises(BrokerUnreachableError, match="before the request was sent"):
        connection.carry(describe_brokers(None))


def test_a_request_that_was_sent_in_part_is_safe(
    sockets: tuple[socket.socket, socket.socket], peer: Peer, connection: BlockingConnection
) -> None:
    """Nobody reads and the buffers are full: without its last byte a request is not a request."""
    peer.answer_versions()
    connection.negotiate()
    batches = {TopicPartition("orders", 0): b"x" * 4_000_000}
    with pytest.raises(BrokerUnreachableError, match="before the request was sent"):
        connection.carry(send_batches(batches, acks=1, timeout_ms=1))


def test_closed_before_the_answer_is_ambiguous(peer: Peer, connection: BlockingConnection) -> None:
    peer.answer_versions()
    connection.negotiate()
    peer.end.shutdown(socket.SHUT_WR)
    with pytest.raises(AnswerLostError, match="closed the connection"):
        connection.carry(describe_brokers(None))


def test_no_answer_in_time_is_ambiguous(peer: Peer, connection: BlockingConnection) -> None:
    peer.answer_versions()
    connection.negotiate()
    with pytest.raises(AnswerLostError, match="timed out"):
        connection.carry(describe_brokers(None))


def test_an_answer_to_another_question(peer: Peer, connection: BlockingConnection) -> None:
    peer.answered = 17
    peer.answer_versions()
    with pytest.raises(MalformedResponseError, match="17"):
        connection.negotiate()


# --- Several calls under way ---


def answer_metadata(peer: Peer, cluster_id: str) -> None:
    message = MetadataResponse(brokers=(), topics=(), cluster_id=cluster_id)
    peer.answer(ApiKey.METADATA, 12, message)


@pytest.fixture
def negotiated(peer: Peer, sockets: tuple[socket.socket, socket.socket]) -> BlockingConnection:
    connection = BlockingConnection(sockets[0], Address("fake", 9092), timeout_seconds=10)
    peer.answer_versions()
    connection.negotiate()
    return connection


@pytest.fixture
def impatient(peer: Peer, connection: BlockingConnection) -> BlockingConnection:
    """One whose time is over soon; what it sends was compiled before."""
    codec.encode_request(describe_brokers(None).request, 12)
    peer.answer_versions()
    connection.negotiate()
    return connection


def test_answers_may_be_asked_for_in_any_order(peer: Peer, negotiated: BlockingConnection) -> None:
    tickets = [negotiated.send(describe_brokers(None)) for _ in range(4)]
    for name in "abcd":
        answer_metadata(peer, name)
    for index in (2, 0, 3, 1):
        assert negotiated.receive(tickets[index]).cluster_id == "abcd"[index]


def test_whether_an_answer_is_here_is_told_without_waiting(
    peer: Peer, negotiated: BlockingConnection, sockets: tuple[socket.socket, socket.socket]
) -> None:
    first, second = (negotiated.send(describe_brokers([])) for _ in range(2))
    assert not negotiated.has_answer(first)
    answer_metadata(peer, "first")
    answer_metadata(peer, "second")
    # The second came in the same bytes: `select` would not report it any more.
    assert negotiated.has_answer(first)
    assert negotiated.has_answer(second)
    assert negotiated.receive(second).cluster_id == "second"
    assert negotiated.receive(first).cluster_id == "first"
    assert negotiated.fileno() in {one.fileno() for one in sockets}


def test_an_answer_in_part_is_not_here(peer: Peer, negotiated: BlockingConnection) -> None:
    ticket = negotiated.send(describe_brokers([]))
    peer.end.sendall(b"\x00\x00")
    assert not negotiated.has_answer(ticket)


def test_looking_for_an_answer_of_a_closed_connection_is_an_error(
    peer: Peer, negotiated: BlockingConnection
) -> None:
    ticket = negotiated.send(describe_brokers([]))
    peer.end.close()
    with pytest.raises(AnswerLostError):
        negotiated.has_answer(ticket)


def test_what_has_no_answer_need_not_be_waited_for(negotiated: BlockingConnection) -> None:
    call = send_batches({TopicPartition("t", 0): b"x"}, acks=0, timeout_ms=1000)
    assert negotiated.has_answer(negotiated.send(call))


def test_a_forgotten_answer_is_thrown_away(peer: Peer, negotiated: BlockingConnection) -> None:
    tickets = [negotiated.send(describe_brokers(None)) for _ in range(3)]
    negotiated.forget(tickets[1])  # before it has come
    for name in "abc":
        answer_metadata(peer, name)
    assert negotiated.receive(tickets[2]).cluster_id == "c"
    negotiated.forget(tickets[0])  # after it has come
    answer_metadata(peer, "d")
    assert negotiated.carry(describe_brokers(None)).cluster_id == "d"


def test_what_has_come_is_given_although_the_rest_is_lost(
    peer: Peer, negotiated: BlockingConnection
) -> None:
    first, second, third = (negotiated.send(describe_brokers(None)) for _ in range(3))
    answer_metadata(peer, "a")
    answer_metadata(peer, "b")
    peer.end.close()
    for _ in range(2):  # a broken connection raises at each wait
        with pytest.raises(AnswerLostError):
            negotiated.receive(third)
    assert negotiated.receive(first).cluster_id == "a"
    assert negotiated.receive(second).cluster_id == "b"


def test_who_asks_late_loses_no_answer(
    peer: Peer, sockets: tuple[socket.socket, socket.socket], clock: StepClock
) -> None:
    connection = BlockingConnection(
        sockets[0], Address("fake", 9092), timeout_seconds=5, clock=clock
    )
    peer.answer_versions()
    connection.negotiate()
    ticket = connection.send(describe_brokers(None))
    answer_metadata(peer, "late")
    clock.sleep(3_600)
    assert connection.receive(ticket).cluster_id == "late"


def test_the_number_in_flight_is_bounded(peer: Peer, impatient: BlockingConnection) -> None:
    bound = REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX
    tickets = [impatient.send(describe_brokers(None)) for _ in range(bound)]
    for number in range(2):
        answer_metadata(peer, str(number))
    tickets.append(impatient.send(describe_brokers(None)))  # waits for the first answer
    assert impatient.receive(tickets[0]).cluster_id == "0"
    tickets.append(impatient.send(describe_brokers(None)))
    with pytest.raises(BrokerUnreachableError, match="timed out"):
        impatient.send(describe_brokers(None))


def test_the_next_request_after_acks_zero(peer: Peer, negotiated: BlockingConnection) -> None:
    batches = {TopicPartition("orders", 0): b"batch"}
    ticket = negotiated.send(send_batches(batches, acks=0, timeout_ms=1))
    negotiated.forget(ticket)
    peer.answered += 1  # the number of the request that has no answer
    answer_metadata(peer, "c")
    assert negotiated.carry(describe_brokers(None)).cluster_id == "c"


def test_a_large_request_of_many_parts_arrives_whole(
    peer: Peer, sockets: tuple[socket.socket, socket.socket]
) -> None:
    connection = BlockingConnection(sockets[0], Address("fake", 9092), timeout_seconds=10)
    peer.answer_versions()
    connection.negotiate()
    peer.requests()
    batches = {TopicPartition("orders", n): bytes([n % 251]) * 5_000 for n in range(1_500)}
    call = send_batches(batches, acks=0, timeout_ms=1)
    received = bytearray()
    peer.end.settimeout(10)

    def read_all() -> None:
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4]):
            received.extend(peer.end.recv(100_000))

    reader = threading.Thread(target=read_all)
    reader.start()
    connection.carry(call)
    reader.join()
    head = len(headers.write_request_head(ApiKey.PRODUCE, 12, 1, "penstock"))
    assert received[4 + head :] == codec.encode_request(call.request, 12)


# --- Unusual answers of a broker ---


@pytest.mark.parametrize("length", [-1, 3, 268_435_457, 2_147_483_647])
def test_impossible_lengths(peer: Peer, negotiated: BlockingConnection, length: int) -> None:
    peer.end.sendall(length.to_bytes(4, signed=True) + b"1234")
    with pytest.raises(FrameError, match=str(length)):
        negotiated.carry(describe_brokers(None))


def test_an_announcement_takes_no_more_memory_than_its_bound(
    peer: Peer, impatient: BlockingConnection
) -> None:
    peer.end.sendall((250_000_000).to_bytes(4) + b"1234")
    tracemalloc.start()
    try:
        with pytest.raises(AnswerLostError, match="timed out"):
            impatient.carry(describe_brokers(None))
        assert tracemalloc.get_traced_memory()[1] < ANSWER_BYTES_AT_ONCE + 1_000_000
    finally:
        tracemalloc.stop()


def test_an_answer_that_is_cut_off(peer: Peer, negotiated: BlockingConnection) -> None:
    ticket = negotiated.send(describe_brokers(None))
    peer.end.sendall((100).to_bytes(4) + b"the rest never comes")
    peer.end.shutdown(socket.SHUT_WR)
    with pytest.raises(AnswerLostError, match="closed the connection"):
        negotiated.receive(ticket)


def test_an_answer_to_what_was_answered_before(peer: Peer, negotiated: BlockingConnection) -> None:
    answer_metadata(peer, "a")
    peer.answered -= 1
    answer_metadata(peer, "b")
    assert negotiated.carry(describe_brokers(None)).cluster_id == "a"
    with pytest.raises(MalformedResponseError, match="not the oldest"):
        negotiated.carry(describe_brokers(None))


@given(st.binary(max_size=400))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_an_answer_or_an_error(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = Peer(theirs)
        connection = BlockingConnection(ours, Address("fake", 9092), timeout_seconds=5)
        peer.answer_versions()
        connection.negotiate()
        theirs.sendall((len(data) + 4).to_bytes(4) + (1).to_bytes(4) + data)
        theirs.shutdown(socket.SHUT_WR)
        try:
            connection.carry(describe_brokers(None))
        except (MalformedResponseError, FrameError, AnswerLostError, BrokerAnswerError):
            return


def test_the_version_it_tells_is_the_packages() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())
    assert project["project"]["version"] == CLIENT_VERSION


def test_nobody_listens(unused_address: Address) -> None:
    with pytest.raises(BrokerUnreachableError, match=f"{unused_address}: connection refused"):
        connect(unused_address, timeout_seconds=1)


def test_a_host_that_no_resolver_can_be_asked_for() -> None:
    with pytest.raises(BrokerUnreachableError, match="cannot be looked up"):
        connect(Address("a..b", 9092), timeout_seconds=1.0)


def test_somebody_listens_who_is_no_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(BrokerUnreachableError, match="does not answer as a broker"):
            connect(Address("127.0.0.1", port), timeout_seconds=0.05)
