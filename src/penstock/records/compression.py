"""The four compression codecs of record batches in one table, with a bound on the output.

    id  codec   bytes in a batch                                       library
    0   none    the records as they are                                -
    1   gzip    RFC 1952 members                                       cramjam, zlib
    2   snappy  xerial frames (Java, librdkafka) or one raw block      cramjam
    3   lz4     one LZ4 frame with independent blocks: Java's reader   cramjam
                knows no others and stops after the first
    4   zstd    zstandard frames                                       cramjam

Guarantees: `decompress` returns at most `output_bytes_max` bytes or raises `BatchTooLargeError`,
and never uses much more memory than that, whatever size the input declares. A declared size is used
as a first guess or refused when it is above the bound; it is never trusted. Damaged and truncated
input raises `CorruptBatchError`; so do bytes after the last frame, which some readers skip and
others refuse. Frames that follow each other are one stream, except for lz4. `compress` stops as
soon as its output passes a bound, which limits its cost.

It is not a streaming reader: the whole result is one buffer, because the records are scanned in it.
"""

import zlib
from collections.abc import Callable, Generator
from mmap import mmap
from struct import Struct
from typing import Final, NamedTuple

import cramjam
from typing_extensions import Buffer

from penstock.core.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    UnsupportedCompressionError,
)
from penstock.core.limits import COMPACTION_PIECE_BYTES

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODEC_NAMES: Final[tuple[str, ...]] = ("none", "gzip", "snappy", "lz4", "zstd")
"""Names by codec id, as in `compression.type`; for `none` a topic has `uncompressed`."""

_GZIP_WINDOW_BITS: Final = 31
_GZIP_BYTES_MIN: Final = 18
"""Header and trailer of an empty member."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + bytes((0, 0, 0, 1, 0, 0, 0, 1))
_XERIAL_HEADER_BYTES: Final = 16
_XERIAL_BLOCK_BYTES: Final = 32_768
_INT32: Final = Struct(">i")
_SNAPPY_RATIO_MAX: Final = 32
"""A snappy copy of three bytes expands to at most 64, so no block expands more than 22 times. A
block that declares more is invalid and must not cost an allocation."""

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_FRAME_BYTES_MIN: Final = 11
_LZ4_INDEPENDENT_BLOCKS: Final = 0x20
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_LENGTH: Final = Struct("<I")
_LZ4_LEVEL: Final = 1
"""The fast compressor, as in Kafka; levels above 1 use the slow one, four times slower here."""

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_LEVEL: Final = 3
"""Kafka's and zstandard's own default."""

_GUESS_RATIO: Final = 8
_GUESS_BYTES_MIN: Final = 16_384
_GROWTH: Final = 4
"""Each failed guess is repeated from the start with a buffer four times as large: at most a third
of the final work is wasted."""

_MAPPED_BYTES_MIN: Final = 4_194_304
"""Buffers from this size on are mapped. A smaller one is filled within a millisecond."""

_PIECE_BYTES: Final = 262_144
"""Bytes compressed at a time: some milliseconds, in which some codecs hold the interpreter."""

_UNBOUNDED: Final = 2**63 - 1

_OUTPUT_FULL: Final = "failed to write whole buffer"
"""The message of cramjam for a too small output; a test pins the words."""


def compress(codec: int, data: Buffer, output_bytes_max: int = _UNBOUNDED) -> bytes:
    """`data` in the given codec, or `BatchTooLargeError` when it needs more bytes than the bound.

    Above the size of a piece the bound is checked after each piece: data that does not become small
    enough costs a few pieces of work and not the whole.
    """
    output = _codec(codec).compress(memoryview(data), output_bytes_max)
    if len(output) > output_bytes_max:
        raise _compressed_too_large(output_bytes_max)
    return output


def compress_pieces(codec: int, data: Buffer) -> Generator[None, None, bytes]:
    """As `compress`, but for a large section, in steps: the caller may rest or stop in between.

    gzip takes seconds for 128 MiB, and lz4 holds the interpreter. The others are fast and release
    it, so they are one step.
    """
    view = memoryview(data)
    if codec == GZIP:
        gzip, output = zlib.compressobj(wbits=_GZIP_WINDOW_BITS), bytearray()
        for start in range(0, len(view), COMPACTION_PIECE_BYTES):
            output += gzip.compress(view[start : start + COMPACTION_PIECE_BYTES])
            yield None
        return bytes(output + gzip.flush())
    if codec == LZ4:
        compressor = _lz4_compressor()
        for start in range(0, len(view), COMPACTION_PIECE_BYTES):
            compressor.compress(bytes(view[start : start + COMPACTION_PIECE_BYTES]))
            yield None
        return bytes(compressor.finish())
    return compress(codec, data)


def decompress(codec: int, data: Buffer, output_bytes_max: int) -> Buffer:
    """Decompress `data`: at most `output_bytes_max` bytes."""
    assert output_bytes_max >= 0
    return _codec(codec).decompress(memoryview(data), output_bytes_max)


def is_known(codec: int) -> bool:
    """Whether a codec of this id exists."""
    return 0 <= codec < len(_CODECS)


def _buffer(size: int) -> bytearray | memoryview:
    """A buffer for decompressed data.

    Python fills a new `bytearray` with zeros and holds the interpreter meanwhile, 60 ms and more
    for 128 MiB. A mapping is filled by the kernel when the codec writes to it, without the
    interpreter, and is returned to the system as a whole.
    """
    return bytearray(size) if size < _MAPPED_BYTES_MIN else memoryview(mmap(-1, size))


def _too_large(output_bytes_max: int) -> BatchTooLargeError:
    return BatchTooLargeError(f"the batch unfolds to more than {output_bytes_max} bytes")


def _compressed_too_large(output_bytes_max: int) -> BatchTooLargeError:
    return BatchTooLargeError(f"the batch needs more than {output_bytes_max} bytes compressed")


def _compress_pieces(
    data: memoryview,
    piece: Callable[[bytes], Buffer],
    finish: Callable[[], Buffer],
    output_bytes_max: int,
) -> bytes:
    """Compress piece by piece; ends early when the output is above the bound."""
    parts: list[bytes] = []
    size_bytes = 0
    for start in range(0, len(data), _PIECE_BYTES):
        parts.append(bytes(piece(bytes(data[start : start + _PIECE_BYTES]))))
        size_bytes += len(parts[-1])
        if size_bytes > output_bytes_max:
            raise _compressed_too_large(output_bytes_max)
    parts.append(bytes(finish()))
    return b"".join(parts)


def _starts_with(data: memoryview, position: int, magic: bytes) -> bool:
    return bytes(data[position : position + len(magic)]) == magic


def _compress_none(data: memoryview, output_bytes_max: int) -> bytes:
    if len(data) > output_bytes_max:
        raise _compressed_too_large(output_bytes_max)
    return bytes(data)


def _decompress_none(data: memoryview, output_bytes_max: int) -> Buffer:
    if len(data) > output_bytes_max:
        raise _too_large(output_bytes_max)
    return data


def _compress_gzip(data: memoryview, output_bytes_max: int) -> bytes:
    if len(data) <= _PIECE_BYTES:
        return zlib.compress(data, wbits=_GZIP_WINDOW_BITS)
    compressor = zlib.compressobj(wbits=_GZIP_WINDOW_BITS)
    return _compress_pieces(data, compressor.compress, compressor.flush, output_bytes_max)


def _decompress_gzip(data: memoryview, output_bytes_max: int) -> Buffer:
    # The last four bytes are the size of the last member, modulo 2^32.
    declared_size = int.from_bytes(data[-4:], "little") if len(data) >= _GZIP_BYTES_MIN else 0
    return _decompress_growing(
        "gzip",
        cramjam.gzip.decompress_into,
        data,
        min(declared_size, output_bytes_max),
        output_bytes_max,
    )


def _compress_snappy(data: memoryview, output_bytes_max: int) -> bytes:
    parts = [_XERIAL_HEADER]
    size_bytes = _XERIAL_HEADER_BYTES
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
        size_bytes += _INT32.size + len(block)
        if size_bytes > output_bytes_max:
            raise _compressed_too_large(output_bytes_max)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, output_bytes_max: int) -> Buffer:
    """A xerial stream or a single raw block: sizes are summed first, for one allocation."""
    if not data:
        raise CorruptBatchError("snappy: empty input")
    blocks = _xerial_blocks(data) if _starts_with(data, 0, _XERIAL_MAGIC) else [data]
    sizes = [_snappy_block_size(block) for block in blocks]
    total = sum(sizes)
    if total > output_bytes_max:
        raise _too_large(output_bytes_max)
    output = _buffer(total)
    view = memoryview(output)
    position = 0
    try:
        for block, size in zip(blocks, sizes, strict=True):
            target = view[position : position + size]
            if size and cramjam.snappy.decompress_raw_into(block, target) != size:
                raise CorruptBatchError("snappy: a block is shorter than it declares")
            position += size
    except cramjam.DecompressionError as error:
        raise CorruptBatchError(f"snappy: {error}") from error
    return output


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    """The compressed blocks of all xerial streams in `data`, one after another."""
    if len(data) < _XERIAL_HEADER_BYTES:
        raise CorruptBatchError("snappy: truncated header")
    blocks = []
    position = _XERIAL_HEADER_BYTES
    while position < len(data):
        if _starts_with(data, position, _XERIAL_MAGIC):
            position += _XERIAL_HEADER_BYTES
            continue
        if len(data) - position < _INT32.size:
            raise CorruptBatchError("snappy: truncated block length")
        (length,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        if not 0 < length <= len(data) - position:
            raise CorruptBatchError(f"snappy: block length {length}")
        blocks.append(data[position : position + length])
        position += length
    if position != len(data):
        raise CorruptBatchError("snappy: truncated header")
    return blocks


def _snappy_block_size(block: memoryview) -> int:
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise CorruptBatchError(f"snappy: {error}") from error
    if size > _SNAPPY_RATIO_MAX * len(block):
        raise BatchTooLargeError(f"snappy: {len(block)} bytes declare to unfold to {size}")
    return size


def _lz4_compressor() -> "cramjam.lz4.Compressor":
    return cramjam.lz4.Compressor(level=_LZ4_LEVEL, block_linked=False, content_checksum=False)


def _compress_lz4(data: memoryview, output_bytes_max: int) -> bytes:
    compressor = _lz4_compressor()
    if len(data) <= _PIECE_BYTES:
        compressor.compress(bytes(data))
        return bytes(compressor.finish())

    def piece(part: bytes) -> Buffer:
        compressor.compress(part)
        return compressor.flush()

    return _compress_pieces(data, piece, compressor.finish, output_bytes_max)


def _decompress_lz4(data: memoryview, output_bytes_max: int) -> Buffer:
    frame_bytes, block_count = _lz4_frame(data)
    if frame_bytes != len(data):
        raise CorruptBatchError("lz4: not exactly one frame")
    if data[4] & _LZ4_CONTENT_SIZE:
        size = int.from_bytes(data[6:14], "little")
    else:
        # No block expands to more than the maximum that the frame declares: 64 KiB to 4 MiB.
        size = min(block_count << (8 + 2 * (data[5] >> 4 & 0x07)), output_bytes_max)
    return _decompress_growing("lz4", cramjam.lz4.decompress_into, data, size, output_bytes_max)


def _lz4_frame(data: memoryview) -> tuple[int, int]:
    """Size of the first frame, more than `data` has when it is cut, and how many blocks it has."""
    if len(data) < _LZ4_FRAME_BYTES_MIN or not _starts_with(data, 0, _LZ4_MAGIC):
        raise CorruptBatchError("lz4: no frame")
    flags = data[4]
    if not flags & _LZ4_INDEPENDENT_BLOCKS:
        raise CorruptBatchError("lz4: linked blocks, which Kafka's clients cannot read")
    position = 7 + (8 if flags & _LZ4_CONTENT_SIZE else 0) + (4 if flags & 0x01 else 0)
    block_extra_bytes = 4 + (4 if flags & 0x10 else 0)
    block_count = 0
    while position + 4 <= len(data):
        (length,) = _LZ4_LENGTH.unpack_from(data, position)
        if length == 0:
            return position + 4 + (4 if flags & 0x04 else 0), block_count
        position += block_extra_bytes + (length & 0x7FFFFFFF)
        block_count += 1
    return position + 4, block_count


def _compress_zstd(data: memoryview, output_bytes_max: int) -> bytes:
    if len(data) <= _PIECE_BYTES:
        return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))
    compressor = cramjam.zstd.Compressor(level=_ZSTD_LEVEL)

    def piece(part: bytes) -> Buffer:
        compressor.compress(part)
        return compressor.flush()

    return _compress_pieces(data, piece, compressor.finish, output_bytes_max)


def _decompress_zstd(data: memoryview, output_bytes_max: int) -> Buffer:
    return _decompress_growing(
        "zstd", cramjam.zstd.decompress_into, data, _zstd_declared_size(data), output_bytes_max
    )


def _zstd_declared_size(data: memoryview) -> int:
    """The content size in the first frame's header, or -1 when it has none."""
    if len(data) < 18 or not _starts_with(data, 0, _ZSTD_MAGIC):
        return -1
    descriptor = data[4]
    is_single_segment = bool(descriptor & 0x20)
    size_flag = descriptor >> 6
    if size_flag == 0 and not is_single_segment:
        return -1
    position = 5 + (0 if is_single_segment else 1) + (0, 1, 2, 4)[descriptor & 0x03]
    size = int.from_bytes(data[position : position + (1, 2, 4, 8)[size_flag]], "little")
    return size + 256 if size_flag == 1 else size


def _decompress_growing(
    name: str,
    decompress_into: Callable[[memoryview, Buffer], int],
    data: memoryview,
    declared_size: int,
    output_bytes_max: int,
) -> Buffer:
    """Decompress into a fixed buffer; when it is full, restart with a larger one, up to the bound.

    The declared size decides only how large the first buffer is, within a limit that depends on the
    input's own size: eight bytes must not allocate a hundred megabytes.
    """
    if declared_size > output_bytes_max:
        raise _too_large(output_bytes_max)
    likely = max(_GUESS_BYTES_MIN, _GUESS_RATIO * len(data))
    # One byte at least, because growth from zero would never end.
    size = max(1, min(declared_size, likely * _GROWTH)) if declared_size >= 0 else likely
    while True:
        size = min(size, output_bytes_max)
        output = _buffer(size)
        try:
            written = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise CorruptBatchError(f"{name}: {error}") from error
            if size == output_bytes_max:
                raise _too_large(output_bytes_max) from error
            size *= _GROWTH
        else:
            return output if written == size else memoryview(output)[:written]


class _Codec(NamedTuple):
    compress: Callable[[memoryview, int], bytes]
    decompress: Callable[[memoryview, int], Buffer]


_CODECS: Final = (
    _Codec(_compress_none, _decompress_none),
    _Codec(_compress_gzip, _decompress_gzip),
    _Codec(_compress_snappy, _decompress_snappy),
    _Codec(_compress_lz4, _decompress_lz4),
    _Codec(_compress_zstd, _decompress_zstd),
)
assert len(_CODECS) == len(CODEC_NAMES)


def _codec(codec: int) -> _Codec:
    if not is_known(codec):
        raise UnsupportedCompressionError(f"there is no compression codec {codec}")
    return _CODECS[codec]
