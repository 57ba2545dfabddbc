"""Walking over the batches in a buffer: lengths and offsets only, no header objects. Pure.

A walk step reads 27 bytes of a header: base offset, length and last offset delta. Reads of the log
need no more to keep batches whole; recovery needs more and uses `records.batch`.
"""

from struct import Struct
from typing import Final, NamedTuple

from typing_extensions import Buffer

from penstock.core.errors import CorruptBatchError
from penstock.core.limits import STORED_BATCH_BYTES_MAX
from penstock.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES

STEP: Final = Struct(">qi11xi")
STEP_BYTES: Final = STEP.size
BASE_OFFSET: Final = Struct(">q")
_LENGTH_MIN: Final = HEADER_BYTES - LOG_OVERHEAD_BYTES


class Walk(NamedTuple):
    """The end of a walk."""

    size: int
    """Bytes of whole batches that were passed."""
    next_offset: int
    """Offset after the last of them, or -1 when there was none."""


def batch_bytes(length: int) -> int:
    """Size of a batch by its length field; `CorruptBatchError` when that is impossible."""
    if not _LENGTH_MIN <= length <= STORED_BATCH_BYTES_MAX:
        raise CorruptBatchError(f"a batch in the log has length {length}")
    return length + LOG_OVERHEAD_BYTES


def whole_batches(buffer: Buffer, start: int, end: int) -> Walk:
    """Pass the batches that lie wholly in `buffer[start:end]`; a batch begins at `start`."""
    position, next_offset = start, -1
    unpack = STEP.unpack_from
    while end - position >= STEP_BYTES:
        base_offset, length, delta = unpack(buffer, position)
        size = batch_bytes(length)
        if position + size > end:
            break
        position += size
        next_offset = base_offset + delta + 1
    return Walk(position - start, next_offset)


def find_offset(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Pass the batches that end before `offset`.

    Returns the position of the first batch that reaches it and that batch's base offset. When no
    header in the buffer does, the base offset is -1 and the walk has to continue at the position,
    which may lie behind the buffer.
    """
    position, end = 0, len(memoryview(buffer))
    while end - position >= STEP_BYTES:
        base_offset, length, delta = STEP.unpack_from(buffer, position)
        if base_offset + delta >= offset:
            return position, base_offset
        position += batch_bytes(length)
    return position, -1
