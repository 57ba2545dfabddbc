"""The payload of DATA: one record, or one stored batch, of a subscription.

Big-endian:

    subscription    2   number in the answer to SUBSCRIBE
    partition       4   publish: -1 lets the broker choose
    offset          8   publish: -1
    timestamp       8   milliseconds; publish: -1 is the time of the broker
    leader epoch    4   publish: -1
    delivery count  2
    kind            1   0 a message, 1 a delete (the value is null), 2 a stored batch
    headers         2   count
    key length      4   -1: null
    key
    headers         each: name length 2, name, value length 4 (-1: null), value
    value               the rest

A stored batch has neither key nor headers; its value is one record batch as the log has it.

Guarantees: `decode_data` returns what `encode_data` wrote; other bytes raise `PushFrameError`.
The part behind the subscription (`encode_tail`) is the same for all sessions.
"""

from struct import Struct, error
from typing import Final, NamedTuple

from penstock.protocol.push.frames import HEAD_BYTES, FrameType, PushFrameError

MESSAGE: Final = 0
DELETE: Final = 1
BATCH: Final = 2

NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
NO_PARTITION: Final = -1
NO_LEADER_EPOCH: Final = -1

HEADERS_MAX: Final = 65_535
_TAIL: Final = Struct(">iqqiHBHi")
_NAME: Final = Struct(">H")
_LENGTH: Final = Struct(">i")
_SUBSCRIPTION: Final = Struct(">H")
_DELIVERY_COUNT_PLACE: Final = 24
TAIL_BYTES_MIN: Final = _TAIL.size
DATA_BYTES_MIN: Final = _SUBSCRIPTION.size + TAIL_BYTES_MIN
DATA_HEAD: Final = Struct(">BQIH")
"""Head of a DATA frame and its subscription: the part that differs between sessions."""

assert DATA_BYTES_MIN == 35
assert DATA_HEAD.size == HEAD_BYTES + 2

Headers = tuple[tuple[str, bytes | None], ...]


class PushData(NamedTuple):
    """One record of a subscription, or one stored batch."""

    subscription: int
    partition: int
    offset: int
    timestamp_ms: int
    leader_epoch: int
    delivery_count: int
    kind: int
    headers: Headers
    key: bytes | None
    value: bytes | None


def encode_tail(
    partition: int,
    offset: int,
    timestamp_ms: int,
    leader_epoch: int,
    delivery_count: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers = (),
) -> bytes:
    """Return the payload of a record without its subscription."""
    kind = DELETE if value is None else MESSAGE
    key_length = -1 if key is None else len(key)
    if not headers:
        head = _TAIL.pack(
            partition, offset, timestamp_ms, leader_epoch, delivery_count, kind, 0, key_length
        )
        return head + (key or b"") + (value or b"")
    if len(headers) > HEADERS_MAX:
        # The count has 16 bits; a producer that sets more gets its first ones delivered.
        headers = headers[:HEADERS_MAX]
    parts = [
        _TAIL.pack(
            partition,
            offset,
            timestamp_ms,
            leader_epoch,
            delivery_count,
            kind,
            len(headers),
            key_length,
        ),
        key or b"",
    ]
    for name, content in headers:
        encoded = name.encode()
        if len(encoded) > HEADERS_MAX:
            encoded = encoded[:HEADERS_MAX].decode(errors="ignore").encode()
        parts += (_NAME.pack(len(encoded)), encoded)
        if content is None:
            parts.append(_LENGTH.pack(-1))
        else:
            parts += (_LENGTH.pack(len(content)), content)
    parts.append(value or b"")
    return b"".join(parts)


def encode_batch_tail(
    partition: int, offset: int, timestamp_ms: int, leader_epoch: int, batch: bytes | memoryview
) -> bytes:
    """Return the payload of a stored batch without its subscription."""
    return _TAIL.pack(partition, offset, timestamp_ms, leader_epoch, 0, BATCH, 0, -1) + batch


def encode_data(subscription: int, message_id: int, tail: bytes) -> bytes:
    """Return a DATA frame."""
    head = DATA_HEAD.pack(FrameType.DATA, message_id, len(tail) + 2, subscription)
    return head + tail


def with_delivery_count(tail: bytes, delivery_count: int) -> bytes:
    """Return the payload of a record with another delivery count."""
    place = _DELIVERY_COUNT_PLACE
    return tail[:place] + _NAME.pack(delivery_count) + tail[place + 2 :]


def decode_data(payload: bytes) -> PushData:
    """Return the record in the payload of a DATA frame."""
    if len(payload) < DATA_BYTES_MIN:
        raise PushFrameError(
            f"a DATA frame has {len(payload)} bytes, at least {DATA_BYTES_MIN} are needed"
        )
    (subscription,) = _SUBSCRIPTION.unpack_from(payload)
    partition, offset, timestamp_ms, epoch, deliveries, kind, count, key_length = _TAIL.unpack_from(
        payload, 2
    )
    if kind not in (MESSAGE, DELETE, BATCH):
        raise PushFrameError(f"kind {kind} of a DATA frame is unknown; kinds are 0, 1 and 2")
    place = DATA_BYTES_MIN
    key: bytes | None = None
    if key_length >= 0:
        key, place = _bytes(payload, place, key_length)
    elif key_length != -1:
        raise PushFrameError(f"a key length of {key_length} in a DATA frame")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        header, place = _header(payload, place)
        headers.append(header)
    value: bytes | None = payload[place:]
    if kind == DELETE:
        if value:
            raise PushFrameError(f"a delete with a value of {len(payload) - place} bytes")
        value = None
    if kind == BATCH and (key is not None or headers):
        raise PushFrameError("a stored batch in a DATA frame has a key or headers")
    return PushData(
        subscription,
        partition,
        offset,
        timestamp_ms,
        epoch,
        deliveries,
        kind,
        tuple(headers),
        key,
        value,
    )


def _bytes(payload: bytes, place: int, length: int) -> tuple[bytes, int]:
    end = place + length
    if end > len(payload):
        raise PushFrameError(f"a field of {length} bytes runs past the end of a DATA frame")
    return payload[place:end], end


def _header(payload: bytes, place: int) -> tuple[tuple[str, bytes | None], int]:
    try:
        (length,) = _NAME.unpack_from(payload, place)
        name, place = _bytes(payload, place + _NAME.size, length)
        (length,) = _LENGTH.unpack_from(payload, place)
    except error:
        raise PushFrameError("a header runs past the end of a DATA frame") from None
    place += _LENGTH.size
    try:
        text = name.decode()
    except UnicodeDecodeError:
        raise PushFrameError("the name of a header in a DATA frame is not UTF-8") from None
    if length == -1:
        return (text, None), place
    if length < 0:
        raise PushFrameError(f"a header value of {length} bytes in a DATA frame")
    value, place = _bytes(payload, place, length)
    return (text, value), place
