"""From a receipt to what Delta's log says of a file: partition values and statistics.

Statistics are what lets a reader skip a file, so they must never exclude a value that is there:
texts are cut with a greatest character behind them, times are rounded outwards to milliseconds, as
Delta's protocol wants it, and what has no clear order in every reader (floats with NaN, decimals,
binaries, nested columns) has none. A bound that cannot be written down is left out, with the other.
"""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

from deltalake.transaction import AddAction
from pyarrow.parquet import Statistics

from penstock.spark.tables.data_files import FileReceipt
from penstock.spark.tables.file_partitions import PartitionField, text_of

COLUMNS_MAX: Final = 32
"""Columns with statistics, the first ones: Delta's own default."""
TEXT_CHARACTERS_MAX: Final = 32
_FLOATS: Final = frozenset({"FLOAT", "DOUBLE"})
_GREATEST_CHARACTER: Final = "\U0010ffff"


def add_action(
    receipt: FileReceipt, fields: Sequence[PartitionField], modified_ms: int
) -> AddAction:
    """The file as an action of a commit."""
    return AddAction(
        path=quote(receipt.path, safe="/=-_.~"),
        size=receipt.size_bytes,
        partition_values={
            field.name: text_of(value, field.transform)
            for field, value in zip(fields, receipt.partition, strict=True)
        },
        modification_time=modified_ms,
        data_change=True,
        stats=json.dumps(_statistics(receipt), separators=(",", ":")),
    )


def _statistics(receipt: FileReceipt) -> Mapping[str, Any]:
    metadata = receipt.metadata()
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    null_counts: dict[str, int] = {}
    for index in range(min(metadata.num_columns, COLUMNS_MAX)):
        name = metadata.schema.column(index).path
        if "." in name or metadata.schema.column(index).max_repetition_level > 0:
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
        if not filled or not all(one.has_min_max for one in filled):
            continue
        if filled[0].physical_type in _FLOATS and receipt.may_have_nan(name):
            continue
        low, high = _bounds(filled)
        if low is not None and high is not None:
            least[name], greatest[name] = low, high
    return {
        "numRecords": receipt.row_count,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": null_counts,
    }


def _bounds(groups: Sequence[Statistics]) -> tuple[object, object]:
    """The least and the greatest value, rounded outwards; None for what cannot be told."""
    try:
        low, high = min(one.min for one in groups), max(one.max for one in groups)
        return _rounded_down(low), _rounded_up(high)
    except (OverflowError, ValueError):  # a time that Python does not have
        return None, None


def _rounded_down(value: object) -> object:
    match value:
        case bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            return value[:TEXT_CHARACTERS_MAX]
        case datetime():
            return _milliseconds(value.replace(microsecond=value.microsecond // 1000 * 1000))
        case date():
            return value.isoformat()
    return None


def _rounded_up(value: object) -> object:
    match value:
        case str() if len(value) > TEXT_CHARACTERS_MAX:
            return value[:TEXT_CHARACTERS_MAX] + _GREATEST_CHARACTER
        case datetime() if value.microsecond % 1000:
            rest = 1000 - value.microsecond % 1000
            return _milliseconds(value + timedelta(microseconds=rest))
    return _rounded_down(value)


def _milliseconds(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat(timespec="milliseconds")
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
