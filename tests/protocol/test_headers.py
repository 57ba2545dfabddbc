"""Request and response headers: versions, the client id, tags, and the ApiVersions exception."""

import importlib
import io

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.serial import entity_writer

from penstock.core.errors import MalformedRequestError, MalformedResponseError
from penstock.protocol import headers
from penstock.protocol.api_keys import ApiKey

PRODUCE_9 = "0000" + "0009" + "00000007"
METADATA_1 = "0003" + "0001" + "00000007"


def read(encoded: str) -> headers.RequestHead:
    return headers.read_request_head(memoryview(bytes.fromhex(encoded)))


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "é" * 100])
@pytest.mark.parametrize(("api_key", "version"), [(3, 1), (3, 8), (3, 9), (0, 9), (18, 3), (17, 1)])
def test_a_header_is_what_kio_writes(api_key: int, version: int, client_id: str | None) -> None:
    ours = headers.write_request_head(api_key, version, -5, client_id)
    kio_class = KioHeaderV2 if headers.is_flexible(api_key, version) else KioHeaderV1
    theirs = kio_class(
        request_api_key=api_key,  # type: ignore[arg-type]
        request_api_version=version,  # type: ignore[arg-type]
        correlation_id=-5,  # type: ignore[arg-type]
        client_id=client_id,
    )
    with io.BytesIO() as written:
        entity_writer(kio_class)(written, theirs)
        assert ours == written.getvalue()
    head = headers.read_request_head(memoryview(ours + b"body"))
    assert (head.api_key, head.api_version, head.correlation_id) == (api_key, version, -5)
    assert (head.client_id, head.body_start) == (client_id, len(ours))


def test_tags_of_a_flexible_header_are_skipped() -> None:
    assert read(PRODUCE_9 + "ffff" + "02" + "000161" + "050262ff" + "cc").body_start == 18


@pytest.mark.parametrize(
    "encoded",
    [
        "",
        "0003",
        METADATA_1,
        METADATA_1 + "00",
        METADATA_1 + "fffe",
        METADATA_1 + "8000",
        METADATA_1 + "7fff" + "61",
        METADATA_1 + "0002" + "fffe",
        PRODUCE_9 + "ffff",
        PRODUCE_9 + "ffff" + "8080808008" + "00",
        PRODUCE_9 + "ffff" + "02" + "050161" + "050162",
        PRODUCE_9 + "ffff" + "02" + "060161" + "050162",
        PRODUCE_9 + "ffff" + "01" + "05ffffffff0f",
        PRODUCE_9 + "ffff" + "ffffffffff01",
    ],
)
def test_a_bad_header_is_malformed(encoded: str) -> None:
    with pytest.raises(MalformedRequestError):
        read(encoded)


def test_the_table_of_flexible_versions_is_that_of_the_messages() -> None:
    found = {}
    for key in ApiKey:
        if key in (4, 5, 6, 7):
            continue
        module = importlib.import_module(f"penstock.protocol.messages.{key.name.lower()}")
        name = key.name.title().replace("_", "")
        request, response = getattr(module, name + "Request"), getattr(module, name + "Response")
        assert request.API_KEY is response.API_KEY is key
        assert request.FLEXIBLE_SINCE == response.FLEXIBLE_SINCE
        if request.FLEXIBLE_SINCE is not None:
            found[key] = request.FLEXIBLE_SINCE
    assert found == headers.FLEXIBLE_SINCE


@pytest.mark.parametrize(
    ("api_key", "version", "expected"),
    [
        (ApiKey.METADATA, 8, "0000000e" + "00000007"),
        (ApiKey.METADATA, 9, "0000000f" + "00000007" + "00"),
        (ApiKey.API_VERSIONS, 0, "0000000e" + "00000007"),
        (ApiKey.API_VERSIONS, 4, "0000000e" + "00000007"),
        (ApiKey.SASL_HANDSHAKE, 1, "0000000e" + "00000007"),
    ],
)
def test_a_response_header_has_tags_when_flexible_but_never_for_api_versions(
    api_key: int, version: int, expected: str
) -> None:
    head = headers.write_response_frame_head(api_key, version, 7, body_bytes=10)
    assert head.hex() == expected
    frame = memoryview(head)[4:]
    assert headers.read_correlation_id(frame) == 7
    assert headers.response_body_start(api_key, version, frame) == len(frame)


@pytest.mark.parametrize("encoded", ["00000007", "0000000701", "00000007ffffffffff01"])
def test_a_bad_response_header_is_malformed(encoded: str) -> None:
    with pytest.raises(MalformedResponseError):
        headers.response_body_start(ApiKey.METADATA, 9, memoryview(bytes.fromhex(encoded)))


def test_a_response_without_a_header_is_malformed() -> None:
    with pytest.raises(MalformedResponseError):
        headers.read_correlation_id(memoryview(b"\x00\x00\x00"))
