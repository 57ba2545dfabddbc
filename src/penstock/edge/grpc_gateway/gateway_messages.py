"""The messages of `penstock.proto`: bytes to requests and answers to bytes. Pure.

They are written by hand, so that the gateway needs no second library beside grpcio and no generated
code; a test compares each one with the code that protoc generates from `penstock.proto`.

Guarantees: a request that is read is within its types (32 bits, UTF-8, bounds of counts); others
raise `MalformedRequestError` that names the field. They decide nothing: `gateway_calls` does.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.edge.grpc_gateway.gateway_limits import (
    FETCH_BYTES_DEFAULT,
    FETCH_BYTES_MAX,
    FETCH_WAIT_MS_MAX,
    RECORDS_MAX,
    TOPICS_MAX,
)
from penstock.edge.grpc_gateway.proto_fields import (
    FieldBudget,
    MalformedRequestError,
    bytes_field,
    number_field,
    parse_fields,
    present_number_field,
    text_field,
    text_of,
    varint,
)
from penstock.protocol.push.data import (
    BATCH,
    DELETE,
    HEADERS_MAX,
    MESSAGE,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_PARTITION,
    NO_TIMESTAMP,
    PushData,
)
from penstock.protocol.push.payloads import PARTITIONS_MAX, Refusal

_INT32_MAX: Final = 2**31 - 1
NAME_BYTES_MAX: Final = 65_535
END: Final = -1
START: Final = -2
_FRAMES_TAG: Final = 0x0A


class ProduceCall(NamedTuple):
    """Records for one topic, or one batch."""

    topic: str
    records: list[tuple[PushData, int]]
    """Each with its bytes."""


class FetchCall(NamedTuple):
    """A read of one partition."""

    topic: str
    partition: int
    offset: int | None
    group: str
    wait_ms_max: int
    bytes_max: int
    as_batches: bool


class CommitCall(NamedTuple):
    """Offsets of a group."""

    group: str
    topic: str
    offsets: dict[int, int]


class PartitionState(NamedTuple):
    """One partition in an answer."""

    number: int
    leader: int
    leader_epoch: int
    is_here: bool
    log_start_offset: int
    end_offset: int


class TopicState(NamedTuple):
    """One topic in an answer."""

    name: str
    error: str
    topic_id: bytes
    partitions: tuple[PartitionState, ...]


# --- Requests ---


def read_produce(message: bytes) -> ProduceCall:
    """Return the request in a message of Produce."""
    budget = FieldBudget()
    numbers, texts = parse_fields(message, budget)
    partition = _partition(numbers, 2) if 2 in numbers else NO_PARTITION
    topic, batch = "", b""
    records: list[tuple[PushData, int]] = []
    for field, data in texts:
        if field == 3:
            records.append((_read_record(data, partition, budget), len(data)))
        elif field == 1:
            topic = text_of(data, "topic")
        elif field == 4:
            batch = data
    if not topic:
        raise MalformedRequestError("the field topic is empty")
    if bool(batch) == bool(records):
        raise MalformedRequestError("a Produce has either records or a batch")
    if len(records) > RECORDS_MAX:
        raise MalformedRequestError(
            f"the request has {len(records)} records, the limit is {RECORDS_MAX}; send fewer in "
            "one call, or a batch"
        )
    if batch:
        if partition == NO_PARTITION:
            raise MalformedRequestError("a batch needs the field partition")
        records = [(_data(partition, NO_TIMESTAMP, BATCH, (), None, batch), len(batch))]
    return ProduceCall(topic, records)


def _read_record(message: bytes, partition: int, budget: FieldBudget) -> PushData:
    numbers, texts = parse_fields(message, budget)
    key = value = None
    headers: list[tuple[str, bytes | None]] = []
    for field, data in texts:
        if field == 1:
            key = data
        elif field == 2:
            value = data
        elif field == 3:
            headers.append(_read_header(data, budget))
    if len(headers) > HEADERS_MAX:
        raise MalformedRequestError(f"a record has more than {HEADERS_MAX} headers")
    timestamp_ms = numbers.get(4, NO_TIMESTAMP)
    if timestamp_ms < NO_TIMESTAMP:
        raise MalformedRequestError(f"the field timestamp_ms is {timestamp_ms}, below 0")
    kind = DELETE if value is None else MESSAGE
    return _data(partition, timestamp_ms, kind, tuple(headers), key, value)


def _read_header(message: bytes, budget: FieldBudget) -> tuple[str, bytes | None]:
    _, texts = parse_fields(message, budget)
    name, value = "", None
    for field, data in texts:
        if field == 1:
            if len(data) > NAME_BYTES_MAX:
                raise MalformedRequestError(
                    f"the name of a header has {len(data)} bytes, the limit is {NAME_BYTES_MAX}"
                )
            name = text_of(data, "name")
        elif field == 2:
            value = data
    return name, value


def _data(
    partition: int,
    timestamp_ms: int,
    kind: int,
    headers: tuple[tuple[str, bytes | None], ...],
    key: bytes | None,
    value: bytes | None,
) -> PushData:
    return PushData(
        0, partition, NO_OFFSET, timestamp_ms, NO_LEADER_EPOCH, 0, kind, headers, key, value
    )


def read_fetch(message: bytes) -> FetchCall:
    """Return the request in a message of Fetch."""
    numbers, texts = parse_fields(message, FieldBudget())
    fields = dict(texts)
    offset = numbers.get(3)
    call = FetchCall(
        topic=text_of(fields.get(1, b""), "topic"),
        partition=_partition(numbers, 2),
        offset=offset,
        group=text_of(fields.get(4, b""), "group"),
        wait_ms_max=numbers.get(5, 0),
        bytes_max=numbers.get(6, 0) or FETCH_BYTES_DEFAULT,
        as_batches=bool(numbers.get(7)),
    )
    if not call.topic:
        raise MalformedRequestError("the field topic is empty")
    if offset is not None and offset < START:
        raise MalformedRequestError(f"the field offset is {offset}; the lowest is {START}")
    if offset is None and not call.group:
        raise MalformedRequestError("a Fetch has an offset, or a group that has a committed one")
    if not 0 <= call.wait_ms_max <= FETCH_WAIT_MS_MAX:
        raise MalformedRequestError(
            f"the field wait_ms_max is {call.wait_ms_max}, the limit is {FETCH_WAIT_MS_MAX}"
        )
    if not 0 < call.bytes_max <= FETCH_BYTES_MAX:
        raise MalformedRequestError(
            f"the field bytes_max is {call.bytes_max}, the limit is {FETCH_BYTES_MAX}"
        )
    return call


def read_topics(message: bytes) -> list[str]:
    """Return the names in a message of GetTopicMetadata."""
    _, texts = parse_fields(message, FieldBudget())
    names = [text_of(data, "topics") for field, data in texts if field == 1]
    if not 0 < len(names) <= TOPICS_MAX:
        raise MalformedRequestError(
            f"the field topics has {len(names)} names; name 1 to {TOPICS_MAX}"
        )
    return names


def read_commit(message: bytes) -> CommitCall:
    """Return the request in a message of CommitOffset."""
    budget = FieldBudget()
    _, texts = parse_fields(message, budget)
    group = topic = ""
    offsets: dict[int, int] = {}
    for field, data in texts:
        if field == 1:
            group = text_of(data, "group")
        elif field == 2:
            topic = text_of(data, "topic")
        elif field == 3:
            numbers, _ = parse_fields(data, budget)
            offset = numbers.get(2, 0)
            if offset < 0:
                raise MalformedRequestError(f"the field offset is {offset}, below 0")
            offsets[_partition(numbers, 1)] = offset
    if not group or not topic:
        raise MalformedRequestError("the field group or topic is empty")
    if not 0 < len(offsets) <= PARTITIONS_MAX:
        raise MalformedRequestError(
            f"the field offsets has {len(offsets)} partitions; name 1 to {PARTITIONS_MAX}"
        )
    return CommitCall(group, topic, offsets)


def _partition(numbers: dict[int, int], field: int) -> int:
    partition = numbers.get(field, 0)
    if not 0 <= partition <= _INT32_MAX:
        raise MalformedRequestError(
            f"the field partition is {partition}, outside 0 to {_INT32_MAX}"
        )
    return partition


def read_frames(message: bytes) -> bytes:
    """Return the bytes of the push protocol in a message of Session."""
    # Nearly all messages have this one field and no other.
    if message and message[0] == _FRAMES_TAG:
        head = 1 + len(varint_head := _varint_head(message))
        if varint(len(message) - head) == varint_head:
            return message[head:]
    _, texts = parse_fields(message, FieldBudget())
    return dict(texts).get(1, b"")


def _varint_head(message: bytes) -> bytes:
    end = 1
    while end < len(message) - 1 and end < 10 and message[end] >= 0x80:
        end += 1
    return message[1 : end + 1]


# --- Answers ---


def write_frames(data: bytes) -> bytes:
    """Return a message of Session."""
    return b"\x0a" + varint(len(data)) + data


def write_record(data: PushData) -> bytes:
    """Return one record of an answer to Fetch."""
    parts = []
    if data.key is not None:
        parts.append(bytes_field(1, data.key))
    if data.value is not None and data.kind != DELETE:
        parts.append(bytes_field(2, data.value))
    for name, value in data.headers:
        header = text_field(1, name) + (b"" if value is None else bytes_field(2, value))
        parts.append(bytes_field(3, header))
    parts.append(present_number_field(4, data.timestamp_ms))
    parts.append(number_field(5, data.offset))
    parts.append(number_field(6, data.leader_epoch))
    return bytes_field(1, b"".join(parts))


def write_fetch(
    records: Iterable[bytes], batches: bytes, next_offset: int, start_offset: int, end_offset: int
) -> bytes:
    """Return the answer to a Fetch; records are encoded already."""
    return b"".join(
        (
            *records,
            bytes_field(2, batches) if batches else b"",
            number_field(3, next_offset),
            number_field(4, start_offset),
            number_field(5, end_offset),
        )
    )


def write_produce(
    partitions: list[int], offsets: list[int], refused: list[tuple[int, Refusal]]
) -> bytes:
    """Return the answer to a Produce."""
    parts = [
        bytes_field(1, b"".join(map(varint, partitions))),
        bytes_field(2, b"".join(map(varint, offsets))),
    ]
    for partition, refusal in refused:
        one = (
            number_field(1, partition),
            text_field(2, refusal.code),
            text_field(3, refusal.error),
            number_field(4, int(refusal.retriable)),
        )
        parts.append(bytes_field(3, b"".join(one)))
    return b"".join(parts)


def write_topics(topics: Iterable[TopicState]) -> bytes:
    """Return the answer to a GetTopicMetadata."""
    return b"".join(bytes_field(1, _topic(one)) for one in topics)


def _topic(topic: TopicState) -> bytes:
    parts = [text_field(1, topic.name), text_field(2, topic.error)]
    if topic.topic_id:
        parts.append(bytes_field(3, topic.topic_id))
    parts += [bytes_field(4, _partition_state(one)) for one in topic.partitions]
    return b"".join(parts)


def _partition_state(one: PartitionState) -> bytes:
    return b"".join(
        (
            number_field(1, one.number),
            number_field(2, one.leader),
            number_field(3, one.leader_epoch),
            number_field(4, int(one.is_here)),
            number_field(5, one.log_start_offset),
            number_field(6, one.end_offset),
        )
    )
