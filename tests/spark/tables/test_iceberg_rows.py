"""Rows of an Iceberg table that are written again: no value becomes another one.

The results are read from the Parquet files themselves: pyiceberg's own reading turns a null list of
structs into an empty list.
"""

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, StringType

from penstock.spark.tables.files.data_files import write_files
from penstock.spark.tables.formats.iceberg import rows as iceberg_rows
from penstock.spark.tables.formats.iceberg.reading import IcebergReader
from penstock.spark.tables.formats.iceberg.rows import IcebergRows
from penstock.spark.tables.formats.port import Table, TableError
from penstock.spark.tables.values.columns import fit
from tests.spark.tables.change_batches import written_changes
from tests.spark.tables.table_kinds import IcebergKind, commit_of, taken

pytestmark = pytest.mark.slow

STRUCT = pa.struct([("c", pa.string())])
NULLS = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("lines", pa.list_(STRUCT)),
        pa.field("inside", pa.struct([("lines", pa.list_(STRUCT))])),
        pa.field("by_name", pa.map_(pa.string(), STRUCT)),
        pa.field("twice", pa.list_(pa.list_(STRUCT))),
    ]
)
NULL_ROWS: list[dict[str, Any]] = [
    {"id": 1, "lines": None, "inside": {"lines": None}, "by_name": None, "twice": None},
    {"id": 2, "lines": [], "inside": None, "by_name": [], "twice": [None, [], [None]]},
    {
        "id": 3,
        "lines": [None, {"c": None}],
        "inside": {"lines": []},
        "by_name": [("a", None), ("b", {"c": None})],
        "twice": [],
    },
]


def in_files(table: Table) -> list[dict[str, Any]]:
    """The rows of the table's files, by id."""
    found = []
    for one in table.live_files():
        found += pq.ParquetFile(one.path.removeprefix("file://")).read().to_pylist()
    return sorted(found, key=lambda row: int(row["id"]))


def appended(table: Table, parts: list[list[dict[str, Any]]], schema: pa.Schema) -> None:
    driver, state = taken(table, "run-a")
    for number, part in enumerate(parts):
        rows = pa.RecordBatch.from_pylist(part, schema=schema)
        files = write_files([rows], table.layout(schema), "task")
        state = table.append(commit_of(state, driver, (0, number, number + 1)), files)


def test_a_null_is_a_null_after_a_compaction_and_after_an_upsert(tmp_path: Path) -> None:
    table = IcebergKind(tmp_path, schema=NULLS).create()
    appended(table, [NULL_ROWS[:1], NULL_ROWS[1:]], NULLS)
    assert in_files(table) == NULL_ROWS
    table.compact(table.load(), target_bytes=2**20)
    assert len(table.live_files()) == 1
    assert in_files(table) == NULL_ROWS
    driver, state = taken(table, "run-b")
    change = NULL_ROWS[0] | {
        "id": 3,
        "_change_deleted": False,
        "_change_topic": "orders",
        "_change_partition": 0,
        "_change_offset": 2,
    }
    table.upsert(commit_of(state, driver, (0, 2, 3)), written_changes(table, [change]))
    assert in_files(table) == [*NULL_ROWS[:2], NULL_ROWS[0] | {"id": 3}]


def test_a_null_is_a_null_for_whoever_reads_the_rows(tmp_path: Path) -> None:
    kind = IcebergKind(tmp_path, schema=NULLS)
    table = kind.create()
    appended(table, [NULL_ROWS], NULLS)
    found = [row for batch in table.scan(["by_name", "id", "lines"]) for row in batch.to_pylist()]
    assert found == [{name: row[name] for name in ("by_name", "id", "lines")} for row in NULL_ROWS]
    reader = IcebergReader(kind.catalog, "shop.orders")
    one = reader.rows(["lines", "by_name"], equal={"id": 1}, limit=2)
    assert one.to_pylist() == [{"lines": None, "by_name": None}]
    assert reader.rows(["id"], equal={}, limit=2)["id"].to_pylist() == [1, 2]
    assert reader.rows(["id"], equal={"id": 9}, limit=2).num_rows == 0
    reader.close()


# --- Any types ---

LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.string(), st.text(max_size=3)),
    (pa.bool_(), st.booleans()),
    (pa.binary(), st.binary(max_size=3)),
]
Typed = tuple[pa.DataType, st.SearchStrategy[Any]]


def or_null(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def nested(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def as_list(one: Typed) -> Typed:
        return pa.list_(one[0]), st.lists(or_null(one[1]), max_size=3)

    def as_map(one: Typed) -> Typed:
        items = st.dictionaries(st.text(max_size=2), or_null(one[1]), max_size=3)
        return pa.map_(pa.string(), one[0]), items.map(lambda found: list(found.items()))

    def as_struct(found: list[Typed]) -> Typed:
        names = [f"field {number}" for number in range(len(found))]
        kind = pa.struct([(name, one[0]) for name, one in zip(names, found, strict=True)])
        values = {name: or_null(one[1]) for name, one in zip(names, found, strict=True)}
        return kind, st.fixed_dictionaries(values)

    return (
        inner.map(as_list)
        | inner.map(as_map)
        | st.lists(inner, min_size=1, max_size=2).map(as_struct)
    )


TYPES = st.recursive(st.sampled_from(LEAVES), nested, max_leaves=6)


@given(st.data())
@settings(max_examples=10, deadline=None)
def test_a_compaction_changes_no_value_of_any_type(data: st.DataObject) -> None:
    found = data.draw(st.lists(nested(TYPES), min_size=6, max_size=6))
    columns = {f"column {number}": one for number, one in enumerate(found)}
    schema = pa.schema([("id", pa.int64()), *((name, one[0]) for name, one in columns.items())])
    value = st.fixed_dictionaries({name: or_null(one[1]) for name, one in columns.items()})
    rows = [{"id": number} | data.draw(value) for number in range(4)]
    with tempfile.TemporaryDirectory() as folder:
        table = IcebergKind(Path(folder), schema=schema).create()
        appended(table, [rows[:1], rows[1:]], schema)
        table.compact(table.load(), target_bytes=2**20)
        assert len(table.live_files()) == 1
        assert in_files(table) == rows
        table.close()


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_slice_is_fitted_as_its_rows_are(data: st.DataObject) -> None:
    kind, values = data.draw(TYPES)
    found = data.draw(st.lists(or_null(values), max_size=6))
    start = data.draw(st.integers(0, len(found)))
    rows = pa.RecordBatch.from_arrays([pa.array(found, kind)], names=["value"]).slice(start)
    wide = pa.schema([("value", wider(kind))])
    fitted = fit(rows, wide)
    fitted.validate(full=True)
    assert fitted.column(0).to_pylist() == found[start:]


def wider(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(wider(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, wider(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(wider(one.type)) for one in kind])
    return pa.int64() if kind == pa.int32() else kind


# --- Changes of other writers ---


def test_columns_are_found_by_their_ids(tmp_path: Path) -> None:
    kind = IcebergKind(tmp_path, schema=NULLS)
    table = kind.create()
    appended(table, [NULL_ROWS[:1], NULL_ROWS[1:]], NULLS)
    with load_catalog("default", **kind.catalog) as catalog:
        admin = catalog.load_table("shop.orders")
        with admin.update_schema() as update:
            update.rename_column("lines", "old_lines")
            update.rename_column("by_name.value.c", "d")
            update.add_column(("twice", "element", "element", "n"), LongType())
            update.delete_column("inside")
        with admin.update_schema() as update:
            update.add_column("lines", StringType())  # another column by the same name
    table.compact(table.load(), target_bytes=2**20)
    assert len(table.live_files()) == 1

    def other(row: dict[str, Any]) -> dict[str, Any]:
        maps, twice = row["by_name"], row["twice"]
        return {
            "id": row["id"],
            "old_lines": row["lines"],
            "by_name": maps and [(key, one and {"d": one["c"]}) for key, one in maps],
            "twice": twice
            and [part and [one and {**one, "n": None} for one in part] for part in twice],
            "lines": None,
        }

    assert in_files(table) == [other(row) for row in NULL_ROWS]


def test_files_of_other_writers_are_read_with_their_deletes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large types, no ids of fields, and rows that a delete file names."""
    kind = IcebergKind(tmp_path, schema=NULLS)
    kind.create().close()
    large = pa.struct([("c", pa.large_string())])
    foreign = pa.schema(
        [
            pa.field("id", pa.int32()),
            pa.field("lines", pa.large_list(large)),
            pa.field("by_name", pa.map_(pa.large_string(), large)),
        ]
    )
    rows = [{name: row[name] for name in foreign.names} for row in NULL_ROWS * 3]
    path, gone = str(tmp_path / "foreign.parquet"), str(tmp_path / "gone.parquet")
    pq.write_table(pa.Table.from_pylist(rows, schema=foreign), path)
    deleted = {"file_path": [path, path, "another"], "pos": [0, 4, 5]}
    pq.write_table(pa.table(deleted), gone)

    def file(where: str, content: DataFileContent) -> DataFile:
        made = DataFile.from_args(
            content=content,
            file_path=where,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=len(rows),
            file_size_in_bytes=Path(where).stat().st_size,
        )
        made.spec_id = 0
        return made

    task = FileScanTask(
        file(path, DataFileContent.DATA), {file(gone, DataFileContent.POSITION_DELETES)}
    )
    with load_catalog("default", **kind.catalog) as catalog:
        admin = catalog.load_table("shop.orders")
        mapping = admin.schema().name_mapping.model_dump_json()
        admin.transaction().set_properties(
            {"schema.name-mapping.default": mapping}
        ).commit_transaction()
        admin.refresh()
        reader = IcebergRows(admin)
        for small_bytes in (2**20, 0):  # read ahead, and a part at a time
            monkeypatch.setattr(iceberg_rows, "SMALL_FILE_BYTES", small_bytes)
            found = pa.Table.from_batches(reader.batches([task, task]), reader.schema)
            found.validate(full=True)
            missing = {"inside": None, "twice": None}
            left = [row | missing for number, row in enumerate(rows) if number not in (0, 4)]
            assert found.to_pylist() == left * 2


def test_times_of_imported_files_stay(tmp_path: Path) -> None:
    """Spark writes INT96 into files that are no Iceberg table's yet: 9999 became 1816."""
    moment = pa.timestamp("us", "UTC")
    times = pa.schema(
        [("id", pa.int64()), ("at", moment), ("inside", pa.struct([("at", moment)]))],
    )
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
    rows = [{"id": n, "at": at, "inside": {"at": at}} for n, at in enumerate([first, last] * 2)]
    kind = IcebergKind(tmp_path, schema=times)
    table = kind.create()
    with load_catalog("default", **kind.catalog) as catalog:
        admin = catalog.load_table("shop.orders")
        mapping = admin.schema().name_mapping.model_dump_json()
        with admin.transaction() as change:
            change.set_properties({"schema.name-mapping.default": mapping})
            with change.update_snapshot().fast_append() as append:
                for part in (rows[:2], rows[2:]):
                    path = tmp_path / f"imported-{part[0]['id']}.parquet"
                    found = pa.Table.from_pylist(part, schema=times)
                    pq.write_table(found, path, use_deprecated_int96_timestamps=True)
                    append.append_data_file(imported(path, len(part)))
    driver, _ = taken(table, "run-a")
    change_of_0 = rows[0] | {
        "_change_deleted": True,
        "_change_topic": "orders",
        "_change_partition": 0,
        "_change_offset": 0,
    }
    table.upsert(commit_of(table.load(), driver, (0, 0, 1)), written_changes(table, [change_of_0]))
    table.compact(table.load(), target_bytes=2**20)
    assert len(table.live_files()) == 1
    assert in_files(table) == rows[1:]


def imported(path: Path, count: int) -> DataFile:
    """A file of another writer, without statistics."""
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=str(path),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=count,
        file_size_in_bytes=path.stat().st_size,
        spec_id=0,
    )


def test_a_file_without_a_required_column_is_told(tmp_path: Path) -> None:
    kind = IcebergKind(tmp_path, schema=NULLS)
    table = kind.create()
    appended(table, [NULL_ROWS], NULLS)
    with load_catalog("default", **kind.catalog) as catalog:
        admin = catalog.load_table("shop.orders")
        with admin.update_schema(allow_incompatible_changes=True) as update:
            update.add_column("city", StringType(), required=True)
        reader = IcebergRows(admin, ["id", "city"])
        with pytest.raises(TableError, match="has no column 'city'"):
            list(reader.batches(list(admin.scan().plan_files())))
