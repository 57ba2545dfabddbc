"""Converts a receipt to a file's entry in Delta's log: partition values and statistics.

Readers skip files by their statistics, so statistics must never exclude an existing value: texts
are cut with a greatest character appended, times are rounded outwards to milliseconds, as Delta's
protocol requires, and columns without a clear order in every reader (floats with NaN, decimals of
many digits, binaries, nested columns) have none. If one bound cannot be written, both are left out;
`delta.bounds` documents the effect on readers, and the columns with bounds.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote

from deltalake.transaction import AddAction
from pyarrow.parquet import ColumnSchema, Statistics

from penstock.spark.tables.files.data_files import FileReceipt
from penstock.spark.tables.files.file_partitions import PartitionField, text_of
from penstock.spark.tables.formats.delta.bounds import COLUMNS_MAX, is_exact_decimal

TEXT_CHARACTERS_MAX: Final = 32
_FLOATS: Final = frozenset({"FLOAT", "DOUBLE"})
_GREATEST_CHARACTER: Final = "\U0010ffff"


def add_action(
    receipt: FileReceipt,
    fields: Sequence[PartitionField],
    modified_ms: int,
    bounded: Collection[str] | None = None,
) -> AddAction:
    """Return the file as a commit's action. `bounded`: columns with statistics; None: the first."""
    # Do not escape characters: deltalake decodes some escapes to other characters.
    statistics = json.dumps(
        _statistics(receipt, bounded), ensure_ascii=False, separators=(",", ":")
    )
    return AddAction(
        path=quote(receipt.path, safe="/=-_.~"),
        size=receipt.size_bytes,
        partition_values={
            field.name: text_of(value, field.transform)
            for field, value in zip(fields, receipt.partition, strict=True)
        },
        modification_time=modified_ms,
        data_change=True,
        stats=statistics,
    )


def _statistics(receipt: FileReceipt, bounded: Collection[str] | None) -> Mapping[str, Any]:
    metadata = receipt.metadata()
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    null_counts: dict[str, int] = {}
    for index in range(metadata.num_columns):
        column = metadata.schema.column(index)
        name = column.path
        if name != column.name:
            continue  # it is inside of another one
        if index >= COLUMNS_MAX if bounded is None else name not in bounded:
            continue
        groups = [
            metadata.row_group(group).column(index).statistics
            for group in range(metadata.num_row_groups)
        ]
        if not groups or any(one is None for one in groups):
            continue
        if all(one.has_null_count for one in groups):
            null_counts[name] = sum(one.null_count for one in groups)
        filled = [one for one in groups if one.num_values > 0]
        if not filled or _is_inexact(column, receipt):
            continue
        low, high = _bounds(filled, column)
        if low is not None and high is not None:
            least[name], greatest[name] = low, high
    return {
        "numRecords": receipt.row_count,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": null_counts,
    }


def _is_inexact(column: ColumnSchema, receipt: FileReceipt) -> bool:
    """Return whether Parquet's bounds are wrong for some reader of Delta."""
    if column.logical_type.type == "DECIMAL":
        return not is_exact_decimal(column.precision, column.scale)
    return column.physical_type in _FLOATS and receipt.may_have_nan(column.path)


def _bounds(groups: Sequence[Statistics], column: ColumnSchema) -> tuple[object, object]:
    """Return the least and greatest value, rounded outwards; None for an unknown one."""
    if not all(one.has_min_max for one in groups):
        # Parquet has no bounds for texts of some thousand bytes: they may be anywhere among all
        # texts.
        is_text = column.logical_type.type == "STRING"
        return ("", _GREATEST_CHARACTER * TEXT_CHARACTERS_MAX) if is_text else (None, None)
    try:
        low, high = min(one.min for one in groups), max(one.max for one in groups)
        return _rounded_down(low), _rounded_up(high)
    except (OverflowError, ValueError):  # a time outside Python's range
        return None, None


def _rounded_down(value: object) -> object:
    match value:
        case bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return float(value)
        case str():
            return value[:TEXT_CHARACTERS_MAX]
        case datetime():
            return _milliseconds(value.replace(microsecond=value.microsecond // 1000 * 1000))
        case date():
            return value.isoformat()
    return None


def _rounded_up(value: object) -> object:
    match value:
        case str():
            start, rest = value[:TEXT_CHARACTERS_MAX], value[TEXT_CHARACTERS_MAX:]
            kept = len(rest) - len(rest.lstrip(_GREATEST_CHARACTER))
            return start + rest[:kept] + (_GREATEST_CHARACTER if rest[kept:] else "")
        case datetime() if value.microsecond % 1000:
            return _next_millisecond(value)
    return _rounded_down(value)


def _next_millisecond(value: datetime) -> str:
    try:
        return _milliseconds(value + timedelta(microseconds=1000 - value.microsecond % 1000))
    except OverflowError:  # the end of the last year, which often means "never"
        return _text(value, "microseconds")


def _milliseconds(value: datetime) -> str:
    return _text(value, "milliseconds")


def _text(value: datetime, unit: str) -> str:
    if value.tzinfo is None:
        return value.isoformat(timespec=unit)
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=unit) + "Z"
