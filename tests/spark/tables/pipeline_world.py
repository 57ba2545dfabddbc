"""A pipeline's surroundings for tests: a definition in a folder, and the content of its tables."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.definition.reader import read_definition
from penstock.spark.tables.formats.secrets import resolved
from penstock.spark.tables.run.pipeline import RunningPipeline

WAIT_SECONDS_MAX = 120
VALUE = {"format": "json", "schema": "id bigint, amount double, name string"}


@dataclass(frozen=True)
class World:
    """One pipeline in one folder."""

    folder: Path
    format: str
    bootstrap: str
    topic: str
    remote: Mapping[str, str] | None = None
    """The catalog of tables in a store on the network; None: they are in the folder."""
    path: str = ""
    """The location of a Delta table that is defined by path."""

    @property
    def catalog(self) -> dict[str, str]:
        if self.remote is not None:
            return dict(self.remote)
        if self.format == "delta":
            return {"warehouse": f"file://{self.folder}/warehouse"}
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": f"file://{self.folder}/warehouse",
        }

    def definition(self, **sections: Mapping[str, Any] | list[Any]) -> PipelineDefinition:
        """The pipeline `orders`; sections add to what it has, or replace a key."""
        document: dict[str, Any] = {
            "pipeline": {
                "name": "orders",
                "bootstrap_servers": self.bootstrap,
                "checkpoint": f"{self.folder}/checkpoint",
            },
            "source": {"topics": [self.topic]},
            "table": {
                "format": self.format,
                "name": "shop.orders",
                "catalog": self.catalog,
                **({"path": self.path} if self.path else {}),
            },
            "value": dict(VALUE),
        }
        for name, section in sections.items():
            if isinstance(section, list) or name == "value" or "pattern" in section:
                document[name] = section
            else:
                document[name] = {**document.get(name, {}), **section}
        return read_definition(document, "test")

    def rows(self, name: str = "shop.orders") -> pa.Table:
        """What the table holds, read by its format's own reader."""
        if self.format == "delta":
            return self._delta(name).to_pyarrow_table()
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog("default", **resolved(self.catalog))
        try:
            return catalog.load_table(name).scan().to_arrow()
        finally:
            catalog.close()

    def states(self) -> list[int]:
        """What the table can be put back to: the state of now, and those before it in turn."""
        if self.format == "delta":
            return list(range(self._delta().version(), -1, -1))
        from pyiceberg.catalog import load_catalog

        with load_catalog("default", **resolved(self.catalog)) as catalog:
            table = catalog.load_table("shop.orders")
            found, snapshot = list[int](), table.current_snapshot()
            while snapshot is not None:
                found.append(snapshot.snapshot_id)
                parent = snapshot.parent_snapshot_id
                snapshot = None if parent is None else table.snapshot_by_id(parent)
            return found

    def put_back(self, state: int) -> None:
        """Roll the table of rows back, as its owner would do it by the format's own library."""
        if self.format == "delta":
            self._delta().restore(state)
            return
        from pyiceberg.catalog import load_catalog

        with load_catalog("default", **resolved(self.catalog)) as catalog:
            table = catalog.load_table("shop.orders")
            table.manage_snapshots().rollback_to_snapshot(state).commit()

    def _delta(self, name: str = "shop.orders") -> DeltaTable:
        options = resolved(self.catalog)
        warehouse = options.pop("warehouse", "").removeprefix("file://")
        place = "/".join([warehouse, *name.split(".")])
        if self.path:
            place = self.path + name.removeprefix("shop.orders")
        return DeltaTable(place, storage_options=options or None)

    def rejects(self) -> pa.Table:
        return self.rows("shop.orders__dlq")

    def offsets(self) -> list[tuple[int, int]]:
        """(partition, offset) of each row in order; a double is there twice."""
        return offsets_of(with_places(self.rows()), "partition", "offset")

    def rejected(self) -> list[tuple[int, int]]:
        return offsets_of(self.rejects(), "partition", "offset")


def with_places(rows: pa.Table) -> pa.Table:
    """Rows with the columns `partition` and `offset` of the record that each came from."""
    for name in ("partition", "offset"):
        rows = rows.append_column(name, pc.struct_field(rows["_kafka"], name))
    return rows


def offsets_of(table: pa.Table, partition: str, offset: str) -> list[tuple[int, int]]:
    return sorted(zip(table[partition].to_pylist(), table[offset].to_pylist(), strict=True))


def order(number: int, **more: object) -> bytes:
    """A good value."""
    return json.dumps({"id": number, "amount": number / 4, "name": f"n{number}", **more}).encode()


def wait_until(running: RunningPipeline, is_done: Callable[[], bool]) -> None:
    """Until a pipeline that runs has come so far."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not is_done():
        assert running.query.isActive, "the pipeline stopped"
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.1)
