"""Both sides of a connection, alone and against each other, at every split of the bytes."""

import pytest

from penstock.core.errors import (
    FrameError,
    MalformedRequestError,
    MalformedResponseError,
    PeerError,
    UnsupportedApiError,
)
from penstock.core.limits import (
    CONTROL_FRAME_BYTES_MAX,
    FRAME_BYTES_MAX,
    REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX,
)
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message
from penstock.protocol.connection import (
    CORRELATION_ID_MAX,
    ClientConnection,
    Request,
    ServerConnection,
    encode_response_frame,
)
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.framing import ReadArena
from penstock.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from penstock.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.messages.produce import ProduceRequest

SERVED = {
    ApiKey.PRODUCE: (3, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.METADATA: (0, 13),
    ApiKey.API_VERSIONS: (0, 4),
}
ARENA = ReadArena(1_024)


def server() -> ServerConnection:
    return ServerConnection({int(key): versions for key, versions in SERVED.items()}, ARENA)


def frame(encoded: str) -> bytes:
    body = bytes.fromhex(encoded)
    return len(body).to_bytes(4) + body


def only_request(data: bytes) -> Request:
    connection = server()
    connection.receive_data(data)
    request = connection.next_request()
    assert request is not None
    assert connection.next_request() is None
    return request


def test_a_request_comes_out_whole() -> None:
    request = only_request(
        frame("0003" + "000c" + "00000007" + "0002" + "6869" + "00" + "01000000")
    )
    assert (request.api_key, request.api_version, request.correlation_id) == (3, 12, 7)
    assert (request.client_id, bytes(request.body), request.frame_bytes) == ("hi", b"\1\0\0\0", 17)
    assert not request.is_version_unsupported
    assert request.decode() == MetadataRequest(topics=(), allow_auto_topic_creation=False)
    assert "hi" in repr(request)


@pytest.mark.parametrize(
    ("head", "error"),
    [
        ("270f" + "0000", UnsupportedApiError),
        ("ffff" + "0000", UnsupportedApiError),
        ("0004" + "0000", UnsupportedApiError),
        ("0008" + "0002", UnsupportedApiError),
        ("0000" + "0002", UnsupportedApiError),
        ("0000" + "000e", UnsupportedApiError),
        ("0003" + "ffff", UnsupportedApiError),
        ("0003" + "7fff", UnsupportedApiError),
        ("0003" + "000c", MalformedRequestError),
    ],
)
def test_what_is_not_served_is_refused(head: str, error: type[PeerError]) -> None:
    connection = server()
    tags = "00" if error is UnsupportedApiError else "01"
    connection.receive_data(frame(head + "00000007" + "ffff" + tags))
    with pytest.raises(error):
        connection.next_request()


def test_an_unsupported_api_says_which() -> None:
    connection = server()
    connection.receive_data(frame("0003" + "7fff" + "00000007" + "ffff" + "00"))
    with pytest.raises(UnsupportedApiError) as caught:
        connection.next_request()
    assert (caught.value.api_key, caught.value.api_version) == (3, 32_767)


@pytest.mark.parametrize("version", ["0005", "7fff", "ffff", "8000"])
def test_api_versions_of_an_unknown_version_is_answered_in_version_0(version: str) -> None:
    request = only_request(frame("0012" + version + "00000007" + "ffff" + "00" + "deadbeef"))
    assert request.is_version_unsupported
    assert (request.api_version, bytes(request.body)) == (0, b"")
    assert request.decode() == ApiVersionsRequest()
    answer = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=(ApiVersion(api_key=18, min_version=0, max_version=4),),
    )
    sent = b"".join(encode_response_frame(request, answer))
    assert sent.hex() == "00000010" + "00000007" + "0023" + "00000001" + "0012" + "0000" + "0004"


@pytest.mark.parametrize(
    ("head", "bound"),
    [
        ("0003", CONTROL_FRAME_BYTES_MAX),
        ("0000", FRAME_BYTES_MAX),
        ("ffff", CONTROL_FRAME_BYTES_MAX),
    ],
)
def test_only_produce_may_be_large(head: str, bound: int) -> None:
    for length, is_refused in ((bound, False), (bound + 1, True)):
        connection = server()
        connection.receive_data(length.to_bytes(4) + bytes.fromhex(head))
        if is_refused:
            with pytest.raises(FrameError):
                connection.next_request()
        else:
            assert connection.next_request() is None
            assert connection.reader.needs_bytes == bound - 2


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01", b"\xff" * 8, bytes(8)]
)
def test_another_protocol_is_refused_at_its_first_bytes(data: bytes) -> None:
    connection = server()
    connection.receive_data(data)
    with pytest.raises(FrameError):
        connection.next_request()


def test_large_records_are_passed_through() -> None:
    records = memoryview(bytearray(b"r" * 50_000))
    message = FetchResponse(
        responses=(
            FetchableTopicResponse(
                topic="a",
                partitions=(PartitionData(partition_index=0, high_watermark=9, records=records),),
            ),
        )
    )
    request = only_request(frame("0001" + "000c" + "00000007" + "ffff" + "00"))
    buffers = encode_response_frame(request, message)
    assert len(buffers) == 3
    assert buffers[1] is records
    whole = b"".join(buffers)
    assert int.from_bytes(whole[:4]) == len(whole) - 4
    client = ClientConnection("c")
    client._next_correlation_id = 7
    client.send_request(FetchRequest(max_wait_ms=1, min_bytes=1, topics=()), 12)
    client.receive_data(whole)
    response = client.next_response()
    assert response is not None
    assert response.message == message


@pytest.mark.parametrize("version", [0, 1, 8, 9, 13])
def test_client_and_server_understand_each_other_at_every_split(version: int) -> None:
    client = ClientConnection("me")
    _, first = client.send_request(MetadataRequest(topics=()), version)
    _, second = client.send_request(ApiVersionsRequest(), 3)
    sent = b"".join([*first, *second])
    answers = b""
    for split in range(len(sent)):
        connection = server()
        requests = []
        for piece in (sent[:split], sent[split:]):
            connection.receive_data(piece)
            while (request := connection.next_request()) is not None:
                requests.append(request)
        assert [(r.api_key, r.api_version, r.correlation_id) for r in requests] == [
            (3, version, 0),
            (18, 3, 1),
        ]
        replies: tuple[Message, ...] = (
            MetadataResponse(brokers=(), topics=()),
            ApiVersionsResponse(api_keys=()),
        )
        answers = b"".join(
            b"".join(encode_response_frame(request, reply))
            for request, reply in zip(requests, replies, strict=True)
        )
    client.receive_data(answers[:5])
    assert client.next_response() is None
    client.receive_data(answers[5:])
    metadata, versions = client.next_response(), client.next_response()
    assert metadata is not None
    assert versions is not None
    assert metadata.message == MetadataResponse(brokers=(), topics=())
    assert (metadata.api_key, metadata.api_version, metadata.correlation_id) == (3, version, 0)
    assert versions.message == ApiVersionsResponse(api_keys=())
    assert client.requests_in_flight == 0


def test_a_client_understands_the_answer_in_version_0() -> None:
    client = ClientConnection(None)
    client.send_request(ApiVersionsRequest(), 4)
    client.receive_data(frame("00000000" + "0023" + "00000001" + "0012" + "0000" + "0003"))
    response = client.next_response()
    assert response is not None
    assert response.api_version == 0
    assert response.message == ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=(ApiVersion(api_key=18, min_version=0, max_version=3),),
    )


@pytest.mark.parametrize("encoded", ["00000001" + "0000" + "00000000", "ffffffff"])
def test_a_response_nobody_asked_for_is_malformed(encoded: str) -> None:
    client = ClientConnection(None)
    client.send_request(ApiVersionsRequest(), 0)
    client.receive_data(frame(encoded))
    with pytest.raises(MalformedResponseError):
        client.next_response()


def test_a_response_without_a_request_is_malformed() -> None:
    client = ClientConnection(None)
    client.receive_data(frame("00000000"))
    with pytest.raises(MalformedResponseError):
        client.next_response()


def test_a_produce_without_acknowledgement_is_not_waited_for() -> None:
    client = ClientConnection(None)
    request = ProduceRequest(acks=0, timeout_ms=1, topic_data=())
    assert client.send_request(request, 9, expects_response=False)[0] == 0
    assert client.send_request(request, 9)[0] == 1
    assert client.requests_in_flight == 1


def test_requests_in_flight_are_bounded() -> None:
    client = ClientConnection(None)
    for _ in range(REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX):
        assert client.can_send
        client.send_request(ApiVersionsRequest(), 0)
    assert not client.can_send
    with pytest.raises(AssertionError):
        client.send_request(ApiVersionsRequest(), 0)


def test_responses_are_bounded() -> None:
    client = ClientConnection(None, response_bytes_max=10)
    client.send_request(ApiVersionsRequest(), 0)
    client.receive_data((11).to_bytes(4))
    with pytest.raises(FrameError):
        client.next_response()


def test_correlation_ids_begin_again_at_zero() -> None:
    client = ClientConnection(None)
    client._next_correlation_id = CORRELATION_ID_MAX
    assert client.send_request(ApiVersionsRequest(), 0)[0] == CORRELATION_ID_MAX
    assert client.send_request(ApiVersionsRequest(), 0)[0] == 0
