"""A Produce request with one batch, read and answered by hand.

librdkafka always sends such requests, and so does every client under low load, so their cost is the
latency of a produce. `read_single` takes the body of a request of any served version and returns a
`SingleProduce` if it is one topic, one partition, no transaction and no tagged field, well formed
to the last byte; for everything else it returns None, and the general decoder decides. It refuses
nothing itself. `single_answer` writes the frame of a successful answer.

Property tests compare both with the general codec: the same values read, the same bytes written.
The file is compiled with the C types of `single_produce.pxd`; uncompiled it does the same.
"""

from struct import Struct
from typing import Final

_FLEXIBLE_VERSION: Final = 9
_TOPIC_ID_VERSION: Final = 13
_LOG_START_VERSION: Final = 5
_RECORD_ERRORS_VERSION: Final = 8
_TOPIC_ID_BYTES: Final = 16
_NO_TRANSACTION: Final = -1


class SingleProduce:
    """The fields of such a request. A topic is named by text, or since version 13 by its id."""

    def __init__(
        self,
        acks: int,
        timeout_ms: int,
        topic: "str | bytes",
        partition: int,
        start: int,
        stop: int,
    ) -> None:
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topic = topic
        self.partition = partition
        self.start = start
        """Position of the records in the body."""
        self.stop = stop


class _Cursor:
    """A position in the bytes that never passes their end; too few bytes set `failed`."""

    def __init__(self, data: memoryview, size: int) -> None:
        self.data = data
        self.size = size
        self.position = 0
        self.failed = False

    def number(self, width: int) -> int:
        """A big-endian signed number of `width` bytes; 0 after a fault."""
        position = self.position
        stop = position + width
        if stop > self.size:
            self.failed = True
            return 0
        value = self.data[position]
        if value >= 128:
            value -= 256
        position += 1
        while position < stop:
            value = value * 256 + self.data[position]
            position += 1
        self.position = position
        return value

    def varint(self) -> int:
        """An unsigned varint of at most four bytes: longer ones are for the general decoder."""
        position = self.position
        value = 0
        shift = 0
        while position < self.size and shift < 28:
            byte = self.data[position]
            position += 1
            value |= (byte & 127) << shift
            if byte < 128:
                self.position = position
                return value
            shift += 7
        self.failed = True
        return 0

    def length(self, flexible: bool, width: int) -> int:  # noqa: FBT001 (a C function)
        """A length or count; null, which is -1, is a fault here."""
        value = self.varint() - 1 if flexible else self.number(width)
        if value < 0 or value > self.size - self.position:
            self.failed = True
            return 0
        return value

    def expect(self, value: int, expected: int) -> None:
        """Leave any other value to the general decoder."""
        if value != expected:
            self.failed = True

    def skip(self, count: int) -> None:
        """Skip `count` bytes."""
        if count > self.size - self.position:
            self.failed = True
        else:
            self.position += count


def read_single(body: memoryview, version: int) -> SingleProduce | None:
    """The request in `body` if it is of this kind, else None."""
    flexible = version >= _FLEXIBLE_VERSION
    has_topic_id = version >= _TOPIC_ID_VERSION
    # After a fault the cursor stays within the bytes, so one check at the end is enough.
    cursor = _Cursor(body, len(body))
    cursor.expect(cursor.varint() - 1 if flexible else cursor.number(2), _NO_TRANSACTION)
    acks = cursor.number(2)
    timeout_ms = cursor.number(4)
    cursor.expect(cursor.length(flexible, 4), 1)
    length = _TOPIC_ID_BYTES if has_topic_id else cursor.length(flexible, 2)
    topic_start = cursor.position
    cursor.skip(length)
    topic_stop = cursor.position
    cursor.expect(cursor.length(flexible, 4), 1)
    partition = cursor.number(4)
    length = cursor.length(flexible, 4)
    start = cursor.position
    cursor.skip(length)
    stop = cursor.position
    if flexible:
        # The ends of partition, topic and request, without tagged fields.
        cursor.expect(cursor.number(3), 0)
    if cursor.failed or cursor.position != cursor.size:
        return None
    topic = bytes(body[topic_start:topic_stop])
    if has_topic_id:
        return SingleProduce(acks, timeout_ms, topic, partition, start, stop)
    try:
        return SingleProduce(acks, timeout_ms, topic.decode(), partition, start, stop)
    except UnicodeDecodeError:
        return None


def _answer_struct(version: int) -> Struct:
    """The part of an answer after the topic: from the partition to the throttle time."""
    flexible = version >= _FLEXIBLE_VERSION
    layout = ">" + ("B" if flexible else "i") + "ihqq"
    if version >= _LOG_START_VERSION:
        layout += "q"
    if flexible:
        # No record errors, no message, the ends of partition and topic, throttle time, the end.
        layout += "BBBBiB"
    elif version >= _RECORD_ERRORS_VERSION:
        layout += "ihi"
    else:
        layout += "i"
    return Struct(layout)


_ANSWERS: Final = tuple(_answer_struct(version) for version in range(_TOPIC_ID_VERSION + 1))
_HEAD: Final = Struct(">iiih")
_FLEXIBLE_HEAD: Final = Struct(">iiBB")


def single_answer(
    version: int,
    correlation_id: int,
    topic: str | bytes,
    partition: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
) -> bytes:
    """The whole frame of an answer with the offset of the batch."""
    answer = _ANSWERS[version]
    named = topic if isinstance(topic, bytes) else topic.encode()
    if version < _FLEXIBLE_VERSION:
        head = _HEAD.pack(10 + len(named) + answer.size, correlation_id, 1, len(named))
        if version >= _RECORD_ERRORS_VERSION:
            return (
                head
                + named
                + answer.pack(
                    1, partition, 0, base_offset, log_append_time_ms, log_start_offset, 0, -1, 0
                )
            )
        if version >= _LOG_START_VERSION:
            return (
                head
                + named
                + answer.pack(1, partition, 0, base_offset, log_append_time_ms, log_start_offset, 0)
            )
        return head + named + answer.pack(1, partition, 0, base_offset, log_append_time_ms, 0)
    if version < _TOPIC_ID_VERSION:
        length = len(named) + 1
        named = (
            length.to_bytes(1, "big") if length < 128 else bytes((length & 127 | 128, length >> 7))
        ) + named
    return (
        _FLEXIBLE_HEAD.pack(6 + len(named) + answer.size, correlation_id, 0, 2)
        + named
        + answer.pack(
            2, partition, 0, base_offset, log_append_time_ms, log_start_offset, 1, 0, 0, 0, 0, 0
        )
    )
