"""The hand-written messages are those of `penstock.proto`, compared with protoc's code."""

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.edge.grpc_gateway import gateway_messages as ours
from penstock.edge.grpc_gateway.gateway_limits import FIELDS_MAX, MESSAGE_BYTES_MAX, RECORDS_MAX
from penstock.edge.grpc_gateway.proto_fields import MalformedRequestError
from penstock.protocol.push.data import BATCH, DELETE, PushData
from penstock.protocol.push.payloads import Refusal
from tests.node.grpc_gateway.grpc_stage import generated

maybe_bytes = st.none() | st.binary(max_size=20)
int64 = st.integers(0, 2**63 - 1)
int32 = st.integers(0, 2**31 - 1)
names = st.text(max_size=10).filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text))
headers = st.lists(st.tuples(names, maybe_bytes), max_size=3)
records = st.lists(st.tuples(maybe_bytes, maybe_bytes, headers, st.none() | int64), min_size=1)


@given(names.filter(bool), st.none() | int32, records)
def test_produce_is_read_as_protoc_writes_it(
    topic: str,
    partition: int | None,
    given_records: list[
        tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int | None]
    ],
) -> None:
    pb = generated()
    message = pb.ProduceRequest(
        topic=topic,
        partition=partition,
        records=[
            pb.Record(
                key=key,
                value=value,
                headers=[pb.Header(name=name, value=one) for name, one in some],
                timestamp_ms=timestamp_ms,
            )
            for key, value, some, timestamp_ms in given_records
        ],
    )
    call = ours.read_produce(message.SerializeToString())
    assert call.topic == topic
    found = [
        (one.key, one.value, list(one.headers), one.timestamp_ms, one.partition)
        for one, _ in call.records
    ]
    assert found == [
        (key, value, some, -1 if at is None else at, -1 if partition is None else partition)
        for key, value, some, at in given_records
    ]
    assert all((one.kind == DELETE) == (one.value is None) for one, _ in call.records)


@given(st.lists(st.tuples(int64, int32, maybe_bytes, maybe_bytes, headers)), int64, int64, int64)
def test_protoc_reads_the_answer_to_fetch(
    found: list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    next_offset: int,
    start: int,
    end: int,
) -> None:
    parts = [
        ours.write_record(
            PushData(
                0, 0, offset, 7, epoch, 0, DELETE if value is None else 0, tuple(some), key, value
            )
        )
        for offset, epoch, key, value, some in found
    ]
    answer = generated().FetchResponse.FromString(
        ours.write_fetch(parts, b"xyz", next_offset, start, end)
    )
    assert (answer.next_offset, answer.log_start_offset, answer.end_offset) == (
        next_offset,
        start,
        end,
    )
    assert answer.batches == b"xyz"
    for record, (offset, epoch, key, value, some) in zip(answer.records, found, strict=True):
        assert (record.offset, record.leader_epoch, record.timestamp_ms) == (offset, epoch, 7)
        assert (record.key if record.HasField("key") else None) == key
        assert (record.value if record.HasField("value") else None) == value
        assert [
            (one.name, one.value if one.HasField("value") else None) for one in record.headers
        ] == some


def test_protoc_reads_the_other_answers() -> None:
    pb = generated()
    refusal = Refusal(error="full", code="KAFKA_STORAGE_ERROR", retriable=True)
    placed = pb.ProduceResponse.FromString(
        ours.write_produce([0, 300, -1], [2**40, 0, -1], [(3, refusal)])
    )
    assert list(placed.partitions) == [0, 300, -1]
    assert list(placed.offsets) == [2**40, 0, -1]
    (one,) = placed.refused
    assert (one.partition, one.code, one.message, one.retriable) == (
        3,
        "KAFKA_STORAGE_ERROR",
        "full",
        True,
    )
    state = ours.PartitionState(2, -1, 5, is_here=False, log_start_offset=-1, end_offset=-1)
    topics = pb.GetTopicMetadataResponse.FromString(
        ours.write_topics(
            [ours.TopicState("t", "", b"i" * 16, (state,)), ours.TopicState("u", "E", b"", ())]
        )
    )
    assert [(one.name, one.error, one.id) for one in topics.topics] == [
        ("t", "", b"i" * 16),
        ("u", "E", b""),
    ]
    (partition,) = topics.topics[0].partitions
    assert (partition.index, partition.leader, partition.end_offset) == (2, -1, -1)


@given(st.binary(max_size=300))
def test_frames_both_ways(data: bytes) -> None:
    pb = generated()
    assert ours.read_frames(pb.Frames(data=data).SerializeToString()) == data
    assert pb.Frames.FromString(ours.write_frames(data)).data == data
    # An unknown field before and behind.
    assert ours.read_frames(b"\x10\x05" + ours.write_frames(data) + b"\x18\x01") == data


def test_fetch_and_commit_are_read() -> None:
    pb = generated()
    fetch = pb.FetchRequest(
        topic="t", partition=3, offset=-2, wait_ms_max=9, bytes_max=77, as_batches=True
    )
    assert ours.read_fetch(fetch.SerializeToString()) == ours.FetchCall(
        "t", 3, -2, "", 9, 77, as_batches=True
    )
    zero = pb.FetchRequest(topic="t", offset=0)
    assert ours.read_fetch(zero.SerializeToString()).offset == 0
    commit = pb.CommitOffsetRequest(
        group="g",
        topic="t",
        offsets=[pb.PartitionOffset(), pb.PartitionOffset(partition=1, offset=2**62)],
    )
    assert ours.read_commit(commit.SerializeToString()) == ours.CommitCall(
        "g", "t", {0: 0, 1: 2**62}
    )
    batch = pb.ProduceRequest(topic="t", partition=0, batch=b"b")
    ((data, size),) = ours.read_produce(batch.SerializeToString()).records
    assert (data.kind, data.value, size) == (BATCH, b"b", 1)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(message: bytes) -> None:
    for read in (
        ours.read_produce,
        ours.read_fetch,
        ours.read_topics,
        ours.read_commit,
        ours.read_frames,
    ):
        with contextlib.suppress(MalformedRequestError):
            read(message)


@pytest.mark.parametrize(
    "unit",
    [b"\x1a\x00", b"\x08\x00", b"\x0a\x00", b"\x1a\x02\x1a\x00"],
    ids=["empty records", "numbers", "texts", "headers"],
)
def test_the_number_of_fields_is_bounded(unit: bytes) -> None:
    # A message within the bytes that would have 500,000 fields.
    message = b"\x0a\x01t" + unit * ((MESSAGE_BYTES_MAX - 3) // len(unit))
    started = time.process_time()
    with pytest.raises(MalformedRequestError, match=r"fields|records"):
        ours.read_produce(message)
    assert time.process_time() - started < 0.25


def test_records_at_and_above_the_bound() -> None:
    pb = generated()

    def message(count: int) -> bytes:
        some = [pb.Record(key=b"k", value=b"v", timestamp_ms=1) for _ in range(count)]
        return bytes(pb.ProduceRequest(topic="t", records=some).SerializeToString())

    assert 4 * RECORDS_MAX < FIELDS_MAX
    assert len(ours.read_produce(message(RECORDS_MAX)).records) == RECORDS_MAX
    with pytest.raises(MalformedRequestError, match="2001 records"):
        ours.read_produce(message(RECORDS_MAX + 1))
