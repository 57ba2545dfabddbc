"""The batches of a partition as they are on the disk, without a broker.

The segments of Penstock and of Apache Kafka have the same bytes. Room that a running broker has
reserved behind the last batch is zero, and is left out; so is a batch that is not whole, because
its broker was killed or is writing it now.
"""

from pathlib import Path

from crc32c import crc32c

from penstock.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, read_header

_CHECKED_FROM = 21
"""The checksum is over everything behind it."""


def stored_batches(data_dir: Path, partition: str) -> bytes:
    """Return all whole batches of a partition, in their order."""
    found = bytearray()
    for path in sorted((data_dir / partition).glob("*.log")):
        found += _whole(memoryview(path.read_bytes()))
    return bytes(found)


def _whole(data: memoryview) -> memoryview:
    position = 0
    while len(data) - position >= HEADER_BYTES:
        size = int.from_bytes(data[position + 8 : position + 12], "big")
        if size <= 0 or position + LOG_OVERHEAD_BYTES + size > len(data):
            break
        end = position + LOG_OVERHEAD_BYTES + size
        if read_header(data, position).crc != crc32c(data[position + _CHECKED_FROM : end]):
            break
        position = end
    return data[:position]


def last_offset(batches: bytes) -> int:
    """Return the offset of the last record; -1 without records."""
    view, position, last = memoryview(batches), 0, -1
    while position < len(view):
        header = read_header(view, position)
        position, last = position + header.batch_length + LOG_OVERHEAD_BYTES, header.last_offset
    return last
