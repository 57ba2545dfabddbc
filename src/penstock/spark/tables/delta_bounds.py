"""How `deltalake` writes the bounds of columns, when it writes files itself: never for floats.

A compaction and a merge are written by the library, which leaves NaN out of the bounds of a column.
Spark and DuckDB, for which NaN is greater than all numbers, would pass such a file over. Files of
our own have no bounds where there is NaN (`data_files`); here nobody knows before the file is
written, so no column of floats has any.
"""

import pyarrow as pa
from deltalake import ColumnProperties, WriterProperties

from penstock.spark.tables.values.leaves import has_leaf

_NONE = ColumnProperties(statistics_enabled="NONE")
_ALL = ColumnProperties(statistics_enabled="PAGE")
"""What is the default otherwise."""


def writer_properties(schema: pa.Schema) -> WriterProperties | None:
    """What a table with these columns is written with; None when it has no floats."""
    floats = [one for one in schema if has_leaf(one.type, pa.types.is_floating)]
    if not floats:
        return None
    if all(pa.types.is_floating(one.type) for one in floats):
        return WriterProperties(column_properties={one.name: _NONE for one in floats})
    # A column within another one cannot be named, so only those that are none are.
    plain = [one for one in schema if not has_leaf(one.type, pa.types.is_floating)]
    return WriterProperties(
        default_column_properties=_NONE, column_properties={one.name: _ALL for one in plain}
    )
