"""Expensive batches: work that the event loop refuses, and the memory that an error keeps.

A client chooses the unfolded size of its batch and its number of records. With `on_loop` a check
stops before the work (`HeavyBatchError`); a recompression stops when its result is too large; and
an error refers to nothing that was unfolded.
"""

import gc
import os
import struct
import zlib

import cramjam
import pytest

from penstock.core.errors import BatchTooLargeError, RecordsError
from penstock.core.limits import (
    BLAMED_ON_LOOP_RECORDS_MAX,
    RECOMPRESS_ON_LOOP_BYTES_MAX,
    RECORDS_PER_BATCH_MAX,
    UNFOLD_ON_LOOP_BYTES_MAX,
)
from penstock.records import compression, scan, validation
from penstock.records.batch import CRC_START, HEADER_BYTES, patch_checksum
from penstock.records.builder import build_batch
from penstock.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress, decompress
from penstock.records.crc32c import checksum
from penstock.records.record import Record
from penstock.records.validation import (
    HeavyBatchError,
    ProduceRules,
    UnfoldAllowance,
    validate_produced,
)

MEBIBYTE = 1_048_576
RULES = ProduceRules(batch_bytes_max=MEBIBYTE)
CODECS = (GZIP, SNAPPY, LZ4, ZSTD)


def records(count: int, value: bytes, key: bytes | None = b"k") -> list[Record]:
    return [Record(key, value, (), 0) for _ in range(count)]


def validated(
    data: bytes | bytearray,
    rules: ProduceRules = RULES,
    allowance: UnfoldAllowance | None = None,
    *,
    on_loop: bool = True,
) -> validation.ValidatedBatch:
    return validate_produced(
        memoryview(bytearray(data)),
        topic_limits=rules,
        produce_version=8,
        now_ms=0,
        allowance=allowance,
        on_loop=on_loop,
    )


def bomb(unfolded_bytes: int) -> bytes:
    """A batch of few bytes whose payload is zeros, which are not records."""
    data = build_batch(records(1, b""), codec=ZSTD)[:HEADER_BYTES]
    data += cramjam.zstd.compress(bytes(unfolded_bytes))
    struct.pack_into(">i", data, 8, len(data) - 12)
    patch_checksum(data, 0, checksum(memoryview(data)[CRC_START:]))
    return bytes(data)


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_unfolds_to_much_is_left_to_a_worker(codec: int) -> None:
    data = build_batch(records(10, bytes(UNFOLD_ON_LOOP_BYTES_MAX // 10)), codec=codec)
    allowance = UnfoldAllowance()
    before = allowance.left_bytes
    with pytest.raises(HeavyBatchError):
        validated(data, allowance=allowance)
    assert allowance.left_bytes == before
    assert validated(data, allowance=allowance, on_loop=False).buffer == data
    assert allowance.left_bytes < before - UNFOLD_ON_LOOP_BYTES_MAX


@pytest.mark.parametrize("codec", CODECS)
def test_the_usual_batch_is_checked_on_the_loop(codec: int) -> None:
    data = build_batch(records(100, bytes(100)), codec=codec)
    allowance = UnfoldAllowance()
    before = allowance.left_bytes
    assert validated(data, allowance=allowance).buffer == data
    assert before - UNFOLD_ON_LOOP_BYTES_MAX < allowance.left_bytes < before


def test_no_more_than_the_bound_is_unfolded_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds: list[int] = []

    def note(codec: int, data: memoryview, output_bytes_max: int) -> object:
        bounds.append(output_bytes_max)
        return decompress(codec, data, output_bytes_max)

    monkeypatch.setattr(validation, "decompress", note)
    with pytest.raises(HeavyBatchError):
        validated(bomb(8 * MEBIBYTE))
    assert bounds == [UNFOLD_ON_LOOP_BYTES_MAX]


@pytest.mark.uncompiled
def test_a_large_plain_batch_is_left_to_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uncompiled the bound is lower; both are bounds of bytes, because a record may be 7 bytes."""
    monkeypatch.setattr(validation, "_SCAN_ON_LOOP", 1_000)
    assert validated(build_batch(records(1, bytes(900)))).header.record_count == 1
    data = build_batch(records(1, bytes(1_000)))
    with pytest.raises(HeavyBatchError):
        validated(data)
    assert validated(data, on_loop=False).header.record_count == 1


def test_a_large_recompression_is_left_to_a_worker() -> None:
    rules = ProduceRules(batch_bytes_max=MEBIBYTE, codec=GZIP)
    assert validated(build_batch(records(1, bytes(1_000))), rules).header.codec == GZIP
    data = build_batch(records(1, bytes(RECOMPRESS_ON_LOOP_BYTES_MAX)))
    with pytest.raises(HeavyBatchError):
        validated(data, rules)
    assert validated(data, rules, on_loop=False).header.codec == GZIP


def test_many_bad_records_are_named_by_a_worker() -> None:
    rules = ProduceRules(batch_bytes_max=MEBIBYTE, compacted=True)
    few = build_batch(records(BLAMED_ON_LOOP_RECORDS_MAX, b"", key=None))
    with pytest.raises(RecordsError) as told:
        validated(few, rules)
    assert len(told.value.blamed) == BLAMED_ON_LOOP_RECORDS_MAX
    many = build_batch(records(BLAMED_ON_LOOP_RECORDS_MAX + 1, b"", key=None))
    with pytest.raises(HeavyBatchError):
        validated(many, rules)
    with pytest.raises(RecordsError) as told:
        validated(many, rules, on_loop=False)
    assert len(told.value.blamed) == BLAMED_ON_LOOP_RECORDS_MAX + 1


def test_the_number_of_records_is_read_from_the_header_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compressed or not: nothing is unfolded and nothing is walked over."""
    monkeypatch.setattr(validation, "decompress", None)
    monkeypatch.setattr(scan, "scan_records", None)
    for codec in (NONE, ZSTD):
        data = build_batch(records(1, b""), codec=codec)
        struct.pack_into(">i", data, 23, RECORDS_PER_BATCH_MAX)
        struct.pack_into(">i", data, 57, RECORDS_PER_BATCH_MAX + 1)
        patch_checksum(data, 0, checksum(memoryview(data)[CRC_START:]))
        with pytest.raises(RecordsError, match="at most 1000000 are allowed"):
            validated(data)


# --- Recompression ---


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 262_144, 262_145, 1_000_000])
def test_data_of_any_size_comes_back(codec: int, size: int) -> None:
    data = (os.urandom(1_000) + bytes(1_000)) * (size // 2_000 + 1)
    data = data[:size]
    packed = compress(codec, data)
    assert bytes(decompress(codec, packed, size)) == data
    assert compress(codec, data, len(packed)) == packed
    with pytest.raises(BatchTooLargeError, match=str(len(packed) - 1)):
        compress(codec, data, len(packed) - 1)


def test_a_recompression_that_does_not_fit_stops_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards `compress`: 120 MiB of noise took 4.6 s of gzip and was refused afterwards."""
    pieces = []

    class Counted:
        def __init__(self, wbits: int) -> None:
            self._real = zlib.compressobj(wbits=wbits)

        def compress(self, data: bytes) -> bytes:
            pieces.append(len(data))
            return self._real.compress(data)

        def flush(self) -> bytes:
            return self._real.flush()

    class Library:
        compressobj = Counted

    monkeypatch.setattr(compression, "zlib", Library)
    with pytest.raises(BatchTooLargeError):
        compress(GZIP, os.urandom(4 * MEBIBYTE), MEBIBYTE // 2)
    assert sum(pieces) <= MEBIBYTE


def test_a_batch_that_is_too_large_plain_is_not_copied() -> None:
    rules = ProduceRules(batch_bytes_max=MEBIBYTE, codec=NONE)
    data = build_batch(records(1, bytes(2 * MEBIBYTE)), codec=ZSTD)
    with pytest.raises(BatchTooLargeError, match=r"1048576 bytes after recompression"):
        validated(data, rules, on_loop=False)


# --- The memory of an error ---


def test_an_error_keeps_nothing_of_what_was_unfolded() -> None:
    """Guards `validate_produced`: thirty refused batches of 4 KB held 3.9 GB, uncompiled."""
    cases = (
        (bomb(100_000), RULES),
        (bomb(100_000)[:-4], RULES),
        (build_batch(records(1, bytes(100_000)), codec=ZSTD), ProduceRules(1_000, codec=NONE)),
        (build_batch(records(3, bytes(1_000), key=None), codec=GZIP), ProduceRules(9_999, True)),
    )
    for data, rules in cases:
        with pytest.raises(RecordsError) as told:
            validated(data, rules, on_loop=False)
        error = told.value
        assert error.__cause__ is None
        assert error.__context__ is None
        trace, names = error.__traceback__, []
        while trace is not None:
            names.append(trace.tb_frame.f_code.co_name)
            trace = trace.tb_next
        assert "validate_produced" in names
        assert names.index("validate_produced") == len(names) - 1, names


def test_a_refused_batch_leaves_no_cycle() -> None:
    """Else it stays until the garbage collector runs, which is rare in the broker."""
    data = bomb(100_000)
    with pytest.raises(RecordsError):
        validated(data)
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for _ in range(5):
            try:
                validated(data)
            except RecordsError:
                continue
        assert gc.collect() == 0
    finally:
        gc.enable()
