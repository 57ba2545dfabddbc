"""A lake for tests: an S3 store, Iceberg's REST catalog over it, and definitions of tables there.

Its keys are in files, as in production: the workers of a Spark session have the variables of its
start.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from penstock.core.clock import Clock, SystemClock
from penstock.spark.tables.files.file_partitions import PartitionField
from penstock.spark.tables.formats.port import Table
from penstock.spark.tables.formats.secrets import resolved
from tests.oracle.iceberg_rest import RestCatalog
from tests.oracle.object_store import REGION, ObjectStore
from tests.spark.tables.pipeline_world import World
from tests.spark.tables.table_kinds import SCHEMA

BUCKET: Final = "lake"
KINDS: Final = ("rest", "sql", "delta")
"""Iceberg by a REST catalog that hands out keys, Iceberg by a database, Delta."""


@dataclass(frozen=True)
class Lake:
    """A store and a catalog that run."""

    store: ObjectStore
    rest: RestCatalog
    folder: Path
    """Has the files of the keys."""

    def __post_init__(self) -> None:
        (self.folder / "access-key").write_text(self.store.access_key)
        (self.folder / "secret-key").write_text(self.store.secret_key)

    def catalog(
        self, kind: str, folder: Path, *, uri: str = "", key: str = "", secret: str = ""
    ) -> dict[str, str]:
        """The options of `table.catalog`; tables of another folder are others.

        `uri` is of another REST catalog, `key` and `secret` are other references to keys.
        """
        warehouse = f"s3://{BUCKET}/{folder.name}"
        key = key or f"${{file:{self.folder}/access-key}}"
        secret = secret or f"${{file:{self.folder}/secret-key}}"
        if kind == "delta":
            return {
                "warehouse": warehouse,
                "AWS_ENDPOINT_URL": self.store.address,
                "AWS_REGION": REGION,
                "AWS_ALLOW_HTTP": "true",
                "AWS_ACCESS_KEY_ID": key,
                "AWS_SECRET_ACCESS_KEY": secret,
            }
        own = {"s3.endpoint": self.store.address, "s3.region": REGION}
        if kind == "rest":
            return {**own, "type": "rest", "uri": uri or self.rest.address}
        return {
            **own,
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": warehouse,
            "s3.access-key-id": key,
            "s3.secret-access-key": secret,
        }

    def world(self, kind: str, folder: Path, bootstrap: str, topic: str, **more: str) -> World:
        """A pipeline into a table of this kind; `delta path` is a Delta table by its path."""
        format_ = "delta" if kind.startswith("delta") else "iceberg"
        if kind == "rest":
            self._drop_tables()
        catalog = self.catalog(kind.split(maxsplit=1)[0], folder, **more)
        path = ""
        if kind == "delta path":
            path = f"{catalog.pop('warehouse')}/by path/orders"
        return World(folder, format_, bootstrap, topic, catalog, path)

    def _drop_tables(self) -> None:
        """Drop those of an earlier test: all share one REST catalog."""
        with closing(load_catalog("default", **self.catalog("rest", Path()))) as opened:
            for name in ("shop.orders", "shop.orders__dlq"):
                with suppress(NoSuchTableError):
                    opened.drop_table(name)

    def rows(self, kind: str, catalog: Mapping[str, str], name: str, path: str = "") -> pa.Table:
        """What a table holds, read by its format's own library with the keys of the owner."""
        own = resolved(catalog)
        if kind == "delta":
            place = path or "/".join([own.pop("warehouse"), *name.split(".")])
            own.pop("warehouse", None)
            return DeltaTable(place, storage_options=own).to_pyarrow_table()
        with closing(load_catalog("default", **own)) as opened:
            return opened.load_table(name).scan().to_arrow()


@dataclass
class LakeKind:
    """A table of the contract's suite, in the lake."""

    lake: Lake
    name: str
    folder: Path
    schema: pa.Schema = SCHEMA
    partitions: Sequence[PartitionField] = ()
    clock: Clock = field(default_factory=SystemClock)

    @property
    def catalog(self) -> dict[str, str]:
        return self.lake.catalog(self.name, self.folder)

    @property
    def table_name(self) -> str:
        return f"{self.folder.name.replace('-', '_')}.orders"

    def create(self, partitions: Sequence[PartitionField] = ()) -> Table:
        self.partitions = partitions
        if self.name == "delta":
            from penstock.spark.tables.formats.delta.table import DeltaLakeTable

            return DeltaLakeTable.create(
                self._uri,
                self.schema,
                partitions=partitions,
                storage_options=self._options,
                clock=self.clock,
            )
        from penstock.spark.tables.formats.iceberg.table import IcebergTable

        return IcebergTable.create(
            self.catalog, self.table_name, self.schema, partitions=partitions, clock=self.clock
        )

    def open(self) -> Table:
        if self.name == "delta":
            from penstock.spark.tables.formats.delta.table import DeltaLakeTable

            return DeltaLakeTable(
                self._uri,
                partitions=self.partitions,
                storage_options=self._options,
                clock=self.clock,
            )
        from penstock.spark.tables.formats.iceberg.table import IcebergTable

        return IcebergTable(self.catalog, self.table_name, clock=self.clock)

    def read(self) -> pa.Table:
        return self.lake.rows(self.name, self.catalog, self.table_name)

    @property
    def _uri(self) -> str:
        return "/".join([self.catalog["warehouse"], *self.table_name.split(".")])

    @property
    def _options(self) -> dict[str, str]:
        return {name: text for name, text in self.catalog.items() if name != "warehouse"}
