"""Every decoder of the protocol: garbage is accepted or raises the one declared error.

Each `fuzz_*` takes any bytes and returns, or lets a bug escape; a runner may call them for minutes.
Accepted input must also survive being written again. The tests here run each target on a small,
repeatable sample: random bytes, and good messages with a few bytes changed.
"""

import importlib
import random
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.core.errors import (
    FrameError,
    MalformedRequestError,
    MalformedResponseError,
    PeerError,
    UnsupportedApiError,
)
from penstock.protocol import codec, headers
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.connection import ClientConnection, ServerConnection
from penstock.protocol.framing import FrameReader, ReadArena
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.metadata import MetadataRequest
from tests.properties.test_messages import Builder, KioFields, kio_class

SERVED = {
    ApiKey.PRODUCE: (3, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.METADATA: (0, 13),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
}
CHOICES = [(key, v) for key, (low, high) in SERVED.items() for v in range(low, high + 1)]


def choose(data: bytes) -> tuple[int, int, bytes]:
    """The first byte picks an API and version, the rest is the body."""
    key, version = CHOICES[data[0] % len(CHOICES)] if data else CHOICES[0]
    return int(key), version, data[1:]


def fuzz_request_body(data: bytes) -> None:
    """A request that is accepted can be written, and is read the same again."""
    api_key, version, body = choose(data)
    try:
        message = codec.decode_request(api_key, version, bytearray(body))
    except MalformedRequestError:
        return
    again = codec.encode_request(message, version)
    assert codec.encode_request(codec.decode_request(api_key, version, again), version) == again


def fuzz_response_body(data: bytes) -> None:
    """The same for responses."""
    api_key, version, body = choose(data)
    try:
        message = codec.decode_response(api_key, version, bytearray(body))
    except MalformedResponseError:
        return
    again = codec.encode_response(message, version)
    assert codec.encode_response(codec.decode_response(api_key, version, again), version) == again


def fuzz_request_header(data: bytes) -> None:
    """A header that is accepted lies within its frame."""
    try:
        head = headers.read_request_head(memoryview(bytearray(data)))
    except MalformedRequestError:
        return
    assert headers.REQUEST_HEADER_BYTES_MIN <= head.body_start <= len(data)


def fuzz_frames(data: bytes) -> None:
    """Frames do not depend on how the bytes were split."""
    outcomes = []
    for seed in range(3):
        pick = random.Random(seed)
        reader = FrameReader(ReadArena(32), bytes_max=64, bytes_min=10, produce_bytes_max=256)
        outcomes.append(frames_of(reader, data, pick))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def frames_of(reader: FrameReader, data: bytes, pick: random.Random) -> list[bytes | str]:
    """All frames, then the word `refused` if the stream was."""
    found: list[bytes | str] = []
    position = 0
    while True:
        try:
            while (frame := reader.next_frame()) is not None:
                found.append(bytes(frame))
        except FrameError:
            return [*found, "refused"]
        if position == len(data):
            return found
        buffer = reader.get_buffer()
        count = min(len(buffer), len(data) - position, pick.choice((1, 3, 50)))
        buffer[:count] = data[position : position + count]
        reader.buffer_updated(count)
        position += count


def fuzz_server_connection(data: bytes) -> None:
    """A broker that decodes whatever comes ends with a `PeerError` or waits for more."""
    served = {int(key): versions for key, versions in SERVED.items()}
    connection = ServerConnection(served, ReadArena(256))
    connection.receive_data(data)
    try:
        while (request := connection.next_request()) is not None:
            request.decode()
    except PeerError:
        return


def fuzz_client_connection(data: bytes) -> None:
    """A client that gets any answer ends with a `PeerError` or waits for more."""
    client = ClientConnection("fuzz", response_bytes_max=10_000)
    for version in (0, 3, 4):
        client.send_request(ApiVersionsRequest(), version)
    client.send_request(MetadataRequest(topics=()), 12)
    client.receive_data(data)
    try:
        while client.next_response() is not None:
            pass
    except PeerError:
        return


def fuzz_any_version(data: bytes) -> None:
    """Also APIs that nobody serves yet, and versions that do not exist."""
    api_key, version = (data[0], data[1] % 20) if len(data) > 1 else (0, 3)
    try:
        codec.decode_request(api_key, version, data[2:])
    except (MalformedRequestError, UnsupportedApiError):
        return


TARGETS: list[Callable[[bytes], None]] = [
    fuzz_request_body,
    fuzz_response_body,
    fuzz_request_header,
    fuzz_frames,
    fuzz_server_connection,
    fuzz_client_connection,
    fuzz_any_version,
]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.__name__)
@settings(max_examples=60, derandomize=True, database=None, deadline=None)
@given(data=st.binary(max_size=200))
@example(data=b"")
def test_garbage_is_accepted_or_refused(target: Callable[[bytes], None], data: bytes) -> None:
    target(data)


SEEDS = [
    "001200030000000700026d65000461626304312e3000",
    "0003000c0000000700026d65000201020304050607080900000000000000000261000000",
    (
        "0001000c0000000700026d6500ffffffff000001f400000001000003e80000000000ffffffff020261"
        "0200000002000000040000000000000009ffffffffffffffffffffffff0000006400000101000000"
    ),
    "000000090000000700026d650000ffff000005dc020261020000000204616263000000",
]


@pytest.mark.parametrize("seed", range(len(SEEDS)))
def test_good_requests_with_a_few_bytes_changed(seed: int) -> None:
    pick = random.Random(seed)
    body = bytes.fromhex(SEEDS[seed])
    for _ in range(300):
        changed = bytearray(body)
        for _ in range(pick.choice((1, 1, 2, 4))):
            changed[pick.randrange(len(changed))] = pick.choice((0, 1, 0x7F, 0x80, 0xFF))
        fuzz_server_connection(len(changed).to_bytes(4) + changed)


def elements(value: object) -> int:
    """Array elements anywhere in a message."""
    if isinstance(value, tuple):
        return len(value) + sum(map(elements, value))
    fields = getattr(value, "__dataclass_fields__", ())
    return sum(elements(getattr(value, name)) for name in fields)


def test_a_body_never_makes_more_elements_than_it_has_bytes() -> None:
    for api_key, version in CHOICES:
        for fill in (b"\x00", b"\x01", b"\x02", b"\xff"):
            try:
                message = codec.decode_request(api_key, version, fill * 2_000)
            except MalformedRequestError:
                continue
            assert elements(message) <= 2_000


def bodies(suffix: str, per_version: int = 2) -> list[tuple[int, int, bytes]]:
    """Whole messages of every served version, with random values: key, version and body."""
    found = []
    for key, version in CHOICES:
        module = importlib.import_module(f"penstock.protocol.messages.{key.name.lower()}")
        message_class = getattr(module, key.name.title().replace("_", "") + suffix)
        shape = codec.message_shape(message_class, version)
        classes = codec.nested_classes(shape, message_class)
        fields = KioFields(kio_class(message_class, version))
        for seed in range(per_version):
            message = Builder(seed, classes, fields).struct(shape)
            assert isinstance(message, message_class)
            body = b"".join(codec.encode_buffers(message, version))
            found.append((int(key), version, body))
    return found


def framed(content: bytes) -> bytes:
    """The content behind its length."""
    return len(content).to_bytes(4) + content


@cache
def corpus() -> dict[str, list[bytes]]:
    """Valid inputs by target; made when a runner asks, for it compiles every codec."""
    requests, responses = bodies("Request"), bodies("Response")
    number = {(int(key), version): index for index, (key, version) in enumerate(CHOICES)}
    whole = [
        headers.write_request_head(key, version, 7, "fuzz") + body
        for key, version, body in requests
    ]
    answers = {(key, version): body for key, version, body in responses}
    conversation = b"".join(
        framed(
            headers.write_response_frame_head(key, version, order, 0)[4:] + answers[key, version]
        )
        for order, (key, version) in enumerate([(18, 0), (18, 3), (18, 4), (3, 12)])
    )
    return {
        "fuzz_request_body": [bytes([number[k, v]]) + body for k, v, body in requests],
        "fuzz_response_body": [bytes([number[k, v]]) + body for k, v, body in responses],
        "fuzz_request_header": whole,
        "fuzz_frames": [framed(bytes(n)) * 3 + framed(bytes(200)) for n in (10, 20, 64)],
        "fuzz_server_connection": [framed(content) for content in whole],
        "fuzz_client_connection": [conversation],
        "fuzz_any_version": [bytes([k, v]) + body for k, v, body in requests],
    }


def __getattr__(name: str) -> dict[str, list[bytes]]:
    if name == "CORPUS":
        return corpus()
    raise AttributeError(name)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.__name__)
def test_the_corpus_is_taken(target: Callable[[bytes], None]) -> None:
    inputs = corpus()[target.__name__]
    assert inputs
    for data in inputs:
        target(data)
