"""The short cut for a produce of one batch returns the result of the general codec, or nothing.

Whatever `read_single` takes, the decoder takes with the same values; whatever the decoder reads as
one batch without transaction and tags, `read_single` takes. The answers have the same bytes.
"""

from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.core.errors import MalformedRequestError
from penstock.protocol import codec
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.connection import Request, encode_response_frame
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.headers import RequestHead
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock.protocol.single_produce import read_single, single_answer

VERSIONS = range(3, 14)
TOPIC_ID_VERSION = 13
FLEXIBLE_VERSION = 9

versions = st.sampled_from(VERSIONS)
int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=249)
ids = st.uuids(version=4)


def request_of(
    name: str, topic_id: UUID, acks: int, timeout_ms: int, partition: int, records: bytes
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    topic = TopicProduceData(name=name, topic_id=topic_id, partition_data=(data,))
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=(topic,))


@settings(deadline=None)
@given(versions, names, ids, int16, int32, int32, st.binary(max_size=300))
@example(3, "t", UUID(int=1), 1, 1, 0, b"")
@example(12, "t" * 249, UUID(int=1), -1, 30_000, 7, b"x" * 20_000)
def test_one_batch_is_read_as_the_codec_reads_it(
    version: int, name: str, topic_id: UUID, acks: int, timeout_ms: int, partition: int, data: bytes
) -> None:
    request = request_of(name, topic_id, acks, timeout_ms, partition, data)
    body = codec.encode_request(request, version)
    single = read_single(memoryview(bytearray(body)), version)
    assert single is not None
    topic = topic_id.bytes if version >= TOPIC_ID_VERSION else name
    assert (single.acks, single.timeout_ms, single.topic) == (acks, timeout_ms, topic)
    assert (single.partition, body[single.start : single.stop]) == (partition, data)


def agrees(body: bytes, version: int) -> bool:
    """Whether the short cut took it; if so, the codec must say the same."""
    single = read_single(memoryview(bytearray(body)), version)
    if single is None:
        return False
    message = codec.decode_request(ApiKey.PRODUCE, version, body)
    assert isinstance(message, ProduceRequest)
    (topic,) = message.topic_data
    (data,) = topic.partition_data
    assert message.transactional_id is None
    assert (message.acks, message.timeout_ms) == (single.acks, single.timeout_ms)
    if isinstance(single.topic, bytes):
        assert (topic.topic_id or UUID(int=0)) == UUID(bytes=single.topic)
    else:
        assert topic.name == single.topic
    assert data.index == single.partition
    assert bytes(data.records or b"") == body[single.start : single.stop]
    return True


@settings(deadline=None, max_examples=300)
@given(versions, st.data())
def test_damaged_requests_are_read_alike_or_left_to_the_codec(
    version: int, data: st.DataObject
) -> None:
    request = request_of("topic", UUID(int=5), -1, 1_000, 2, b"records")
    body = bytearray(codec.encode_request(request, version))
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    try:
        agrees(bytes(body), version)
        agrees(bytes(body[:cut]), version)
    except MalformedRequestError as error:
        raise AssertionError("taken by the short cut, refused by the codec") from error


@settings(deadline=None)
@given(versions, st.binary(max_size=80))
def test_garbage_never_raises(version: int, body: bytes) -> None:
    agrees(body, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not_one_plain_batch_is_left_to_the_codec(version: int) -> None:
    one = PartitionProduceData(index=0, records=b"r")
    topic = TopicProduceData(name="t", topic_id=UUID(int=1), partition_data=(one,))
    two = TopicProduceData(name="t", topic_id=UUID(int=1), partition_data=(one, one))
    none = TopicProduceData(name="t", topic_id=UUID(int=1), partition_data=())
    null = TopicProduceData(
        name="t", topic_id=UUID(int=1), partition_data=(PartitionProduceData(index=0),)
    )
    for topics in ((), (topic, topic), (two,), (none,), (null,)):
        request = ProduceRequest(acks=1, timeout_ms=1, topic_data=topics)
        body = memoryview(bytearray(codec.encode_request(request, version)))
        assert read_single(body, version) is None
    inside = ProduceRequest(transactional_id="tx", acks=1, timeout_ms=1, topic_data=(topic,))
    assert read_single(memoryview(codec.encode_request(inside, version)), version) is None
    whole = ProduceRequest(acks=1, timeout_ms=1, topic_data=(topic,))
    body = memoryview(codec.encode_request(whole, version) + b"\x00")
    assert read_single(body, version) is None, "bytes follow"


@settings(deadline=None)
@given(versions, int32, names, ids, int32, int64, int64, int64)
@example(12, 1, "t" * 127, UUID(int=1), 0, 0, -1, 0)
@example(9, 1, "t" * 126, UUID(int=1), 0, 0, -1, 0)
def test_the_answer_has_the_bytes_of_the_codec(
    version: int,
    correlation_id: int,
    name: str,
    topic_id: UUID,
    partition: int,
    base_offset: int,
    time_ms: int,
    start: int,
) -> None:
    result = PartitionProduceResponse(
        index=partition,
        error_code=ErrorCode.NONE,
        base_offset=base_offset,
        log_append_time_ms=time_ms,
        log_start_offset=start,
    )
    topic = TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=(result,))
    head = RequestHead(ApiKey.PRODUCE, version, correlation_id, None, 0)
    request = Request(head, memoryview(bytearray(20)), is_version_unsupported=False)
    frame = b"".join(encode_response_frame(request, ProduceResponse(responses=(topic,))))
    named = topic_id.bytes if version >= TOPIC_ID_VERSION else name
    found = single_answer(version, correlation_id, named, partition, base_offset, time_ms, start)
    assert found == frame
