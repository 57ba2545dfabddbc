"""Buckets and truncated values of a column, as Iceberg's specification defines them (pure).

A bucket is the 32-bit Murmur3 hash of a value, without its sign bit, modulo the number of buckets.
Whole numbers, dates (days) and times (microseconds) are hashed as 8 bytes, little-endian; texts as
UTF-8; decimals as the shortest two's complement of their unscaled number, big-endian. Numbers are
truncated to the multiple of the width below them, texts to characters, bytes to bytes.

A number near the least one of its type has no such multiple in its type: engines then disagree
about its partition. `untruncatable` finds it, and `truncated` raises an error instead of a value.
"""

from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.errors import SparkQueryError

_SIGN: Final = 0x7FFF_FFFF
_FIRST_FACTOR: Final = 0xCC9E_2D51
_SECOND_FACTOR: Final = 0x1B87_3593
_LONG_BYTES: Final = 8


class UntruncatableError(SparkQueryError):
    """A number has no truncated value in its type, so no partition can hold its row."""

    def __init__(self, value: object, width: int, kind: pa.DataType, column: str = "") -> None:
        super().__init__(value, width, kind, column)
        self.value = value
        self.width = width
        self.kind = kind
        self.column = column

    def __str__(self) -> str:
        column = f"column '{self.column}'" if self.column else "a column"
        return (
            f"{column} holds {self.value}, and the table is partitioned by its value truncated to "
            f"a multiple of {self.width}: the type {self.kind} has no such multiple below it. "
            "Nothing was committed. Delete or update such rows in the engine that wrote them, or "
            "partition by another transform."
        )


def has_bucket(kind: pa.DataType) -> bool:
    """Return whether a column of this type has buckets."""
    return has_truncation(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind)


def has_truncation(kind: pa.DataType) -> bool:
    """Return whether a column of this type can be truncated."""
    return bool(
        pa.types.is_signed_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_decimal128(kind)
    )


def buckets_of(column: pa.Array, count: int) -> pa.Array:
    """Return the bucket of each value, from 0; null for null."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        hashes = _hashes_of_longs(column.cast(pa.timestamp("us", kind.tz)).view(pa.int64()))
    elif pa.types.is_date32(kind):
        hashes = _hashes_of_longs(column.view(pa.int32()))
    elif pa.types.is_signed_integer(kind):
        hashes = _hashes_of_longs(column)
    else:
        hashes = _hashes_of_distinct(column)
    positive = pc.bit_wise_and(hashes, pa.scalar(_SIGN, pa.uint32())).cast(pa.int64())
    return _remainder(positive, count).cast(pa.int32())


def _hashes_of_longs(column: pa.Array) -> pa.Array:
    values = column.cast(pa.int64()).view(pa.uint64())
    low = pc.bit_wise_and(values, pa.scalar(0xFFFF_FFFF, pa.uint64())).cast(pa.uint32())
    high = pc.shift_right(values, pa.scalar(32, pa.uint64())).cast(pa.uint32())
    mixed = _mixed(_mixed(pa.scalar(0, pa.uint32()), low), high)
    return _finished(pc.bit_wise_xor(mixed, pa.scalar(_LONG_BYTES, pa.uint32())))


def _mixed(state: pa.Array | pa.Scalar, block: pa.Array) -> pa.Array:
    """Return the hash after one more block of 4 bytes; the arithmetic is modulo 2**32."""
    block = _times(_rotated(_times(block, _FIRST_FACTOR), 15), _SECOND_FACTOR)
    rotated = _rotated(pc.bit_wise_xor(state, block), 13)
    return pc.add(_times(rotated, 5), pa.scalar(0xE654_6B64, pa.uint32()))


def _finished(state: pa.Array) -> pa.Array:
    for bits, factor in ((16, 0x85EB_CA6B), (13, 0xC2B2_AE35)):
        state = _times(pc.bit_wise_xor(state, _shifted(state, bits)), factor)
    return pc.bit_wise_xor(state, _shifted(state, 16))


def _shifted(values: pa.Array, bits: int) -> pa.Array:
    return pc.shift_right(values, pa.scalar(bits, pa.uint32()))


def _rotated(values: pa.Array, bits: int) -> pa.Array:
    left = pc.shift_left(values, pa.scalar(bits, pa.uint32()))
    return pc.bit_wise_or(left, _shifted(values, 32 - bits))


def _times(values: pa.Array, factor: int) -> pa.Array:
    return pc.multiply(values, pa.scalar(factor, pa.uint32()))


def _hashes_of_distinct(column: pa.Array) -> pa.Array:
    """Return the hashes of texts, bytes or decimals; each distinct value is hashed once."""
    import mmh3  # of the extra `iceberg`: Delta tables have no buckets

    encoded = column.dictionary_encode()
    values = encoded.dictionary
    if pa.types.is_decimal(values.type):
        data = [_decimal_bytes(one) for one in values.to_pylist()]
    else:
        data = values.cast(pa.binary()).to_pylist()
    hashes = pa.array([mmh3.hash(one, signed=False) for one in data], pa.uint32())
    return hashes.take(encoded.indices)


def _decimal_bytes(value: Decimal) -> bytes:
    unscaled = _unscaled(value)
    bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
    return unscaled.to_bytes(bits // 8 + 1, "big", signed=True)


def _unscaled(value: Decimal) -> int:
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits)) or "0")
    return -number if sign else number


def truncated(column: pa.Array, width: int) -> pa.Array:
    """Return the truncated values, of the column's type.

    Raises `UntruncatableError` if a number has none.
    """
    kind = column.type
    if untruncatable(column, width) is not None:
        raise UntruncatableError(pc.min(column).as_py(), width, kind)
    if pa.types.is_string(kind):
        return pc.utf8_slice_codeunits(column, 0, width)
    if pa.types.is_binary(kind):
        return pc.binary_slice(column, 0, width)
    if pa.types.is_decimal(kind):
        encoded = column.dictionary_encode()
        values = [_truncated_decimal(one, width) for one in encoded.dictionary.to_pylist()]
        return pa.array(values, kind).take(encoded.indices)
    values = column.cast(pa.int64())
    return pc.subtract(values, _remainder(values, width)).cast(kind)


def _truncated_decimal(value: Decimal, width: int) -> Decimal:
    unscaled = _unscaled(value)
    number = unscaled - unscaled % width
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), "columns have no infinity"
    digits = tuple(int(one) for one in str(abs(number)))
    return Decimal((int(number < 0), digits, exponent))


def _remainder(values: pa.Array, divisor: int) -> pa.Array:
    """Return the remainder of whole numbers, never below 0."""
    by = pa.scalar(divisor, pa.int64())
    found = pc.subtract(values, pc.multiply(pc.divide(values, by), by))
    return pc.if_else(pc.less(found, 0), pc.add(found, by), found)


def untruncatable(column: pa.Array, width: int) -> pa.Array | None:
    """Return which values have no truncated value in their type; None if there are none."""
    first = first_multiple(column.type, width)
    if first is None:
        return None
    least = pc.min(column).as_py()
    if least is None or least >= first:
        return None
    return pc.fill_null(pc.less(column, pa.scalar(first, column.type)), fill_value=False)


def first_multiple(kind: pa.DataType, width: int) -> int | Decimal | None:
    """Return the least multiple of the width in a type of numbers; None for other types."""
    if pa.types.is_signed_integer(kind):
        bound: int = 2 ** (kind.bit_width - 1)
        return -(bound // width * width)
    if pa.types.is_decimal(kind):
        number = (10**kind.precision - 1) // width * width
        return Decimal((1, tuple(int(one) for one in str(number)), -kind.scale))
    return None
