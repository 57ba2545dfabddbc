"""Each codec: round trips, the bound, bombs, damage, frames after frames, others' framing."""

import tracemalloc
import zlib

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    UnsupportedCompressionError,
)
from penstock.records.compression import (
    CODEC_NAMES,
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    compress,
    decompress,
    is_known,
)

REAL_CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
MEBIBYTE = 1 << 20
XERIAL_HEADER = b"\x82SNAPPY\x00" + bytes((0, 0, 0, 1, 0, 0, 0, 1))
SAMPLES = [b"", b"x", b"abc" * 50_000, bytes(300_000), zlib.compress(bytes(range(256)) * 99)]


def unfold(codec: int, data: bytes, output_bytes_max: int = MEBIBYTE) -> bytes:
    return bytes(decompress(codec, data, output_bytes_max))


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("data", SAMPLES, ids=len)
def test_round_trip_within_exactly_the_bound(codec: int, data: bytes) -> None:
    packed = compress(codec, memoryview(data))
    assert unfold(codec, packed, len(data)) == data
    assert unfold(codec, packed) == data
    assert bytes(decompress(codec, memoryview(bytearray(packed)), MEBIBYTE)) == data


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("data", SAMPLES[1:], ids=len)
def test_one_byte_above_the_bound_is_too_large(codec: int, data: bytes) -> None:
    with pytest.raises(BatchTooLargeError):
        decompress(codec, compress(codec, data), len(data) - 1)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(REAL_CODECS), st.binary(max_size=500), st.integers(1, 200))
def test_round_trip_of_anything(codec: int, data: bytes, repeat: int) -> None:
    assert unfold(codec, compress(codec, data * repeat)) == data * repeat


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_a_bomb_costs_no_more_memory_than_the_bound(codec: int) -> None:
    bomb = compress(codec, bytes(16 * MEBIBYTE))
    tracemalloc.start()
    try:
        with pytest.raises(BatchTooLargeError):
            decompress(codec, bomb, MEBIBYTE)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 3 * MEBIBYTE


def test_zstd_bomb_that_declares_its_size_is_refused_unread() -> None:
    header = b"\x28\xb5\x2f\xfd" + b"\xa0" + (256 * MEBIBYTE).to_bytes(4, "little")
    with pytest.raises(BatchTooLargeError):
        decompress(ZSTD, header + bytes(20), 128 * MEBIBYTE)


@pytest.mark.parametrize("declared", ["ffffffff07", "ffffffff0f", "80808040"])
@pytest.mark.parametrize("xerial", [True, False])
def test_snappy_declared_length_allocates_nothing(declared: str, xerial: bool) -> None:
    block = bytes.fromhex(declared) + b"\x00x"
    data = XERIAL_HEADER + len(block).to_bytes(4, "big") + block if xerial else block
    tracemalloc.start()
    try:
        with pytest.raises(BatchTooLargeError):
            decompress(SNAPPY, data, 2**31)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < MEBIBYTE


@pytest.mark.parametrize("length", [2**31 - 1, -(2**31), -1, 0, 8])
def test_snappy_block_length_that_lies(length: int) -> None:
    data = XERIAL_HEADER + length.to_bytes(4, "big", signed=True) + b"\x01\x00x"
    with pytest.raises(CorruptBatchError):
        decompress(SNAPPY, data, MEBIBYTE)


def test_snappy_raw_block_is_read() -> None:
    assert unfold(SNAPPY, bytes(cramjam.snappy.compress_raw(b"hello" * 9))) == b"hello" * 9


def test_snappy_blocks_are_small_enough_for_java() -> None:
    packed = compress(SNAPPY, bytes(100_000))
    assert packed.startswith(XERIAL_HEADER)
    first = int.from_bytes(packed[16:20], "big")
    assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + first]) == 32_768


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, ZSTD])
def test_frames_after_each_other_are_one_stream(codec: int) -> None:
    packed = compress(codec, b"one") + compress(codec, b"") + compress(codec, b"two")
    assert unfold(codec, packed) == b"onetwo"


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, ZSTD])
def test_bound_holds_over_all_frames(codec: int) -> None:
    with pytest.raises(BatchTooLargeError):
        decompress(codec, compress(codec, b"12345") * 3, 14)


def test_lz4_takes_one_frame_like_javas_reader() -> None:
    with pytest.raises(CorruptBatchError, match="exactly one frame"):
        decompress(LZ4, compress(LZ4, b"one") + compress(LZ4, b"two"), MEBIBYTE)


def test_lz4_refuses_linked_blocks_like_javas_reader() -> None:
    with pytest.raises(CorruptBatchError, match="linked"):
        decompress(LZ4, bytes(cramjam.lz4.compress(b"abc" * 99)), MEBIBYTE)


def test_lz4_is_written_with_independent_blocks() -> None:
    assert compress(LZ4, b"abc")[4] & 0x20


@pytest.mark.parametrize("content_checksum", [True, False])
def test_lz4_with_a_content_checksum_is_read(content_checksum: bool) -> None:
    compressor = cramjam.lz4.Compressor(block_linked=False, content_checksum=content_checksum)
    compressor.compress(b"abc" * 99)
    assert unfold(LZ4, bytes(compressor.finish())) == b"abc" * 99


@pytest.mark.parametrize("codec", REAL_CODECS)
@pytest.mark.parametrize("data", [b"", b"hello hello hello hello", bytes(70_000)], ids=len)
def test_every_cut_is_corrupt(codec: int, data: bytes) -> None:
    packed = compress(codec, data)
    # Less than xerial's magic reads as a raw block; xerial's header alone is a stream of nothing.
    start = 17 if codec == SNAPPY else 0
    for length in range(start, min(len(packed), 200)):
        with pytest.raises(CorruptBatchError):
            decompress(codec, packed[:length], MEBIBYTE)


@pytest.mark.parametrize("length", range(8, 16))
def test_cut_xerial_header_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptBatchError):
        decompress(SNAPPY, XERIAL_HEADER[:length], MEBIBYTE)


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_bytes_after_the_last_frame_are_corrupt(codec: int) -> None:
    with pytest.raises(CorruptBatchError):
        decompress(codec, compress(codec, b"hello") + b"rubbish", MEBIBYTE)


@pytest.mark.parametrize("codec", [-1, 5, 6, 7])
def test_unknown_codec(codec: int) -> None:
    assert not is_known(codec)
    with pytest.raises(UnsupportedCompressionError):
        decompress(codec, b"", 1)
    with pytest.raises(UnsupportedCompressionError):
        compress(codec, b"")


def test_names_are_kafkas() -> None:
    assert CODEC_NAMES == ("none", "gzip", "snappy", "lz4", "zstd")
    assert all(is_known(codec) for codec in range(len(CODEC_NAMES)))


@pytest.mark.parametrize("module", [cramjam.gzip, cramjam.lz4, cramjam.zstd])
def test_library_still_says_so_when_the_output_is_full(module: object) -> None:
    packed = bytes(module.compress(bytes(1000)))  # type: ignore[attr-defined]
    with pytest.raises(cramjam.DecompressionError, match="failed to write whole buffer"):
        module.decompress_into(packed, bytearray(10))  # type: ignore[attr-defined]


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_declared_size_that_is_too_small_is_not_believed(codec: int) -> None:
    # The size in a gzip trailer is that of the last member; in zstd, that of the first frame.
    first, last = (bytes(200_000), b"x") if codec == GZIP else (b"x", bytes(200_000))
    assert unfold(codec, compress(codec, first) + compress(codec, last)) == first + last
