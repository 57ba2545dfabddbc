"""Converts one JSON value to one row: defines the values that each type accepts (pure).

This is the reference that defines a row; `json.values` returns the same result faster, and uses the
reference for every uncertain row. The model is Spark's `from_json` in PERMISSIVE mode; a record for
which Spark fills the column of corrupt records is a reject here.

| column | takes |
| --- | --- |
| any | null, and a field that is not there: null; in a column that is NOT NULL: a reject |
| boolean | true, false |
| tinyint to bigint | numbers without fraction and exponent, in range |
| float, double | numbers in range; the texts NaN, Infinity, +INF and -INF |
| decimal(p, s) | numbers, texts of numbers; every digit counts; rounded half up, then in range |
| string | texts; anything else as its JSON text without spaces |
| date | texts: 2026-01-31 |
| timestamp | ISO 8601 texts, without a zone in UTC; numbers without fraction: seconds since 1970 |
| timestamp_ntz | ISO 8601 texts without a zone |
| binary | texts in base64 |
| array, map, struct | arrays, objects, objects; fields that no column has are passed over |

Differences from Spark, each with a test: a column that is NOT NULL is kept so, an empty value and
text after the value are rejects, quotes are double, a number too large for float or double is a
reject and not infinity, dates and times must have all digits, and for a duplicate key the first
value counts. A fraction in a string is the shortest text of its double, as in Spark, but 1e+16 and
not 1.0E16. Spark reads 128 in a tinyint as -128; here it is a reject.
"""

import base64
import binascii
import datetime
import decimal
import re
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

import pyarrow as pa

from penstock.spark.option_values import shown
from penstock.spark.tables.definition.ddl import type_name
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.values.json.decoding import (
    Number,
    decoded,
    decoded_beginning,
    double_of,
    json_text,
)
from penstock.spark.tables.values.parser import ErrorClass, RowError

_RANGES: Final[Mapping[pa.DataType, int]] = {
    pa.int8(): 2**7,
    pa.int16(): 2**15,
    pa.int32(): 2**31,
    pa.int64(): 2**63,
}
_NOT_NUMBERS: Final[Mapping[str, float]] = {
    "NaN": float("nan"),
    **{word: float("inf") for word in ("Infinity", "+Infinity", "+INF")},
    **{word: float("-inf") for word in ("-Infinity", "-INF")},
}
_TIME: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
    r"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_FLOAT_END: Final = 2.0**128 - 2.0**103
"""A number nearer to zero is a finite float after rounding, such as 3.4028235e38."""
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_DIGITS: Final = decimal.Context(prec=400, rounding=decimal.ROUND_HALF_UP)
"""A JSON number that fits in 38 digits needs no more; longer ones are out of range anyway."""

Converter = Callable[[object, str], object]


class JsonRows:
    """Reads one value at a time."""

    def __init__(self, schema: pa.Schema) -> None:
        self._row = _struct(list(schema))
        self._columns = [(one.name, _converter(one.type), one.nullable) for one in schema]

    def read(self, text: str) -> object:
        """Return the row of this JSON text, for Arrow; raise `RowError` with the reason."""
        try:
            value = decoded(text)
        except ValueError as error:
            raise RowError(ErrorClass.MALFORMED, f"the value is not JSON: {error}.") from None
        except RecursionError:
            raise RowError(ErrorClass.MALFORMED, "the value is nested too deeply.") from None
        if not isinstance(value, dict):
            _mismatch("", "an object", value)
        return self._row(value, "")

    def problem(self, column: int, text: str | None) -> tuple[ErrorClass, str] | None:
        """Return the reason why a column rejects this JSON text's value; None if it accepts it.

        The text is known to be JSON, and None if the column has no value. The error is not returned
        as an exception: an exception would keep its caller alive, and with it the whole batch.
        """
        name, convert, is_nullable = self._columns[column]
        value = None if text is None else decoded_beginning(text)
        try:
            if value is not None:
                convert(value, name)
            elif not is_nullable:
                raise _missing(name)
        except RowError as error:
            return error.error, error.message
        return None


def _converter(kind: pa.DataType) -> Converter:
    if pa.types.is_struct(kind):
        return _struct(list(kind))
    if pa.types.is_map(kind):
        return _map(kind)
    if pa.types.is_list(kind):
        return _list(kind)
    if kind in _RANGES:
        return _integer(kind)
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    found = _SCALARS.get(kind)
    if found is None:
        raise SchemaError(
            f"type {kind}", "JSON cannot be read into it.", "Choose another type for the column."
        )
    return found


def _struct(fields: list[pa.Field]) -> Converter:
    columns = [(one.name, _converter(one.type), one.nullable) for one in fields]

    def convert(value: object, path: str) -> object:
        if not isinstance(value, dict):
            _mismatch(path, "an object", value)
        row: dict[str, object] = {}
        for name, converter, is_nullable in columns:
            inner = value.get(name)
            if inner is not None:
                row[name] = converter(inner, f"{path}.{name}" if path else name)
            elif is_nullable:
                row[name] = None
            else:
                raise _missing(f"{path}.{name}" if path else name)
        return row

    return convert


def _list(kind: pa.DataType) -> Converter:
    inner = _converter(kind.value_type)

    def convert(value: object, path: str) -> object:
        if not isinstance(value, list):
            _mismatch(path, "an array", value)
        return [
            None if one is None else inner(one, f"{path}[{number}]")
            for number, one in enumerate(value)
        ]

    return convert


def _map(kind: pa.DataType) -> Converter:
    if not pa.types.is_string(kind.key_type):
        raise SchemaError(
            f"type {type_name(kind)}", "a key of JSON is a text.", "Use map<string, ...>."
        )
    inner = _converter(kind.item_type)

    def convert(value: object, path: str) -> object:
        if not isinstance(value, dict):
            _mismatch(path, "an object", value)
        return [
            (name, None if one is None else inner(one, f"{path}.{name}"))
            for name, one in value.items()
        ]

    return convert


def _integer(kind: pa.DataType) -> Converter:
    limit, name = _RANGES[kind], f"a whole number of type {type_name(kind)}"

    def convert(value: object, path: str) -> object:
        # 20 characters are enough for every number in range.
        if not isinstance(value, Number) or len(value) > 20 or not _is_whole(value):
            _mismatch(path, name, value)
        number = int(value)
        if not -limit <= number < limit:
            _mismatch(path, name, value)
        return number

    return convert


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def _double(value: object, path: str) -> object:
    return _floating(value, path, "a number", float("inf"))


def _float(value: object, path: str) -> object:
    return _floating(value, path, "a number of type float", _FLOAT_END)


def _floating(value: object, path: str, wanted: str, end: float) -> float:
    if isinstance(value, str) and value in _NOT_NUMBERS:
        return _NOT_NUMBERS[value]
    if not isinstance(value, Number):
        _mismatch(path, wanted, value)
    number = float(value)
    if abs(number) >= end:
        _mismatch(path, f"{wanted} in range", value)
    return number


def _decimal(kind: pa.DataType) -> Converter:
    step = decimal.Decimal(1).scaleb(-kind.scale)
    limit = decimal.Decimal(10) ** (kind.precision - kind.scale)
    wanted = f"a number of type {type_name(kind)}"

    def convert(value: object, path: str) -> object:
        if not isinstance(value, str):
            _mismatch(path, wanted, value)
        number = _exact(value)
        if number is None or (number and number.adjusted() > kind.precision):
            _mismatch(path, wanted, value)
        rounded = number.quantize(step, context=_DIGITS)
        if abs(rounded) >= limit:
            _mismatch(path, wanted, value)
        return rounded

    return convert


def _exact(text: str) -> decimal.Decimal | None:
    """Return the number; None if the text is not a number, or out of every range."""
    if "_" in text:
        # Python ignores these characters.
        return None
    try:
        number = decimal.Decimal(text.strip(), _DIGITS)
    except decimal.InvalidOperation:
        # The exponent of a JSON number may be longer than Python accepts.
        is_zero = isinstance(text, Number) and float(text) == 0
        return decimal.Decimal(0) if is_zero else None
    return number if number.is_finite() else None


def _boolean(value: object, path: str) -> object:
    if not isinstance(value, bool):
        _mismatch(path, "true or false", value)
    return value


def _string(value: object, path: str) -> object:  # noqa: ARG001 - every converter has a path
    if isinstance(value, Number):
        # The shortest text of the same number, as in DuckDB.
        double = double_of(value)
        return str(value) if double is None else repr(double)
    return value if isinstance(value, str) else json_text(value)


def _date(value: object, path: str) -> object:
    wanted = "a date such as 2026-01-31"
    if not isinstance(value, str) or isinstance(value, Number) or len(value) != 10:
        _mismatch(path, wanted, value)
    return _instant(value, path, wanted, None).days


def _timestamp(value: object, path: str) -> object:
    wanted = "a time such as 2026-01-31T23:59:59.123Z"
    if isinstance(value, Number) and len(value) <= 20 and _is_whole(value):
        microseconds = int(value) * 1_000_000
        if not -(2**63) <= microseconds < 2**63:
            _mismatch(path, "seconds in range", value)
        return microseconds
    return _instant(value, path, wanted, None) // _MICROSECOND


def _timestamp_ntz(value: object, path: str) -> object:
    wanted = "a time without a zone, such as 2026-01-31T23:59:59.123"
    return _instant(value, path, wanted, "") // _MICROSECOND


def _instant(value: object, path: str, wanted: str, zone: str | None) -> datetime.timedelta:
    found = (
        None if isinstance(value, Number) or not isinstance(value, str) else _TIME.fullmatch(value)
    )
    if found is None or (zone is not None and (found.group(8) or "") != zone):
        _mismatch(path, wanted, value)
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    # Cut digits beyond microseconds, as Spark does.
    micros = int((found.group(7) or "").ljust(6, "0")[:6])
    try:
        moment = datetime.datetime(year, month, day, hour, minute, second, micros, datetime.UTC)
        return moment - _EPOCH - _offset(found.group(8) or "Z")
    except ValueError:
        _mismatch(path, wanted, value)


def _offset(zone: str) -> datetime.timedelta:
    if zone == "Z":
        return datetime.timedelta()
    digits = zone[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 18 or minutes > 59:
        raise ValueError(zone)
    size = datetime.timedelta(hours=hours, minutes=minutes)
    return -size if zone[0] == "-" else size


def _binary(value: object, path: str) -> object:
    if not isinstance(value, str) or isinstance(value, Number):
        _mismatch(path, "a text in base64", value)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        _mismatch(path, "a text in base64", value)


def _missing(path: str) -> RowError:
    return RowError(ErrorClass.MISSING_VALUE, f"column '{path}' is required and has no value.")


def _mismatch(path: str, wanted: str, value: object) -> NoReturn:
    if isinstance(value, Number):
        seen = value[:100]
    else:
        seen = shown(value) if isinstance(value, str) else json_text(value)[:100]
    place = f"column '{path}'" if path else "the value"
    raise RowError(ErrorClass.TYPE_MISMATCH, f"{place} takes {wanted}, and {seen} is there.")


_SCALARS: Final[Mapping[pa.DataType, Converter]] = {
    pa.bool_(): _boolean,
    pa.float32(): _float,
    pa.float64(): _double,
    pa.string(): _string,
    pa.binary(): _binary,
    pa.date32(): _date,
    _TIMESTAMP: _timestamp,
    pa.timestamp("us"): _timestamp_ntz,
}
