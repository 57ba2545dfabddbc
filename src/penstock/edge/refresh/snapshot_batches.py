"""`LastOffsets` and `SnapshotBatches`: the two passes that make a snapshot of a partition (pure).

Pass 1 finds the last offset of each key; pass 2 keeps exactly the records at these offsets that
have a value, and writes them into new batches. Guarantees: a record keeps its offset, timestamp,
key, value and headers; a batch has records of one leader epoch; the batches of a partition have
rising offsets, no producer and no transaction; `finish` ends them at `end_offset`.

A tombstone removes its key and is not kept: a snapshot replaces all earlier data, so no reader has
the key. Records without a key have no place in a data set of keys; they are counted.

It does NOT know transactions: the caller passes committed records only.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

from penstock.core.limits import SEGMENT_RELATIVE_OFFSET_MAX
from penstock.edge.refresh.snapshot_errors import SnapshotError
from penstock.records import batch as layout
from penstock.records.batch import BatchHeader
from penstock.records.builder import assemble
from penstock.records.record import NO_TIMESTAMP, Record, encode_record

KEYS_MAX: Final = 50_000_000
"""Keys of one partition: about 130 bytes of memory each."""
BATCH_BYTES_MAX: Final = 131_072
"""Records of a batch before compression, unless it is one record."""
_DIGEST_BYTES: Final = 16
_NO_PRODUCER: Final = -1


def _name_of(key: bytes) -> bytes:
    """Return a short name of a key; keys below 16 bytes are their own names."""
    return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()


class LastOffsets:
    """Pass 1: the last offset of each key."""

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self._offsets: dict[bytes, int] = {}
        self._keys_max = keys_max
        self.keyless = 0

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, records: Iterable[Record]) -> None:
        """Add committed records, in the order of their offsets."""
        offsets = self._offsets
        for record in records:
            if record.key is None:
                self.keyless += 1
            else:
                offsets[_name_of(record.key)] = record.offset
        if len(offsets) > self._keys_max:
            raise SnapshotError(
                f"a partition has more than {self._keys_max} keys",
                hint="Use a topic with more partitions.",
            )

    def is_last(self, record: Record) -> bool:
        """Whether the record is the last of its key, and has a value."""
        if record.key is None or record.value is None:
            return False
        return self._offsets.get(_name_of(record.key)) == record.offset


class SnapshotBatch(NamedTuple):
    """One batch of a snapshot."""

    base_offset: int
    next_offset: int
    records: int
    data: bytearray


class SnapshotBatches:
    """Pass 2: collects kept records into batches."""

    def __init__(self, codec: int, batch_bytes_max: int = BATCH_BYTES_MAX) -> None:
        self._codec = codec
        self._batch_bytes_max = batch_bytes_max
        self._section = bytearray()
        self._first: Record | None = None
        self._last_offset = -1
        self._max_timestamp_ms = NO_TIMESTAMP
        self._epoch = -1
        self._count = 0

    def add(self, record: Record, leader_epoch: int) -> SnapshotBatch | None:
        """Add a record; return the batch before it if it is complete."""
        assert record.offset > self._last_offset, "offsets rise"
        done = None
        first = self._first
        if first is not None and (
            leader_epoch != self._epoch
            or len(self._section) >= self._batch_bytes_max
            or record.offset - first.offset > SEGMENT_RELATIVE_OFFSET_MAX
        ):
            done = self._build()
            first = None
        if first is None:
            self._first = first = record
            self._epoch = leader_epoch
        encode_record(
            self._section,
            record,
            timestamp_delta_ms=record.timestamp_ms - first.timestamp_ms,
            offset_delta=record.offset - first.offset,
        )
        self._max_timestamp_ms = max(self._max_timestamp_ms, record.timestamp_ms)
        self._last_offset = record.offset
        self._count += 1
        return done

    def finish(self, end_offset: int, last_epoch: int) -> list[SnapshotBatch]:
        """Return the last batches; the very last one ends at `end_offset`."""
        found = [self._build()] if self._first is not None else []
        if self._last_offset + 1 < end_offset:
            header = _header(end_offset - 1, 0, last_epoch, 0, NO_TIMESTAMP, NO_TIMESTAMP, 0)
            found.append(SnapshotBatch(end_offset - 1, end_offset, 0, assemble(header, b"")))
        return found

    def _build(self) -> SnapshotBatch:
        first = self._first
        assert first is not None
        header = _header(
            first.offset,
            self._last_offset - first.offset,
            self._epoch,
            self._codec,
            first.timestamp_ms,
            self._max_timestamp_ms,
            self._count,
        )
        built = SnapshotBatch(
            first.offset, self._last_offset + 1, self._count, assemble(header, self._section)
        )
        self._section = bytearray()
        self._first, self._count, self._max_timestamp_ms = None, 0, NO_TIMESTAMP
        return built


def _header(
    base_offset: int,
    last_offset_delta: int,
    leader_epoch: int,
    codec: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    count: int,
) -> BatchHeader:
    return BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=layout.MAGIC,
        crc=0,
        attributes=layout.attributes(
            codec=codec, log_append_time=False, transactional=False, control=False
        ),
        last_offset_delta=last_offset_delta,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=_NO_PRODUCER,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )
