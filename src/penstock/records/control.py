"""Control batches: the commit and abort markers that end a transaction in a partition.

A marker is a batch of one record with the control and transactional bits set:

    key     version i16 = 0, type i16 (0 abort, 1 commit)
    value   version i16 = 0, coordinator epoch i32

Guarantees: `build_marker` writes Kafka's bytes; `read_marker` parses them, accepts later versions
that only add fields, and raises `CorruptBatchError` for anything else. For a control batch that is
not a transaction marker (Kafka's Raft log has some), and for one that compaction has emptied, it
returns `None`.
"""

from struct import Struct
from typing import Final, NamedTuple

from typing_extensions import Buffer

from penstock.core.errors import CorruptBatchError
from penstock.records.batch import HEADER_BYTES, MAGIC, checksum_matches, read_header
from penstock.records.record import Record, decode_records

ABORT: Final = 0
COMMIT: Final = 1

MARKER_BYTES: Final = 78
"""A marker's batch: header, one record with key and value."""

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")
_VERSION: Final = 0
_NO_LEADER_EPOCH: Final = -1
_NO_SEQUENCE: Final = -1


class Marker(NamedTuple):
    """The end of a transaction."""

    is_commit: bool
    coordinator_epoch: int


def build_marker(
    marker: Marker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = _NO_LEADER_EPOCH,
) -> bytearray:
    """A control batch that ends the producer's transaction."""
    assert producer_id >= 0
    assert producer_epoch >= 0
    # A broker's start reads markers and writes none; it does not wait for the codecs.
    from penstock.records.builder import BatchBuilder

    builder = BatchBuilder()
    builder.append(
        Record(
            key=_KEY.pack(_VERSION, COMMIT if marker.is_commit else ABORT),
            value=_VALUE.pack(_VERSION, marker.coordinator_epoch),
            timestamp_ms=timestamp_ms,
        )
    )
    return builder.build(
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=_NO_SEQUENCE,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )


def read_marker(batch: Buffer, position: int = 0) -> Marker | None:
    """The marker in the control batch at `position`, or None if it is another kind of control."""
    records = _records(batch, position)
    if not records:
        # Compaction leaves an empty batch where the marker's transaction is gone.
        return None
    if len(records) != 1:
        raise CorruptBatchError(f"a control batch with {len(records)} records")
    key, value = records[0].key, records[0].value
    if key is None or len(key) < _KEY.size:
        raise CorruptBatchError("a control record whose key is too short")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatchError(f"a control record of version {version}")
    if kind not in (ABORT, COMMIT):
        return None
    if value is None or len(value) < _VALUE.size:
        raise CorruptBatchError("a transaction marker whose value is too short")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise CorruptBatchError(f"a transaction marker of version {version}")
    return Marker(kind == COMMIT, coordinator_epoch)


def _records(batch: Buffer, position: int) -> list[Record]:
    """The records of a control batch, which is never compressed."""
    available = len(memoryview(batch)) - position
    if available < HEADER_BYTES:
        raise CorruptBatchError(f"{available} bytes are no batch")
    header = read_header(batch, position)
    if header.magic != MAGIC or not HEADER_BYTES <= header.size_bytes <= available:
        raise CorruptBatchError(f"length {header.batch_length}, magic {header.magic}")
    if header.codec or not checksum_matches(batch, position, header):
        raise CorruptBatchError("the checksum of a control batch is wrong, or it is compressed")
    return list(
        decode_records(
            memoryview(batch)[position + HEADER_BYTES : position + header.size_bytes],
            header.record_count,
            base_offset=header.base_offset,
            base_timestamp_ms=header.base_timestamp_ms,
        )
    )
