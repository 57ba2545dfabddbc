"""Every decoder of records: any bytes are accepted or raise the one declared error.

Each `fuzz_…` function takes bytes and can be passed to a fuzzer directly; the tests below feed them
with damaged batches from a fixed seed, because purely random bytes never get past the header.
"""

import contextlib
import random
import struct
from collections.abc import Callable

import pytest

from penstock.core.errors import CorruptBatchError, RecordsError
from penstock.records import compression
from penstock.records.batch import HEADER_BYTES, iterate_headers, patch_max_timestamp, read_header
from penstock.records.builder import build_batch, read_records
from penstock.records.control import Marker, build_marker, read_marker
from penstock.records.record import Header, Record
from penstock.records.validation import ProduceRules, validate_produced

NOW = 1_700_000_000_000
OUTPUT_BYTES_MAX = 65_536
ROUNDS = 400


def fuzz_headers(data: bytes) -> None:
    """Iteration over batches: only `CorruptBatchError`, and never past the end."""
    try:
        for position, header in iterate_headers(data):
            assert position + header.size_bytes <= len(data)
    except CorruptBatchError:
        pass


def fuzz_decompress(data: bytes) -> None:
    """The first byte chooses the codec; what comes out is within the bound."""
    codec = data[0] % 5 if data else 0
    try:
        output = compression.decompress(codec, data[1:], OUTPUT_BYTES_MAX)
    except RecordsError:
        return
    assert len(memoryview(output)) <= OUTPUT_BYTES_MAX


def fuzz_read_records(data: bytes) -> None:
    """A batch as objects, also when its checksum is right."""
    for candidate in (data, sealed(data)):
        try:
            records = read_records(candidate)
        except RecordsError:
            continue
        assert len(records) == read_header(candidate).record_count


def fuzz_read_marker(data: bytes) -> None:
    """A control batch."""
    with contextlib.suppress(RecordsError):
        read_marker(sealed(data))


def fuzz_validate(data: bytes) -> None:
    """What a producer sends; whatever is accepted can be read and is accepted again, unchanged."""
    for rules in (
        ProduceRules(1_048_588, decompressed_bytes_max=OUTPUT_BYTES_MAX),
        ProduceRules(1_048_588, compacted=True, timestamp_type=1, codec=4),
    ):
        for candidate in (data, sealed(data)):
            try:
                found = validate_produced(
                    memoryview(bytearray(candidate)),
                    topic_limits=rules,
                    produce_version=11,
                    now_ms=NOW,
                )
            except RecordsError:
                continue
            records = read_records(found.buffer)
            assert [record.offset for record in records] == list(range(len(records)))
            if rules.timestamp_type == 0:
                before = bytes(found.buffer)
                again = validate_produced(
                    found.buffer, topic_limits=rules, produce_version=11, now_ms=NOW
                )
                assert again.buffer == before


def sealed(data: bytes) -> bytes:
    """The same with length and checksum made right, so that the walk behind them is reached."""
    if len(data) < HEADER_BYTES:
        return data
    batch = bytearray(data)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    patch_max_timestamp(batch, 0, read_header(batch), read_header(batch).max_timestamp_ms)
    return bytes(batch)


def seeds(chance: random.Random) -> bytes:
    """A valid batch, or a marker, or a compressed stream behind its codec."""
    kind = chance.randrange(8)
    if kind == 0:
        return bytes(
            build_marker(Marker(True, 3), producer_id=1, producer_epoch=0, timestamp_ms=NOW)
        )
    if kind == 1:
        codec = chance.randrange(5)
        content = chance.randbytes(chance.randrange(40)) * chance.randrange(1, 2000)
        return bytes((codec,)) + compression.compress(codec, content)
    records = [
        Record(
            chance.choice([None, b"", b"key"]),
            chance.choice([None, b"v" * chance.randrange(100)]),
            tuple(Header("h", None) for _ in range(chance.randrange(3))),
            NOW + chance.randrange(100),
        )
        for _ in range(chance.randrange(1, 5))
    ]
    return bytes(build_batch(records, codec=chance.choice([0, 0, 0, 1, 2, 3, 4])))


def damaged(data: bytes, chance: random.Random) -> bytes:
    output = bytearray(data)
    for _ in range(chance.randrange(4)):
        position = chance.randrange(len(output))
        match chance.randrange(4):
            case 0:
                output[position] ^= 1 << chance.randrange(8)
            case 1:
                output[position] = chance.choice([0, 1, 0x7F, 0x80, 0xFE, 0xFF])
            case 2:
                output[position:position] = chance.randbytes(chance.randrange(1, 6))
            case _:
                del output[position : position + chance.randrange(1, 6)]
        if not output:
            break
    return bytes(output)


TARGETS = [fuzz_headers, fuzz_decompress, fuzz_read_records, fuzz_read_marker, fuzz_validate]


@pytest.mark.parametrize("target", TARGETS)
def test_damaged_input(target: Callable[[bytes], None]) -> None:
    chance = random.Random(20)
    for _ in range(ROUNDS):
        target(damaged(seeds(chance), chance))


@pytest.mark.parametrize("target", TARGETS)
def test_random_input(target: Callable[[bytes], None]) -> None:
    chance = random.Random(21)
    for _ in range(ROUNDS):
        target(chance.randbytes(chance.randrange(100)))


def _batches() -> list[bytes]:
    records = [
        Record(b"key", b"v" * 50, (Header("h", b"x"), Header("n", None)), NOW + number)
        for number in range(4)
    ]
    return [bytes(build_batch(records, codec=codec)) for codec in range(5)]


_BATCHES = _batches()
_MARKER = bytes(build_marker(Marker(True, 3), producer_id=1, producer_epoch=0, timestamp_ms=NOW))
CORPUS: dict[str, list[bytes]] = {
    "fuzz_headers": [*_BATCHES, b"".join(_BATCHES)],
    "fuzz_decompress": [
        bytes((codec,)) + compression.compress(codec, content)
        for codec in range(5)
        for content in (b"", b"abc" * 10, bytes(5_000), random.Random(1).randbytes(900))
    ],
    "fuzz_read_records": [*_BATCHES, _MARKER],
    "fuzz_read_marker": [_MARKER],
    "fuzz_validate": [*_BATCHES, _MARKER],
}
"""Valid inputs by target."""


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_is_taken(target: Callable[[bytes], None]) -> None:
    for data in CORPUS[target.__name__]:
        target(data)
