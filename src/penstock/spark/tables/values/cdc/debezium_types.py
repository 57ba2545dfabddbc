"""Types of Debezium's fields in JSON, and their conversion to the columns of a table (pure).

| field of the schema part | in JSON | columns |
| --- | --- | --- |
| `org.apache.kafka.connect.data.Decimal` | base64 of the digits | decimal, string, double |
| `io.debezium.data.VariableScaleDecimal` | the same, with its scale | the same |
| `io.debezium.time.Timestamp`, `Micro…`, `Nano…` | ms, us, ns since 1970 | timestamp, bigint |
| `io.debezium.time.ZonedTimestamp`, `IsoTimestamp` | ISO 8601 | timestamp, string |
| `io.debezium.time.Date`, `IsoDate` | days since 1970; 2026-01-02Z | date, timestamp, int |
| of `float` and `double` | a number; texts NaN, Infinity, -Infinity | double, float |
| any other | as JSON | as for other JSON values, see `json.rows` |

Without a schema part the column's type decides: numbers in a date are days, numbers in a timestamp
have the definition's unit, and a text in a decimal is a number, or base64 if the definition says
so.

Guarantees: a value is converted exactly or is a problem with its place; nothing is rounded except a
nanosecond, which a table cannot hold, and a decimal into a double.
"""

import base64
import binascii
import decimal
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.option_values import shown
from penstock.spark.tables.definition.ddl import type_name
from penstock.spark.tables.definition.model import ChangeSettings, Decimals, Envelope, TimeUnit
from penstock.spark.tables.values.nested_arrays import list_of
from penstock.spark.tables.values.schema_part import ConnectType

Problems = dict[int, str]
"""The values that cannot be converted, by their places, with the reasons."""
Convert = Callable[[pa.Array], tuple[pa.Array, Problems]]

_CONNECT: Final = "org.apache.kafka.connect.data."
_TIME: Final = "io.debezium.time."
DECIMAL: Final = f"{_CONNECT}Decimal"
_VARIABLE: Final = "io.debezium.data.VariableScaleDecimal"
_UNITS: Final = {
    f"{_TIME}Timestamp": TimeUnit.MILLISECONDS,
    f"{_CONNECT}Timestamp": TimeUnit.MILLISECONDS,
    f"{_TIME}MicroTimestamp": TimeUnit.MICROSECONDS,
    f"{_TIME}NanoTimestamp": TimeUnit.NANOSECONDS,
}
_ZONED: Final = frozenset({f"{_TIME}ZonedTimestamp", f"{_TIME}IsoTimestamp"})
_DATES: Final = frozenset({f"{_TIME}Date", f"{_CONNECT}Date", f"{_TIME}IsoDate"})
_NAMES: Final = frozenset({DECIMAL, _VARIABLE, *_UNITS, *_ZONED, *_DATES})
_UTC: Final = pa.timestamp("us", tz="UTC")
_DAY_US: Final = 86_400_000_000
_EXACT: Final = decimal.Context(prec=decimal.MAX_PREC, Emin=decimal.MIN_EMIN)
_FACTORS: Final = {
    TimeUnit.SECONDS: 1_000_000,
    TimeUnit.MILLISECONDS: 1_000,
    TimeUnit.MICROSECONDS: 1,
}
_ZONE: Final = r"(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)$"
_NUMBER: Final = r"^-?[0-9]{1,19}$"
_VARIABLE_TYPE: Final = pa.struct([("scale", pa.int32()), ("value", pa.string())])
_SCALE_MAX: Final = 1_000
_INTEGER_DIGITS_MAX: Final = 19
_NUMBER_BYTES_MAX: Final = 1_024
"""Over 2,400 digits. The time to write a number as digits grows with the square of its length."""


@dataclass(frozen=True, slots=True)
class Wire:
    """The JSON type of a column, and the conversion to its own type."""

    type: pa.DataType
    convert: Convert | None = None
    """None: both types are the same."""


def wire_of(column: pa.DataType, field: ConnectType | None, settings: ChangeSettings) -> Wire:
    """Return the type of a column in JSON; `field` is its type in the schema part."""
    if pa.types.is_list(column):
        items = wire_of(column.value_type, None if field is None else field.items, settings)
        return _list_wire(column, items)
    is_event = settings.envelope is not Envelope.NONE
    if is_event and pa.types.is_floating(column) and (field is None or field.name is None):
        return Wire(pa.string(), lambda values: _floats(values, column))
    if field is None:
        return _by_column(column, settings)
    name = field.name
    if name == DECIMAL:
        return _decimal_wire(column, field.scale)
    if name == _VARIABLE:
        return _variable_wire(column)
    if name in _UNITS and pa.types.is_timestamp(column):
        unit = _UNITS[name]
        return Wire(pa.int64(), lambda values: _moments_in(values, column, unit))
    if name in _ZONED and pa.types.is_timestamp(column):
        return Wire(_UTC, lambda values: (values.cast(column), {}))
    if name in _DATES and (pa.types.is_date32(column) or pa.types.is_timestamp(column)):
        return Wire(pa.string(), lambda values: _dates(values, column))
    return Wire(column)


def known_type(field: ConnectType | None) -> ConnectType | None:
    """Return the part of a field's type that `wire_of` regards."""
    if field is None:
        return None
    items = known_type(field.items)
    if field.name not in _NAMES:
        return ConnectType("", items=items)  # any other name has no effect
    return ConnectType("", field.name, field.scale if field.name == DECIMAL else None, items)


def _by_column(column: pa.DataType, settings: ChangeSettings) -> Wire:
    if pa.types.is_decimal(column) and settings.decimals is Decimals.BASE64:
        return _decimal_wire(column, column.scale)
    if pa.types.is_date32(column):
        return Wire(pa.string(), lambda values: _dates(values, column))
    if pa.types.is_timestamp(column) and settings.time_unit is not TimeUnit.SECONDS:
        return Wire(pa.string(), lambda values: _times(values, column, settings.time_unit))
    return Wire(column)


def _list_wire(column: pa.DataType, items: Wire) -> Wire:
    convert = items.convert
    if convert is None:
        return Wire(column)

    def converted(values: pa.Array) -> tuple[pa.Array, Problems]:
        problems: Problems = {}

        def inner(flat: pa.Array) -> pa.Array:
            found, bad = convert(flat)
            parents = pc.list_parent_indices(values)
            problems.update((parents[at].as_py(), text) for at, text in bad.items())
            return found

        return list_of(values, column, inner), problems

    return Wire(pa.list_(items.type), converted)


# --- Decimals ---


def _decimal_wire(column: pa.DataType, scale: int | None) -> Wire:
    def converted(values: pa.Array) -> tuple[pa.Array, Problems]:
        numbers: list[decimal.Decimal | None] = []
        problems: Problems = {}
        for place, text in enumerate(values.to_pylist()):
            try:
                numbers.append(None if text is None else _scaled(text, scale))
            except ValueError as error:
                numbers.append(None)
                problems[place] = f"{shown(text)} is no decimal in base64: {error}"
        return _as_column(numbers, column, problems)

    return Wire(pa.string(), converted)


def _variable_wire(column: pa.DataType) -> Wire:
    def converted(values: pa.Array) -> tuple[pa.Array, Problems]:
        numbers: list[decimal.Decimal | None] = []
        problems: Problems = {}
        for place, one in enumerate(values.to_pylist()):
            try:
                numbers.append(None if one is None else _scaled(one["value"], one["scale"]))
            except ValueError as error:
                numbers.append(None)
                problems[place] = f"{shown(str(one))} is no decimal with a scale: {error}"
        return _as_column(numbers, column, problems)

    return Wire(_VARIABLE_TYPE, converted)


def _scaled(text: str | None, scale: int | None) -> decimal.Decimal:
    if text is None or scale is None:
        raise ValueError("it has no scale, or no value")
    return _unscaled(text, scale)


def _unscaled(text: str, scale: int) -> decimal.Decimal:
    """Return the number; raise `ValueError` with the reason if it is none."""
    if abs(scale) > _SCALE_MAX:
        raise ValueError(f"its scale {scale} is above {_SCALE_MAX}")
    if len(text) > _NUMBER_BYTES_MAX * 4 // 3 + 4:
        raise ValueError(f"it has more than {_NUMBER_BYTES_MAX} bytes")
    try:
        number = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("it is not base64") from None
    if not number:
        raise ValueError("it is empty")
    return decimal.Decimal(int.from_bytes(number, "big", signed=True)).scaleb(-scale, _EXACT)


def _as_column(
    numbers: list[decimal.Decimal | None], column: pa.DataType, problems: Problems
) -> tuple[pa.Array, Problems]:
    """Return decimals in a column of any type that can hold them."""
    if pa.types.is_decimal(column):
        try:
            return pa.array(numbers, column), problems
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            return _fitting(numbers, column, problems), problems
    if pa.types.is_string(column):
        return pa.array([None if one is None else f"{one:f}" for one in numbers]), problems
    return _fitting(numbers, column, problems), problems


def _fitting(
    numbers: list[decimal.Decimal | None], column: pa.DataType, problems: Problems
) -> pa.Array:
    """Return the numbers that the type holds exactly, one by one; the others are problems."""
    found: list[object] = []
    for place, one in enumerate(numbers):
        try:
            found.append(None if one is None else _fitted(one, column))
        except (pa.ArrowException, ValueError, OverflowError):
            found.append(None)
            problems[place] = f"{one} does not fit into {type_name(column)}"
    return pa.array(found, column)


def _fitted(number: decimal.Decimal, column: pa.DataType) -> object:
    """Return the number as the column's type; raise `ValueError` if it does not hold it."""
    if pa.types.is_floating(column):
        value = pa.scalar(float(number), column).as_py()
        if not math.isfinite(value):
            raise ValueError("too large")
        return value
    if pa.types.is_integer(column):
        if number.adjusted() > _INTEGER_DIGITS_MAX or number != number.to_integral_value():
            raise ValueError("too large, or a fraction")
        return pa.scalar(int(number), column).as_py()
    return pa.scalar(number, column).as_py()


def _floats(values: pa.Array, column: pa.DataType) -> tuple[pa.Array, Problems]:
    """Return numbers; Connect writes NaN and infinity as texts."""
    problems: Problems = {}
    found = _parsed(values, column, problems)
    is_large = pc.and_(pc.is_inf(found), pc.match_substring_regex(values, "[0-9]"))
    for place in pc.indices_nonzero(pc.fill_null(is_large, fill_value=False)).to_pylist():
        problems[place] = f"{shown(values[place].as_py())} does not fit into {type_name(column)}"
    return found, problems


# --- Times ---


def _moments_in(values: pa.Array, column: pa.DataType, unit: TimeUnit) -> tuple[pa.Array, Problems]:
    found, problems = _moments(values, unit)
    return found.cast(column), problems


def _moments(values: pa.Array, unit: TimeUnit) -> tuple[pa.Array, Problems]:
    """Return numbers since 1970 as times in UTC."""
    if unit is TimeUnit.NANOSECONDS:
        quotient = pc.divide(values, 1_000)
        is_below = pc.less(values, pc.multiply(quotient, 1_000))
        return pc.subtract(quotient, is_below.cast(pa.int64())).view(_UTC), {}
    factor = _FACTORS[unit]
    limit = (2**63 - 1) // factor
    is_large = pc.or_(pc.greater(values, limit), pc.less(values, -limit))
    problems: Problems = {}
    if pc.any(is_large, min_count=0).as_py():
        places = pc.indices_nonzero(pc.fill_null(is_large, fill_value=False)).to_pylist()
        problems = {
            one: f"{values[one].as_py()} {unit.value} since 1970 is too large" for one in places
        }
        values = pc.if_else(is_large, pa.scalar(None, pa.int64()), values)
    return pc.multiply(values, factor).view(_UTC), problems


def _dates(values: pa.Array, column: pa.DataType) -> tuple[pa.Array, Problems]:
    """Return days since 1970, or texts such as 2026-01-02 and 2026-01-02Z."""
    is_number = pc.match_substring_regex(values, _NUMBER)
    found = pc.if_else(is_number, values, pa.scalar(None, pa.string()))
    days, problems = _whole(found, pa.int32())
    texts = pc.if_else(is_number, pa.scalar(None, pa.string()), pc.utf8_rtrim(values, "Z"))
    if texts.null_count < len(texts):
        parsed = _parsed(texts, pa.date32(), problems)
        days = pc.coalesce(days, parsed.cast(pa.int32()))
    dates = days.cast(pa.date32())
    if pa.types.is_date32(column):
        return dates, problems
    moments = pc.multiply(days.cast(pa.int64()), _DAY_US)
    return moments.view(_UTC).cast(column), problems


def _times(values: pa.Array, column: pa.DataType, unit: TimeUnit) -> tuple[pa.Array, Problems]:
    """Return numbers of this unit, or texts in ISO 8601."""
    is_number = pc.match_substring_regex(values, _NUMBER)
    numbers = pc.if_else(is_number, values, pa.scalar(None, pa.string()))
    whole, problems = _whole(numbers, pa.int64())
    found, large = _moments(whole, unit)
    problems |= large
    texts = pc.if_else(is_number, pa.scalar(None, pa.string()), values)
    if texts.null_count < len(texts):
        is_zoned = pc.match_substring_regex(texts, _ZONE)
        texts = pc.if_else(is_zoned, texts, pc.binary_join_element_wise(texts, "Z", ""))
        found = pc.coalesce(found, _parsed(texts, _UTC, problems))
    return found.cast(column), problems


def _whole(texts: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Problems]:
    problems: Problems = {}
    return _parsed(texts, kind, problems), problems


def _parsed(texts: pa.Array, kind: pa.DataType, problems: Problems) -> pa.Array:
    """Return the texts cast to the type; texts that are none of it are problems."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        pass
    good: list[str | None] = []
    for place, text in enumerate(texts.to_pylist()):
        try:
            pa.scalar(text, pa.string()).cast(kind)
            good.append(text)
        except pa.ArrowInvalid:
            problems[place] = f"{shown(text)} is no {type_name(kind)}"
            good.append(None)
    return pa.array(good, pa.string()).cast(kind)  # Python has no year 0
