"""Infers the columns of JSON values from a sample (pure).

Guarantees: the schema accepts every value of the sample: numbers without fraction are bigint;
numbers with a fraction or beyond 64 bits, and a mix of both, are double; objects are structs of all
their fields, arrays are arrays. Fields of several types, numbers too large for a double, and fields
that are always null are strings, which accept everything. A field without a name has no column.
Samples, columns and nesting are bounded; values that are nested too deeply are strings too.

An inferred schema is pinned: the next start reads it back and does not infer again.
"""

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from penstock.spark.tables.definition.ddl import COLUMNS_MAX, NESTING_MAX
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.values.json.decoding import Number, decoded

SAMPLE_VALUES_MAX: Final = 10_000
_LONG_MAX: Final = 2**63

Inferred = Any
"""None (only nulls), an Arrow type, a dictionary of fields, or a list with one element."""


def infer_schema(values: Iterable[bytes | None], what: str) -> pa.Schema:
    """Return the columns of these values; values that are not objects are skipped."""
    merged: Inferred = None
    for number, value in enumerate(values):
        if number >= SAMPLE_VALUES_MAX:
            break
        found = _object(value)
        if found is not None:
            merged = _merged(merged, _inferred(found, 0))
    if not isinstance(merged, dict) or not _unique(merged):
        raise SchemaError(
            what,
            "no value of the sample is a JSON object with fields.",
            "Set value.schema, or wait until there are records.",
        )
    if _columns(merged) > COLUMNS_MAX:
        raise SchemaError(
            what,
            f"the sample has more than {COLUMNS_MAX} columns.",
            "Set value.schema; objects whose keys are data are maps.",
        )
    return pa.schema([pa.field(name, _type(inner)) for name, inner in _unique(merged).items()])


def _object(value: bytes | None) -> dict[str, object] | None:
    try:
        found = decoded(value.decode()) if value is not None else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _inferred(value: object, depth: int) -> Inferred:
    if value is None:
        return None
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, Number):
        return _number(value)
    if isinstance(value, str) or depth >= NESTING_MAX - 1:
        return pa.string()
    if isinstance(value, list):
        element: Inferred = None
        for one in value:
            element = _merged(element, _inferred(one, depth + 1))
        return [element]
    assert isinstance(value, dict), "JSON has nothing else"
    return {name: _inferred(one, depth + 1) for name, one in value.items()}


def _number(text: Number) -> pa.DataType:
    double = float(text)
    if abs(double) == float("inf"):
        return pa.string()
    # 20 characters are enough for every number in range.
    is_whole = len(text) <= 20 and text.removeprefix("-").isdecimal()
    return pa.int64() if is_whole and -_LONG_MAX <= int(text) < _LONG_MAX else pa.float64()


def _merged(one: Inferred, other: Inferred) -> Inferred:
    if one is None or other is None:
        return other if one is None else one
    if isinstance(one, dict) and isinstance(other, dict):
        names = dict.fromkeys([*one, *other])
        return {name: _merged(one.get(name), other.get(name)) for name in names}
    if isinstance(one, list) and isinstance(other, list):
        return [_merged(one[0], other[0])]
    if isinstance(one, dict | list) or isinstance(other, dict | list):
        return pa.string()
    if one == other:
        return one
    is_number = {one, other} == {pa.int64(), pa.float64()}
    return pa.float64() if is_number else pa.string()


def _type(inferred: Inferred) -> pa.DataType:
    if isinstance(inferred, dict):
        fields = [pa.field(name, _type(inner)) for name, inner in _unique(inferred).items()]
        return pa.struct(fields) if fields else pa.string()
    if isinstance(inferred, list):
        return pa.list_(pa.field("element", _type(inferred[0])))
    return pa.string() if inferred is None else inferred


def _unique(fields: dict[str, Inferred]) -> dict[str, Inferred]:
    """Return the named fields whose names differ in more than case: Spark ignores the case."""
    seen: dict[str, str] = {}
    for name in fields:
        if name:
            seen.setdefault(name.lower(), name)
    return {name: fields[name] for name in seen.values()}


def _columns(inferred: Inferred) -> int:
    if isinstance(inferred, dict):
        return sum(1 + _columns(inner) for inner in inferred.values())
    return _columns(inferred[0]) if isinstance(inferred, list) else 0
