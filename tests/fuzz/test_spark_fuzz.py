"""The kernels of Spark: for any bytes the result is that of the plain decoder, or the reference.

Each `fuzz_…` function takes bytes and can be passed to a fuzzer directly. A compiled kernel that
reads or writes outside of its buffers shows here as a crash or as rows that differ.
"""

import functools
import random
from collections.abc import Callable

import pyarrow as pa
import pytest

from penstock.core.errors import RecordsError
from penstock.records.batch import read_header
from penstock.records.record import Header, Record
from penstock.spark.decode.columns import BatchDecoder
from penstock.spark.decode.reference import ReferenceDecoder
from penstock.spark.encode.encoder import BatchEncoder
from tests.spark.decode.batches import (
    NOW,
    Aborted,
    marker,
    random_log,
    random_record,
    sealed,
    stored_batch,
)
from tests.spark.tables import avro_kernels, protobuf_kernels
from tests.spark.tables.json_kernels import FLAT, ODD_DOCUMENTS, REQUIRED, check, odd_document
from tests.spark.tables.test_avro_kernel import ORDERS
from tests.spark.tables.test_protobuf_kernel import message

OUTPUT_BYTES_MAX = 65_536
ROUNDS = 200
ABORTED = [Aborted(1, 0), Aborted(2, 3)]

Columns = tuple[list[bytes | None], list[bytes | None], list[int], list[int]]


def decoded(data: bytes, *, is_read_committed: bool) -> Columns | type[Exception]:
    decoder = BatchDecoder(
        "t",
        0,
        0,
        2**40,
        include_headers=True,
        is_read_committed=is_read_committed,
        rows_max=5,
        bytes_max=400,
        decompressed_bytes_max=OUTPUT_BYTES_MAX,
    )
    try:
        batches = [*decoder.feed(memoryview(data), ABORTED), *decoder.finish()]
    except RecordsError as error:
        return type(error)
    for batch in batches:
        batch.validate(full=True)
    rows = pa.Table.from_batches(batches, batches[0].schema) if batches else None
    if rows is None:
        return [], [], [], []
    lengths = [0 if headers is None else len(headers) for headers in rows["headers"].to_pylist()]
    return rows["key"].to_pylist(), rows["value"].to_pylist(), rows["offset"].to_pylist(), lengths


def expected(data: bytes, *, is_read_committed: bool) -> Columns | type[Exception]:
    decoder = ReferenceDecoder(
        "t",
        0,
        0,
        2**40,
        is_read_committed=is_read_committed,
        decompressed_bytes_max=OUTPUT_BYTES_MAX,
    )
    try:
        rows = list(decoder.rows(data, ABORTED))
    except RecordsError as error:
        return type(error)
    return (
        [row.key for row in rows],
        [row.value for row in rows],
        [row.offset for row in rows],
        [len(row.headers or ()) for row in rows],
    )


def fuzz_spark_decode(data: bytes) -> None:
    """Fetched bytes as they are, and with the checksum of the first batch made right."""
    for candidate in (data, sealed(data)):
        for is_read_committed in (False, True):
            assert decoded(candidate, is_read_committed=is_read_committed) == expected(
                candidate, is_read_committed=is_read_committed
            )


def fuzz_spark_round_trip(data: bytes) -> None:
    """Rows cut out of the bytes, written by one kernel and read by the other."""
    chance = random.Random(data)
    cuts = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randrange(40)))
    values = [data[start:end] or None for start, end in zip([0, *cuts], [*cuts, None], strict=True)]
    keys = [chance.choice([None, value]) for value in values]
    encoder = BatchEncoder(
        "t",
        1,
        codec=chance.randrange(5),
        batch_bytes_max=chance.choice([1, 300, 100_000]),
        buffered_bytes_max=chance.choice([1, 1_000, 100_000]),
    )
    batches = list(
        encoder.add(
            key=pa.array(keys, pa.binary()), value=pa.array(values, pa.binary()), timestamp_ms=NOW
        )
    )
    batches += encoder.finish()
    log = bytearray()
    offset = 0
    for batch in batches:
        batch.data[:8] = offset.to_bytes(8, "big")
        assert read_header(batch.data).record_count == batch.record_count
        offset += batch.record_count
        log += batch.data
    numbers = list(range(len(values)))
    assert decoded(bytes(log), is_read_committed=False) == (keys, values, numbers, [0] * offset)


def fuzz_spark_json(data: bytes) -> None:
    """Values of a table: one in each line, and some that are cut."""
    lines: list[bytes | None] = [*data.split(b"\n")]
    values = [*lines, data, data[: len(data) // 2], None]
    for ddl in (FLAT, REQUIRED):
        check(ddl, values, is_compiled=True)


def fuzz_spark_avro(data: bytes) -> None:
    """Values of a table: pieces of the input, by a schema that its first byte chooses."""
    check_avro(AVRO_SCHEMAS[data[0] % len(AVRO_SCHEMAS)] if data else ORDERS, pieces_of(data))


def fuzz_spark_protobuf(data: bytes) -> None:
    """The same with messages."""
    chosen = data[0] % len(MESSAGES) if data else 0
    check_protobuf(MESSAGES[chosen], pieces_of(data))


def pieces_of(data: bytes) -> list[bytes]:
    """Values, which end at bytes that are rare in short numbers and texts."""
    body = data[1:]
    return [body, body[: len(body) // 2], *body.split(b"\xfe")]


check_avro = functools.partial(avro_kernels.check, is_compiled=True)
check_protobuf = functools.partial(protobuf_kernels.check, is_compiled=True)
AVRO_SCHEMAS = [ORDERS, *(avro_kernels.schema_of(random.Random(seed)) for seed in range(20))]
MESSAGES = [
    message(),
    *(protobuf_kernels.Messages(random.Random(seed), "proto3").descriptor() for seed in range(20)),
]
TARGETS = [
    fuzz_spark_decode,
    fuzz_spark_round_trip,
    fuzz_spark_json,
    fuzz_spark_avro,
    fuzz_spark_protobuf,
]
_RECORDS = [
    Record(b"key", b"v" * 50, (Header("h", b"x"), Header("n", None)), NOW + number)
    for number in range(4)
]
_BATCHES = [stored_batch(_RECORDS, codec=codec) for codec in range(5)]
_TRANSACTION = stored_batch(
    [Record(value=b"v"), Record()], producer_id=1, transactional=True
) + marker(2, 1, is_commit=False)
CORPUS: dict[str, list[bytes]] = {
    "fuzz_spark_decode": [*_BATCHES, _BATCHES[0] + _TRANSACTION, _TRANSACTION],
    "fuzz_spark_round_trip": [b"", bytes(range(256)), bytes(3_000)],
    "fuzz_spark_json": [
        b"\n".join(ODD_DOCUMENTS),
        *(
            b"\n".join(odd_document(random.Random(100 * seed + line)) or b"" for line in range(8))
            for seed in range(20)
        ),
    ],
    "fuzz_spark_avro": [
        bytes([number]) + avro_kernels.bytes_of(schema, random.Random(number), odd=0)
        for number, schema in enumerate(AVRO_SCHEMAS)
    ],
    "fuzz_spark_protobuf": [
        bytes([number]) + protobuf_kernels.bytes_of(one, random.Random(number), 0)
        for number, one in enumerate(MESSAGES)
    ],
}
"""Valid inputs by target."""


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_is_taken(target: Callable[[bytes], None]) -> None:
    for data in CORPUS[target.__name__]:
        target(data)


@pytest.mark.parametrize("target", TARGETS)
def test_damaged_input(target: Callable[[bytes], None]) -> None:
    chance = random.Random(22)
    for _ in range(ROUNDS):
        data = bytearray(random_log(chance, 1).data or stored_batch([random_record(chance)]))
        for _ in range(chance.randrange(3)):
            data[chance.randrange(len(data))] = chance.choice([0, 1, 0x7F, 0x80, 0xFE, 0xFF])
        target(bytes(data))
