"""`BatchDecoder` by hand: each rule with a log that shows it, compiled and uncompiled."""

import struct
from collections.abc import Sequence
from types import ModuleType

import pyarrow as pa
import pytest

import penstock.spark.decode.columns as compiled
from penstock.core.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidTimestampError,
    UnsupportedCompressionError,
)
from penstock.records.record import Header, Record
from penstock.spark.decode import kernel
from tests.spark.decode.batches import NOW, Aborted, marker, sealed, stored_batch
from tests.spark.decode.uncompiled import uncompiled_columns

UNCOMPILED = uncompiled_columns()
BOTH = pytest.mark.parametrize("module", [compiled, UNCOMPILED], ids=["compiled", "uncompiled"])


def decoder(
    module: ModuleType, from_offset: int = 0, until_offset: int = 1_000, **options: int
) -> compiled.BatchDecoder:
    settings = {"include_headers": False, "is_read_committed": False, **options}
    made: compiled.BatchDecoder = module.BatchDecoder(
        "orders", 3, from_offset, until_offset, **settings
    )
    return made


def table(one: compiled.BatchDecoder, *fetches: bytes, aborted: Sequence[Aborted] = ()) -> pa.Table:
    """All rows of these fetches, with times as numbers."""
    batches = [batch for data in fetches for batch in one.feed(memoryview(data), aborted)]
    batches += one.finish()
    for batch in batches:
        batch.validate(full=True)
    found = pa.Table.from_batches(batches, schema=None if batches else one._schema)
    return found.set_column(5, "timestamp", found["timestamp"].cast(pa.int64()))


def values(*numbers: int) -> list[Record]:
    return [Record(None, b"%d" % number, (), NOW + number) for number in numbers]


def offsets(found: pa.Table) -> list[int]:
    numbers: list[int] = found["offset"].to_pylist()
    return numbers


@BOTH
def test_the_columns_of_a_record(module: ModuleType) -> None:
    records = [Record(b"k", b"v", (), NOW), Record(None, None, (), NOW + 1)]
    assert table(decoder(module), stored_batch(records, base_offset=7)).to_pylist() == [
        {
            "key": key,
            "value": value,
            "topic": "orders",
            "partition": 3,
            "offset": 7 + index,
            "timestamp": (NOW + index) * 1000,
            "timestampType": 0,
        }
        for index, (key, value) in enumerate([(b"k", b"v"), (None, None)])
    ]


@BOTH
def test_headers(module: ModuleType) -> None:
    records = [
        Record(headers=(Header("same", b"1"), Header("same", None), Header("", b""))),
        Record(headers=()),
        Record(headers=(Header("größe", "ü".encode()),)),
    ]
    data = stored_batch(records)
    found = table(decoder(module, include_headers=True), data)
    assert found["headers"].to_pylist() == [
        [
            {"key": "same", "value": b"1"},
            {"key": "same", "value": None},
            {"key": "", "value": b""},
        ],
        None,
        [{"key": "größe", "value": "ü".encode()}],
    ]
    assert "headers" not in table(decoder(module), data).schema.names


@BOTH
def test_a_header_key_that_is_not_utf8_is_shown_with_replacements(module: ModuleType) -> None:
    data = stored_batch([Record(headers=(Header("abcd", b"x"),) * 2)])
    hostile = sealed(data.replace(b"abcd", b"\xff\xfe\x80d"))
    found = table(decoder(module, include_headers=True), hostile)
    assert found["headers"].to_pylist() == [[{"key": "\ufffd\ufffd\ufffdd", "value": b"x"}] * 2]


@BOTH
def test_the_brokers_time_counts_where_it_does(module: ModuleType) -> None:
    data = stored_batch(values(1, 2), append_time_ms=NOW + 99)
    found = table(decoder(module), data)
    assert found["timestamp"].to_pylist() == [(NOW + 99) * 1000] * 2
    assert found["timestampType"].to_pylist() == [1, 1]


@BOTH
def test_a_record_without_a_time_is_just_before_1970_as_in_spark(module: ModuleType) -> None:
    found = table(decoder(module), stored_batch([Record(timestamp_ms=-1)]))
    assert found["timestamp"].to_pylist() == [-1000]
    assert found["timestampType"].to_pylist() == [0]


@BOTH
def test_a_delete_horizon_is_the_base_of_times_too(module: ModuleType) -> None:
    found = table(decoder(module), stored_batch(values(0, 4), delete_horizon=True))
    assert found["timestamp"].to_pylist() == [NOW * 1000, (NOW + 4) * 1000]


@BOTH
@pytest.mark.parametrize("time", [2**63 // 1000 + 1, -(2**63 // 1000) - 1])
def test_a_time_beyond_microseconds_has_a_named_error(module: ModuleType, time: int) -> None:
    data = stored_batch([*values(0), Record(timestamp_ms=time)], base_offset=5)
    with pytest.raises(InvalidTimestampError, match=r"orders-3, batch at offset 5: record 1 of 2"):
        table(decoder(module), data)
    # A reader that skips the record gets no error.
    assert offsets(table(decoder(module, 0, 6), data)) == [5]
    assert offsets(table(decoder(module, 7), data)) == []


@BOTH
@pytest.mark.parametrize("time", [2**63 // 1000, -(2**63 // 1000)])
def test_the_last_times_that_fit(module: ModuleType, time: int) -> None:
    found = table(decoder(module), stored_batch([Record(timestamp_ms=time)]))
    assert found["timestamp"].to_pylist() == [time * 1000]


@BOTH
@pytest.mark.parametrize("codec", range(5))
def test_every_codec(module: ModuleType, codec: int) -> None:
    data = stored_batch(values(*range(40)), codec=codec)
    assert table(decoder(module), data)["value"].to_pylist() == [b"%d" % n for n in range(40)]


@BOTH
def test_what_unfolds_is_bounded(module: ModuleType) -> None:
    data = stored_batch([Record(value=bytes(100_000))], codec=4)
    with pytest.raises(BatchTooLargeError, match="orders-3, batch at offset 0"):
        table(decoder(module, decompressed_bytes_max=50_000), data)


@BOTH
def test_the_range_begins_and_ends_within_batches(module: ModuleType) -> None:
    data = stored_batch(values(0, 1, 2, 3)) + stored_batch(values(4, 5, 6), base_offset=4)
    one = decoder(module, 2, 6)
    assert offsets(table(one, data)) == [2, 3, 4, 5]
    assert one.next_offset == 6


@BOTH
def test_nothing_comes_twice_when_a_batch_is_fetched_again(module: ModuleType) -> None:
    first = stored_batch(values(0, 1, 2))
    second = stored_batch(values(3, 4), base_offset=3)
    one = decoder(module)
    assert offsets(table(one, first + second[:-1], first + second, second)) == [0, 1, 2, 3, 4]
    assert one.next_offset == 5


@BOTH
def test_a_cut_batch_is_left_for_the_next_fetch(module: ModuleType) -> None:
    whole = stored_batch(values(0, 1))
    cut = stored_batch(values(2), base_offset=2)
    for size in (0, 1, 16, 17, 60, 61, len(cut) - 1):
        one = decoder(module)
        assert offsets(table(one, whole + cut[:size])) == [0, 1]
        assert one.next_offset == 2


@BOTH
def test_compaction_leaves_gaps(module: ModuleType) -> None:
    data = stored_batch(values(1, 5), base_offset=10, deltas=[1, 5], last_offset_delta=8)
    data += stored_batch([], base_offset=20, last_offset_delta=3)
    one = decoder(module)
    assert offsets(table(one, data)) == [11, 15]
    assert one.next_offset == 24
    # A gap may reach over the end of the range, within a batch and between two.
    for until in (17, 19, 22):
        one = decoder(module, 0, until)
        assert offsets(table(one, data)) == [11, 15]
        assert one.next_offset == until


@BOTH
def test_aborted_transactions_are_passed_over_when_committed_ones_are_read(
    module: ModuleType,
) -> None:
    data = (
        stored_batch(values(0), base_offset=0, producer_id=1, transactional=True)
        + stored_batch(values(1), base_offset=1, producer_id=2, transactional=True)
        + stored_batch(values(2), base_offset=2, producer_id=1)
        + marker(3, 1, is_commit=False)
        + stored_batch(values(4), base_offset=4, producer_id=1, transactional=True)
        + marker(5, 2, is_commit=True)
        + marker(6, 1, is_commit=True)
    )
    aborted = [Aborted(producer_id=1, first_offset=0)]
    one = decoder(module, is_read_committed=True)
    # The batch at 2 is of the same producer and no part of its transaction.
    assert offsets(table(one, data, aborted=aborted)) == [1, 2, 4]
    assert one.next_offset == 7
    assert (one.control_records_skipped, one.aborted_records_skipped) == (3, 1)
    one = decoder(module)
    assert offsets(table(one, data, aborted=aborted)) == [0, 1, 2, 4]
    assert (one.control_records_skipped, one.aborted_records_skipped) == (3, 0)


@BOTH
def test_what_a_fetch_names_as_aborted_is_not_aborted_before_it_begins(module: ModuleType) -> None:
    data = stored_batch(values(0), producer_id=1, transactional=True) + stored_batch(
        values(1, 2), base_offset=1, producer_id=1, transactional=True
    )
    one = decoder(module, is_read_committed=True)
    # As in Kafka, it begins with the batch that holds its first offset.
    assert offsets(table(one, data, aborted=[Aborted(1, 2)])) == [0]


@BOTH
def test_aborted_transactions_of_one_fetch_say_nothing_of_the_next(module: ModuleType) -> None:
    first = stored_batch(values(0), producer_id=1, transactional=True)
    second = stored_batch(values(1), base_offset=1, producer_id=1, transactional=True)
    one = decoder(module, is_read_committed=True)
    rows = [*one.feed(first, [Aborted(1, 0)]), *one.feed(second, []), *one.finish()]
    assert offsets(pa.Table.from_batches(rows)) == [1]


@BOTH
def test_rows_and_bytes_of_a_batch_are_bounded(module: ModuleType) -> None:
    records = [Record(b"k" * 10, b"v" * 90, (), NOW)] * 25
    data = stored_batch(records)
    one = decoder(module, rows_max=4)
    sizes = [batch.num_rows for batch in [*one.feed(data), *one.finish()]]
    assert sizes == [4, 4, 4, 4, 4, 4, 1]
    one = decoder(module, bytes_max=1_000)
    assert [batch.num_rows for batch in [*one.feed(data), *one.finish()]] == [10, 10, 5]
    one = decoder(module, bytes_max=99)
    assert [batch.num_rows for batch in [*one.feed(data), *one.finish()]] == [1] * 25


@BOTH
def test_rows_of_several_fetches_are_collected(module: ModuleType) -> None:
    one = decoder(module)
    assert list(one.feed(stored_batch(values(0)))) == []
    assert list(one.feed(stored_batch(values(1), base_offset=1))) == []
    (batch,) = one.finish()
    assert batch.num_rows == 2
    assert list(one.finish()) == []


@BOTH
def test_buffers_grow_for_large_records_and_many_headers(module: ModuleType) -> None:
    records = [
        Record(b"k" * 200_000, b"v" * 300_000, (Header("h", b"x" * 100_000),) * 2, NOW),
        Record(b"q", b"w" * 3_000_000, (Header("name" * 30_000, b"x"),), NOW),
        Record(None, b"", tuple(Header("", None) for _ in range(3_000)), NOW),
    ]
    found = table(decoder(module, include_headers=True), stored_batch(records)).to_pylist()
    assert [row["key"] for row in found] == [record.key for record in records]
    assert [row["value"] for row in found] == [record.value for record in records]
    assert [[(h["key"], h["value"]) for h in row["headers"]] for row in found] == [
        list(record.headers) for record in records
    ]


@BOTH
def test_one_large_record_does_not_make_all_later_buffers_large(module: ModuleType) -> None:
    one = decoder(module, bytes_max=1_000)
    large = stored_batch([Record(b"k", bytes(8_000_000))])
    assert [batch.num_rows for batch in [*one.feed(large), *one.finish()]] == [1]
    before = pa.total_allocated_bytes()
    assert list(one.feed(stored_batch(values(1), base_offset=1))) == []
    assert 0 < pa.total_allocated_bytes() - before < 4_000_000


@BOTH
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (stored_batch(values(0))[:-1] + b"?", "its checksum is wrong"),
        (stored_batch(values(0, 1), record_count=3), "record 2 of 3: it runs past its end"),
        (stored_batch(values(0), trailing=b"x"), "bytes follow after its last record"),
        (stored_batch(values(0, 1), deltas=[1, 1]), "record 1 of 2: its offset does not follow"),
        (stored_batch(values(0), deltas=[3], last_offset_delta=2), "lies outside of its batch"),
        (stored_batch(values(0), last_offset_delta=-1), "last offset delta is -1"),
        (stored_batch(values(0), record_count=-1), "record count -1"),
        (stored_batch(values(0), base_offset=-1), "which cannot be"),
    ],
)
def test_damage_is_told_with_its_place(module: ModuleType, data: bytes, words: str) -> None:
    with pytest.raises(CorruptBatchError, match=words) as caught:
        table(decoder(module), data)
    assert "orders-3, batch at offset" in str(caught.value)
    assert "Every record before offset" in str(caught.value)


@BOTH
def test_old_formats_are_refused_with_a_remedy(module: ModuleType) -> None:
    for magic in (0, 1):
        old = struct.pack(">qiIbb", 5, 30, 0, magic, 0) + bytes(24)
        with pytest.raises(CorruptBatchError, match=f"format {magic} .* Copy the topic"):
            table(decoder(module), old)
    with pytest.raises(CorruptBatchError, match="its magic is 3"):
        table(decoder(module), struct.pack(">qiIbb", 5, 80, 0, 3, 0) + bytes(80))
    with pytest.raises(CorruptBatchError, match="its length 48: this is no batch"):
        table(decoder(module), struct.pack(">qiIbb", 5, 48, 0, 2, 0) + bytes(80))


@BOTH
def test_a_codec_that_does_not_exist(module: ModuleType) -> None:
    data = bytearray(stored_batch(values(0)))
    data[22] = 5
    with pytest.raises(UnsupportedCompressionError, match="orders-3, batch at offset 0"):
        table(decoder(module), sealed(bytes(data)))


@BOTH
def test_what_lies_after_the_range_is_not_looked_at(module: ModuleType) -> None:
    broken = stored_batch(values(2), base_offset=2)[:-1] + b"?"
    one = decoder(module, 0, 2)
    assert offsets(table(one, stored_batch(values(0, 1)) + broken)) == [0, 1]


@BOTH
def test_an_empty_range_and_no_bytes(module: ModuleType) -> None:
    one = decoder(module, 5, 5)
    assert list(one.feed(b"\xff" * 100)) == []
    one = decoder(module, 5, 9)
    assert [*one.feed(b""), *one.finish()] == []
    assert one.next_offset == 5


@pytest.mark.spark
def test_the_schema_is_what_spark_expects() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    kinds = {
        "key": BinaryType(),
        "value": BinaryType(),
        "topic": StringType(),
        "partition": IntegerType(),
        "offset": LongType(),
        "timestamp": TimestampType(),
        "timestampType": IntegerType(),
        "headers": ArrayType(
            StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        ),
    }
    fields = [StructField(name, kind) for name, kind in kinds.items()]
    for include_headers, count in ((True, 8), (False, 7)):
        expected = to_arrow_schema(StructType(fields[:count]), timezone="UTC")
        assert expected.equals(compiled.spark_schema(include_headers=include_headers))


def test_it_tells_once_that_it_is_slow(caplog: pytest.LogCaptureFixture) -> None:
    module = uncompiled_columns()
    vars(module)["_has_warned"] = False
    decoder(module)
    decoder(module)
    assert [one.levelname for one in caplog.records] == ["WARNING"]
    assert "PENSTOCK_COMPILE=1" in caplog.text


def test_the_compiled_one_has_its_c_types() -> None:
    # Compiled without its .pxd it would work, many times slower; C methods are hidden from Python.
    assert hasattr(kernel.Kernel, "read_record") != kernel.COMPILED
    assert hasattr(UNCOMPILED.kernel.Kernel, "read_record")
