"""Records of a fetch, as a client reads them: whole batches, without markers and aborted records.

The broker names the aborted transactions of an answer; a reader of committed records leaves out the
batches between the first offset of such a transaction and its marker. It sends nothing.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.protocol.messages.fetch import AbortedTransaction
from penstock.records.batch import read_header
from penstock.records.builder import read_records
from penstock.records.control import read_marker

HEADER_BYTES = 61


class ReadRecords(NamedTuple):
    """The records of an answer, and the position behind its last batch."""

    records: list[tuple[int, int]]
    """Offset and value of each."""
    next_offset: int


def read_values(
    data: bytes, offset: int, aborted: Sequence[AbortedTransaction] | None = None
) -> ReadRecords:
    """Return offsets and values of whole batches, starting at an offset."""
    found: list[tuple[int, int]] = []
    waiting = sorted(((one.first_offset, one.producer_id) for one in aborted or ()), reverse=True)
    open_producers: set[int] = set()
    position, next_offset = 0, offset
    while position + HEADER_BYTES <= len(data):
        header = read_header(data, position)
        size = header.batch_length + 12
        if position + size > len(data):
            break
        while waiting and waiting[-1][0] <= header.last_offset:
            open_producers.add(waiting.pop()[1])
        if header.is_control:
            marker = read_marker(data, position)
            if marker is not None and not marker.is_commit:
                open_producers.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_producers):
            found += [
                (record.offset, int(record.value))
                for record in read_records(data, position)
                if record.offset >= offset and record.value is not None
            ]
        position += size
        next_offset = max(next_offset, header.last_offset + 1)
    return ReadRecords(found, next_offset)
