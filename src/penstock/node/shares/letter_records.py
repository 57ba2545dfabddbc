"""Dead letters as records: Kafka's headers (KIP-1191), and the copy of the source record. Pure.

A letter has the headers of Apache Kafka 4.4, first and in Kafka's order:

    __dlq.errors.topic            the topic of the record
    __dlq.errors.partition        its partition, as decimal text
    __dlq.errors.offset           its offset
    __dlq.errors.group            the share group that has given it up
    __dlq.errors.delivery.count   its deliveries
    __dlq.errors.message          the cause

With a copy, the letter also has the key, the value and the headers of the record; headers of the
record with one of the names above are left out, so no producer can forge them. A copy that is too
large for the dead-letter topic is left out, and the cause says so. The timestamp of a letter is the
time of its creation, so that retention keeps it.

It reads no log and writes nothing: `node.shares.share_dead_letters` does both.
"""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from penstock.coordinator.shares.delivery.runs import REJECTED
from penstock.coordinator.shares.delivery.share_delivery import Letter
from penstock.core.errors import PenstockError
from penstock.records import batch as layout
from penstock.records.builder import BatchBuilder, iterate_records
from penstock.records.record import Header, Record

logger = logging.getLogger(__name__)

PREFIX: Final = "__dlq.errors."
CAUSES: Final = {
    True: "Offset rejected by client.",
    False: "Offset delivery count exceeded the threshold.",
}
"""By whether a member rejected the record: Kafka's texts, because tools compare them."""
BATCH_RECORDS_MAX: Final = 100_000
"""A batch with more records is not copied from: each copy would decode all of them again."""
COPY_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of source records that one batch of letters holds before it is built."""
_VARINT_BYTES_MAX: Final = 5
_RECORD_OVERHEAD_BYTES: Final = 64
"""More than the numbers of a record and of its fields."""


class Source(NamedTuple):
    """The share-partition whose records are given up."""

    group: str
    topic: str
    partition: int


def offsets_of(letters: Sequence[Letter]) -> Iterator[tuple[int, Letter]]:
    """Yield each offset with its letter."""
    for letter in letters:
        for offset in range(letter.first, letter.last + 1):
            yield offset, letter


class Copies(NamedTuple):
    """Source records by offset."""

    records: Mapping[int, Record]
    last_offset: int
    """All records up to this one were looked for; one that is missing here does not exist."""


def copied_records(stored: bytes, wanted: AbstractSet[int], first: int) -> Copies:
    """Return the wanted records of stored batches, which begin at or before offset `first`.

    Reading ends after `COPY_BYTES_MAX`. A batch that cannot be read, or with more records than
    `BATCH_RECORDS_MAX`, counts as one without records.
    """
    found: dict[int, Record] = {}
    size_bytes, last = 0, first
    ordered = sorted(wanted)
    for position, header in layout.iterate_headers(stored):
        if not ordered or header.base_offset > ordered[-1]:
            return Copies(found, max(last, header.base_offset - 1))
        low = bisect_left(ordered, header.base_offset)
        here = set(ordered[low : bisect_right(ordered, header.last_offset)])
        if here and not header.is_control and header.record_count <= BATCH_RECORDS_MAX:
            for record in _wanted_records(stored, position, here):
                size_bytes += _size_bytes(record)
                if size_bytes > COPY_BYTES_MAX and found:
                    return Copies(found, record.offset - 1)
                found[record.offset] = record
        last = max(last, header.last_offset)
    return Copies(found, last)


def _wanted_records(stored: bytes, position: int, wanted: set[int]) -> Iterator[Record]:
    """Yield the wanted records of one batch; none after bytes that are no record."""
    end = max(wanted)
    try:
        for record in iterate_records(stored, position):
            if record.offset in wanted:
                yield record
            if record.offset >= end:
                return
    except PenstockError as error:
        logger.warning("dead letters have no copies of some records: %s", error)


def build_letters(
    source: Source,
    letters: Sequence[Letter],
    copies: Copies | None,
    *,
    now_ms: int,
    batch_bytes_max: int,
) -> tuple[bytearray, int]:
    """Return one batch, and the number of letters in it: the first ones that fit, at least one."""
    builder = BatchBuilder()
    for offset, letter in offsets_of(letters):
        if copies is not None and offset > copies.last_offset and builder.record_count:
            break
        copy = None if copies is None else copies.records.get(offset)
        record = _letter(source, offset, letter, copy, now_ms)
        room = batch_bytes_max - builder.size_bytes
        if _size_bytes(record) > room and builder.record_count:
            break
        if _size_bytes(record) > room and copy is not None:
            note = f" The record has {_size_bytes(copy)} bytes, too many for a copy."
            record = _letter(source, offset, letter, None, now_ms, note)
        builder.append(record)
    count = builder.record_count
    return builder.build(), count


def _letter(
    source: Source,
    offset: int,
    letter: Letter,
    copy: Record | None,
    now_ms: int,
    note: str = "",
) -> Record:
    texts = {
        "topic": source.topic,
        "partition": str(source.partition),
        "offset": str(offset),
        "group": source.group,
        "delivery.count": str(letter.delivery_count),
        "message": CAUSES[letter.cause == REJECTED] + note,
    }
    headers = tuple(Header(PREFIX + name, text.encode()) for name, text in texts.items())
    if copy is None:
        return Record(headers=headers, timestamp_ms=now_ms)
    own = tuple(header for header in copy.headers if not header.key.startswith(PREFIX))
    return Record(copy.key, copy.value, headers + own, now_ms)


def _size_bytes(record: Record) -> int:
    """Return at least the bytes of a record in a batch."""
    fields = sum(len(field) for field in (record.key, record.value) if field is not None)
    headers = sum(
        len(name.encode()) + len(value or b"") + 2 * _VARINT_BYTES_MAX
        for name, value in record.headers
    )
    return _RECORD_OVERHEAD_BYTES + fields + headers
