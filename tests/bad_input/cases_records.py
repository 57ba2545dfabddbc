"""Items 19 to 23: Produce requests that are well formed around records that are not.

`NONE` marks batches that look odd and are accepted. Where Kafka answers UNKNOWN_SERVER_ERROR or
stores batches that its consumers cannot read, the row says so; docs/formats/record-batch.md has the
reasons.
"""

from collections.abc import Iterator
from functools import partial
from itertools import chain

import cramjam

from penstock.protocol.error_codes import ErrorCode
from penstock.records.compression import compress
from tests.bad_input.batches import (
    COMPACTED,
    HEADER_BYTES,
    LARGE,
    SMALL,
    SMALL_BATCH_BYTES,
    changed,
    good,
    packed,
    produce,
    record,
    sealed,
    with_section,
)
from tests.bad_input.case import MEBIBYTE, NOT_COMPARED, Case, NotCompared
from tests.bad_input.wire import int32, zigzag

CORRUPT = ErrorCode.CORRUPT_MESSAGE
INVALID = ErrorCode.INVALID_RECORD
UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR
CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
BOMB_BYTES = 136 * MEBIBYTE
"""Just above what one batch may unfold to."""

STORES = "Kafka stores it: see docs/formats/record-batch.md"
ID_FIRST = "Kafka asks for the transactional id before it looks at the batch"
NO_CODE = "Kafka has no code for it and answers UNKNOWN_SERVER_ERROR"


def envelopes() -> Iterator[Case]:
    """Item 19: checksum, magic, lengths, number of batches."""
    batch = good()
    damaged = bytearray(batch)
    damaged[-1] ^= 1
    rows: list[tuple[str, bytes | None, ErrorCode]] = [
        ("CRC of another batch", changed(batch, crc=0x12345678), CORRUPT),
        ("one bit of the records turned", bytes(damaged), CORRUPT),
        ("magic 0", changed(batch, magic=0), INVALID),
        ("magic 1", changed(batch, magic=1), INVALID),
        ("magic 3", changed(batch, magic=3), CORRUPT),
        ("magic 127", changed(batch, magic=127), CORRUPT),
        ("magic -1", changed(batch, magic=-1), CORRUPT),
        ("length 48", changed(batch, length=48), CORRUPT),
        ("length 13", changed(batch, length=13), CORRUPT),
        ("length 0", changed(batch, length=0), CORRUPT),
        ("length -1", changed(batch, length=-1), CORRUPT),
        ("length -2^31", changed(batch, length=-(2**31)), CORRUPT),
        ("length past the field", changed(batch, length=len(batch) - 11), INVALID),
        ("length 2^31-1", changed(batch, length=2**31 - 1), INVALID),
        ("no records", b"", INVALID),
        ("null records", None, INVALID),
        ("11 bytes", batch[:11], INVALID),
        ("16 bytes", batch[:16], INVALID),
        ("60 bytes", batch[: HEADER_BYTES - 1], INVALID),
        ("a header without records", batch[:HEADER_BYTES], INVALID),
        ("zeros", bytes(200), CORRUPT),
        ("two batches", batch + batch, INVALID),
    ]
    kafka: dict[str, tuple[ErrorCode | NotCompared, str]] = {
        "length 2^31-1": (UNKNOWN, NO_CODE),
        "null records": (NOT_COMPARED, "Kafka never answers it"),
    }
    for name, records, expected in rows:
        theirs, why = kafka.get(name, (None, ""))
        yield Case(
            item=19, name=name, data=produce(records), expected=expected, kafka=theirs, why=why
        )
    yield Case(
        item=19,
        name="half a batch behind a whole one",
        data=produce(batch + batch[:40]),
        expected=ErrorCode.NONE,
        grows_log=True,
    )


def counts_and_lengths() -> Iterator[Case]:
    """Item 20: numbers inside the batch that contradict its bytes."""
    for count, delta in ((0, -1), (0, 0), (-1, -2), (1, 1), (3, 2), (2**31 - 1, 2**31 - 2)):
        records = sealed(good(), record_count=count, last_offset_delta=delta)
        yield Case(
            item=20,
            name=f"{count} records with last delta {delta}",
            data=produce(records),
            expected=INVALID,
        )
    sections: list[tuple[str, bytes]] = [
        ("record longer than the batch", record(length=1_000)),
        ("record shorter than its parts", record(length=5)),
        ("record of length 0", record(length=0)),
        ("record of length -1", record(length=-1)),
        ("record of length 2^31-1", record(length=2**31 - 1)),
        ("key past the record", record(key=zigzag(500) + b"key")),
        ("key of 2^31-1", record(key=zigzag(2**31 - 1) + b"key")),
        ("value past the record", record(value=zigzag(500) + b"value")),
        ("2^31-1 headers", record(headers=zigzag(2**31 - 1))),
        ("-1 headers", record(headers=zigzag(-1))),
        ("3 headers that are not there", record(headers=zigzag(3))),
        ("header without a key", record(headers=zigzag(1) + zigzag(-1) + zigzag(-1))),
        ("header key past the record", record(headers=zigzag(1) + zigzag(99) + b"k")),
        ("nothing", b""),
        ("a byte behind the last record", record() + b"\x00"),
        ("timestamp of 11 bytes", record(timestamp_delta=b"\x80" * 10 + b"\x00")),
        ("length of 6 bytes", b"\x80" * 5 + b"\x00" + record()),
    ]
    for name, section in sections:
        is_long = name == "length of 6 bytes"
        yield Case(
            item=20,
            name=name,
            data=produce(with_section(section)),
            expected=INVALID,
            kafka=UNKNOWN if is_long else None,
            why=NO_CODE if is_long else "",
        )
    for deltas in ((1, 0), (0, 0), (0, 2), (1, 2), (-1, 0)):
        section = b"".join(record(offset_delta=delta) for delta in deltas)
        yield Case(
            item=20,
            name=f"offset deltas {deltas}",
            data=produce(with_section(section, count=2)),
            expected=INVALID,
            kafka=NOT_COMPARED,
            why=STORES,
        )
    for codec, name in CODECS.items():
        yield Case(
            item=20,
            name=f"{name}, a record that lies",
            data=produce(packed(record(length=1_000), codec=codec)),
            expected=INVALID,
            kafka=ErrorCode.NONE,
            why=STORES,
        )


def forbidden() -> Iterator[Case]:
    """Item 21: what only a broker may say."""
    batch = good()
    rows: list[tuple[str, bytes, ErrorCode, str]] = [
        ("control batch", sealed(batch, attributes=0x20), INVALID, ""),
        (
            "control batch of a transaction",
            sealed(batch, attributes=0x30),
            INVALID,
            ID_FIRST,
        ),
        ("delete horizon", sealed(batch, attributes=0x40), INVALID, STORES),
        (
            "LogAppendTime",
            sealed(batch, attributes=0x08),
            ErrorCode.INVALID_TIMESTAMP,
            STORES,
        ),
        ("base offset 1", changed(batch, base_offset=1), INVALID, ""),
        ("base offset -1", changed(batch, base_offset=-1), INVALID, ""),
        ("base offset 2^63-1", changed(batch, base_offset=2**63 - 1), INVALID, ""),
        (
            "producer id without a sequence",
            sealed(batch, producer_id=5, producer_epoch=0, base_sequence=-1),
            INVALID,
            "",
        ),
        (
            "producer id without an epoch",
            sealed(batch, producer_id=5, producer_epoch=-1, base_sequence=0),
            INVALID,
            STORES,
        ),
        ("transaction without a producer", sealed(batch, attributes=0x10), INVALID, STORES),
    ]
    for name, records, expected, why in rows:
        yield Case(
            item=21,
            name=name,
            data=produce(records),
            expected=expected,
            kafka=NOT_COMPARED if why else None,
            why=why,
        )


def packing() -> Iterator[Case]:
    """Item 22: payloads that do not unfold, or should not have come."""
    for codec in (5, 6, 7):
        yield Case(
            item=22,
            name=f"codec {codec}",
            data=produce(sealed(good(), attributes=codec)),
            expected=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            kafka=UNKNOWN,
            why=NO_CODE,
        )
    for version in (3, 6):
        yield Case(
            item=22,
            name=f"zstd in Produce v{version}",
            data=produce(good(codec=4), version=version),
            expected=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )
    for codec, name in CODECS.items():
        whole = good(codec=codec, size=5_000)
        yield Case(
            item=22,
            name=f"{name}, cut in half",
            data=produce(sealed(whole[: HEADER_BYTES + (len(whole) - HEADER_BYTES) // 2])),
            expected=CORRUPT,
            kafka=NOT_COMPARED,
            why=NO_CODE,
        )
        for filler in (b"\xff", b"garbage "):
            yield Case(
                item=22,
                name=f"{name}, {filler!r} for a payload",
                data=produce(with_section(filler * 40, codec=codec)),
                expected=CORRUPT,
                kafka=NOT_COMPARED,
                why=NO_CODE,
            )
    yield from _snappy()
    yield from _joined_frames()


def _snappy() -> Iterator[Case]:
    head = b"\x82SNAPPY\x00" + int32(1) + int32(1)
    for length in (2**31 - 1, -1, 0):
        yield Case(
            item=22,
            name=f"snappy block of length {length}",
            data=produce(with_section(head + int32(length) + bytes(20), codec=2)),
            expected=CORRUPT,
            kafka=NOT_COMPARED,
            why=NO_CODE,
        )
    raw = b"\xff\xff\xff\xff\x0f" + bytes(20)
    for name, section in (("raw", raw), ("xerial", head + int32(len(raw)) + raw)):
        yield Case(
            item=22,
            name=f"snappy, {name}, that declares 4 GiB",
            data=produce(with_section(section, codec=2)),
            expected=ErrorCode.MESSAGE_TOO_LARGE,
            kafka=NOT_COMPARED,
            why=NO_CODE,
        )


def _joined_frames() -> Iterator[Case]:
    records = record() + record(offset_delta=1)
    half = len(records) // 2
    for codec, name in CODECS.items():
        section = compress(codec, records[:half]) + compress(codec, records[half:])
        is_lz4 = name == "lz4"
        yield Case(
            item=22,
            name=f"{name}, two frames",
            data=produce(with_section(section, count=2, codec=codec)),
            expected=CORRUPT if is_lz4 else ErrorCode.NONE,
            kafka=NOT_COMPARED if is_lz4 else None,
            why="Kafka reads the first lz4 frame only" if is_lz4 else "",
            grows_log=not is_lz4,
        )


def refused_by_settings() -> Iterator[Case]:
    """Item 23: good batches that the topic or the request forbids."""
    yield Case(
        item=23,
        name="batch above max.message.bytes",
        data=produce(good(1, size=SMALL_BATCH_BYTES), topic=SMALL),
        expected=ErrorCode.MESSAGE_TOO_LARGE,
    )
    for acks in (7, 2, -2, 32_767):
        yield Case(
            item=23,
            name=f"acks {acks}",
            data=produce(good(), acks=acks),
            expected=ErrorCode.INVALID_REQUIRED_ACKS,
        )
    latest = 2**63 - 1
    yield Case(
        item=23,
        name="timestamp in the year 292278994",
        data=produce(sealed(good(), base_timestamp=latest, max_timestamp=latest)),
        expected=ErrorCode.INVALID_TIMESTAMP,
    )
    yield Case(
        item=23,
        name="timestamp that overflows",
        data=produce(
            sealed(
                with_section(record(timestamp_delta=zigzag(1))),
                base_timestamp=latest,
                max_timestamp=latest,
            )
        ),
        expected=ErrorCode.INVALID_TIMESTAMP,
        kafka=NOT_COMPARED,
        why="in Java the sum wraps to the distant past",
    )
    yield Case(
        item=23,
        name="timestamp -5",
        data=produce(sealed(good(), base_timestamp=-5, max_timestamp=-5)),
        expected=ErrorCode.NONE,
        grows_log=True,
    )
    yield Case(
        item=23,
        name="no key on a compacted topic",
        data=produce(with_section(record(key=zigzag(-1))), topic=COMPACTED),
        expected=INVALID,
    )


def bombs() -> Iterator[Case]:
    """Item 22: a small batch that unfolds to more than any batch may."""

    def bomb(name: str) -> bytes:
        records = record(value=zigzag(BOMB_BYTES) + bytes(BOMB_BYTES))
        if name == "zstd without a size":
            # Written as a stream, whose length was unknown at its start.
            stream = cramjam.zstd.Compressor()
            stream.compress(records)
            batch = with_section(bytes(stream.finish()), codec=4)
        else:
            codec = next(number for number, known in CODECS.items() if known == name)
            batch = packed(records, codec=codec)
        return produce(batch, topic=LARGE)

    for name in (*CODECS.values(), "zstd without a size"):
        yield Case(
            item=22,
            name=f"{name}, bomb",
            data=partial(bomb, name),
            expected=ErrorCode.MESSAGE_TOO_LARGE,
            kafka=NOT_COMPARED,
            why="Kafka unfolds it",
            # The allocator keeps the first, smaller buffers it gave; a second bomb takes no more.
            memory_bytes_max=48 * MEBIBYTE,
        )


CASES: list[Case] = list(
    chain(envelopes(), counts_and_lengths(), forbidden(), packing(), refused_by_settings())
)
BOMBS: list[Case] = list(bombs())
