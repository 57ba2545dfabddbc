"""`SealedBatches`: the stored batches of a split, unchanged, from leased files.

Guarantees: chunks of whole batches in order, each with the aborted transactions that apply to it,
as a Fetch answer has them. A chunk is returned only if its file still had its name after it was
read: the broker removes the name before it changes or removes bytes. If a name is gone or bytes are
missing, `SealedGoneError` is raised; no chunk is returned twice, so its reader continues through
Fetch at its next offset.

It does NOT check checksums or decode: `decode.columns` does. Memory is bounded by one chunk, or by
one batch that is larger.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple

from penstock.core.errors import CorruptBatchError, PenstockError
from penstock.core.limits import STORED_BATCH_BYTES_MAX
from penstock.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES
from penstock.spark.planning import SealedPart, SealedSplit

CHUNK_BYTES: Final = 8_388_608
"""Bytes of a read: those of a fetch."""
_OFFSET_AND_LENGTH: Final = Struct(">qi")
_LENGTH_MIN: Final = HEADER_BYTES - LOG_OVERHEAD_BYTES
_STEP: Final = Struct(">qi11xi")
"""Base offset, length, and the delta of the last offset."""


class SealedGoneError(PenstockError):
    """The lease of a file ended before it was read."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction, as a Fetch answer has it."""

    producer_id: int
    first_offset: int


class Chunk(NamedTuple):
    """Whole batches."""

    data: memoryview
    aborted: tuple[AbortedTransaction, ...]


class SealedBatches:
    """Reads the parts of one split."""

    def __init__(self, split: SealedSplit, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._split = split
        self._chunk_bytes = chunk_bytes

    def __iter__(self) -> Iterator[Chunk]:
        """Return the chunks of all parts."""
        for part in self._split.parts:
            yield from self._part(part)

    def _part(self, part: SealedPart) -> Iterator[Chunk]:
        try:
            descriptor = os.open(part.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise SealedGoneError(f"{part.path} cannot be opened: {error.strerror}") from error
        try:
            _advise(descriptor, part)
            position, next_offset = part.begin, part.base_offset
            while position < part.end:
                data = self._read(descriptor, part, position, self._chunk_bytes)
                found = _whole(data, part, position, next_offset)
                if found.size == 0:
                    wanted = _size_of_first(data, part.path, position)
                    data = self._read(descriptor, part, position, wanted)
                    found = _whole(data, part, position, next_offset)
                    if found.size == 0:
                        raise CorruptBatchError(
                            f"{part.path}: the batch at {position} ends behind {part.end}"
                        )
                yield Chunk(data[: found.size], self._aborted(found))
                position += found.size
                next_offset = found.last_offset + 1
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int, part: SealedPart, position: int, size: int) -> memoryview:
        """Return up to `size` bytes before the end of the part, which the file had by its name."""
        view = memoryview(bytearray(min(size, part.end - position)))
        filled = 0
        while filled < len(view):
            try:
                count = os.preadv(descriptor, [view[filled:]], position + filled)
            except OSError as error:
                raise SealedGoneError(f"{part.path} cannot be read: {error.strerror}") from error
            if count == 0:
                raise SealedGoneError(f"{part.path} ends at {position + filled}, not {part.end}")
            filled += count
        _require_name(descriptor, part.path)
        return view

    def _aborted(self, found: "_Whole") -> tuple[AbortedTransaction, ...]:
        """Return the transactions with records in these batches, or with a marker there.

        One that ended before must not be named: its producer may have written again.
        """
        return tuple(
            AbortedTransaction(producer_id, first)
            for producer_id, first, marker in self._split.aborted
            if first <= found.last_offset and marker >= found.first_offset
        )


class _Whole(NamedTuple):
    """The whole batches at the start of a chunk."""

    size: int
    first_offset: int
    last_offset: int


def _whole(data: memoryview, part: SealedPart, position: int, next_offset: int) -> _Whole:
    """Return the whole batches; raise unless their offsets rise within those of the segment.

    Offsets are not in the checksum of a batch, and a wrong one would lose or repeat records.
    """
    at, first_offset = 0, -1
    while len(data) - at >= HEADER_BYTES:
        base_offset, length, delta = _STEP.unpack_from(data, at)
        last_offset = base_offset + delta
        is_in_order = next_offset <= base_offset <= last_offset < part.next_offset
        if length < _LENGTH_MIN or not is_in_order:
            raise CorruptBatchError(
                f"{part.path}: there is no batch of offsets {next_offset} to {part.next_offset} at "
                f"{position + at}"
            )
        stop = at + LOG_OVERHEAD_BYTES + length
        if stop > len(data):
            break
        if first_offset < 0:
            first_offset = base_offset
        at, next_offset = stop, last_offset + 1
    return _Whole(at, first_offset, next_offset - 1)


def _size_of_first(data: memoryview, path: str, position: int) -> int:
    """Return the size of a batch that is larger than a chunk."""
    if len(data) < HEADER_BYTES:
        raise CorruptBatchError(f"{path}: {len(data)} bytes at {position} are not a batch")
    _, length = _OFFSET_AND_LENGTH.unpack_from(data)
    size = LOG_OVERHEAD_BYTES + int(length)
    if size > STORED_BATCH_BYTES_MAX:
        raise CorruptBatchError(
            f"{path}: a batch of {size} bytes at {position}, the limit is {STORED_BATCH_BYTES_MAX}"
        )
    return size


def _advise(descriptor: int, part: SealedPart) -> None:
    """Ask the system to read ahead; not every system can (macOS), and none has to."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(
                descriptor, part.begin, part.end - part.begin, os.POSIX_FADV_SEQUENTIAL
            )


def _require_name(descriptor: int, path: str) -> None:
    """Raise unless the path still is a name of the open file."""
    try:
        named, held = os.stat(path), os.fstat(descriptor)
    except OSError as error:
        raise SealedGoneError(f"{path} was removed while it was read") from error
    if (named.st_ino, named.st_dev) != (held.st_ino, held.st_dev):
        raise SealedGoneError(f"{path} is another file than before")
