"""The JSON form of push frames (`penstock.json.v1`), for pages without a library. Pure.

A text message is one object, or a list of objects; each is one frame:

    {"type": "SUBSCRIBE", "id": 1, "payload": {"topic": "prices", "credit": 100}}
    {"type": "ACK", "id": 1, "payload": {"subscription": 1, "partitions": {"0": 7}}}
    {"type": "DATA", "id": 1, "subscription": 1, "partition": 0, "offset": 7, "key": "a", ...}
    {"type": "ACK", "id": 1}                      acknowledges a DATA; "result": 1 to 4 for queues

`payload` is the JSON of the frame (`protocol.push.payloads`). DATA has the members of a record
(`json_records`) instead. Guarantees: a text becomes whole frames, or raises `JsonFrameError` with
the reason; the number of frames is bounded before they are created.

It decides nothing about a conversation: `edge.push.session` does.
"""

import json
from collections.abc import Iterator
from typing import Final

from penstock.core.errors import PenstockError
from penstock.edge.gateways.json_records import FIELDS, RecordFormError, json_of, number, record_of
from penstock.edge.gateways.web_limits import (
    FRAMES_PER_MESSAGE_MAX,
    JSON_FRAMES_PER_MESSAGE_MAX,
)
from penstock.protocol.push.data import (
    BATCH,
    DELETE,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    decode_data,
    encode_data,
    encode_tail,
)
from penstock.protocol.push.frames import (
    HEAD,
    HEAD_BYTES,
    Frame,
    FrameType,
    PushFrameError,
    encode_frame,
)
from penstock.protocol.push.payloads import write_object

ID_MAX: Final = 2**64 - 1
NUMBER_MAX: Final = 65_535
_KINDS: Final = {DELETE: "DELETE", BATCH: "BATCH"}
_DATA_FIELDS: Final = FIELDS | {"type", "id", "subscription"}
_TYPES: Final = {one.name: one for one in FrameType}


class JsonFrameError(PenstockError):
    """A text message that is not frames in JSON."""


def frames_of(text: bytes | bytearray) -> bytes:
    """Return the frames in a text message."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise JsonFrameError("the message is not JSON") from None
    objects = found if isinstance(found, list) else [found]
    if len(objects) > JSON_FRAMES_PER_MESSAGE_MAX:
        raise JsonFrameError(
            f"the message has {len(objects)} frames, at most {JSON_FRAMES_PER_MESSAGE_MAX} are "
            "accepted"
        )
    try:
        return b"".join(map(_frame, objects))
    except RecordFormError as error:
        raise JsonFrameError(str(error)) from None
    except RecursionError:
        raise JsonFrameError("a payload has too many levels") from None


def _frame(found: object) -> bytes:
    if not isinstance(found, dict):
        raise JsonFrameError("a frame is not a JSON object")
    frame_type = _TYPES.get(str(found.get("type")))
    if frame_type is None:
        raise JsonFrameError(
            f"a frame has the type {str(found.get('type'))[:64]!r}; types are {', '.join(_TYPES)}"
        )
    message_id = number(found, "id", 0, ID_MAX)
    if frame_type is FrameType.DATA:
        return _data(found, message_id)
    known = {"type", "id", "result" if frame_type is FrameType.ACK else "payload"}
    unknown = sorted(found.keys() - known)
    if unknown:
        raise JsonFrameError(f"{frame_type.name} has the unknown member {unknown[0][:64]!r}")
    if frame_type is FrameType.ACK:
        result = number(found, "result", 1, 255)
        return encode_frame(frame_type, message_id, bytes([result]) if "result" in found else b"")
    payload = found.get("payload")
    if payload is None:
        return encode_frame(frame_type, message_id)
    if not isinstance(payload, dict):
        raise JsonFrameError(f"the payload of {frame_type.name} is not a JSON object")
    return encode_frame(frame_type, message_id, write_object(payload))


def _data(found: dict[str, object], message_id: int) -> bytes:
    given = record_of(found, known=_DATA_FIELDS)
    subscription = number(found, "subscription", 0, NUMBER_MAX)
    tail = encode_tail(
        given.partition,
        NO_OFFSET,
        given.timestamp_ms,
        NO_LEADER_EPOCH,
        0,
        given.key,
        given.value,
        given.headers,
    )
    return encode_data(subscription, message_id, tail)


def cut(data: bytes | bytearray) -> Iterator[Frame]:
    """Yield the frames in bytes that are whole frames; raise `PushFrameError` for others."""
    place, end = 0, len(data)
    while place < end:
        if end - place < HEAD_BYTES:
            raise PushFrameError("the message does not end with a whole frame")
        number_, message_id, length = HEAD.unpack_from(data, place)
        place += HEAD_BYTES
        if length > end - place:
            raise PushFrameError("the message does not end with a whole frame")
        try:
            frame_type = FrameType(number_)
        except ValueError:
            raise PushFrameError(f"frame type {number_} is unknown; types are 1 to 8") from None
        yield Frame(frame_type, message_id, bytes(data[place : place + length]))
        place += length


def check_whole(data: bytes | bytearray) -> None:
    """Raise `PushFrameError` if a message is not whole frames, or has too many."""
    place, end, count = 0, len(data), 0
    unpack = HEAD.unpack_from
    while place + HEAD_BYTES <= end:
        place += HEAD_BYTES + unpack(data, place)[2]
        count += 1
    if place != end:
        raise PushFrameError("a WebSocket message does not end with a whole frame")
    if count > FRAMES_PER_MESSAGE_MAX:
        raise PushFrameError(
            f"a WebSocket message has {count} frames, at most {FRAMES_PER_MESSAGE_MAX} are accepted"
        )


def text_of(data: bytes) -> bytes:
    """Return the text message for frames of the broker."""
    found = [_json(frame) for frame in cut(data)]
    return json.dumps(found[0] if len(found) == 1 else found, separators=(",", ":")).encode()


def _json(frame: Frame) -> dict[str, object]:
    head: dict[str, object] = {"type": frame.type.name, "id": frame.message_id}
    if frame.type is FrameType.DATA:
        data = decode_data(frame.payload)
        head["subscription"] = data.subscription
        head["kind"] = _KINDS.get(data.kind, "MESSAGE")
        head["leader_epoch"] = data.leader_epoch
        head["delivery_count"] = data.delivery_count
        return {**head, **json_of(data)}
    if frame.payload:
        head["payload"] = json.loads(frame.payload)
    return head
