"""Decodes fetched batches for consumers with `read_committed` (pure).

Guarantees: records of aborted transactions and control batches are left out; records below the
position are left out; batches are decoded one at a time, so memory is bounded by one decompressed
batch. An incomplete batch at the end of an answer is ignored; the next fetch returns it.

Raises `CorruptBatchError` for a wrong checksum or bytes that are not records. It does NOT fetch.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from penstock.records.batch import iterate_headers
from penstock.records.builder import iterate_records
from penstock.records.control import read_marker
from penstock.records.record import Record


class Aborted(NamedTuple):
    """An aborted transaction of an answer: it begins at `first_offset`."""

    producer_id: int
    first_offset: int


class DecodedBatch(NamedTuple):
    """The committed records of one batch, and the position after it."""

    records: Iterable[Record]
    next_offset: int


def committed_batches(
    data: bytes | bytearray | memoryview, aborted: Sequence[Aborted], position: int
) -> Iterator[DecodedBatch]:
    """Return the batches of one answer; the records of each must be read before the next."""
    coming = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
    aborting: set[int] = set()
    for place, header in iterate_headers(data):
        while coming and coming[-1].first_offset <= header.last_offset:
            aborting.add(coming.pop().producer_id)
        is_left_out = header.is_control
        if header.is_control:
            marker = read_marker(memoryview(data)[place : place + header.size_bytes])
            if marker is not None and not marker.is_commit:
                aborting.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in aborting:
            is_left_out = True
        if header.next_offset <= position:
            continue
        records = () if is_left_out else _at_or_after(data, place, position)
        yield DecodedBatch(records, header.next_offset)


def _at_or_after(
    data: bytes | bytearray | memoryview, place: int, position: int
) -> Iterator[Record]:
    return (record for record in iterate_records(data, place) if record.offset >= position)
