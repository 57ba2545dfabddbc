"""The encoder: every row in its partition once, bytes as `records.builder` makes them."""

import random
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock.spark.encode.encoder as compiled
from penstock.client.records.partitioner import murmur2, partition_of_key
from penstock.core.errors import BatchTooLargeError, PenstockError
from penstock.records.batch import HEADER_BYTES, read_header
from penstock.records.builder import build_batch, read_records
from penstock.records.record import Header, Record
from penstock.records.validation import ProduceRules, validate_produced
from penstock.spark.encode import kernel
from tests.spark.encode.uncompiled import uncompiled_encoder

UNCOMPILED = uncompiled_encoder()
BOTH = pytest.mark.parametrize("module", [compiled, UNCOMPILED], ids=["compiled", "uncompiled"])
NOW = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
BYTE_TYPES = [pa.binary(), pa.large_binary(), pa.binary_view()]


def headers_array(rows: list[list[tuple[str, bytes | None]] | None]) -> pa.Array:
    items = [
        None if row is None else [{"key": key, "value": value} for key, value in row]
        for row in rows
    ]
    return pa.array(items, HEADERS)


def encoded(encoder: compiled.BatchEncoder, **columns: pa.Array) -> list[compiled.EncodedBatch]:
    """The batches of one call and of the end."""
    found = list(encoder.add(timestamp_ms=NOW, **columns))
    found += encoder.finish()
    assert encoder.buffered_bytes == 0
    return found


def records_by_partition(batches: list[compiled.EncodedBatch]) -> dict[int, list[Record]]:
    records: dict[int, list[Record]] = {}
    for batch in batches:
        records.setdefault(batch.at.partition, []).extend(
            record._replace(offset=-1) for record in read_records(batch.data)
        )
    return records


@BOTH
def test_a_batch_is_what_the_builder_makes(module: ModuleType) -> None:
    encoder = module.BatchEncoder("orders", 1)
    (batch,) = encoded(
        encoder,
        key=pa.array([b"k", None, b""]),
        value=pa.array([b"v" * 200, b"", None]),
        headers=headers_array([[("a", b"1"), ("a", None)], None, []]),
    )
    assert batch.at.topic == "orders"
    assert batch.record_count == 3
    assert batch.data == build_batch(
        [
            Record(b"k", b"v" * 200, (Header("a", b"1"), Header("a", None)), NOW),
            Record(None, b"", (), NOW),
            Record(b"", None, (), NOW),
        ]
    )


@BOTH
@pytest.mark.parametrize("codec", range(5))
def test_every_codec(module: ModuleType, codec: int) -> None:
    encoder = module.BatchEncoder(
        "orders", 1, codec=codec, producer_id=7, producer_epoch=2, transactional=True
    )
    (batch,) = encoded(encoder, value=pa.array([b"v" * 500] * 9))
    assert batch.data == build_batch(
        [Record(None, b"v" * 500, (), NOW)] * 9,
        codec=codec,
        producer_id=7,
        producer_epoch=2,
        base_sequence=0,
        transactional=True,
    )


@BOTH
def test_sequences_go_on_for_each_partition_and_wrap(module: ModuleType) -> None:
    encoder = module.BatchEncoder("orders", 2, producer_id=7, producer_epoch=0)
    encoder._sequences[1] = 2**31 - 2
    partition = pa.array([0, 1, 1, 1], pa.int32())
    first = encoded(encoder, value=pa.array([b"v"] * 4), partition=partition)
    second = encoded(encoder, value=pa.array([b"v"] * 4), partition=partition)
    assert [read_header(one.data).base_sequence for one in first] == [0, 2**31 - 2]
    assert [read_header(one.data).base_sequence for one in second] == [1, 1]


@BOTH
def test_without_a_producer_there_are_no_sequences(module: ModuleType) -> None:
    (batch,) = encoded(module.BatchEncoder("orders", 1), value=pa.array([b"v"]))
    header = read_header(batch.data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)


@BOTH
def test_times_of_several_calls(module: ModuleType) -> None:
    encoder = module.BatchEncoder("orders", 1)
    for time in (NOW, NOW + 70, NOW - 5):
        assert list(encoder.add(value=pa.array([b"v"]), timestamp_ms=time)) == []
    (batch,) = encoder.finish()
    assert batch.data == build_batch(
        [Record(None, b"v", (), time) for time in (NOW, NOW + 70, NOW - 5)]
    )


@BOTH
@given(key=st.binary(max_size=40))
def test_keys_go_where_java_puts_them(module: ModuleType, key: bytes) -> None:
    column = pa.array([b"xy", key, b"z"], pa.binary())
    rows = module.rows_of(key=column, value=column, headers=None, partition=None, timestamp_ms=NOW)
    assert rows.keys.murmur2(rows.keys.locate(1)) == murmur2(key)
    encoder = module.BatchEncoder("orders", 13)
    (batch,) = encoded(encoder, key=pa.array([key]), value=pa.array([b"v"]))
    assert batch.at.partition == partition_of_key(key, 13)


@BOTH
def test_the_column_wins_over_the_key(module: ModuleType) -> None:
    encoder = module.BatchEncoder("orders", 50)
    found = encoded(
        encoder,
        key=pa.array([b"k"] * 3),
        value=pa.array([b"a", b"b", b"c"]),
        partition=pa.array([49, None, 3], pa.int64()),
    )
    by_partition = {
        at: [one.value for one in rows] for at, rows in records_by_partition(found).items()
    }
    assert by_partition == {49: [b"a"], partition_of_key(b"k", 50): [b"b"], 3: [b"c"]}


@BOTH
def test_rows_without_a_key_pass_on_with_each_full_batch(module: ModuleType) -> None:
    encoder = module.BatchEncoder("orders", 3, batch_bytes_max=1_000, first_partition=4)
    found = encoded(encoder, value=pa.array([b"v" * 90] * 40))
    partitions = [one.at.partition for one in found]
    assert partitions == [(1 + index) % 3 for index in range(len(found))]
    assert all(len(one.data) <= 1_000 for one in found)
    assert sum(one.record_count for one in found) == 40
    # The first call after the end begins with the next one.
    assert encoded(encoder, value=pa.array([b"v"]))[0].at.partition == (1 + len(found)) % 3


@BOTH
def test_rows_without_a_key_take_turns_also_when_all_is_flushed(module: ModuleType) -> None:
    encoder = module.BatchEncoder("orders", 2)
    partitions = []
    for _ in range(4):
        found = encoded(
            encoder,
            value=pa.array([b"0", b"1", b"free"]),
            partition=pa.array([0, 1, None], pa.int32()),
        )
        partitions += [
            at for at, rows in records_by_partition(found).items() if rows[-1].value == b"free"
        ]
    assert partitions == [0, 1, 0, 1]


@BOTH
def test_open_batches_together_stay_within_their_bound(module: ModuleType) -> None:
    encoder = module.BatchEncoder("orders", 8, buffered_bytes_max=4_000)
    rows = pa.array([b"v" * 300] * 80)
    partition = pa.array([index % 8 for index in range(80)], pa.int32())
    found = []
    for batch in encoder.add(value=rows, partition=partition, timestamp_ms=NOW):
        assert encoder.buffered_bytes + len(batch.data) <= 4_000
        found.append(batch)
    found += encoder.finish()
    assert sum(one.record_count for one in found) == 80
    assert len(found) > 40


@BOTH
def test_a_record_that_is_larger_than_a_batch_goes_alone(module: ModuleType) -> None:
    encoder = module.BatchEncoder("orders", 1, batch_bytes_max=500, buffered_bytes_max=600)
    found = encoded(encoder, value=pa.array([b"a", b"v" * 5_000, b"z"]))
    assert [one.record_count for one in found] == [1, 1, 1]
    assert len(found[0].data) < HEADER_BYTES + 20


@BOTH
def test_strings_nulls_slices_and_other_types_of_arrow(module: ModuleType) -> None:
    values = ["", "ä", None, "x" * 70, "last"]
    expected = [value if value is None else value.encode() for value in values]
    for kind in (pa.string(), pa.large_string(), pa.string_view(), *BYTE_TYPES):
        array = pa.array(["before", *values, "after"], pa.string()).cast(kind).slice(1, 5)
        encoder = module.BatchEncoder("orders", 1)
        (batch,) = encoded(encoder, key=array, value=array)
        records = read_records(batch.data)
        assert [record.key for record in records] == expected
        assert [record.value for record in records] == expected
    encoder = module.BatchEncoder("orders", 1)
    (batch,) = encoded(encoder, key=pa.nulls(2), value=pa.nulls(2), headers=pa.nulls(2, HEADERS))
    assert [record[:3] for record in read_records(batch.data)] == [(None, None, ())] * 2


@BOTH
def test_headers_of_slices_and_of_null_lists_that_hide_items(module: ModuleType) -> None:
    items = pa.array([{"key": f"k{n}", "value": b"v%d" % n} for n in range(6)], HEADERS.value_type)
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 5, 6], pa.int32()), items, mask=pa.array([False, False, True, False])
    )
    encoder = module.BatchEncoder("orders", 1)
    (batch,) = encoded(encoder, value=pa.array([b"v"] * 3), headers=lists.slice(1))
    assert [[one.key for one in record.headers] for record in read_records(batch.data)] == [
        ["k1", "k2"],
        [],
        ["k5"],
    ]


@BOTH
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"partition": pa.array([0, 5], pa.int32())}, ["row 1", "partition 5", "has 2"]),
        ({"partition": pa.array([0, -1], pa.int32())}, ["`partition` has -1"]),
        ({"headers": headers_array([None, [("k", b"")]]).slice(1)}, ["1 rows of `headers`"]),
        ({"key": pa.array([b"k"])}, ["1 rows of `key` for 2"]),
        (
            {"headers": pa.array([None, [{"key": None, "value": b"v"}]], HEADERS)},
            ["row 1", "header without a key"],
        ),
        ({"headers": pa.array([None, [None]], HEADERS)}, ["row 1", "header without a key"]),
    ],
)
def test_rows_that_cannot_be_records(
    module: ModuleType, columns: dict[str, pa.Array], words: list[str]
) -> None:
    encoder = module.BatchEncoder("orders", 2)
    with pytest.raises(PenstockError) as caught:
        encoded(encoder, value=pa.array([b"v", b"w"]), **columns)
    assert type(caught.value).__name__ == "RowError"
    assert all(word in str(caught.value) for word in words)


@BOTH
def test_no_rows(module: ModuleType) -> None:
    encoder = module.BatchEncoder("orders", 2)
    assert encoded(encoder, value=pa.array([], pa.binary()), key=pa.array([], pa.string())) == []


@BOTH
@pytest.mark.parametrize("offsets", [[0, 99, 1, 2], [0, -1, 1, 2], [0, 2, 1, 2]])
def test_arrays_that_point_outside_of_themselves(module: ModuleType, offsets: list[int]) -> None:
    # pyarrow itself looks only at the first and the last offset.
    array = pa.Array.from_buffers(
        pa.binary(), 3, [None, pa.array(offsets, pa.int32()).buffers()[1], pa.py_buffer(b"abc")]
    )
    with pytest.raises(PenstockError, match="is said to be in"):
        encoded(module.BatchEncoder("orders", 1), value=array)


def test_a_record_beyond_its_length_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # A test cannot use two gigabytes; the uncompiled twin allows a lower bound.
    monkeypatch.setattr(UNCOMPILED.kernel, "_RECORD_BYTES_MAX", 100)
    with pytest.raises(BatchTooLargeError, match="row 1 makes a record of 20"):
        encoded(UNCOMPILED.BatchEncoder("orders", 1), value=pa.array([b"v", b"v" * 200]))


def random_rows(chance: random.Random, count: int) -> dict[str, Any]:
    def field() -> bytes | None:
        return chance.choice([None, b"", chance.randbytes(chance.choice([3, 70, 300]))])

    headers = [
        chance.choice([None, [], [(chance.choice(["k", "größe"]), field()) for _ in range(3)]])
        for _ in range(count)
    ]
    return {
        "key": [field() for _ in range(count)],
        "value": [field() for _ in range(count)],
        "headers": headers,
        "partition": [chance.choice([None, None, chance.randrange(5)]) for _ in range(count)],
    }


@BOTH
@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_random_rows(module: ModuleType, seed: int) -> None:
    chance = random.Random(seed)
    encoder = module.BatchEncoder(
        "orders",
        5,
        batch_bytes_max=chance.choice([100, 1_000, 100_000]),
        buffered_bytes_max=chance.choice([100, 3_000, 100_000]),
        producer_id=1,
        producer_epoch=0,
        codec=chance.choice([0, 0, 4]),
    )
    batches: list[compiled.EncodedBatch] = []
    wanted: list[tuple[int | None, Record]] = []
    for call in range(chance.randrange(1, 4)):
        rows = random_rows(chance, chance.randrange(40))
        batches += encoder.add(
            key=pa.array(rows["key"], pa.binary()),
            value=pa.array(rows["value"], chance.choice(BYTE_TYPES)),
            headers=headers_array(rows["headers"]),
            partition=pa.array(rows["partition"], pa.int32()),
            timestamp_ms=NOW + call,
        )
        for key, value, headers, partition in zip(*rows.values(), strict=True):
            record = Record(key, value, tuple(Header(*one) for one in headers or ()), NOW + call)
            place = partition_of_key(key, 5) if partition is None and key is not None else partition
            wanted.append((place, record))
    batches += encoder.finish()
    check_batches(batches)
    found = records_by_partition(batches)
    for partition, records in found.items():
        free = [record for place, record in wanted if place is None]
        fixed = [record for place, record in wanted if place == partition]
        for record in records:
            (fixed if fixed and fixed[0] == record else free).remove(record)
        assert fixed == []
    assert sum(len(records) for records in found.values()) == len(wanted)


def check_batches(batches: list[compiled.EncodedBatch]) -> None:
    """Each is what a broker takes and what the builder makes, and sequences leave no gap."""
    sequences: dict[int, int] = {}
    for batch in batches:
        header = read_header(batch.data)
        partition = batch.at.partition
        assert header.base_sequence == sequences.get(partition, 0)
        sequences[partition] = header.base_sequence + batch.record_count
        assert batch.data == build_batch(
            read_records(batch.data),
            codec=header.codec,
            producer_id=1,
            producer_epoch=0,
            base_sequence=header.base_sequence,
        )
        validate_produced(
            memoryview(batch.data),
            topic_limits=ProduceRules(1_048_588),
            produce_version=11,
            now_ms=NOW,
        )


def test_it_tells_once_that_it_is_slow(caplog: pytest.LogCaptureFixture) -> None:
    module = uncompiled_encoder()
    vars(module)["_has_warned"] = False
    module.BatchEncoder("orders", 1)
    module.BatchEncoder("orders", 1)
    assert [one.levelname for one in caplog.records] == ["WARNING"]
    assert "PENSTOCK_COMPILE=1" in caplog.text


def test_the_compiled_one_has_its_c_types() -> None:
    # Compiled without its .pxd it would work, many times slower; C methods are hidden from Python.
    assert hasattr(kernel.Kernel, "write_row") != kernel.COMPILED
    assert hasattr(UNCOMPILED.kernel.Kernel, "write_row")
    assert not UNCOMPILED.kernel.COMPILED


pairs = st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=40))


def digest_of(module: ModuleType, rows: list[tuple[bytes | None, bytes | None]]) -> int:
    """What an encoder says after it took these rows; and what is said without one."""
    keys = pa.array([key for key, _ in rows], pa.binary())
    values = pa.array([value for _, value in rows], pa.binary())
    encoder = module.BatchEncoder("orders", 3, batch_bytes_max=200)
    encoded(encoder, key=keys, value=values)
    digest: int = encoder.digest
    assert digest == module.digest_of_columns(key=keys, value=values)
    return digest


@given(rows=st.lists(pairs, max_size=12), cut=st.integers(0, 12), seed=st.integers(0, 99))
def test_a_digest_is_the_same_in_any_order(
    rows: list[tuple[bytes | None, bytes | None]], cut: int, seed: int
) -> None:
    whole = digest_of(compiled, rows)
    assert 0 <= whole < 2**64
    assert whole == digest_of(UNCOMPILED, rows)
    mixed = random.Random(seed).sample(rows, len(rows))
    parts = digest_of(compiled, mixed[:cut]) + digest_of(compiled, mixed[cut:])
    assert parts % 2**64 == whole


@BOTH
def test_a_digest_tells_rows_apart(module: ModuleType) -> None:
    value = bytes(range(64))
    rows: list[tuple[bytes | None, bytes | None]] = [
        (None, None),
        (None, b""),
        (b"", None),
        (b"a", b""),
        (b"", b"a"),
        (b"a", b"b"),
        (b"b", b"a"),
        (b"a", value),
        (b"b", value),
        (b"a", value[:-1]),
        (b"a", value[:-1] + b"x"),
        (b"a", value[:30] + b"x" + value[31:]),
    ]
    seen = {digest_of(module, [row]) for row in rows}
    seen.add(digest_of(module, [(b"a", b"b"), (b"b", b"a")]))
    seen.add(digest_of(module, [(b"a", b"a"), (b"b", b"b")]))
    assert len(seen) == len(rows) + 2
    # A missing column is null in every row.
    only = module.digest_of_columns(value=pa.array([None, b"v"], pa.binary()))
    assert only == digest_of(module, [(None, None), (None, b"v")])
