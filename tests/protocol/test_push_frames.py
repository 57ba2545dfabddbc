"""Frames of the push protocol: the bytes that clients in other languages rely on, and bounds."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.push.data import (
    BATCH,
    DATA_BYTES_MIN,
    DELETE,
    MESSAGE,
    PushData,
    decode_data,
    encode_batch_tail,
    encode_data,
    encode_tail,
)
from penstock.protocol.push.frames import (
    CONTROL_BYTES_MAX,
    HEAD_BYTES,
    Frame,
    FrameReader,
    FrameType,
    PushFrameError,
    encode_frame,
)
from penstock.protocol.push.payloads import (
    Credentials,
    PushPayloadError,
    Refusal,
    SubscribeRequest,
    read_commit,
    read_subscribe,
    write_refusal,
    write_subscribe,
)

NAMES = st.text(min_size=1, max_size=20)
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=20)), max_size=4).map(tuple)


def test_the_types_are_the_ones_that_were_asked_for() -> None:
    assert {one.name: one.value for one in FrameType} == {
        "DATA": 1,
        "ACK": 2,
        "SUBSCRIBE": 3,
        "COMMIT_OFFSET": 4,
        "RESET": 5,
        "READY": 6,
        "DISCONNECT": 7,
        "HEARTBEAT": 8,
    }


def test_the_bytes_of_a_frame() -> None:
    assert encode_frame(FrameType.ACK, 258, b"\x01") == bytes.fromhex(
        "02 0000000000000102 00000001 01"
    )
    assert encode_frame(FrameType.HEARTBEAT, 0) == bytes.fromhex("08 0000000000000000 00000000")


def test_the_bytes_of_a_record() -> None:
    tail = encode_tail(3, 7, 1_000, 2, 1, b"k", b"value", (("h", b"x"), ("n", None)))
    assert encode_data(5, 9, tail) == bytes.fromhex(
        "01 0000000000000009 00000038"  # DATA, message id, payload length
        "0005 00000003 0000000000000007 00000000000003e8 00000002 0001 00 0002"
        "00000001 6b"  # key
        "0001 68 00000001 78"  # header h
        "0001 6e ffffffff"  # header n, null
        "76616c7565"  # value
    )


def test_a_record_without_a_value_is_a_delete() -> None:
    payload = b"\x00\x01" + encode_tail(0, 1, 2, 3, 0, b"k", None)
    assert decode_data(payload) == PushData(1, 0, 1, 2, 3, 0, DELETE, (), b"k", None)
    empty = b"\x00\x01" + encode_tail(0, 1, 2, 3, 0, b"k", b"")
    assert decode_data(empty).value == b""
    assert decode_data(empty).kind == MESSAGE


def test_a_stored_batch_is_the_value() -> None:
    found = decode_data(b"\x00\x01" + encode_batch_tail(4, 10, 5, 6, b"batch"))
    assert (found.kind, found.value, found.offset, found.key) == (BATCH, b"batch", 10, None)


@given(
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**63 - 1),
    st.none() | st.binary(max_size=40),
    st.none() | st.binary(max_size=40),
    HEADERS,
)
def test_a_record_is_read_as_it_was_written(
    partition: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
) -> None:
    frame = encode_data(7, 1, encode_tail(partition, offset, 11, 12, 13, key, value, headers))
    found = decode_data(frame[HEAD_BYTES:])
    kind = DELETE if value is None else MESSAGE
    assert found == PushData(7, partition, offset, 11, 12, 13, kind, headers, key, value)


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=6), st.data())
def test_a_stream_may_be_cut_anywhere(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(
        encode_frame(FrameType.SUBSCRIBE, number, payload)
        for number, payload in enumerate(payloads)
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    reader, found = FrameReader(100), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        reader.feed(stream[start:end])
        while (frame := reader.next_frame()) is not None:
            found.append(frame)
    assert found == [
        Frame(FrameType.SUBSCRIBE, number, payload) for number, payload in enumerate(payloads)
    ]
    assert reader.held_bytes == 0


def test_a_frame_above_its_bound_is_refused_before_its_payload() -> None:
    reader = FrameReader(1_000)
    reader.feed(encode_frame(FrameType.SUBSCRIBE, 1, b"")[:9] + (CONTROL_BYTES_MAX + 1).to_bytes(4))
    with pytest.raises(PushFrameError, match="1048577 bytes, at most 1048576"):
        reader.next_frame()


def test_the_bound_of_data_is_that_of_its_subscription() -> None:
    asked: list[int] = []

    def bound(subscription: int) -> int:
        asked.append(subscription)
        return 50

    reader = FrameReader(bound)
    frame = encode_data(6, 1, b"x" * 49)
    reader.feed(frame[: HEAD_BYTES + 1])
    assert reader.next_frame() is None
    assert asked == []
    reader.feed(frame[HEAD_BYTES + 1 : HEAD_BYTES + 2])
    with pytest.raises(PushFrameError, match="51 bytes, at most 50"):
        reader.next_frame()
    assert asked == [6]


def test_an_unknown_type_is_refused() -> None:
    reader = FrameReader(1_000)
    reader.feed(b"\x09" + bytes(12))
    with pytest.raises(PushFrameError, match="type 9 is unknown"):
        reader.next_frame()


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (bytes(DATA_BYTES_MIN - 1), "at least 35"),
        (bytes(26) + b"\x00\x00\x03" + bytes(6), "kind 3"),
        (bytes(31) + b"\x00\x00\x00\x05", "runs past the end"),
        (bytes(31) + b"\xff\xff\xff\xfe", "key length of -2"),
        (bytes(28) + b"\x00\x00\x01\xff\xff\xff\xff", "header runs past"),
        (bytes(28) + b"\x01\x00\x00\xff\xff\xff\xffvalue", "a delete with a value"),
        (bytes(28) + b"\x02\x00\x00\x00\x00\x00\x01k", "has a key"),
    ],
)
def test_bytes_that_are_not_a_record_are_refused(payload: bytes, message: str) -> None:
    with pytest.raises(PushFrameError, match=message):
        decode_data(payload)


def test_subscribe_is_read_as_it_was_written() -> None:
    request = SubscribeRequest(
        topic="prices",
        group="shelf",
        mode="fanout",
        start={0: 5, 11: 0},
        credit=7,
        format="batch",
        auto_ack=True,
        credentials=Credentials(user="u", password="p"),
    )
    assert read_subscribe(write_subscribe(request)) == request
    assert json.loads(write_subscribe(SubscribeRequest(topic="t"))) == {"topic": "t"}
    ends = SubscribeRequest(topic="t", is_unsubscribe=True)
    assert json.loads(write_subscribe(ends)) == {"unsubscribe": "t"}
    assert read_subscribe(write_subscribe(ends)) == ends


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({}, "no field 'topic'"),
        ({"topic": ""}, "'topic' is not a text"),
        ({"topic": "t", "toppic": 1}, "unknown field 'toppic'"),
        ({"topic": "t", "credit": 0}, "1 to 100000"),
        ({"topic": "t", "credit": True}, "1 to 100000"),
        ({"topic": "t", "mode": "both"}, "neither 'fanout' nor 'queue'"),
        ({"topic": "t", "from": "never"}, "'from' is not"),
        ({"topic": "t", "from": {"x": 1}}, "partition that is not a number"),
        ({"topic": "t", "from": {"1": -1}}, "offset that is not a number"),
        ({"topic": "t", "auto_ack": 1}, "neither true nor false"),
        ({"topic": "t", "user": "u"}, "without a password"),
        ({"topic": "t", "user": "u", "password": "p", "token": "x"}, "send one of them"),
        ({"unsubscribe": None}, "'unsubscribe' is not a text"),
        ({"topic": "t", "group": "\ud800"}, "'group' is not a text"),
        ({"topic": "t", "group": "é" * 16_384}, "'group' is not a text"),
        ({"topic": "t", "token": "\udfff"}, "'token' is not a text"),
    ],
)
def test_a_wrong_field_is_named(found: dict[str, object], message: str) -> None:
    with pytest.raises(PushPayloadError, match=message):
        read_subscribe(json.dumps(found).encode())


@pytest.mark.parametrize("payload", [b"", b"[]", b"\xff", b"[" * 100_000, b"1" * 5_000])
def test_a_payload_that_is_no_object_is_refused(payload: bytes) -> None:
    with pytest.raises(PushPayloadError, match="SUBSCRIBE is not"):
        read_subscribe(payload)


def test_credentials_are_not_shown() -> None:
    request = SubscribeRequest(
        topic="t",
        credentials=Credentials(user="u", password="secret-1"),
    )
    assert "secret-1" not in repr(request)
    assert "secret-2" not in repr(Credentials(token="secret-2"))


def test_commit_names_partitions_and_offsets() -> None:
    assert read_commit(b'{"t": {"0": 3, "1": 4}}') == {"t": {0: 3, 1: 4}}
    with pytest.raises(PushPayloadError, match="names 0 partitions"):
        read_commit(b"{}")
    with pytest.raises(PushPayloadError, match="not an object of partition"):
        read_commit(b'{"t": 1}')


def test_a_long_error_is_cut() -> None:
    found = json.loads(write_refusal(Refusal(error="x" * 5_000, code="C", retriable=True)))
    assert (len(found["error"]), found["code"], found["retriable"]) == (1_000, "C", True)


def test_the_example_of_the_format_page() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/formats/push-protocol.md").read_text()
    shown = [bytes.fromhex(one) for one in re.findall(r"```text\n(.*?)```", page, re.DOTALL)]
    tail = encode_tail(2, 41, 1_700_000_000_000, 0, 1, b"apple", b"42", (("unit", b"eur"),))
    assert shown == [
        encode_frame(FrameType.SUBSCRIBE, 1, b'{"topic":"prices"}'),
        encode_data(1, 7, tail),
        encode_frame(FrameType.ACK, 7),
    ]
