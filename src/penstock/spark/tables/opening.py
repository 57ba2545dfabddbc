"""Opens and makes the tables that a definition names: the one place that knows both formats.

A format's library is imported when a table of it is opened, so that a pipeline into Delta needs no
Iceberg and the other way round; a missing one is told with the extra that brings it.
"""

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Final

import pyarrow as pa

from penstock.spark.tables.definition import PartitionField as DefinedField
from penstock.spark.tables.definition import TableFormat, TableSettings
from penstock.spark.tables.file_partitions import PartitionField, Transform
from penstock.spark.tables.locations import of_delta
from penstock.spark.tables.port import Table, TableError

_EXTRAS: Final[Mapping[TableFormat, str]] = {
    TableFormat.DELTA: "delta",
    TableFormat.ICEBERG: "iceberg",
}


class TableMissingError(TableError):
    """The table is not there."""


class FormatMissingError(TableError):
    """The library of a format is not installed."""


def open_table(settings: TableSettings, name: str) -> Table:
    """The table of this name, as it is; `TableMissingError` when nobody has made it."""
    module = _module(settings.format)
    if settings.format is TableFormat.DELTA:
        location = delta_location(settings, name)
        if not module.is_table(location, storage_options(settings)):
            raise _missing(name)
        return _typed(
            module.DeltaLakeTable(
                location,
                partitions=_fields(settings, name),
                storage_options=storage_options(settings),
            )
        )
    if not module.is_table(dict(settings.catalog), name):
        raise _missing(name)
    return _typed(module.IcebergTable(dict(settings.catalog), name))


def make_table(settings: TableSettings, name: str, schema: pa.Schema) -> Table:
    """The table of this name; made with this schema when it is not there."""
    module = _module(settings.format)
    if settings.format is TableFormat.DELTA:
        return _typed(
            module.DeltaLakeTable.create(
                delta_location(settings, name),
                schema,
                partitions=_fields(settings, name),
                storage_options=storage_options(settings),
            )
        )
    return _typed(
        module.IcebergTable.create(
            dict(settings.catalog), name, schema, partitions=_fields(settings, name)
        )
    )


def delta_location(settings: TableSettings, name: str) -> str:
    """Where a Delta table lies: a folder of the warehouse for each part of its name."""
    warehouse = of_delta(dict(settings.catalog)["warehouse"])
    return "/".join([warehouse.rstrip("/"), *name.split(".")])


def storage_options(settings: TableSettings) -> dict[str, str]:
    """What the storage of a Delta table is told besides."""
    return {key: value for key, value in settings.catalog if key not in {"warehouse", "type"}}


def _fields(settings: TableSettings, name: str) -> tuple[PartitionField, ...]:
    """The table of bad records is not partitioned: it is small, and has other columns."""
    return () if name == settings.dlq_name else tuple(map(_field, settings.partition_by))


def _field(defined: DefinedField) -> PartitionField:
    return PartitionField(defined.column, Transform(defined.transform.value))


def _module(format_: TableFormat) -> ModuleType:
    try:
        return import_module(f"penstock.spark.tables.{format_.value}")
    except ImportError as error:
        raise FormatMissingError(
            f"tables of format {format_.value} need the package '{error.name}', which is not "
            f"installed. Install it with: pip install 'penstock[spark,{_EXTRAS[format_]}]'"
        ) from error


def _typed(table: Table) -> Table:
    return table


def _missing(name: str) -> TableMissingError:
    return TableMissingError(
        f"there is no table '{name}'. Start the pipeline with `penstock table run`, which makes "
        "it, or correct table.name and table.catalog."
    )
