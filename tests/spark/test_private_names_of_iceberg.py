"""Private names of pyiceberg: each has a contract, so an upgrade fails here.

Guarantees: each name exists, has the shape and does what Penstock relies on. The list of the names
is in `test_private_names`.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import (
    _get_column_projection_values,
    _read_all_delete_files,
    _read_deletes,
)
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetPropertiesUpdate
from pyiceberg.table.update.snapshot import (
    UpdateSnapshot,
    _ManifestMergeManager,
    _OverwriteFiles,
)
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import EMPTY_DICT, Record
from pyiceberg.types import LongType, NestedField, StringType

from tests.spark.name_contracts import contract

ROWS: Final = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", "b"]})


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    """A table with two appends, and so two manifests."""
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("shop")
    made = catalog.create_table("shop.orders", ROWS.schema)
    made.append(ROWS)
    made.append(ROWS)
    yield made
    catalog.close()


def manifests_of(table: Table) -> list[ManifestFile]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.manifests(table.io)


def overwrite(update: UpdateSnapshot, kind: type[_OverwriteFiles] = _OverwriteFiles) -> Any:  # noqa: ANN401 - of pyiceberg
    return kind(
        operation=Operation.OVERWRITE,
        transaction=update._transaction,
        io=update._io,
        branch=update._branch,
        snapshot_properties=update._snapshot_properties,
    )


def data_file(path: str, count: int, **more: Any) -> DataFile:  # noqa: ANN401 - passed on
    return DataFile.from_args(
        **{
            "content": DataFileContent.DATA,
            "file_path": path,
            "file_format": FileFormat.PARQUET,
            "partition": Record(),
            "record_count": count,
            "file_size_in_bytes": 1,
            **more,
        }
    )


@contract("Catalog._convert_schema_if_needed")
def test_a_schema_of_arrow_without_ids_becomes_one_of_iceberg() -> None:
    arrow = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("at", pa.struct([pa.field("city", pa.string())])),
        ]
    )
    found = assign_fresh_schema_ids(Catalog._convert_schema_if_needed(arrow))
    assert [(one.field_id, one.name, one.required) for one in found.fields] == [
        (1, "id", True),
        (2, "at", False),
    ]
    assert found.find_field("at.city").field_id == 3


@contract("UpdateSchema._apply")
def test_a_planned_schema_has_ids_and_changes_nothing(table: Table) -> None:
    wider = pa.schema([*ROWS.schema, pa.field("city", pa.string())])
    planned = table.transaction().update_schema().union_by_name(wider)._apply()
    assert [one.field_id for one in planned.fields] == [1, 2, 3]
    assert planned.find_field("city").field_type == StringType()
    assert table.refresh().schema().column_names == ["id", "name"]


@contextmanager
def empty_rest_catalog() -> Iterator[str]:
    """A server that gives the configuration of a REST catalog, and no namespaces."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_config = self.path.startswith("/v1/config")
            found: dict[str, object] = (
                {"defaults": {}, "overrides": {}} if is_config else {"namespaces": []}
            )
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *_words: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@contract("RestCatalog._session")
def test_every_call_of_a_rest_catalog_is_a_request_of_its_session() -> None:
    with empty_rest_catalog() as address:
        catalog = RestCatalog("rest", uri=address)
        asked, session = list[str](), catalog._session
        real = session.request

        def request(method: str, url: str, **named: object) -> object:
            asked.append(f"{method} {url.removeprefix(address)}")
            return real(method, url, timeout=(5.0, 5.0), **named)  # type: ignore[arg-type]

        vars(session)["request"] = request
        assert catalog.list_namespaces() == []
        catalog.close()
    assert [one.partition("?")[0] for one in asked] == ["GET /v1/namespaces"]


@contract(
    "Transaction._table",
    "Transaction._updates",
    "Transaction._requirements",
    "Transaction._snapshot_producers",
)
def test_a_transaction_collects_updates_requirements_and_producers(table: Table) -> None:
    change = table.transaction()
    assert change._table is table
    before = change._updates
    assert (before, change._requirements, change._snapshot_producers) == ((), (), [])
    change.set_properties({"owner": "shop"})
    assert change._updates is not before, "a change is another tuple: the cache relies on it"
    append = change.update_snapshot().merge_append()
    append.append_data_file(data_file(f"{table.location()}/x.parquet", 1))
    append.commit()
    kinds = [type(one) for one in change._updates]
    assert kinds[:2] == [SetPropertiesUpdate, AddSnapshotUpdate]
    assert AssertRefSnapshotId in map(type, change._requirements)
    assert change._snapshot_producers == [append]


@contract("Transaction._apply")
def test_updates_of_ones_own_are_staged_without_requirements(table: Table) -> None:
    change = table.transaction()
    change._apply((SetPropertiesUpdate(updates={"owner": "shop"}),), ())
    assert [type(one) for one in change._updates] == [SetPropertiesUpdate]
    assert change._requirements == ()
    change.commit_transaction()
    assert table.refresh().properties["owner"] == "shop"


@contract("Table._do_commit")
def test_a_commit_is_one_call_of_the_catalog(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    change = table.transaction()
    change.set_properties({"owner": "shop"})
    calls, real = list[object](), table.catalog.commit_table

    def counted(*words: Any) -> object:  # noqa: ANN401 - passed on
        calls.append(words)
        return real(*words)

    monkeypatch.setattr(table.catalog, "commit_table", counted)
    stale = AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": 1})
    with pytest.raises(CommitFailedException):
        table._do_commit(updates=change._updates, requirements=(stale,))
    assert len(calls) == 1
    table._do_commit(updates=change._updates, requirements=())
    assert table.properties["owner"] == "shop"


@contract("_SnapshotProducer._clean_all_uncommitted")
def test_files_of_a_refused_commit_are_removed(table: Table, tmp_path: Path) -> None:
    before = set(tmp_path.rglob("*.avro"))
    change = table.transaction()
    append = change.update_snapshot().merge_append()
    append.append_data_file(data_file(f"{table.location()}/x.parquet", 1))
    append.commit()
    assert set(tmp_path.rglob("*.avro")) > before
    for producer in change._snapshot_producers:
        producer._clean_all_uncommitted()
    assert set(tmp_path.rglob("*.avro")) == before


@contract(
    "UpdateSnapshot._transaction",
    "UpdateSnapshot._io",
    "UpdateSnapshot._branch",
    "UpdateSnapshot._snapshot_properties",
)
def test_an_update_of_a_snapshot_has_what_its_producers_get(table: Table) -> None:
    change = table.transaction()
    update = change.update_snapshot({"note": "1"})
    assert update._transaction is change
    assert update._io is table.io
    assert update._branch == "main"
    assert update._snapshot_properties == {"note": "1"}


@contract(
    "_OverwriteFiles",
    "_OverwriteFiles._added_data_files",
    "_OverwriteFiles._deleted_data_files",
    "_OverwriteFiles._snapshot_id",
    "_OverwriteFiles._parent_snapshot_id",
    "_OverwriteFiles._operation",
    "_OverwriteFiles._transaction",
    "_OverwriteFiles._compression",
)
def test_an_overwrite_knows_its_files_and_its_snapshot(table: Table) -> None:
    change = table.transaction()
    producer = overwrite(change.update_snapshot())
    [held] = list(table.scan().plan_files())[:1]
    added = data_file(f"{table.location()}/x.parquet", 1)
    producer.append_data_file(added)
    producer.delete_data_file(held.file)
    current = table.current_snapshot()
    assert current is not None
    assert list(producer._added_data_files) == [added]
    assert set(producer._deleted_data_files) == {held.file}
    assert producer._parent_snapshot_id == current.snapshot_id
    assert producer._operation is Operation.OVERWRITE
    assert producer._transaction is change
    producer.commit()
    [staged] = [one for one in change._updates if isinstance(one, AddSnapshotUpdate)]
    assert staged.snapshot.snapshot_id == producer._snapshot_id
    assert producer._compression == "gzip", "the codec of Iceberg's manifests"


@contract(
    "_OverwriteFiles._build_manifest_evaluator",
    "_OverwriteFiles._existing_manifests",
    "_OverwriteFiles._process_manifests",
    "_OverwriteFiles._summary",
)
def test_an_overwrite_asks_its_subclass(table: Table) -> None:
    asked = list[str]()

    class Recorded(_OverwriteFiles):
        def _build_manifest_evaluator(self, spec_id: int) -> Callable[[ManifestFile], bool]:
            asked.append("evaluator")
            return super()._build_manifest_evaluator(spec_id)

        def _existing_manifests(self) -> list[ManifestFile]:
            asked.append("existing")
            return super()._existing_manifests()[:0]

        def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
            asked.append(f"process {len(manifests)}")
            return manifests[:1]

        def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
            return Summary(self._operation, **snapshot_properties, ours="yes")

    change = table.transaction()
    producer = overwrite(change.update_snapshot({"note": "1"}), Recorded)
    [held] = list(table.scan().plan_files())[:1]
    producer.append_data_file(data_file(f"{table.location()}/x.parquet", 1))
    producer.delete_data_file(held.file)
    producer.commit()
    change.commit_transaction()
    assert {"evaluator", "existing", "process 2"} <= set(asked)
    current = table.current_snapshot()
    assert current is not None
    assert current.summary is not None
    assert current.summary.additional_properties == {"note": "1", "ours": "yes"}
    assert len(manifests_of(table)) == 1


@contract("_ManifestMergeManager")
def test_manifests_are_merged(table: Table) -> None:
    producer = overwrite(table.transaction().update_snapshot())
    manager = _ManifestMergeManager(
        target_size_bytes=2**20,
        min_count_to_merge=2,
        merge_enabled=True,
        snapshot_producer=producer,
    )
    held = manifests_of(table)
    assert len(held) == 2
    [merged] = manager.merge_manifests(held)
    assert len(merged.fetch_manifest_entry(table.io)) == 2


@contract("ManifestWriterV2._meta")
def test_a_manifest_of_delete_files_says_so(table: Table, tmp_path: Path) -> None:
    class Deletes(ManifestWriterV2):
        def content(self) -> ManifestContent:
            return ManifestContent.DELETES

        @property
        def _meta(self) -> dict[str, str]:
            return {**super()._meta, "content": "deletes"}

    place = tmp_path / "deletes.avro"
    output = table.io.new_output(f"file://{place}")
    [held, *_] = manifests_of(table)
    with Deletes(table.spec(), table.schema(), output, 7, "null") as writer:
        writer.add_entry(held.fetch_manifest_entry(table.io)[0])
    assert writer.to_manifest_file().content is ManifestContent.DELETES
    with place.open("rb") as file:
        assert fastavro.reader(file).metadata["content"] == "deletes"


def position_deletes(table: Table, folder: Path) -> tuple[DataFile, FileScanTask]:
    """A delete file of the first data file, and the task of that file with it."""
    [task] = list(table.scan().plan_files())[:1]
    place = folder / "deletes.parquet"
    path = task.file.file_path
    pq.write_table(pa.table({"file_path": [path, path], "pos": pa.array([0, 1])}), place)
    deletes = data_file(f"file://{place}", 2, content=DataFileContent.POSITION_DELETES)
    return deletes, FileScanTask(task.file, delete_files={deletes}, residual=AlwaysTrue())


@contract("_read_deletes")
def test_the_positions_of_a_delete_file(table: Table, tmp_path: Path) -> None:
    deletes, task = position_deletes(table, tmp_path)
    found = _read_deletes(table.io, deletes)
    assert {path: one.to_pylist() for path, one in found.items()} == {task.file.file_path: [0, 1]}


@contract("_read_all_delete_files")
def test_the_positions_of_all_delete_files_of_tasks(table: Table, tmp_path: Path) -> None:
    _, task = position_deletes(table, tmp_path)
    found = _read_all_delete_files(table.io, [task])
    assert [one.to_pylist() for one in found[task.file.file_path]] == [[0, 1]]


@contract("_get_column_projection_values")
def test_a_column_that_only_the_partition_has(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "city", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "city"))
    file = data_file(f"{tmp_path}/x", 1, partition=Record("Bonn"))
    found = _get_column_projection_values(file, schema, schema, spec, {1})
    assert dict(found) == {2: "Bonn"}
