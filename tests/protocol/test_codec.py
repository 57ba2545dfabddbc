"""The codec with bad bytes, lost fields and old versions.

Every hostile body ends in the one declared error, quickly and without memory for its announced
size. Where Apache Kafka is lax the choice is pinned here. Well-formed bodies are NOT the subject:
`test_golden` and `tests/properties/test_messages` have them.
"""

import importlib
import subprocess
import sys
import tracemalloc

import pytest

from penstock.core.errors import (
    MalformedRequestError,
    MalformedResponseError,
    UnsupportedApiError,
)
from penstock.core.limits import ELEMENTS_PER_REQUEST_MAX
from penstock.protocol import codec
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.encoder_source import Buffer, LostFieldError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.ignorable_fields import IGNORABLE_FIELDS
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest
from penstock.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from penstock.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from penstock.protocol.messages.heartbeat import HeartbeatResponse
from penstock.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from penstock.protocol.messages.produce import ProduceRequest

METADATA_12 = "010000"
"""Metadata v12 without its tags: no topics, no auto-creation, no authorized operations."""

FETCH_12 = "ffffffff" + "00000001" * 3 + "00" + "00000000" * 2 + "010101"
"""Fetch v12 without its tags: no topics."""

INIT_4_REST = "00000000" + "0000000000000000" + "0000" + "00"
"""InitProducerId v4 behind the transactional id."""

PRODUCE_3 = "ffff" + "ffff" + "00000000" + "00000001" + "000161" + "00000001" + "00000000"
"""Produce v3 up to the length of the records."""

SIXTY_FIVE_TAGS = "".join(f"{tag:02x}00" for tag in range(65))

BAD_BODIES = {
    "array of 2^31-1 with ten bytes left": (ApiKey.METADATA, 4, "7fffffff" + "00" * 10),
    "compact array of 2^31": (ApiKey.METADATA, 12, "8080808008" + "00" * 10),
    "compact array of 2^32-1": (ApiKey.METADATA, 12, "ffffffff0f" + "00" * 10),
    "array of -2": (ApiKey.METADATA, 4, "fffffffe" + "00" * 10),
    "null for an array that cannot be null": (ApiKey.CREATE_TOPICS, 4, "ffffffff" + "00" * 10),
    "compact null for an array that cannot be null": (ApiKey.CREATE_TOPICS, 7, "00" * 10),
    "array of structures longer than the body": (ApiKey.DELETE_TOPICS, 6, "04" + "00" * 20),
    "int array longer than the body": (
        ApiKey.ELECT_LEADERS,
        1,
        "00" + "00000001" + "000161" + "0000ffff",
    ),
    "varint of six bytes": (ApiKey.METADATA, 12, "ffffffffff01" + "00" * 10),
    "varint of 35 bits": (ApiKey.METADATA, 12, "818080807f" + "00" * 10),
    "tag count of 2^31": (ApiKey.METADATA, 12, METADATA_12 + "8080808008" + "0000"),
    "tag count of 65": (ApiKey.METADATA, 12, METADATA_12 + "41" + SIXTY_FIVE_TAGS),
    "unknown tag past the end": (ApiKey.METADATA, 12, METADATA_12 + "01050961"),
    "unknown tag one byte past the end": (ApiKey.METADATA, 12, METADATA_12 + "01050261"),
    "unknown tag twice": (ApiKey.METADATA, 12, METADATA_12 + "02050161050162"),
    "unknown tags unsorted": (ApiKey.METADATA, 12, METADATA_12 + "02060161050162"),
    "known tag twice": (ApiKey.FETCH, 12, FETCH_12 + "02000202610002" + "0262"),
    "known tag longer than its field": (ApiKey.FETCH, 12, FETCH_12 + "0100040261" + "6262"),
    "known tag shorter than its field": (ApiKey.FETCH, 12, FETCH_12 + "0100010261"),
    "known tag count of 2^31": (ApiKey.FETCH, 12, FETCH_12 + "8080808008" + "0000"),
    "no tag section": (ApiKey.METADATA, 12, METADATA_12),
    "text that is not UTF-8": (ApiKey.INIT_PRODUCER_ID, 4, "03fffe" + INIT_4_REST),
    "surrogate in UTF-8": (ApiKey.INIT_PRODUCER_ID, 4, "04eda080" + INIT_4_REST),
    "string of 32768 bytes": (ApiKey.INIT_PRODUCER_ID, 4, "818002" + "61" * 32_768 + INIT_4_REST),
    "string past the end": (ApiKey.INIT_PRODUCER_ID, 4, "ffffffff0f" + "61" * 9 + INIT_4_REST),
    "string of length -2": (ApiKey.INIT_PRODUCER_ID, 1, "fffe" + "00000000"),
    "null for a string that cannot be null": (ApiKey.METADATA, 4, "00000001" + "ffff" + "00"),
    "records of length -2": (ApiKey.PRODUCE, 3, PRODUCE_3 + "fffffffe"),
    "records past the end": (ApiKey.PRODUCE, 3, PRODUCE_3 + "00000004" + "616263"),
    "compact records past the end": (
        ApiKey.PRODUCE,
        9,
        "00ffff00000000" + "02026102" + "00000000" + "ffffffff0f" + "616263",
    ),
    "empty body": (ApiKey.INIT_PRODUCER_ID, 4, ""),
    "body that ends in a number": (ApiKey.INIT_PRODUCER_ID, 4, "00" + "0000"),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_bad_body_is_malformed_and_costs_no_memory(name: str) -> None:
    api_key, version, body = BAD_BODIES[name]
    codec.request_decoder(api_key, version)
    data = bytes.fromhex(body)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedRequestError):
            codec.decode_request(api_key, version, data)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_an_array_within_the_budget_but_longer_than_the_body_is_refused_at_once() -> None:
    body = (ELEMENTS_PER_REQUEST_MAX // 2).to_bytes(4) + bytes(10)
    with pytest.raises(MalformedRequestError, match="impossible length of topics"):
        codec.decode_request(ApiKey.METADATA, 4, body)


@pytest.mark.parametrize("cut", range(25))
def test_a_body_that_ends_anywhere_early_is_malformed(cut: int) -> None:
    whole = bytes.fromhex(PRODUCE_3 + "00000003616263")
    with pytest.raises(MalformedRequestError):
        codec.decode_request(ApiKey.PRODUCE, 3, whole[:cut])


def test_unknown_tags_are_ignored() -> None:
    body = bytes.fromhex(METADATA_12 + "02" + "050161" + "3f0262ff")
    assert codec.decode_request(ApiKey.METADATA, 12, body) == MetadataRequest(
        topics=(), allow_auto_topic_creation=False
    )


def test_unknown_tags_next_to_known_ones_are_ignored() -> None:
    body = bytes.fromhex(FETCH_12 + "02" + "00020261" + "050161")
    request = codec.decode_request(ApiKey.FETCH, 12, body)
    assert isinstance(request, FetchRequest)
    assert request.cluster_id == "a"


def test_a_known_tag_may_say_null() -> None:
    request = codec.decode_request(ApiKey.FETCH, 12, bytes.fromhex(FETCH_12 + "01000100"))
    assert isinstance(request, FetchRequest)
    assert request.cluster_id is None


def test_bytes_behind_the_body_are_ignored_as_in_kafka() -> None:
    body = bytes.fromhex(METADATA_12 + "00" + "616263")
    assert codec.decode_request(ApiKey.METADATA, 12, body) == MetadataRequest(
        topics=(), allow_auto_topic_creation=False
    )


def test_a_nul_is_a_character_as_in_kafka() -> None:
    request = codec.decode_request(
        ApiKey.INIT_PRODUCER_ID, 4, bytes.fromhex("030061" + INIT_4_REST)
    )
    assert isinstance(request, InitProducerIdRequest)
    assert request.transactional_id == "\0a"


def test_any_byte_but_zero_is_true_as_in_kafka() -> None:
    request = codec.decode_request(ApiKey.METADATA, 12, bytes.fromhex("01020000"))
    assert isinstance(request, MetadataRequest)
    assert request.allow_auto_topic_creation is True


@pytest.mark.parametrize(("marker", "is_there"), [("01", True), ("05", True), ("fe", False)])
def test_a_nullable_structure_is_null_when_its_marker_is_negative(
    marker: str, is_there: bool
) -> None:
    cursor = "0261" + "00000000" + "00" if is_there else ""
    body = bytes.fromhex("01" + "00000000" + marker + cursor + "00")
    request = codec.decode_request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, body)
    assert isinstance(request, DescribeTopicPartitionsRequest)
    assert (request.cursor is not None) == is_there


def test_more_elements_than_the_budget_are_refused_before_objects_are_made() -> None:
    count = ELEMENTS_PER_REQUEST_MAX + 1
    body = count.to_bytes(4) + b"\x00\x00" * count + b"\x00"
    codec.request_decoder(ApiKey.METADATA, 4)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedRequestError):
            codec.decode_request(ApiKey.METADATA, 4, body)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_the_budget_counts_all_arrays_of_a_request_together() -> None:
    topics = 3
    partitions = ELEMENTS_PER_REQUEST_MAX // topics
    topic = b"\x00\x01a" + partitions.to_bytes(4) + bytes(4 * partitions)
    body = b"\x00" + topics.to_bytes(4) + topic * topics + bytes(4)
    with pytest.raises(MalformedRequestError, match="partitions"):
        codec.decode_request(ApiKey.ELECT_LEADERS, 1, body)


def test_records_are_slices_of_the_frame() -> None:
    frame = bytearray(bytes.fromhex(PRODUCE_3 + "00000003616263"))
    request = codec.decode_request(ApiKey.PRODUCE, 3, memoryview(frame))
    assert isinstance(request, ProduceRequest)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[:] = b"xyz"
    assert frame.endswith(b"xyz")


def test_records_leave_as_they_came() -> None:
    records = memoryview(bytes(100_000))
    partition = PartitionData(partition_index=0, high_watermark=0, records=records)
    message = FetchResponse(
        responses=(FetchableTopicResponse(topic="a", partitions=(partition,) * 2),)
    )
    buffers = codec.join_small(codec.encode_buffers(message, 12), 200_000)
    assert [buffer is records for buffer in buffers] == [False, True, False, True, False]
    assert b"".join(buffers) == codec.encode_response(message, 12)


def test_a_lifted_request_has_the_defaults_of_what_its_version_lacks() -> None:
    body = codec.encode_request(MetadataRequest(topics=()), 0)
    assert codec.decode_request(ApiKey.METADATA, 0, body) == MetadataRequest(topics=())


def test_an_ignorable_field_is_dropped_in_silence() -> None:
    message = HeartbeatResponse(throttle_time_ms=5)
    assert codec.encode_response(message, 0) == codec.encode_response(HeartbeatResponse(), 0)


LOST = [
    (MetadataRequest(topics=(), allow_auto_topic_creation=False), 3),
    (FetchResponse(responses=(), session_id=5), 6),
    (MetadataRequest(topics=None), 0),
    (MetadataRequest(topics=(MetadataRequestTopic(name=None),)), 9),
]


@pytest.mark.parametrize(("message", "version"), LOST)
def test_a_field_that_would_be_lost_is_our_own_mistake(
    message: codec.Message, version: int
) -> None:
    with pytest.raises(LostFieldError, match=f"version {version}"):
        codec.encode_request(message, version)
    codec.encode_request(message, version + 1)


def test_every_ignorable_field_exists() -> None:
    for path, names in IGNORABLE_FIELDS.items():
        top, _, struct = path.partition(".")
        module_name = to_snake(top.removesuffix("Request").removesuffix("Response"))
        module = importlib.import_module(f"penstock.protocol.messages.{module_name}")
        prefix = "Request" if top.endswith("Request") else "Response"
        owner = getattr(module, prefix + struct, None) or getattr(module, struct)
        for name in names:
            assert name in owner.__dataclass_fields__, f"{path}.{name}"


def to_snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)[1:]


def test_an_unknown_error_code_survives() -> None:
    body = bytes.fromhex("00000000" + "270f")
    response = codec.decode_response(ApiKey.HEARTBEAT, 1, body)
    assert response == HeartbeatResponse(error_code=ErrorCode(9_999))
    assert codec.encode_response(response, 1) == body


def test_a_bad_response_is_malformed() -> None:
    with pytest.raises(MalformedResponseError, match="METADATA"):
        codec.decode_response(ApiKey.METADATA, 12, b"\x00\x00")


def test_a_response_may_have_more_elements_than_a_request() -> None:
    count = ELEMENTS_PER_REQUEST_MAX + 1
    partition = bytes(10) + count.to_bytes(4) + bytes(4 * count) + bytes(4)
    body = bytes(4) + b"\x00\x00\x00\x01" + b"\x00\x00\x00\x01a" + b"\x00\x00\x00\x01" + partition
    response = codec.decode_response(ApiKey.METADATA, 0, body)
    assert isinstance(response, MetadataResponse)
    assert len(response.topics[0].partitions[0].replica_nodes) == count


@pytest.mark.parametrize(
    ("api_key", "version"), [(9_999, 0), (-1, 0), (ApiKey.METADATA, 14), (ApiKey.LEADER_AND_ISR, 0)]
)
def test_what_kio_has_not_is_unsupported(api_key: int, version: int) -> None:
    with pytest.raises(UnsupportedApiError):
        codec.decode_request(api_key, version, b"")


def test_a_version_that_kio_has_not_cannot_be_written() -> None:
    with pytest.raises(UnsupportedApiError):
        codec.encode_request(DeleteTopicsRequest(timeout_ms=0), 7)


def test_no_schema_is_imported_at_start_up() -> None:
    code = (
        "import sys, penstock.protocol.connection;"
        "lazy = ('kio.schema', 'penstock.protocol.messages.');"
        "print([name for name in sys.modules if name.startswith(lazy)])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.strip() == "[]"


def test_messages_are_values() -> None:
    assert MetadataResponse(brokers=(), topics=()) == MetadataResponse(brokers=(), topics=())
    assert hash(DeleteTopicsRequest(timeout_ms=1)) == hash(DeleteTopicsRequest(timeout_ms=1))
    assert not hasattr(DeleteTopicsRequest(timeout_ms=1), "__dict__")


def test_very_many_buffers_are_joined_in_steps() -> None:
    large = bytes(codec.JOINED_BYTES_MAX)
    parts: list[Buffer] = [number.to_bytes(4) for number in range(3 * codec.JOINED_PARTS_MAX + 7)]
    parts[5_000] = large
    whole = b"".join(parts)
    joined = codec.join_in_steps(parts)
    assert b"".join(joined) == whole
    assert parts == []
    assert any(part is large for part in joined)
    assert len(joined) <= 6
