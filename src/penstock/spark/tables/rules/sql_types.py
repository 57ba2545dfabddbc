"""The operand types of rules: Spark's types, in DuckDB's SQL (pure).

Guarantees: `comparison`, `arithmetic` and `common` return DuckDB's SQL with the result of Spark's
ANSI mode for operands of these types, or raise `NotTheSameError` when no SQL has the same result
for every value. DuckDB's own conversions are not used: every operand is cast to Spark's type.

Types are Arrow's, as in the columns of rows; `pa.null()` is the type of NULL.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pyarrow as pa

DIGITS_MAX: Final = 38
"""The maximum digits of a decimal; both round longer ones, each in its own way."""
EXACT_DIGITS_MAX: Final = 15
"""The maximum digits of a decimal cast to a double: with more, DuckDB's is not always the
nearest."""
_INTEGERS: Final = {
    pa.int8(): ("TINYINT", 3),
    pa.int16(): ("SMALLINT", 5),
    pa.int32(): ("INTEGER", 10),
    pa.int64(): ("BIGINT", 20),
}
"""By width: the name, and its number of digits as a decimal in Spark."""
_PLAIN: Final = (pa.string(), pa.bool_(), pa.date32(), pa.binary())
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[ T][0-9]{2}:[0-9]{2}:[0-9]{2}Z?)?")
"""Texts that both parse to the same time; others are parsed differently."""


class NotTheSameError(Exception):
    """DuckDB and Spark would return different results."""


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression of DuckDB's, and its type in Spark.

    A float is a double here, of the same value: Spark compares most types with it as doubles.
    """

    sql: str
    type: pa.DataType
    may_fail: bool = False
    """Whether some values cannot be evaluated."""
    text: str | None = None
    """The text of a literal in the rule."""


def comparison(left: Typed, operator: str, right: Typed) -> Typed:
    """Return the comparison of two values."""
    for one, other in ((left, right), (right, left)):
        if other.text is not None and _is_time(one.type):
            timed = _time_of(other.text, one.type)
            pair = (one.sql, timed) if one is left else (timed, one.sql)
            return Typed(f"({pair[0]} {operator} {pair[1]})", pa.bool_(), one.may_fail)
    kind = common([left.type, right.type])
    if pa.types.is_nested(kind):
        raise NotTheSameError
    sql = f"({cast(left, kind)} {operator} {cast(right, kind)})"
    return Typed(sql, pa.bool_(), left.may_fail or right.may_fail)


def arithmetic(left: Typed, operator: str, right: Typed) -> Typed:
    """Return a sum, a difference or a product."""
    if not (_is_number(left.type) and _is_number(right.type)):
        raise NotTheSameError
    kind = common([left.type, right.type])
    if pa.types.is_float32(kind):
        raise NotTheSameError  # Spark rounds the result to a float
    if pa.types.is_decimal(kind):
        return _decimals(left, operator, right)
    sql = f"({cast(left, kind)} {operator} {cast(right, kind)})"
    may_fail = left.may_fail or right.may_fail or kind in _INTEGERS
    return Typed(sql, kind, may_fail)


def negative(value: Typed) -> Typed:
    """Return the number with the other sign."""
    if value.type in _INTEGERS:
        zero = Typed(f"CAST(0 AS {name_of(value.type)})", value.type)
        return arithmetic(zero, "-", value)
    if not _is_number(value.type):
        raise NotTheSameError
    return Typed(f"(-{value.sql})", value.type, value.may_fail)


def absolute(value: Typed) -> Typed:
    """Return the number without its sign."""
    if not _is_number(value.type):
        raise NotTheSameError
    may_fail = value.may_fail or value.type in _INTEGERS
    return Typed(f"abs({value.sql})", value.type, may_fail)


def common(kinds: Sequence[pa.DataType]) -> pa.DataType:
    """Return Spark's common type of all of these."""
    known = [one for one in kinds if not pa.types.is_null(one)]
    if not known:
        return pa.null()
    if all(one == known[0] for one in known):
        if not (_is_number(known[0]) or known[0] in _PLAIN or pa.types.is_timestamp(known[0])):
            raise NotTheSameError
        return known[0]
    if not all(map(_is_number, known)):
        raise NotTheSameError
    if any(map(pa.types.is_floating, known)):
        if any(pa.types.is_decimal(one) and one.precision > EXACT_DIGITS_MAX for one in known):
            raise NotTheSameError
        return pa.float64()
    if all(one in _INTEGERS for one in known):
        return max(known, key=lambda one: _INTEGERS[one][1])
    digits = [_digits(one) for one in known]
    scale = max(after for _, after in digits)
    return _decimal(max(all_ - after for all_, after in digits) + scale, scale)


def cast(value: Typed, kind: pa.DataType) -> str:
    """Return the value cast to this type, which `common` has found."""
    if value.type == kind or pa.types.is_null(value.type) or pa.types.is_float32(kind):
        return value.sql
    return f"CAST({value.sql} AS {name_of(kind)})"


def name_of(kind: pa.DataType) -> str:
    """Return the type in DuckDB."""
    if kind in _INTEGERS:
        return _INTEGERS[kind][0]
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    assert pa.types.is_floating(kind), "nothing else is cast"
    return "DOUBLE"


def _decimals(left: Typed, operator: str, right: Typed) -> Typed:
    """Return the operation with all digits that the result can have, as in Spark."""
    (left_digits, left_scale), (right_digits, right_scale) = map(_digits, (left.type, right.type))
    if operator == "*":
        kind = _decimal(left_digits + right_digits + 1, left_scale + right_scale)
        # With fewer than 19 digits DuckDB multiplies in 64 bits, which may be too few.
        wide = [(max(digits, 19), scale) for digits, scale in map(_digits, (left.type, right.type))]
        operands = [
            cast(one, _decimal(*digits)) for one, digits in zip((left, right), wide, strict=True)
        ]
    else:
        whole = common([left.type, right.type])
        kind = _decimal(whole.precision + 1, whole.scale)
        operands = [cast(one, kind) for one in (left, right)]
    sql = f"CAST(({f' {operator} '.join(operands)}) AS {name_of(kind)})"
    return Typed(sql, kind, left.may_fail or right.may_fail)


def _digits(kind: pa.DataType) -> tuple[int, int]:
    """Return the digits of a number, and the number of digits after the point."""
    if kind in _INTEGERS:
        return _INTEGERS[kind][1], 0
    return kind.precision, kind.scale


def _decimal(digits: int, scale: int) -> pa.DataType:
    if digits > DIGITS_MAX:
        raise NotTheSameError
    return pa.decimal128(digits, scale)


def _is_number(kind: pa.DataType) -> bool:
    is_float = pa.types.is_float32(kind) or pa.types.is_float64(kind)
    return bool(kind in _INTEGERS or is_float or pa.types.is_decimal128(kind))


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date32(kind) or kind == pa.timestamp("us", "UTC"))


def _time_of(text: str, kind: pa.DataType) -> str:
    """Return a text as a time of UTC."""
    is_date = pa.types.is_date32(kind)
    try:
        found = datetime.fromisoformat(text.removesuffix("Z"))
    except ValueError:
        raise NotTheSameError from None
    if not _TIME.fullmatch(text) or (is_date and len(text) > len("2026-01-31")):
        raise NotTheSameError
    day = found.date().isoformat()
    return f"DATE '{day}'" if is_date else f"TIMESTAMPTZ '{day} {found.time().isoformat()}+00'"
