"""Buckets and truncated values, compared with `pyiceberg` and with Iceberg's specification."""

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform, TruncateTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from penstock.spark.tables.files.data_files import FileLayout, write_files
from penstock.spark.tables.files.file_partitions import (
    PartitionField,
    Transform,
    text_of,
    values_of,
)
from penstock.spark.tables.files.partition_limits import PartitionLimits, partition_rejects
from penstock.spark.tables.files.partition_transforms import (
    UntruncatableError,
    buckets_of,
    truncated,
    untruncatable,
)

CHANCE = random.Random(49)
LONGS = [CHANCE.randrange(-(2**63), 2**63) for _ in range(500)]
TEXTS = ["", "a", "iceberg", "zürich", "😀😀 café", "x" * 1_000]
DECIMALS = [Decimal(one).scaleb(-2) for one in (-12800, -129, -128, -1, 0, 1, 127, 128, 999999999)]
TIMES = [datetime(1960, 2, 29, 1, 2, 3, 4, UTC), datetime(2026, 1, 31, 22, 30, tzinfo=UTC)]
COLUMNS: list[tuple[pa.Array, IcebergType]] = [
    (pa.array([*LONGS, 0, -1, 2**63 - 1, -(2**63), None], pa.int64()), LongType()),
    (pa.array([34, -1, 2**31 - 1, -(2**31), None], pa.int32()), IntegerType()),
    (pa.array([34, -1, None], pa.int16()), IntegerType()),
    (pa.array([date(1969, 12, 31), date(2026, 1, 31), None]), DateType()),
    (pa.array([*TIMES, None], pa.timestamp("us", "UTC")), TimestamptzType()),
    (pa.array([one.replace(tzinfo=None) for one in TIMES], pa.timestamp("ms")), TimestampType()),
    (pa.array([*TEXTS, *TEXTS, None]), StringType()),
    (pa.array([*(one.encode() for one in TEXTS), b"\xff\x00", None]), BinaryType()),
    (pa.array([*DECIMALS, None], pa.decimal128(9, 2)), DecimalType(9, 2)),
]


@pytest.mark.parametrize("count", [1, 16, 2**31 - 1])
@pytest.mark.parametrize(("column", "kind"), COLUMNS, ids=[str(one.type) for one, _ in COLUMNS])
def test_a_bucket_is_that_of_pyiceberg(column: pa.Array, kind: IcebergType, count: int) -> None:
    bucket = BucketTransform(num_buckets=count).transform(kind)
    found = buckets_of(column, count)
    assert found.type == pa.int32()
    assert found.to_pylist() == [bucket(one) for one in column.to_pylist()]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (pa.array([34], pa.int32()), 2017239379),
        (pa.array([34], pa.int64()), 2017239379),
        (pa.array([Decimal("14.20")], pa.decimal128(9, 2)), -500754589),
        (pa.array([date(2017, 11, 16)]), -653330422),
        (
            pa.array([datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC)], pa.timestamp("us")),
            -2047944441,
        ),
        (pa.array(["iceberg"]), 1210000089),
        (pa.array([b"\x00\x01\x02\x03"]), -188683207),
    ],
)
def test_hashes_are_those_of_the_specification(column: pa.Array, value: int) -> None:
    """The values of its appendix B."""
    assert buckets_of(column, 2**31 - 1).to_pylist() == [(value & 0x7FFFFFFF) % (2**31 - 1)]


TRUNCATED: list[tuple[pa.Array, IcebergType]] = [
    (pa.array([0, 1, -1, 9, -9, 10, -10, 2**31 - 1, None], pa.int32()), IntegerType()),
    (pa.array([0, 1, -1, -(2**62), 2**63 - 1, None], pa.int64()), LongType()),
    (pa.array([*TEXTS, None]), StringType()),
    (pa.array([*(one.encode() for one in TEXTS), None]), BinaryType()),
    (pa.array([*DECIMALS, None], pa.decimal128(11, 2)), DecimalType(11, 2)),
]


@pytest.mark.parametrize("width", [1, 3, 10, 1_000])
@pytest.mark.parametrize(("column", "kind"), TRUNCATED, ids=[str(one.type) for one, _ in TRUNCATED])
def test_a_truncated_value_is_that_of_pyiceberg(
    column: pa.Array, kind: IcebergType, width: int
) -> None:
    cut = TruncateTransform(width=width).transform(kind)
    found = truncated(column, width)
    assert found.type == column.type
    assert found.to_pylist() == [None if one is None else cut(one) for one in column.to_pylist()]


@pytest.mark.parametrize(
    ("column", "width", "bad"),
    [
        (pa.array([-(2**31), -(2**31) + 7, -(2**31) + 8, None], pa.int32()), 10, [0, 1]),
        (pa.array([-(2**63), 0], pa.int64()), 10, [0]),
        (pa.array([-(2**63), 0], pa.int64()), 2, []),
        (pa.array([Decimal("-9.99"), Decimal("-9.50")], pa.decimal128(3, 2)), 50, [0]),
        (pa.array(["", None]), 10, []),
        (pa.array([None, None], pa.int64()), 10, []),
    ],
)
def test_a_number_without_a_truncated_value_is_a_reject(
    column: pa.Array, width: int, bad: list[int]
) -> None:
    found = untruncatable(column, width)
    assert ([] if found is None else [n for n, one in enumerate(found.to_pylist()) if one]) == bad
    rows = pa.RecordBatch.from_pydict({"n": column})
    limits = PartitionLimits(truncated=(PartitionField("n", Transform.TRUNCATE, width),))
    rejects = partition_rejects(rows, limits)
    assert [one.row for one in rejects] == bad
    assert all(f"truncate({width}, n)" in one.message for one in rejects)
    kept = column.filter(pa.array([number not in bad for number in range(len(column))]))
    assert truncated(kept, width).null_count == kept.null_count


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int16(), -(2**15)),
        (pa.int32(), -(2**31)),
        (pa.int64(), -(2**63)),
        (pa.decimal128(4, 2), Decimal("-99.99")),
        (pa.decimal128(38, 0), Decimal(-(10**38) + 1)),
    ],
    ids=str,
)
def test_a_number_without_a_truncated_value_is_never_written(
    tmp_path: Path, kind: pa.DataType, value: int | Decimal
) -> None:
    """An upsert rewrites old rows, which no task has judged."""
    column = pa.array([None, 1, value], kind)
    with pytest.raises(UntruncatableError, match=f"a column holds {value}, .* multiple of 10"):
        truncated(column, 10)
    rows = pa.RecordBatch.from_pydict({"n": column})
    layout = FileLayout(str(tmp_path), rows.schema, (PartitionField("n", Transform.TRUNCATE, 10),))
    with pytest.raises(UntruncatableError, match=f"column 'n' holds {value}, .* no such multiple"):
        write_files([rows], layout, "upserted")
    assert not list(tmp_path.rglob("*.parquet"))
    assert write_files([rows.slice(0, 2)], layout, "upserted")


@pytest.mark.parametrize(
    ("field", "value", "name", "text"),
    [
        (PartitionField("a.at", Transform.YEAR), 56, "a_at_year", "2026"),
        (PartitionField("id", Transform.BUCKET, 16), 3, "id_bucket_16", "3"),
        (PartitionField("n", Transform.TRUNCATE, 4), b"\x01\xff", "n_trunc_4", "01ff"),
        (PartitionField("n", Transform.TRUNCATE, 4), Decimal("1.50"), "n_trunc_4", "1.50"),
    ],
)
def test_names_and_texts(
    field: PartitionField, value: bytes | Decimal | int, name: str, text: str
) -> None:
    assert field.name == name
    assert text_of(value, field.transform) == text


def test_years_are_counted_from_1970() -> None:
    at = pa.array([datetime(1969, 12, 31, tzinfo=UTC), TIMES[1], None], pa.timestamp("us"))
    assert values_of(at, Transform.YEAR).to_pylist() == [-1, 56, None]
