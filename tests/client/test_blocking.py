"""Versions are agreed on, and a failure says whether the request can have been carried out.

The other end of a socket pair holds the answers before they are asked for, so no thread is needed.
"""

import socket
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.addresses import Address
from penstock.client.blocking import CLIENT_VERSION, BlockingConnection, connect
from penstock.client.calls import DELETE_TOPICS_VERSION_MAX, delete, describe_brokers, send_batches
from penstock.core.errors import (
    AnswerLostError,
    BrokerAnswerError,
    BrokerUnreachableError,
    MalformedResponseError,
)
from penstock.core.types import TopicPartition
from penstock.protocol import codec, headers
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from penstock.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from penstock.protocol.messages.metadata import MetadataResponse

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
    assert describe_brokers(connection, None).cluster_id == "c"
    assert peer.requests() == [(ApiKey.API_VERSIONS, 4), (ApiKey.METADATA, 12)]


def test_the_callers_own_bound_is_kept(peer: Peer, connection: BlockingConnection) -> None:
    peer.answer_versions()
    connection.negotiate()
    peer.answer(
        ApiKey.DELETE_TOPICS,
        DELETE_TOPICS_VERSION_MAX,
        DeleteTopicsResponse(responses=(DeletableTopicResult(name="a"),)),
    )
    (result,) = delete(connection, ["a"], 1000)
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
        describe_brokers(connection, None)


def test_acks_zero_waits_for_nothing(peer: Peer, connection: BlockingConnection) -> None:
    peer.answer_versions()
    connection.negotiate()
    batches = {TopicPartition("orders", 0): b"batch"}
    assert send_batches(connection, batches, acks=0, timeout_ms=1) == {}
    assert peer.requests()[1] == (ApiKey.PRODUCE, 12)


def test_closed_before_sending_is_safe(
    sockets: tuple[socket.socket, socket.socket], peer: Peer, connection: BlockingConnection
) -> None:
    peer.answer_versions()
    connection.negotiate()
    sockets[0].shutdown(socket.SHUT_WR)
    with pytest.raises(BrokerUnreachableError, match="before the request was sent"):
        describe_brokers(connection, None)


def test_a_request_that_was_sent_in_part_is_safe(
    sockets: tuple[socket.socket, socket.socket], peer: Peer, connection: BlockingConnection
) -> None:
    """Nobody reads and the buffers are full: without its last byte a request is not a request."""
    peer.answer_versions()
    connection.negotiate()
    batches = {TopicPartition("orders", 0): b"x" * 4_000_000}
    with pytest.raises(BrokerUnreachableError, match="before the request was sent"):
        send_batches(connection, batches, acks=1, timeout_ms=1)


def test_closed_before_the_answer_is_ambiguous(peer: Peer, connection: BlockingConnection) -> None:
    peer.answer_versions()
    connection.negotiate()
    peer.end.shutdown(socket.SHUT_WR)
    with pytest.raises(AnswerLostError, match="closed the connection"):
        describe_brokers(connection, None)


def test_no_answer_in_time_is_ambiguous(peer: Peer, connection: BlockingConnection) -> None:
    peer.answer_versions()
    connection.negotiate()
    with pytest.raises(AnswerLostError, match="timed out"):
        describe_brokers(connection, None)


def test_an_answer_to_another_question(peer: Peer, connection: BlockingConnection) -> None:
    peer.answered = 17
    peer.answer_versions()
    with pytest.raises(MalformedResponseError, match="17"):
        connection.negotiate()


def test_the_version_it_tells_is_the_packages() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())
    assert project["project"]["version"] == CLIENT_VERSION


def test_nobody_listens() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(BrokerUnreachableError, match=f"127.0.0.1:{port}: connection refused"):
        connect(Address("127.0.0.1", port), timeout_seconds=1)


def test_somebody_listens_who_is_no_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(BrokerUnreachableError, match="does not answer as a broker"):
            connect(Address("127.0.0.1", port), timeout_seconds=0.05)
