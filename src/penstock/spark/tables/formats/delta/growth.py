"""Adds columns to a Delta table: new columns, and new fields in structs or lists of structs.

`deltalake` merges a column that is added again with the existing one. It widens nothing, and map
values stay unchanged: it could not read the older files (`schema_changes`). `delta.columns` decides
the columns to add.

A time without a zone needs a feature of the table. `deltalake` does not detect such times in maps,
and creates tables that no reader can open. So for maps the feature is added first. A new table
cannot be created with a feature: it is created without such columns, and they are added with its
first rows.
"""

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, TableFeatures

_FEATURE = "timestampNtz"


def columns_at_first(schema: pa.Schema) -> pa.Schema:
    """Return the columns with which a new table can be created."""
    return pa.schema([one for one in schema if not _has_local_time(one.type, in_map=False)])


def lacks_feature(table: DeltaTable, columns: pa.Schema) -> bool:
    """Return whether the feature for times without a zone must be added before these columns."""
    known = table.protocol().reader_features or []
    return _FEATURE not in known and any(_has_local_time(one.type, in_map=False) for one in columns)


def add_feature(table: DeltaTable, properties: CommitProperties) -> None:
    """Add the feature for times without a zone."""
    table.alter.add_feature(
        TableFeatures.TimestampWithoutTimezone,
        allow_protocol_versions_increase=True,
        commit_properties=properties,
    )


def add_columns(table: DeltaTable, columns: pa.Schema, properties: CommitProperties) -> None:
    """Write one log entry that adds the columns."""
    fields: list[Field] = Schema.from_arrow(columns).fields
    table.alter.add_columns(fields, commit_properties=properties)


def _has_local_time(kind: pa.DataType, *, in_map: bool) -> bool:
    """Return whether a map contains a time without a zone."""
    if pa.types.is_struct(kind):
        return any(_has_local_time(one.type, in_map=in_map) for one in kind)
    if pa.types.is_list(kind):
        return _has_local_time(kind.value_type, in_map=in_map)
    if pa.types.is_map(kind):
        return any(_has_local_time(one, in_map=True) for one in (kind.key_type, kind.item_type))
    return in_map and bool(pa.types.is_timestamp(kind)) and kind.tz is None
