"""Opens and creates the tables of a definition: the only module that uses both formats.

A format's library is imported when a table of this format is opened, so that a pipeline into Delta
needs no Iceberg and vice versa. A missing library is reported with the extra that installs it.
Every error of a library about a catalog or a storage is a `CatalogError` with one line, without
secrets.

A lookup of a table creates nothing: a SQLite catalog without a file is not opened, because opening
it would create the file.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

import pyarrow as pa

from penstock.core.errors import PenstockError
from penstock.spark.tables.definition.locations import local_path, of_delta
from penstock.spark.tables.definition.model import PartitionField as DefinedField
from penstock.spark.tables.definition.model import TableFormat, TableSettings, WriteMode
from penstock.spark.tables.files.file_order import SortField
from penstock.spark.tables.files.file_partitions import (
    PartitionField,
    Transform,
    require_partitionable,
)
from penstock.spark.tables.formats.catalog_problems import (
    catalog_error,
    making_error,
    no_warehouse,
    sqlite_path,
)
from penstock.spark.tables.formats.port import Table, TableError
from penstock.spark.tables.formats.secrets import hidden
from penstock.spark.tables.formats.stored_table import StoredTable

_EXTRAS: Final[Mapping[TableFormat, str]] = {
    TableFormat.DELTA: "delta",
    TableFormat.ICEBERG: "iceberg",
}


class TableMissingError(TableError):
    """The table does not exist."""


class FormatMissingError(TableError):
    """The library of a format is not installed."""


def open_table(settings: TableSettings, name: str, *, is_read_only: bool = False) -> Table:
    """Open the table of this name; raise `TableMissingError` if it does not exist.

    A table with features that Penstock does not write is rejected unless it is read-only.
    """
    module = _module(settings.format)
    path = sqlite_path(dict(settings.catalog))
    if path is not None and not Path(path).exists():
        raise TableMissingError(
            f"there is no catalog at {path}, so there is no table '{name}'. Start the pipeline "
            "with `penstock table run`, which creates both, or correct table.catalog.uri."
        )
    with _translated_errors(settings, lambda error: catalog_error(settings, error)):
        if not _is_there(module, settings, name):
            raise _missing(name)
        if settings.format is TableFormat.DELTA:
            return _typed(
                settings,
                module.DeltaLakeTable(
                    delta_location(settings, name),
                    partitions=partition_fields(settings, name),
                    storage_options=storage_options(settings),
                    has_upserts=has_upserts(settings, name),
                    is_read_only=is_read_only,
                ),
            )
        opened = module.IcebergTable(
            dict(settings.catalog),
            name,
            is_read_only=is_read_only,
            upserts=settings.upserts_of(name),
        )
        return _typed(settings, opened)


def require_makeable(settings: TableSettings) -> None:
    """Raise known obstacles to the creation of a missing table."""
    problem = no_warehouse(settings)
    if problem is not None:
        raise problem
    path = sqlite_path(dict(settings.catalog))
    if path is not None and not Path(path).resolve().parent.is_dir():
        raise catalog_error(settings, OSError("unable to open database file"))


def require_format(settings: TableSettings) -> None:
    """Raise `FormatMissingError` if the library of the table's format is not installed."""
    _module(settings.format)


def make_table(settings: TableSettings, name: str, schema: pa.Schema) -> Table:
    """Open the table of this name; create it with this schema if it is missing."""
    module = _module(settings.format)
    with _translated_errors(settings, lambda error: catalog_error(settings, error)):
        is_there = _is_there(module, settings, name)
        _require_conditional_commits(settings, name)
    if is_there:
        require_partitionable(partition_fields(settings, name), schema)
        return open_table(settings, name)
    require_makeable(settings)
    with _translated_errors(settings, lambda error: making_error(settings, name, error)):
        if settings.format is TableFormat.DELTA:
            return _typed(
                settings,
                module.DeltaLakeTable.create(
                    delta_location(settings, name),
                    schema,
                    partitions=partition_fields(settings, name),
                    storage_options=storage_options(settings),
                    has_upserts=has_upserts(settings, name),
                ),
            )
        return _typed(
            settings,
            module.IcebergTable.create(
                dict(settings.catalog),
                name,
                schema,
                partitions=partition_fields(settings, name),
                sort=sort_fields(settings, name),
                upserts=settings.upserts_of(name),
            ),
        )


def _require_conditional_commits(settings: TableSettings, name: str) -> None:
    """Raise if the store of a Delta table loses commits; once, for both tables of a pipeline."""
    if settings.format is TableFormat.DELTA and name == settings.name and is_remote(settings):
        module = import_module("penstock.spark.tables.formats.delta.conditional")
        module.require_conditional_commits(
            delta_location(settings, name), storage_options(settings)
        )


def _is_there(module: ModuleType, settings: TableSettings, name: str) -> bool:
    if settings.format is TableFormat.DELTA:
        return bool(module.is_table(delta_location(settings, name), storage_options(settings)))
    return bool(module.is_table(dict(settings.catalog), name))


@contextmanager
def _translated_errors(
    settings: TableSettings, translate: Callable[[Exception], PenstockError]
) -> Iterator[None]:
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:
        text = str(error)
        if hidden(text, dict(settings.catalog)) != text:
            raise translate(error) from None
        raise translate(error) from error


def delta_location(settings: TableSettings, name: str) -> str:
    """Return the path of a Delta table: its own, or a folder of the warehouse for each part."""
    if settings.path:
        return of_delta(settings.path) + name.removeprefix(settings.name)
    warehouse = of_delta(dict(settings.catalog)["warehouse"])
    return "/".join([warehouse.rstrip("/"), *name.split(".")])


def storage_options(settings: TableSettings) -> dict[str, str]:
    """Return the further storage options of a Delta table."""
    return {key: value for key, value in settings.catalog if key not in {"warehouse", "type"}}


def has_upserts(settings: TableSettings, name: str) -> bool:
    """Return whether upserts change the rows of this table; bad records are appended."""
    return settings.mode is WriteMode.UPSERT and name != settings.dlq_name


def partition_fields(settings: TableSettings, name: str) -> tuple[PartitionField, ...]:
    """Return the partition fields; the small table of bad records has none, and other columns."""
    return () if name == settings.dlq_name else tuple(map(_field, settings.partition_by))


def _field(defined: DefinedField) -> PartitionField:
    return PartitionField(defined.column, Transform(defined.transform.value), defined.width)


def sort_fields(settings: TableSettings, name: str) -> tuple[SortField, ...]:
    """Return the sort order; nulls are first in ascending columns, as in Spark."""
    if name == settings.dlq_name:
        return ()
    return tuple(
        SortField(one.column, one.is_descending, not one.is_descending) for one in settings.sort_by
    )


def _module(format_: TableFormat) -> ModuleType:
    try:
        return import_module(f"penstock.spark.tables.formats.{format_.value}.table")
    except ImportError as error:
        raise FormatMissingError(
            f"tables of format {format_.value} need the package '{error.name}', which is not "
            f"installed. Install it with: pip install 'penstock[spark,{_EXTRAS[format_]}]'"
        ) from error


def is_remote(settings: TableSettings) -> bool:
    """Return whether a network is between the pipeline and its table."""
    catalog = dict(settings.catalog)
    if settings.format is TableFormat.DELTA:
        return local_path(delta_location(settings, settings.name)) is None
    has_local_files = local_path(catalog.get("warehouse", "")) is not None
    return sqlite_path(catalog) is None or not has_local_files


def _typed(settings: TableSettings, table: Table) -> Table:
    if not is_remote(settings):
        return table
    return StoredTable(table, lambda text: hidden(text, dict(settings.catalog)))


def _missing(name: str) -> TableMissingError:
    return TableMissingError(
        f"there is no table '{name}'. Start the pipeline with `penstock table run`, which makes "
        "it, or correct table.name and table.catalog."
    )
