"""A catalog that cannot be used is reported in one line, with the key and the remedy."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.core.errors import PenstockError
from penstock.spark.errors import OptionError
from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.model import (
    PartitionField,
    TableFormat,
    TableSettings,
    Transform,
)
from penstock.spark.tables.formats.catalog_problems import CatalogError, catalog_error, shown_uri
from penstock.spark.tables.formats.opening import TableMissingError, make_table, open_table

SCHEMA = pa.schema([("id", pa.int64())])


def settings(**catalog: str) -> TableSettings:
    return TableSettings(TableFormat.ICEBERG, "shop.orders", tuple(sorted(catalog.items())))


def in_folder(folder: Path, file: str = "catalog.db") -> TableSettings:
    return settings(type="sql", uri=f"sqlite:///{folder}/{file}", warehouse=f"file://{folder}/w")


def told(error: PenstockError) -> str:
    text = str(error)
    assert "\n" not in text
    assert "Background" not in text
    return text


def test_looking_for_a_table_makes_no_catalog(tmp_path: Path) -> None:
    with pytest.raises(TableMissingError, match=f"there is no catalog at {tmp_path}/catalog.db"):
        open_table(in_folder(tmp_path), "shop.orders")
    assert not list(tmp_path.iterdir())
    make_table(in_folder(tmp_path), "shop.orders", SCHEMA).close()
    open_table(in_folder(tmp_path), "shop.orders").close()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CatalogError) as caught:
        make_table(in_folder(tmp_path / "nowhere"), "shop.orders", SCHEMA)
    assert told(caught.value) == (
        f"key 'table.catalog.uri': the catalog sqlite:///{tmp_path}/nowhere/catalog.db cannot be "
        "opened: unable to open database file. Create the folder, or correct it."
    )


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_text("no database, but a text that is long enough" * 9)
    with pytest.raises(CatalogError, match="file is not a database"):
        open_table(in_folder(tmp_path), "shop.orders")


@pytest.mark.parametrize(
    ("catalog", "key", "problem"),
    [
        ({"type": "sqll"}, "table.catalog.type", "Did you mean 'sql'?"),
        ({"type": "rest", "uri": "http://127.0.0.1:1"}, "table.catalog.uri", "Connection refused"),
        ({"type": "rest"}, "table.catalog", "Write table.catalog.uri"),
        ({"type": "sql", "uri": "nowhere://x"}, "table.catalog.uri", "cannot be opened"),
    ],
)
def test_catalogs_that_cannot_be_opened(catalog: dict[str, str], key: str, problem: str) -> None:
    with pytest.raises(PenstockError) as caught:
        open_table(settings(**catalog), "shop.orders")
    assert told(caught.value).startswith(f"key '{key}': ")
    assert problem in told(caught.value)


def test_a_catalog_in_a_database_needs_a_warehouse(tmp_path: Path) -> None:
    without = settings(type="sql", uri=f"sqlite:///{tmp_path}/catalog.db")
    with pytest.raises(DefinitionError, match=r"table\.catalog\.warehouse': it is missing"):
        make_table(without, "shop.orders", SCHEMA)
    make_table(in_folder(tmp_path), "shop.orders", SCHEMA).close()
    make_table(without, "shop.orders", SCHEMA).close()  # the table knows where it lies


def test_partitions_of_a_table_that_is_there_need_their_columns(tmp_path: Path) -> None:
    make_table(in_folder(tmp_path), "shop.orders", SCHEMA).close()
    other = replace(in_folder(tmp_path), partition_by=(PartitionField(Transform.IDENTITY, "nope"),))
    with pytest.raises(OptionError, match="no column 'nope'"):
        make_table(other, "shop.orders", SCHEMA)


def test_a_package_that_is_not_installed_is_told_with_its_extra() -> None:
    error = type("NotInstalledError", (Exception,), {})("SQLAlchemy support not installed")
    text = told(catalog_error(settings(type="sql", uri="sqlite:///x"), error))
    assert "pip install 'penstock[spark,iceberg]'" in text


def test_a_password_is_not_shown() -> None:
    assert shown_uri("postgresql://me:secret@host/db") == "postgresql://me:***@host/db"


def test_a_warehouse_of_delta_that_cannot_be_used() -> None:
    delta = replace(settings(warehouse="nowhere://x/y"), format=TableFormat.DELTA)
    with pytest.raises(CatalogError, match="cannot be used: Unknown scheme"):
        make_table(delta, "shop.orders", SCHEMA)
