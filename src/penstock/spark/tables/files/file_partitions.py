"""The partition of a row in a table: by identity or a transform of a column.

Values are the same for both formats: those of the transforms in Iceberg's specification (days,
hours, months and years since 1970, in UTC). Iceberg stores the number. Delta has no transforms, so
there the partition is a separate column, with a readable text: `2026-01-31`, `2026-01-31-07`,
`2026-01`, `2026`. Buckets and truncated values are for Iceberg alone, see `partition_transforms`.

It works on Arrow columns, and writes nothing.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.errors import OptionError
from penstock.spark.tables.files.partition_transforms import (
    UntruncatableError,
    buckets_of,
    has_bucket,
    has_truncation,
    truncated,
)

FIELDS_MAX: Final = 8
"""The maximum number of partition columns; more would write a file for nearly every row."""
_EXPRESSION: Final = re.compile(
    r"(?:(?P<transform>[a-z]+)\((?:(?P<width>[0-9]{1,10}), *)?(?P<of>[^()]+)\)|(?P<plain>[^()]+))"
)

PartitionValue = int | str | bool | date | bytes | Decimal | None


class Transform(StrEnum):
    """The computation of a partition's value from a column's value."""

    IDENTITY = "identity"
    DAY = "day"
    HOUR = "hour"
    MONTH = "month"
    YEAR = "year"
    BUCKET = "bucket"
    TRUNCATE = "truncate"


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One of the values that partition the rows."""

    column: str
    transform: Transform = Transform.IDENTITY
    width: int = 0
    """The number of buckets, or the width of a truncated value."""

    @property
    def is_derived(self) -> bool:
        """Whether Delta needs a separate column for it: it is not a column of the rows."""
        return self.transform is not Transform.IDENTITY or "." in self.column

    @property
    def name(self) -> str:
        """The name of the partition, and of its separate column in Delta."""
        column = self.column.replace(".", "_")
        match self.transform:
            case Transform.IDENTITY:
                return column
            case Transform.BUCKET:
                return f"{column}_bucket_{self.width}"
            case Transform.TRUNCATE:
                return f"{column}_trunc_{self.width}"
        return f"{column}_{self.transform}"

    def __str__(self) -> str:
        if self.transform is Transform.IDENTITY:
            return self.column
        width = f"{self.width}, " if self.width else ""
        return f"{self.transform}({width}{self.column})"


def read_partition_fields(expressions: Sequence[str]) -> tuple[PartitionField, ...]:
    """Parse `day(_kafka.timestamp)`, `bucket(16, id)` and so on, or the name of a column."""
    if len(expressions) > FIELDS_MAX:
        raise OptionError(
            "partition_by",
            f"{len(expressions)} expressions are too many.",
            f"Give at most {FIELDS_MAX}.",
        )
    fields = tuple(_read_field(text) for text in expressions)
    if len({one.name for one in fields}) < len(fields):
        raise OptionError("partition_by", "it has an expression twice.", "Leave one of them out.")
    return fields


def _read_field(text: str) -> PartitionField:
    found = _EXPRESSION.fullmatch(text.strip())
    transform = found["transform"] if found else None
    if found is None or transform not in (None, *Transform):
        raise OptionError(
            "partition_by",
            f"{text[:100]!r} is not understood.",
            "Give names of columns, or hour(…), day(…), month(…), year(…), bucket(16, …) or "
            "truncate(4, …) of one.",
        )
    if transform is None:
        return PartitionField(found["plain"].strip())
    return PartitionField(found["of"].strip(), Transform(transform), int(found["width"] or 0))


def derived_names(fields: Sequence[PartitionField]) -> set[str]:
    """Return the names of partitions without a column: no column of the rows may have them."""
    return {one.name for one in fields if one.is_derived}


def field_at(schema: pa.Schema, path: str) -> pa.Field | None:
    """Return the column of this name, or the field of a path such as `_kafka.offset`, or None."""
    if path in schema.names:
        return schema.field(path)
    name, *rest = path.split(".")
    field = schema.field(name) if name in schema.names else None
    for one in rest:
        if field is None or not pa.types.is_struct(field.type):
            return None
        index = field.type.get_field_index(one)
        field = field.type.field(index) if index >= 0 else None
    return field


def required_field(option: str, schema: pa.Schema, path: str) -> pa.Field:
    """Return the field of this path; raise `OptionError` without it."""
    field = field_at(schema, path)
    if field is None:
        raise OptionError(
            option,
            f"the table has no column '{path}'.",
            f"Its columns are {', '.join(schema.names)[:500]}.",
        )
    return field


def column_at(rows: pa.RecordBatch | pa.Table, path: str) -> pa.Array:
    """Return the values of the column or field of this path, null inside a null struct."""
    if path in rows.schema.names:
        return rows.column(path)
    name, *rest = path.split(".")
    return pc.struct_field(rows.column(name), rest)


def require_partitionable(fields: Sequence[PartitionField], schema: pa.Schema) -> None:
    """Raise `OptionError` if a column is missing, or has an unusable type or name."""
    _require_names(fields, schema)
    for one in fields:
        field = required_field("partition_by", schema, one.column)
        if not _fits(field.type, one.transform):
            raise OptionError(
                "partition_by",
                f"column '{one.column}' is of type {field.type}, which cannot be "
                f"partitioned by {one.transform.value}.",
                "Partition by hour, day, month or year of a timestamp, by day, month or year of a "
                "date, by a bucket of texts, bytes, whole numbers, decimals, dates or times, by a "
                "truncated text, number or bytes, or by a column of texts, whole numbers, booleans "
                "or dates.",
            )


def _require_names(fields: Sequence[PartitionField], schema: pa.Schema) -> None:
    """Reject a row column with a partition's name: Delta would read the partition's value."""
    taken = {name.lower() for name in derived_names(fields)}
    for name in schema.names:
        if name.lower() in taken:
            raise OptionError(
                "partition_by",
                f"the rows have a column '{name}', and that is the name of a partition.",
                "Rename the column, or partition by another one.",
            )


def _fits(kind: pa.DataType, transform: Transform) -> bool:
    if transform is Transform.IDENTITY:
        return bool(
            pa.types.is_string(kind)
            or pa.types.is_signed_integer(kind)
            or pa.types.is_boolean(kind)
            or pa.types.is_date32(kind)
        )
    if transform is Transform.BUCKET:
        return has_bucket(kind)
    if transform is Transform.TRUNCATE:
        return has_truncation(kind)
    if pa.types.is_timestamp(kind):
        return kind.tz in (None, "UTC", "Etc/UTC", "+00:00")
    return bool(pa.types.is_date32(kind)) and transform is not Transform.HOUR


def split_rows(
    rows: pa.RecordBatch, fields: Sequence[PartitionField]
) -> Iterator[tuple[tuple[PartitionValue, ...], pa.RecordBatch]]:
    """Return the rows of each partition, in their order.

    Raises `UntruncatableError` if no partition can hold a row.
    """
    if not fields:
        yield (), rows
        return
    codes, columns = _codes(rows, fields)
    found = pc.unique(codes)
    if len(found) == 1:
        yield tuple(one[0].as_py() for one in columns), rows
        return
    for code in found:
        mask = pc.equal(codes, code)
        first = pc.index(codes, code).as_py()
        yield tuple(one[first].as_py() for one in columns), rows.filter(mask)


def _codes(rows: pa.RecordBatch, fields: Sequence[PartitionField]) -> tuple[pa.Array, list[Any]]:
    """Return a number for each row, equal for rows of one partition, and the values by column."""
    columns = [_partition_values(rows, one) for one in fields]
    codes = pa.array([0] * 0, pa.int64())
    for index, column in enumerate(columns):
        encoded = column.dictionary_encode(null_encoding="encode")
        indices = encoded.indices.cast(pa.int64())
        if index == 0:
            codes = indices
        else:
            codes = pc.add(pc.multiply(codes, len(encoded.dictionary)), indices)
    return codes, columns


def _partition_values(rows: pa.RecordBatch, field: PartitionField) -> pa.Array:
    try:
        return values_of(column_at(rows, field.column), field.transform, field.width)
    except UntruncatableError as error:
        raise UntruncatableError(error.value, error.width, error.kind, field.column) from None


def values_of(column: pa.Array, transform: Transform, width: int = 0) -> pa.Array:
    """Return the partition's values of a column, such as days since 1970."""
    match transform:
        case Transform.IDENTITY:
            return column
        case Transform.BUCKET:
            return buckets_of(column, width)
        case Transform.TRUNCATE:
            return truncated(column, width)
        case Transform.YEAR:
            return pc.subtract(pc.year(column), 1970).cast(pa.int32())
        case Transform.MONTH:
            years = pc.subtract(pc.year(column), 1970)
            months = pc.subtract(pc.add(pc.multiply(years, 12), pc.month(column)), 1)
            return months.cast(pa.int32())
        case Transform.DAY:
            return pc.floor_temporal(column, unit="day").cast(pa.date32()).cast(pa.int32())
        case Transform.HOUR:
            hours = pc.floor_temporal(column, unit="hour").cast(pa.timestamp("s", column.type.tz))
            return pc.divide(hours.cast(pa.int64()), 3_600).cast(pa.int32())


def text_of(value: PartitionValue, transform: Transform) -> str | None:
    """Return a partition's value as readable text, as in Delta; None for null."""
    if value is None:
        return None
    match transform:
        case Transform.DAY:
            return _day_text(_whole(value))
        case Transform.HOUR:
            return f"{_day_text(_whole(value) // 24)}-{_whole(value) % 24:02d}"
        case Transform.MONTH:
            return f"{1970 + _whole(value) // 12:04d}-{_whole(value) % 12 + 1:02d}"
        case Transform.YEAR:
            return f"{1970 + _whole(value):04d}"
    return _plain_text(value)


def _day_text(days: int) -> str:
    """Return a day with a year of at least four digits: other writers' files may have more."""
    day = pa.scalar(days, pa.int32()).cast(pa.date32())
    return str(pc.strftime(day, format="%Y-%m-%d").as_py())


def _whole(value: object) -> int:
    assert isinstance(value, int), "a transform gives whole numbers"
    return value


def _plain_text(value: PartitionValue) -> str:
    """Return a value as in Delta's protocol."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.hex() if isinstance(value, bytes) else str(value)
