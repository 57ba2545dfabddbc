"""Converts between Arrow's and Iceberg's schemas: field ids and possible changes.

Iceberg identifies columns by their ids, which a data file contains. A new column has an id before
its commit, because ids are consecutive: writers of files get the future schema here. The commit is
rejected when the table's schema has changed since.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from penstock.spark.tables.formats.port import SchemaRefusedError

_FIELD_ID: Final = b"PARQUET:field_id"
_Path = tuple[str, ...]


def new_schema(schema: pa.Schema) -> Schema:
    """Return a schema for a new table, with ids starting at 1."""
    _require_distinct(schema)
    return assign_fresh_schema_ids(Catalog._convert_schema_if_needed(schema))


def planned_schema(table: Table, schema: pa.Schema) -> Schema:
    """Return the table's schema after columns of `schema` were added and widened."""
    _require_distinct(plain_schema(table.schema()), schema)
    try:
        # This transaction is discarded: only the ids are used.
        planned = table.transaction().update_schema().union_by_name(kept_required(table, schema))
        return planned._apply()
    except Exception as error:  # pyiceberg has no common base for errors of schema changes
        raise SchemaRefusedError(_refusal(table, schema, error)) from error


def kept_required(table: Table, schema: pa.Schema) -> pa.Schema:
    """Return the columns, required as in the table: pyiceberg would change them to optional."""
    required = {one.name for one in table.schema().fields if one.required}
    return pa.schema(
        [one.with_nullable(one.name not in required and one.nullable) for one in schema]
    )


def _require_distinct(*schemas: pa.Schema) -> None:
    """Raise `SchemaRefusedError` if a column has the Iceberg name of another column's field."""
    found: dict[str, _Path] = {}
    for path in (one for schema in schemas for field in schema for one in _paths(field)):
        other = found.setdefault(".".join(path), path)
        if other != path:
            raise SchemaRefusedError(
                f"{_shown(other)} and {_shown(path)} are both '{'.'.join(path)}' for Iceberg. Give "
                "one of them another name in the schema of the values, or write a Delta table."
            )


def _paths(field: pa.Field) -> Iterator[_Path]:
    """Return the paths of a column and of each field in it, in Iceberg's names."""
    yield (field.name,)
    kind = field.type
    inner: list[pa.Field] = []
    if pa.types.is_struct(kind):
        inner = list(kind)
    elif pa.types.is_map(kind):
        inner = [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = [kind.value_field.with_name("element")]
    for one in inner:
        yield from ((field.name, *path) for path in _paths(one))


def _shown(path: _Path) -> str:
    column, *inner = path
    return f"column '{column}'" if not inner else f"field '{inner[-1]}' in column '{column}'"


def _refusal(table: Table, schema: pa.Schema, error: Exception) -> str:
    held = plain_schema(table.schema())
    differing = [
        f"'{one.name}' ({held.field(one.name).type}, and {one.type} in the new schema)"
        for one in schema
        if one.name in held.names and held.field(one.name).type != one.type
    ]
    return (
        f"the columns of table {'.'.join(table.name())} cannot become those of the new schema: "
        f"{', '.join(differing)[:500]}; {str(error)[:300]}. Iceberg adds columns and widens int to "
        "long, float to double and decimals to more digits. Give the column another name, or name "
        "another table."
    )


def plain_schema(schema: Schema) -> pa.Schema:
    """Return an Iceberg schema as Arrow's, with the types of tasks (not Arrow's large ones)."""
    return pa.schema(
        [
            pa.field(one.name, _plain(one.type), one.nullable)
            for one in schema_to_pyarrow(schema, include_field_ids=False)
        ]
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_plain(one.type)) for one in kind])
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_plain(key.type)), item.with_type(_plain(item.type)))
    return kind


def with_ids(rows: pa.Schema, schema: Schema) -> pa.Schema:
    """Return the rows' schema with the ids of the table's columns, as in data files."""
    found = []
    for field in rows:
        column = schema.find_field(field.name)
        found.append(_identified(field, column.field_id, column.field_type))
    return pa.schema(found)


def _identified(field: pa.Field, field_id: int, kind: IcebergType) -> pa.Field:
    metadata = {_FIELD_ID: str(field_id).encode()}
    return field.with_type(_with_ids_inside(field.type, kind)).with_metadata(metadata)


def _with_ids_inside(arrow: pa.DataType, kind: IcebergType) -> pa.DataType:
    match kind:
        case StructType():
            by_name = {one.name: one for one in kind.fields}
            return pa.struct(
                [
                    _identified(one, by_name[one.name].field_id, by_name[one.name].field_type)
                    for one in arrow
                ]
            )
        case ListType():
            element = _identified(arrow.value_field, kind.element_id, kind.element_type)
            return pa.list_(element.with_name("element"))
        case MapType():
            return pa.map_(
                _identified(arrow.key_field, kind.key_id, kind.key_type),
                _identified(arrow.item_field, kind.value_id, kind.value_type),
            )
    return arrow
