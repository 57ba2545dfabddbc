"""ApiVersions: served APIs, in Kafka's ranges, and a common version for any client (KIP-511)."""

import struct

import pytest

from penstock.broker.handlers import HANDLERS
from penstock.protocol import codec
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.broker.handlers.asker import Asker

RANGES = {
    int(key): (handler.versions.lowest_advertised, handler.versions.highest)
    for key, handler in HANDLERS.items()
}


def ranges_in(answer: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}


def named(name: str, version: str = "1") -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


def test_the_ranges_are_those_of_kafka(asker: Asker) -> None:
    answer = asker.ask(named("asker"), 4, ApiVersionsResponse)
    found = ranges_in(answer)
    assert {key: found[key] for key in RANGES} == RANGES


def test_what_is_not_built_is_not_named(penstock: Asker) -> None:
    answer = penstock.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    assert ranges_in(answer) == RANGES
    assert [one.api_key for one in answer.api_keys] == sorted(RANGES)


def test_produce_is_named_from_version_0(asker: Asker) -> None:
    answer = asker.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    assert ranges_in(answer)[ApiKey.PRODUCE] == (0, 13)


@pytest.mark.parametrize("version", [5, 99, 32_767])
@pytest.mark.parametrize(
    "body", [b"\x00", b"\x00\x07future\x00", b"\x00" + b"\xff" * 40], ids=["empty", "text", "noise"]
)
def test_a_version_of_the_future_is_answered_in_version_0(
    asker: Asker, version: int, body: bytes
) -> None:
    content = struct.pack(">hhih", ApiKey.API_VERSIONS, version, 77, -1) + body
    asker.send_bytes(struct.pack(">i", len(content)) + content)
    frame = asker.receive_bytes()
    assert struct.unpack(">i", frame[:4]) == (77,)
    answer = codec.decode_response(ApiKey.API_VERSIONS, 0, frame[4:])
    assert isinstance(answer, ApiVersionsResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert ranges_in(answer)[ApiKey.API_VERSIONS] == (0, 4)
    # The connection continues, in a version that both know.
    assert asker.ask(named("asker"), 4, ApiVersionsResponse).error_code == ErrorCode.NONE


@pytest.mark.parametrize("name", ["a", "apache-kafka-java", "A.b-C9"])
def test_names_of_software_that_are_taken(asker: Asker, name: str) -> None:
    assert asker.ask(named(name, name), 3, ApiVersionsResponse).error_code == ErrorCode.NONE


@pytest.mark.parametrize("name", ["", "-", ".a", "a-", "a b", "ä", "a\n"])
def test_names_of_software_that_are_refused(asker: Asker, name: str) -> None:
    for request in (named(name), named("asker", name)):
        answer = asker.ask(request, 3, ApiVersionsResponse)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert not answer.api_keys
