"""Values that some readers of a table cannot show: such rows are rejects (pure).

| what | why |
| --- | --- |
| a time or date outside of the years 1 to 9999 in UTC | Python, Arrow and others fail at it |
| a record's timestamp outside of them | the same; in the table of bad records it is null |

Guarantees: returned rows have none of these values. Without such values, a column costs one check
of its least and greatest value.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.tables.values.framing import schema_id_of
from penstock.spark.tables.values.leaves import has_leaf, leaves
from penstock.spark.tables.values.parser import (
    ErrorClass,
    Parsed,
    Reject,
    ValueParser,
    rejecting,
)

_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000}
"""The units per second; nanoseconds do not reach these limits."""
_UNITS: Final = {"s": "seconds", "ms": "milliseconds", "us": "microseconds"}
OUTSIDE: Final = "outside of the years 1 to 9999 in UTC, which readers of tables cannot show"


class _Limits(NamedTuple):
    first: int
    last: int
    unit: str


class ShownValues:
    """A parser whose rows have only times that readers can show."""

    def __init__(self, parser: ValueParser, *, is_framed: bool) -> None:
        """Wrap the parser; `is_framed`: values begin with the id of their schema."""
        self._parser = parser
        self._is_framed = is_framed

    @property
    def schema(self) -> pa.Schema:
        """The columns of the parser."""
        return self._parser.schema

    def parse(self, values: pa.Array) -> Parsed:
        """Read each value."""
        parsed = self._parser.parse(values)
        bad = time_rejects(parsed.rows)
        if bad and self._is_framed:
            numbers = parsed.row_numbers
            bad = [
                one._replace(schema_id=_schema_id(values[_number(numbers, one.row)])) for one in bad
            ]
        return rejecting(parsed, bad)


def time_rejects(rows: pa.RecordBatch) -> list[Reject]:
    """Return rows with a time that readers cannot show, by number; only the first such column."""
    found: dict[int, Reject] = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        for number in _beyond(column):
            if number not in found:
                message = f"column '{name}' holds {_describe(column.slice(number, 1))}."
                found[number] = Reject(number, ErrorClass.TYPE_MISMATCH, message)
    return list(found.values())


def with_shown_timestamps(parsed: Parsed, records: pa.RecordBatch) -> Parsed:
    """Return the result with rows of records with timestamps beyond the limits as rejects."""
    timestamps = records.column("timestamp")
    if parsed.row_numbers is not None:
        timestamps = timestamps.take(parsed.row_numbers)
    bad = [
        Reject(
            number,
            ErrorClass.TYPE_MISMATCH,
            f"column '_kafka' cannot hold a timestamp of {_ms(timestamps, number)} ms since 1970.",
        )
        for number in _beyond(timestamps)
    ]
    return rejecting(parsed, bad)


def shown_timestamps(timestamps: pa.Array) -> tuple[pa.Array, Mapping[int, str]]:
    """Return timestamps, with null and a message for each timestamp that cannot be shown."""
    numbers = _beyond(timestamps)
    if not numbers:
        return timestamps, {}
    texts = {
        number: (
            f"The record's timestamp is {_ms(timestamps, number)} ms since 1970, {OUTSIDE}, so it "
            "is null here, and in the table if the record is put in again."
        )
        for number in numbers
    }
    mask = pc.is_in(pa.arange(0, len(timestamps)), value_set=pa.array(numbers, pa.int64()))
    return pc.if_else(mask, pa.scalar(None, timestamps.type), timestamps), texts


def empty_rejects(rows: pa.RecordBatch, filled: Sequence[str]) -> list[Reject]:
    """Return the rows with an empty text in one of these columns, by their numbers."""
    found: dict[int, Reject] = {}
    for name in filled:
        if name not in rows.schema.names or not pa.types.is_string(rows.schema.field(name).type):
            continue
        mask = pc.fill_null(pc.equal(rows.column(name), ""), fill_value=False)
        if not pc.any(mask, min_count=0).as_py():
            continue
        message = (
            f"column '{name}' holds an empty text, and the table is partitioned by it: a partition "
            "of a Delta table cannot hold one, since it would be read as null. Produce a text or "
            "null."
        )
        for number in pc.indices_nonzero(mask).to_pylist():
            found.setdefault(number, Reject(number, ErrorClass.TYPE_MISMATCH, message))
    return list(found.values())


def _beyond(column: pa.Array) -> list[int]:
    """Return the numbers of rows with a time beyond the limits, in order."""
    if not has_leaf(column.type, _is_time) or _is_shown(column):
        return []
    limits = _limits(column.type)
    if limits is None:
        return list(_searched(column, 0))
    values = _numbers(column)
    mask = pc.or_(pc.less(values, limits.first), pc.greater(values, limits.last))
    found: list[int] = pc.indices_nonzero(mask).to_pylist()
    return found


def _searched(column: pa.Array, first: int) -> Iterator[int]:
    """Return the same for lists and maps, for which Arrow does not return the row of a value."""
    if _is_shown(column):
        return
    if len(column) == 1:
        yield first
        return
    half = len(column) // 2
    yield from _searched(column.slice(0, half), first)
    yield from _searched(column.slice(half), first + half)


def _is_shown(column: pa.Array) -> bool:
    """Return whether all times inside are within the limits."""
    return next(_extremes(column), None) is None


def _describe(row: pa.Array) -> str:
    value, unit = next(_extremes(row))
    return f"{value} {unit} since 1970, {OUTSIDE}"


def _extremes(column: pa.Array) -> Iterator[tuple[int, str]]:
    """Return the least and greatest values that are beyond the limits."""
    for _, values in leaves("", column, _is_time):
        limits = _limits(values.type)
        assert limits is not None, "only such columns are wanted"
        found = pc.min_max(_numbers(values))
        least, greatest = found["min"].as_py(), found["max"].as_py()
        if least is not None and least < limits.first:
            yield least, limits.unit
        if greatest is not None and greatest > limits.last:
            yield greatest, limits.unit


def _ms(timestamps: pa.Array, number: int) -> int:
    return int(timestamps[number].value) // 1_000


def _is_time(kind: pa.DataType) -> bool:
    return _limits(kind) is not None


def _limits(kind: pa.DataType) -> _Limits | None:
    if pa.types.is_date32(kind):
        return _Limits(_FIRST_SECOND // 86_400, _LAST_SECOND // 86_400, "days")
    if not pa.types.is_timestamp(kind) or kind.unit not in _PER_SECOND:
        return None
    parts = _PER_SECOND[kind.unit]
    return _Limits(_FIRST_SECOND * parts, (_LAST_SECOND + 1) * parts - 1, _UNITS[kind.unit])


def _numbers(column: pa.Array) -> pa.Array:
    """Return days or parts of seconds as they are stored."""
    return column.view(pa.int32() if pa.types.is_date32(column.type) else pa.int64())


def _number(numbers: pa.Array | None, row: int) -> int:
    return row if numbers is None else int(numbers[row].as_py())


def _schema_id(value: pa.Scalar) -> int | None:
    data = value.as_py()
    return None if data is None else schema_id_of(data)
