"""The kernel against the reference decoder, compiled and uncompiled, on random and hostile logs."""

import random
from types import ModuleType

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock.spark.decode.columns as compiled
from penstock.core.errors import RecordsError
from penstock.spark.decode import kernel
from penstock.spark.decode.column_writer import ColumnWriter
from penstock.spark.decode.reference import ReferenceDecoder, Row
from tests.spark.decode.batches import Aborted, RandomLog, random_log, sealed
from tests.spark.decode.uncompiled import uncompiled_columns

UNCOMPILED = uncompiled_columns()
BOTH = pytest.mark.parametrize("module", [compiled, UNCOMPILED], ids=["compiled", "uncompiled"])
DECOMPRESSED_BYTES_MAX = 1 << 20

Result = tuple[list[Row], int] | type[Exception]


def rows_of(batches: list[pa.RecordBatch], *, include_headers: bool) -> list[Row]:
    """Arrow rows as the reference gives them."""
    rows = []
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema.equals(compiled.spark_schema(include_headers=include_headers))
        columns = {name: batch.column(name) for name in batch.schema.names}
        columns["timestamp"] = columns["timestamp"].cast(pa.int64())
        headers = columns.pop("headers", None)
        lists = [None] * batch.num_rows if headers is None else headers.to_pylist()
        values = zip(*(column.to_pylist() for column in columns.values()), strict=True)
        rows += [
            Row._make([*one, found and [(item["key"], item["value"]) for item in found]])
            for one, found in zip(values, lists, strict=True)
        ]
    return rows


def decoded(
    module: ModuleType,
    fetches: list[tuple[bytes, list[Aborted]]],
    from_offset: int,
    until_offset: int,
    *,
    include_headers: bool,
    is_read_committed: bool,
    rows_max: int = 7,
    bytes_max: int = 3_000,
) -> Result:
    decoder = module.BatchDecoder(
        "orders",
        3,
        from_offset,
        until_offset,
        include_headers=include_headers,
        is_read_committed=is_read_committed,
        rows_max=rows_max,
        bytes_max=bytes_max,
        decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
    )
    batches: list[pa.RecordBatch] = []
    try:
        for data, aborted in fetches:
            batches += decoder.feed(memoryview(data), aborted)
    except RecordsError as error:
        return type(error)
    batches += decoder.finish()
    for batch in batches:
        assert 0 < batch.num_rows <= rows_max
        assert batch.num_rows == 1 or key_and_value_bytes(batch) <= bytes_max
    return rows_of(batches, include_headers=include_headers), decoder.next_offset


def key_and_value_bytes(batch: pa.RecordBatch) -> int:
    return sum(
        len(one) for name in ("key", "value") for one in batch.column(name).to_pylist() if one
    )


def expected(
    fetches: list[tuple[bytes, list[Aborted]]],
    from_offset: int,
    until_offset: int,
    *,
    include_headers: bool,
    is_read_committed: bool,
) -> Result:
    decoder = ReferenceDecoder(
        "orders",
        3,
        from_offset,
        until_offset,
        is_read_committed=is_read_committed,
        decompressed_bytes_max=DECOMPRESSED_BYTES_MAX,
    )
    rows: list[Row] = []
    try:
        for data, aborted in fetches:
            rows += decoder.rows(data, aborted)
    except RecordsError as error:
        return type(error)
    if not include_headers:
        rows = [row._replace(headers=None) for row in rows]
    return rows, decoder.next_offset


def cut(log: RandomLog, chance: random.Random) -> list[tuple[bytes, list[Aborted]]]:
    """Fetches that end anywhere, each going on with the batch that the last one had cut."""
    fetches = []
    start = 0
    while start < len(log.data):
        end = min(len(log.data), start + chance.randrange(200, 20_000))
        fetches.append((log.data[start:end], log.aborted))
        whole = start
        while whole + 12 <= end:
            length = 12 + int.from_bytes(log.data[whole + 8 : whole + 12], "big")
            if whole + length > end:
                break
            whole += length
        if whole == start:
            # As a broker does: the first batch comes whole, however large it is.
            length = 12 + int.from_bytes(log.data[start + 8 : start + 12], "big")
            fetches[-1] = (log.data[start : start + length], log.aborted)
            whole = start + length
        start = whole
    return fetches


@BOTH
@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_random_logs(module: ModuleType, seed: int) -> None:
    chance = random.Random(seed)
    log = random_log(chance, chance.randrange(12))
    from_offset = chance.randrange(log.end_offset + 1)
    until_offset = chance.randrange(from_offset, log.end_offset + 3)
    fetches = cut(log, chance)
    include_headers, is_read_committed = bool(chance.randrange(2)), bool(chance.randrange(2))
    found = decoded(
        module,
        fetches,
        from_offset,
        until_offset,
        include_headers=include_headers,
        is_read_committed=is_read_committed,
        rows_max=chance.choice([1, 7, 100]),
        bytes_max=chance.choice([1, 3_000, 1 << 20]),
    )
    assert not isinstance(found, type)
    assert found == expected(
        fetches,
        from_offset,
        until_offset,
        include_headers=include_headers,
        is_read_committed=is_read_committed,
    )


@BOTH
@given(seed=st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_hostile_logs(module: ModuleType, seed: int) -> None:
    chance = random.Random(seed)
    log = random_log(chance, chance.randrange(1, 3))
    data = bytearray(log.data)
    for _ in range(chance.randrange(1, 4)):
        position = chance.randrange(len(data))
        if chance.randrange(2):
            data[position] = chance.choice([0, 1, 0x7F, 0x80, 0xFE, 0xFF])
        elif chance.randrange(2):
            data[position] ^= 1 << chance.randrange(8)
        else:
            del data[position : position + chance.randrange(1, 4)]
        data = data or bytearray(1)
    hostile = sealed(bytes(data))
    include_headers, is_read_committed = bool(chance.randrange(2)), bool(chance.randrange(2))
    assert decoded(
        module,
        [(hostile, log.aborted)],
        0,
        2**40,
        include_headers=include_headers,
        is_read_committed=is_read_committed,
    ) == expected(
        [(hostile, log.aborted)],
        0,
        2**40,
        include_headers=include_headers,
        is_read_committed=is_read_committed,
    )


@BOTH
@given(data=st.binary(max_size=200))
def test_noise(module: ModuleType, data: bytes) -> None:
    for candidate in (data, sealed(data)):
        found = decoded(
            module, [(candidate, [])], 0, 10, include_headers=True, is_read_committed=True
        )
        assert found == expected(
            [(candidate, [])], 0, 10, include_headers=True, is_read_committed=True
        )


def test_uncompiled_copy_is_uncompiled() -> None:
    assert not UNCOMPILED.kernel.COMPILED
    assert UNCOMPILED.kernel is not kernel
    assert UNCOMPILED.ColumnWriter is UNCOMPILED.kernel.ColumnWriter
    assert UNCOMPILED.ColumnWriter is not ColumnWriter
