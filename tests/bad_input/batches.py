"""Record batches with chosen faults: a good one, fields overwritten, records by hand, sealed again.

`sealed` makes length and checksum right, so that a fault behind them is the only one; where these
two are the fault, the batch is left unsealed. Positions are those of Kafka's format, version 2.
"""

import struct
from typing import Final

from penstock.core.clock import SystemClock
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from penstock.records.builder import build_batch
from penstock.records.compression import compress
from penstock.records.crc32c import checksum
from penstock.records.record import Record
from tests.bad_input.wire import well_formed, zigzag

HEADER_BYTES: Final = 61
PRODUCE_VERSION: Final = 9
NOW_MS: Final = SystemClock().now_ms()

VICTIM: Final = "victim"
"""The topic that bad batches are for; nothing may ever be in it that was refused."""
COMPACTED: Final = "victim-compacted"
SMALL: Final = "victim-small"
SMALL_BATCH_BYTES: Final = 2_000
LARGE: Final = "victim-large"
LARGE_BATCH_BYTES: Final = 16_777_216
DOTTED: Final = "victim_dotted"
WITNESS: Final = "witness"
"""The topic of the connection that behaves."""
TOPICS: Final[dict[str, dict[str, str]]] = {
    VICTIM: {},
    COMPACTED: {"cleanup.policy": "compact"},
    SMALL: {"max.message.bytes": str(SMALL_BATCH_BYTES)},
    LARGE: {"max.message.bytes": str(LARGE_BATCH_BYTES)},
    DOTTED: {},
    WITNESS: {},
}
"""Every topic there is, with its settings."""

_FIELDS: Final = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}


def good(count: int = 2, *, codec: int = 0, size: int = 20) -> bytes:
    """A batch that every broker takes."""
    records = [Record(b"key", b"v" * size, (), NOW_MS) for _ in range(count)]
    return bytes(build_batch(records, codec=codec))


def changed(batch: bytes, **fields: int) -> bytes:
    """The batch with fields of its header overwritten, and nothing made right."""
    output = bytearray(batch)
    for name, value in fields.items():
        position, layout = _FIELDS[name]
        struct.pack_into(layout, output, position, value)
    return bytes(output)


def sealed(batch: bytes, **fields: int) -> bytes:
    """The same with length and checksum made right afterwards."""
    output = changed(batch, **fields)
    output = changed(output, length=len(output) - 12)
    return changed(output, crc=checksum(output[21:]))


def with_section(section: bytes, *, count: int = 1, codec: int = 0) -> bytes:
    """A batch around a records section as it is."""
    return sealed(
        good(1)[:HEADER_BYTES] + section,
        record_count=count,
        last_offset_delta=count - 1,
        attributes=codec,
    )


def packed(records: bytes, *, codec: int, count: int = 1) -> bytes:
    """A batch around records that are compressed here."""
    return with_section(compress(codec, records), count=count, codec=codec)


def record(
    *,
    offset_delta: int = 0,
    timestamp_delta: bytes = b"\x00",
    key: bytes = b"\x06key",
    value: bytes = b"\x0avalue",
    headers: bytes = b"\x00",
    length: int | None = None,
) -> bytes:
    """One record from its parts; each part carries its own length, right or wrong."""
    body = b"\x00" + timestamp_delta + zigzag(offset_delta) + key + value + headers
    return zigzag(len(body) if length is None else length) + body


def produce(
    records: bytes | None,
    *,
    topic: str = VICTIM,
    partition: int = 0,
    version: int = PRODUCE_VERSION,
    acks: int = -1,
    transactional_id: str | None = None,
    correlation_id: int = 7,
) -> bytes:
    """A Produce request with these bytes for records."""
    data = PartitionProduceData(index=partition, records=records)
    message = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=5_000,
        topic_data=(TopicProduceData(name=topic, topic_id=None, partition_data=(data,)),),
    )
    return well_formed(message, version, correlation_id=correlation_id)
