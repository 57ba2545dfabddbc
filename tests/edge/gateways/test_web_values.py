"""Pure parts of the gateways: positions, records as JSON, frames as JSON, rules for browsers."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.edge.gateways.encoding_turns import EncodingTurns
from penstock.edge.gateways.gateway_problems import GatewayRefusedError, problem_of
from penstock.edge.gateways.json_frames import (
    JsonFrameError,
    check_whole,
    cut,
    frames_of,
    text_of,
)
from penstock.edge.gateways.json_records import RecordFormError, json_of, record_of
from penstock.edge.gateways.origins import BrowserRules, origin_problem
from penstock.edge.gateways.stream_positions import (
    PositionError,
    read_positions,
    write_positions,
)
from penstock.edge.gateways.web_limits import (
    FRAMES_PER_MESSAGE_MAX,
    JSON_FRAMES_PER_MESSAGE_MAX,
    STREAM_PARTITIONS_MAX,
)
from penstock.protocol.push.data import (
    DELETE,
    MESSAGE,
    PushData,
    decode_data,
    encode_data,
    encode_tail,
)
from penstock.protocol.push.frames import FrameType, PushFrameError, encode_frame
from penstock.protocol.push.payloads import Refusal

contents = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=10), contents), max_size=4).map(tuple)


@given(
    st.dictionaries(st.integers(0, 2**31 - 1), st.integers(-1, 2**63 - 2), min_size=1, max_size=64)
)
def test_positions_are_read_as_they_were_written(positions: dict[int, int]) -> None:
    assert read_positions(write_positions(positions)) == positions


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "0",
        "0:",
        ":1",
        "0:-2",
        "0:1,",
        "0:1;1:2",
        "0:1,0:2",
        "٣:1",
        f"0:{2**63 - 1}",
        "4294967296:1",
    ],
)
def test_other_texts_are_not_positions(text: str) -> None:
    with pytest.raises(PositionError):
        read_positions(text)


def test_the_number_of_positions_is_bounded() -> None:
    most = dict.fromkeys(range(STREAM_PARTITIONS_MAX), 2**62)
    assert read_positions(write_positions(most)) == most
    for count in (STREAM_PARTITIONS_MAX + 1, 100_000):
        with pytest.raises(PositionError, match="at most 64"):
            read_positions(write_positions(dict.fromkeys(range(count), 0)))


@given(contents, contents, headers)
def test_a_record_is_read_as_it_was_written(
    key: bytes | None, value: bytes | None, named: tuple[tuple[str, bytes | None], ...]
) -> None:
    kind = DELETE if value is None else MESSAGE
    data = PushData(1, 2, 3, 4, 5, 0, kind, named, key, value)
    found = json.loads(json.dumps(json_of(data)))
    assert found.pop("offset") == 3
    given_record = record_of(found)
    assert given_record == (2, 4, key, value, named)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], "not a JSON object"),
        ({"x": 1}, "unknown member 'x'"),
        ({"value": 1}, "'value' is not a text"),
        ({"value": "a", "value_base64": "YQ=="}, "send one of them"),
        ({"value_base64": "?"}, "not base64"),
        ({"value_base64": 1}, "not base64"),
        ({"value": "\ud800"}, "half a character"),
        ({"partition": True}, "'partition' is not a number"),
        ({"partition": -1}, "'partition' is not a number"),
        ({"partition": 2**31}, "'partition' is not a number"),
        ({"timestamp": 1.5}, "'timestamp' is not a number"),
        ({"headers": {}}, "not a list"),
        ({"headers": [{"name": 1}]}, "no 'name'"),
        ({"headers": [{"name": "a", "x": 1}]}, "not an object with"),
        ({"headers": [{"name": "é" * 40_000}]}, "65535 bytes"),
        ({"headers": [{"name": "\ud800"}]}, "half a character"),
    ],
)
def test_other_objects_are_not_records(found: object, words: str) -> None:
    with pytest.raises(RecordFormError, match=words):
        record_of(found)


def test_frames_have_a_form_in_json() -> None:
    frames = frames_of(
        b'[{"type":"SUBSCRIBE","id":7,"payload":{"topic":"t"}},{"type":"ACK","id":1},'
        b'{"type":"ACK","id":2,"result":3},{"type":"HEARTBEAT"},'
        b'{"type":"COMMIT_OFFSET","id":8,"payload":{"t":{"0":1}}},'
        b'{"type":"DATA","id":9,"subscription":4,"value":"v","timestamp":5}]'
    )
    assert [(one.type.name, one.message_id, one.payload) for one in cut(frames)][:5] == [
        ("SUBSCRIBE", 7, b'{"topic":"t"}'),
        ("ACK", 1, b""),
        ("ACK", 2, b"\x03"),
        ("HEARTBEAT", 0, b""),
        ("COMMIT_OFFSET", 8, b'{"t":{"0":1}}'),
    ]
    data = decode_data(list(cut(frames))[5].payload)
    assert (data.subscription, data.value, data.timestamp_ms, data.partition) == (4, b"v", 5, -1)


def test_frames_of_the_broker_as_text() -> None:
    tail = encode_tail(2, 3, 4, 5, 6, b"k", b"\xff")
    found = json.loads(
        text_of(encode_data(1, 9, tail) + encode_frame(FrameType.DISCONNECT, 0, b'{"reason":"r"}'))
    )
    assert found == [
        {
            "type": "DATA",
            "id": 9,
            "subscription": 1,
            "kind": "MESSAGE",
            "leader_epoch": 5,
            "delivery_count": 6,
            "partition": 2,
            "offset": 3,
            "timestamp": 4,
            "key": "k",
            "value_base64": "/w==",
        },
        {"type": "DISCONNECT", "id": 0, "payload": {"reason": "r"}},
    ]
    assert json.loads(text_of(encode_frame(FrameType.HEARTBEAT, 0))) == {
        "type": "HEARTBEAT",
        "id": 0,
    }


def test_the_number_of_frames_in_a_message_is_bounded() -> None:
    beat = encode_frame(FrameType.HEARTBEAT, 0)
    check_whole(beat * FRAMES_PER_MESSAGE_MAX)
    with pytest.raises(PushFrameError, match="10001 frames"):
        check_whole(beat * (FRAMES_PER_MESSAGE_MAX + 1))
    most = JSON_FRAMES_PER_MESSAGE_MAX
    frames_of(json.dumps([{"type": "HEARTBEAT"}] * most).encode())
    with pytest.raises(JsonFrameError, match="1001 frames"):
        frames_of(json.dumps([{"type": "HEARTBEAT"}] * (most + 1)).encode())


@given(st.binary(max_size=60))
def test_any_bytes_are_whole_frames_or_refused(data: bytes) -> None:
    try:
        check_whole(data)
    except PushFrameError:
        return
    total = 0
    while total < len(data):
        total += 13 + int.from_bytes(data[total + 9 : total + 13], "big")
    assert total == len(data)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda one: (
            st.lists(one, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    ["type", "id", "payload", "value", "key", "headers", "subscription"]
                ),
                one | st.sampled_from(["DATA", "ACK", "SUBSCRIBE", "HEARTBEAT"]),
                max_size=5,
            )
        ),
        max_leaves=12,
    )
)
def test_any_json_is_frames_or_refused(found: object) -> None:
    try:
        frames = frames_of(json.dumps(found).encode())
    except JsonFrameError:
        return
    check_whole(frames)


RULES = BrowserRules(["https://shop.example"], ["broker.example"])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "127.0.0.1:8081"}, None),
        ({"host": "[::1]:8081"}, None),
        ({"host": "localhost"}, None),
        ({"host": "a.localhost:1"}, None),
        ({"host": "BROKER.example:8081"}, None),
        ({"host": "broker.example."}, None),
        ({"host": "evil.example"}, 421),
        ({"host": ""}, 421),
        ({"host": "[::1"}, 421),
        ({"host": "localhost.evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"host": "broker.example", "origin": "https://shop.example"}, None),
        ({"host": "broker.example", "origin": "HTTPS://SHOP.example"}, None),
        ({"host": "broker.example", "origin": "https://shop.example.evil.example"}, 403),
        ({"host": "broker.example", "origin": "https://shop.example:444"}, 403),
        ({"host": "broker.example", "origin": "http://shop.example"}, 403),
        ({"host": "broker.example:8081", "origin": "http://broker.example:8081"}, None),
        ({"host": "broker.example:8081", "origin": "http://broker.example"}, 403),
        ({"host": "broker.example", "origin": "file://broker.example"}, 403),
        ({"host": "broker.example", "origin": "null"}, 403),
        ({"host": "broker.example", "origin": ""}, 403),
        ({"host": "broker.example", "origin": "https://shop.example, https://evil.example"}, 403),
        ({"host": "broker.example", "sec-fetch-site": "cross-site"}, 403),
        (
            {
                "host": "broker.example",
                "sec-fetch-site": "cross-site",
                "sec-fetch-mode": "navigate",
            },
            None,
        ),
    ],
)
def test_rules_for_browsers(headers: dict[str, str], status: int | None) -> None:
    found = RULES.objection(headers)
    assert (None if found is None else found[0]) == status


def test_every_origin_can_be_allowed() -> None:
    rules = BrowserRules(["*"], ["*"])
    assert rules.objection({"host": "any.example", "origin": "https://other.example"}) is None
    assert rules.allowed_origin({"origin": "https://other.example"}) == "https://other.example"
    assert rules.allowed_origin({}) is None


@pytest.mark.parametrize(
    ("text", "is_origin"),
    [
        ("https://shop.example", True),
        ("http://localhost:8000", True),
        ("*", True),
        ("shop.example", False),
        ("https://shop.example/", False),
        ("https://shop.example/path", False),
        ("https://user@shop.example", False),
        ("https://shop.example:99999", False),
        ("https://", False),
    ],
)
def test_origins_of_the_allow_list(text: str, *, is_origin: bool) -> None:
    assert (origin_problem(text) is None) is is_origin


def test_problems_have_the_status_of_their_code() -> None:
    for code, status in (
        ("TOPIC_AUTHORIZATION_FAILED", 403),
        ("UNKNOWN_TOPIC_OR_PARTITION", 404),
        ("OFFSET_OUT_OF_RANGE", 410),
        ("NOT_ENOUGH_REPLICAS", 503),
        ("REQUEST_TIMED_OUT", 504),
    ):
        error = problem_of(Refusal(error="why", code=code, retriable=status == 503))
        document = json.loads(error.document())
        assert (error.status, document["kafka_error"], document["detail"]) == (status, code, "why")
        assert ("retry-after" in error.headers()) is (status == 503)
    long = GatewayRefusedError(400, "t", "x" * 10_000)
    assert len(json.loads(long.document())["detail"]) == 2_000


def test_encoding_is_spread_over_turns_of_the_event_loop() -> None:
    now = 0.0

    def slow() -> int:
        nonlocal now
        now += 0.0015
        return loop_turns

    loop_turns = 0

    async def test() -> list[int]:
        nonlocal loop_turns
        turns = EncodingTurns(lambda: now)
        works = [asyncio.get_running_loop().create_task(turns.run(slow)) for _ in range(6)]
        while not all(one.done() for one in works):
            loop_turns += 1
            await asyncio.sleep(0)
        return [one.result() for one in works]

    begun = asyncio.run(test())
    # Two calls of 1.5 ms reach the bound of 2 ms; the next ones run in later turns.
    assert begun == sorted(begun)
    assert all(begun.count(turn) <= 2 for turn in begun)


def test_a_payload_with_any_depth_is_frames_or_refused() -> None:
    for depth in range(10, 1_500, 7):
        nested = b"[" * depth + b"]" * depth
        text = b'{"type":"SUBSCRIBE","id":1,"payload":{"a":%s}}' % nested
        try:
            check_whole(frames_of(text))
        except JsonFrameError as error:
            assert "levels" in str(error) or "not JSON" in str(error)  # noqa: PT017 (either)
    with pytest.raises(JsonFrameError):
        frames_of(text)
