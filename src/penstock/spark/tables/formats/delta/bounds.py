"""Chooses the columns of a Delta table with bounds in its log: bounds safe for every reader.

Readers skip files by bounds, so wrong bounds hide rows; and `deltalake` treats missing bounds as
bounds of an empty range. So a column has them in all files, or in none:

- Floats have none. `deltalake` writes the files of a compaction and of a merge itself, and leaves
  NaN out of their bounds; for Spark and DuckDB it is greater than all numbers.
- Decimals have them as far as a double is exact and is written without an exponent, because
  `deltalake` writes them as doubles, and cannot read exponents.
- Booleans, binaries and columns inside of other columns have none: no reader uses them.
- Columns that the table got later have none: the files from before could have none.

Delta's own table property names these columns. Every writer obeys it, and readers use no others. A
user's value of it stays, and even then files that `deltalake` writes have no wrong bounds.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import pyarrow as pa
from deltalake import ColumnProperties, WriterProperties

from penstock.spark.tables.values.leaves import has_leaf, paths_of

COLUMNS_KEY: Final = "delta.dataSkippingStatsColumns"
COUNT_KEY: Final = "delta.dataSkippingNumIndexedCols"
COLUMNS_MAX: Final = 32
"""Columns with statistics, the first ones: Delta's own default."""
DECIMAL_DIGITS_MAX: Final = 15
"""A double always has this number of digits ..."""
DECIMAL_SCALE_MAX: Final = 4
"""... and at 0.00001 and below it is written with an exponent."""
_NONE: Final = ColumnProperties(statistics_enabled="NONE")
_ALL: Final = ColumnProperties(statistics_enabled="PAGE")
"""The default otherwise."""
_NAME: Final = re.compile(r"\s*(?:`(?P<quoted>(?:[^`]|``)*)`|(?P<plain>[^,`]+))\s*(?:,|$)")


def is_exact_decimal(precision: int, scale: int) -> bool:
    """Return whether a double holds all decimals of this type, and no writer uses an exponent."""
    return precision <= DECIMAL_DIGITS_MAX and scale <= DECIMAL_SCALE_MAX


def bounds_properties(
    schema: pa.Schema, partitioned_by: Collection[str], held: Mapping[str, str]
) -> dict[str, str]:
    """Return the properties that name the columns with bounds; none if the user has set them."""
    if COLUMNS_KEY in held or COUNT_KEY in held:
        return {}
    names = list(_bounded(schema, partitioned_by))
    # An empty list is not valid in Delta.
    return {COLUMNS_KEY: _list(names)} if names else {COUNT_KEY: "0"}


def bounded_columns(held: Mapping[str, str]) -> set[str] | None:
    """Return the columns in a table's properties; None if they name none: the first ones."""
    text = held.get(COLUMNS_KEY)
    if text is None:
        return None
    return {
        one["plain"].strip() if one["quoted"] is None else one["quoted"].replace("``", "`")
        for one in _NAME.finditer(text)
    }


def writer_properties(schema: pa.Schema) -> WriterProperties | None:
    """Return the writer properties of `deltalake` for these columns, whatever the table's are."""
    inexact = [one for one in schema if has_leaf(one.type, _is_inexact)]
    if not inexact:
        return None
    if all(_is_inexact(one.type) for one in inexact):
        return WriterProperties(column_properties={one.name: _NONE for one in inexact})
    # A nested column cannot be named, so the default is NONE and the exact columns are named.
    plain = [one for one in schema if not has_leaf(one.type, _is_inexact)]
    return WriterProperties(
        default_column_properties=_NONE, column_properties={one.name: _ALL for one in plain}
    )


def _bounded(schema: pa.Schema, partitioned_by: Collection[str]) -> Iterator[str]:
    """Return those of the first columns, counting nested ones, that older files have bounds for."""
    count = 0
    for one in schema:
        count += len(paths_of(pa.schema([one])))
        if count > COLUMNS_MAX:
            return
        if one.name not in partitioned_by and _has_bounds(one.type):
            yield one.name


def _has_bounds(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return is_exact_decimal(kind.precision, kind.scale)
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    )


def _is_inexact(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return not is_exact_decimal(kind.precision, kind.scale)
    return bool(pa.types.is_floating(kind))


def _list(names: Collection[str]) -> str:
    return ",".join("`" + one.replace("`", "``") + "`" for one in names)
