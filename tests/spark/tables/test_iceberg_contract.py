"""Iceberg tables that others have created: written right, or refused by name; never wrong.

Each table is created by pyiceberg, written by the code of a pipeline, and read back by pyiceberg
and by DuckDB from the files.
"""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestamptzType,
)

from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.files.data_files import write_files
from penstock.spark.tables.formats.iceberg.files import groups_to_merge, require_fitting
from penstock.spark.tables.formats.opening import open_table
from penstock.spark.tables.formats.port import LayoutChangedError, TableError, TableRefusedError
from tests.spark.tables.table_kinds import IcebergKind
from tests.spark.tables.value_world import ValueWorld

pytestmark = pytest.mark.slow

NAME = "shop.orders"
ID = NestedField(1, "id", LongType(), required=True)
NOTE = NestedField(2, "note", StringType(), required=False)
AT = NestedField(3, "at", TimestamptzType(), required=False)
COUNTRY = NestedField(4, "country", StringType(), required=False)
DDL = "id bigint, note string, at timestamp, country string"
VALUES = [
    {"id": n, "note": f"n{n}", "at": f"2026-01-{n + 1:02d}T00:00:00Z", "country": "CH"}
    for n in range(4)
]
FILLED = [(n, f"n{n}") for n in range(4)]
versions = pytest.mark.parametrize("version", ["1", "2"])


def foreign(
    folder: Path,
    ddl: str,
    schema: Schema,
    *,
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    order: SortOrder = UNSORTED_SORT_ORDER,
    properties: dict[str, str] | None = None,
    table: dict[str, Any] | None = None,
) -> ValueWorld:
    """A pipeline whose table somebody else has created."""
    world = ValueWorld(folder, "iceberg", ddl, table or {})
    with catalog_of(world) as catalog:
        catalog.drop_table(NAME)
        catalog.create_table(
            NAME, schema, partition_spec=spec, sort_order=order, properties=properties or {}
        )
    return world


def catalog_of(world: ValueWorld) -> Catalog:
    assert isinstance(world.rows, IcebergKind)
    return load_catalog("default", **world.rows.catalog)


def changed(world: ValueWorld, change: Callable[[Table], object]) -> None:
    with catalog_of(world) as catalog:
        change(catalog.load_table(NAME))


def by_duckdb(world: ValueWorld) -> list[tuple[object, ...]]:
    """Rows of the files that the table lists, read by another engine."""
    with catalog_of(world) as catalog:
        files = [one.file.file_path for one in catalog.load_table(NAME).scan().plan_files()]
    with duckdb.connect() as connection:
        found = connection.read_parquet(files, union_by_name=True)
        return sorted(found.select("id, note").fetchall())


# --- Written right ---


@versions
def test_a_required_column_stays_required_and_a_null_is_a_reject(
    tmp_path: Path, version: str
) -> None:
    """It was silently made optional, and got NULLs."""
    schema = Schema(ID, NOTE, AT, COUNTRY)
    world = foreign(tmp_path, DDL, schema, properties={"format-version": version})
    world.commit([*VALUES, {"note": "none"}, {"id": None}, None])
    assert world.held("id", "note") == by_duckdb(world) == FILLED
    reasons = world.reasons()
    assert list(reasons) == [4, 5, 6]
    assert all("id" in one for one in reasons.values())
    with catalog_of(world) as catalog:
        there = catalog.load_table(NAME)
        assert there.schema().find_field("id").required
        assert there.metadata.format_version == int(version)


@versions
def test_identifier_fields(tmp_path: Path, version: str) -> None:
    schema = Schema(ID, NOTE, AT, COUNTRY, identifier_field_ids=[1])
    world = foreign(tmp_path, DDL, schema, properties={"format-version": version})
    world.commit([*VALUES, {"note": "no id"}])
    assert world.held("id", "note") == by_duckdb(world) == FILLED
    with catalog_of(world) as catalog:
        assert catalog.load_table(NAME).schema().identifier_field_ids == [1]


@versions
def test_an_upsert_keeps_identifiers_unique(tmp_path: Path, version: str) -> None:
    schema = Schema(ID, NOTE, AT, COUNTRY, identifier_field_ids=[1])
    keyed = {"mode": "upsert", "key": ["id"]}
    properties = {"format-version": version}
    world = foreign(tmp_path, DDL, schema, properties=properties, table=keyed)
    world.commit(VALUES)
    world.commit([{**VALUES[0], "note": "again"}, {"note": "no id"}])
    assert world.held("id", "note") == [(0, "again"), *FILLED[1:]]
    assert list(world.reasons()) == [5]


def test_a_sort_order(tmp_path: Path) -> None:
    order = SortOrder(SortField(1, IdentityTransform()))
    world = foreign(tmp_path, DDL, Schema(ID, NOTE, AT, COUNTRY), order=order)
    world.commit(list(reversed(VALUES)))
    assert world.held("id", "note") == FILLED
    with catalog_of(world) as catalog:
        there = catalog.load_table(NAME)
        assert there.sort_order().fields == order.fields
        files = [one.file for one in there.scan().plan_files()]
        assert {one.sort_order_id for one in files} == {order.order_id}
        (only,) = [one.file_path.removeprefix("file://") for one in files]
    with duckdb.connect() as connection:
        found = connection.read_parquet(only).select("id").fetchall()
    assert found == [(n,) for n in range(4)]


def test_an_order_by_a_transform(tmp_path: Path) -> None:
    """Files say that they are not sorted, so no reader counts on it."""
    order = SortOrder(SortField(1, BucketTransform(4)))
    world = foreign(tmp_path, DDL, Schema(ID, NOTE, AT, COUNTRY), order=order)
    world.commit(list(reversed(VALUES)))
    assert world.held("id", "note") == FILLED
    with catalog_of(world) as catalog:
        files = catalog.load_table(NAME).scan().plan_files()
        assert {one.file.sort_order_id for one in files} == {None}


@pytest.mark.parametrize(
    ("number", "transform"),
    [(1, BucketTransform(4)), (4, TruncateTransform(1)), (3, YearTransform())],
    ids=str,
)
def test_partitions_by_transforms(
    tmp_path: Path, number: int, transform: Transform[Any, Any]
) -> None:
    spec = PartitionSpec(PartitionField(number, 1000, transform, "part"))
    world = foreign(tmp_path, DDL, Schema(ID, NOTE, AT, COUNTRY), spec=spec)
    world.commit(VALUES)
    assert world.held("id", "note") == FILLED
    assert by_duckdb(world) == FILLED
    with catalog_of(world) as catalog:
        there = catalog.load_table(NAME)
        assert there.scan("id = 2").to_arrow().num_rows == 1
        assert there.scan("country = 'CH'").to_arrow().num_rows == 4
        assert there.scan("at >= '2026-01-03T00:00:00+00:00'").to_arrow().num_rows == 2


@pytest.mark.parametrize("is_dropped", [False, True])
def test_partitions_that_change_between_two_batches(tmp_path: Path, *, is_dropped: bool) -> None:
    spec = PartitionSpec(PartitionField(3, 1000, DayTransform(), "at_day"))
    world = foreign(
        tmp_path,
        DDL,
        Schema(ID, NOTE, AT, COUNTRY),
        spec=spec,
        table={"partition_by": ["day(at)"]},
    )
    world.commit(VALUES[:2])
    with catalog_of(world) as catalog:
        change = catalog.load_table(NAME).update_spec()
        if is_dropped:
            change.remove_field("at_day")
        change.add_field("country", IdentityTransform(), "country_part")
        change.commit()
    world.commit(VALUES[2:])
    assert world.held("id", "note") == FILLED
    with catalog_of(world) as catalog:
        there = catalog.load_table(NAME)
        assert there.scan("country == 'CH'").to_arrow().num_rows == 4
        assert there.scan("at >= '2026-01-03T00:00:00+00:00'").to_arrow().num_rows == 2


def test_a_column_that_somebody_renamed_is_not_filled_by_its_old_name(tmp_path: Path) -> None:
    world = foreign(tmp_path, DDL, Schema(ID, NOTE, AT, COUNTRY))
    world.commit(VALUES[:2])
    changed(world, lambda one: one.update_schema().rename_column("note", "remark").commit())
    world.commit(VALUES[2:])
    with catalog_of(world) as catalog:
        rows = catalog.load_table(NAME).scan().to_arrow().sort_by("id").to_pylist()
    assert [(row["remark"], row["note"]) for row in rows] == [
        ("n0", None),
        ("n1", None),
        (None, "n2"),
        (None, "n3"),
    ]


def test_files_go_where_the_table_says(tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    world = foreign(
        tmp_path,
        DDL,
        Schema(ID, NOTE, AT, COUNTRY),
        properties={"write.data.path": f"file://{place}"},
    )
    world.commit(VALUES)
    assert world.held("id", "note") == FILLED
    assert list(place.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("kind", "ddl", "value"),
    [
        (IntegerType(), "v int", 7),
        (BooleanType(), "v boolean", True),
        (DoubleType(), "v double", 0.5),
        (DecimalType(9, 2), "v decimal(9,2)", 12.25),
        (StringType(), "v string", "text"),
    ],
    ids=str,
)
@versions
def test_required_columns_of_every_plain_type(
    tmp_path: Path, kind: PrimitiveType, ddl: str, value: object, version: str
) -> None:
    schema = Schema(NestedField(1, "v", kind, required=True))
    world = foreign(tmp_path, ddl, schema, properties={"format-version": version})
    world.commit([{"v": value}, {"v": None}, {}, {"v": value}])
    assert len(world.held("v")) == 2
    assert list(world.reasons()) == [1, 2]


# --- Refused by name ---


def test_a_required_column_that_the_pipeline_never_fills_is_refused(tmp_path: Path) -> None:
    world = foreign(tmp_path, "note string", Schema(ID, NOTE))
    with pytest.raises(SchemaError, match="column 'id' is required in the table"):
        world.commit([{"note": "x"}])
    assert world.held("id") == []


def test_a_required_field_within_a_column_is_refused(tmp_path: Path) -> None:
    inner = StructType(NestedField(3, "x", LongType(), required=True))
    schema = Schema(NestedField(1, "s", inner, required=False))
    world = foreign(tmp_path, "s struct<x: bigint>", schema)
    with pytest.raises(SchemaError, match=r"column 's\.x' is required in the table"):
        world.commit([{"s": {}}])


INNER: dict[str, tuple[IcebergType, str, str]] = {
    "s.x": (
        StructType(NestedField(10, "x", LongType(), required=True)),
        "s struct<x: bigint>",
        "s.x",
    ),
    "l.element": (ListType(10, LongType(), element_required=True), "l array<bigint>", "l.element"),
    "m.value": (
        MapType(10, StringType(), 11, LongType(), value_required=True),
        "m map<string, bigint>",
        "m.value",
    ),
    "d.m.value": (
        StructType(
            NestedField(
                10, "m", MapType(11, StringType(), 12, LongType(), value_required=True), False
            )
        ),
        "d struct<m: map<string, bigint>>",
        "d.m.value",
    ),
}


@pytest.mark.parametrize("name", INNER)
def test_required_fields_within_columns_stay_required(tmp_path: Path, name: str) -> None:
    """Values of maps were made optional when any column was added, and got NULLs."""
    kind, ddl, path = INNER[name]
    column = NestedField(2, name.partition(".")[0], kind, required=False)
    world = foreign(tmp_path / "1", "id bigint", Schema(ID, column))
    world.commit([{"id": 1}])
    with catalog_of(world) as catalog:
        there = catalog.load_table(NAME).schema()
    assert there.find_field(path).required
    assert there.find_field("_kafka").optional
    world = foreign(tmp_path / "2", ddl, Schema(column.model_copy(update={"field_id": 1})))
    with pytest.raises(SchemaError, match=rf"column '{path}' is required in the table"):
        world.commit([{}])


@pytest.mark.parametrize("transform", [VoidTransform(), UnknownTransform("zorder")], ids=str)
def test_unknown_partitions_are_refused(tmp_path: Path, transform: Transform[Any, Any]) -> None:
    field = PartitionField(1, 1000, transform, "part")
    world = foreign(tmp_path, DDL, Schema(ID, NOTE, AT, COUNTRY), spec=PartitionSpec(field))
    with pytest.raises(TableError, match="partitioned by"):
        world.commit(VALUES)


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("encryption.key-id", "k1", "encryption"),
        ("write.wap.enabled", "true", "write-audit-publish"),
    ],
)
def test_tables_that_ask_for_more_are_refused(
    tmp_path: Path, key: str, value: str, name: str
) -> None:
    world = foreign(tmp_path, DDL, Schema(ID, NOTE, AT, COUNTRY), properties={key: value})
    with pytest.raises(TableRefusedError, match=name):
        world.commit(VALUES)


def test_format_version_3_is_refused(tmp_path: Path) -> None:
    try:
        world = foreign(tmp_path, DDL, Schema(NOTE), properties={"format-version": "3"})
    except NotImplementedError:
        world = foreign(tmp_path / "2", DDL, Schema(NOTE))
        assert isinstance(world.rows, IcebergKind)
        with catalog_of(world) as catalog:
            place = catalog.load_table(NAME).metadata_location.removeprefix("file://")
        text = Path(place).read_text().replace('"format-version":2', '"format-version":3')
        Path(place).write_text(
            text.replace('"last-sequence-number"', '"next-row-id":0,"last-sequence-number"')
        )
    with pytest.raises(TableRefusedError, match="format version 3"):
        world.commit([{"note": "x"}])


@pytest.mark.parametrize("kind", ["variant", "geometry(srid:4326)"])
def test_a_type_that_the_library_does_not_know_is_refused(tmp_path: Path, kind: str) -> None:
    """It was reported as a catalog that cannot be opened, with the advice to make its folder."""
    world = foreign(tmp_path, "note string", Schema(NOTE))
    with catalog_of(world) as catalog:
        place = Path(catalog.load_table(NAME).metadata_location.removeprefix("file://"))
    document = json.loads(place.read_text()) | {"format-version": 3, "next-row-id": 0}
    document["schemas"][0]["fields"][0]["type"] = kind
    place.write_text(json.dumps(document))
    assert isinstance(world.rows, IcebergKind)
    settings = dataclasses.replace(
        world.definition().table, catalog=tuple(world.rows.catalog.items())
    )
    for is_read_only in (True, False):
        with pytest.raises(TableRefusedError, match=f"{kind[:7]}.*format version 3"):
            open_table(settings, NAME, is_read_only=is_read_only)


def test_equality_deletes_are_refused(tmp_path: Path) -> None:
    """Guards the message: a link to an issue of the library, in the middle of a compaction."""
    world = foreign(tmp_path, "note string", Schema(NOTE))
    world.commit([{"note": "x"}])
    with catalog_of(world) as catalog:
        place = Path(catalog.load_table(NAME).metadata_location.removeprefix("file://"))
    document = json.loads(place.read_text())
    for snapshot in document["snapshots"]:
        snapshot["summary"]["total-equality-deletes"] = "3"
    place.write_text(json.dumps(document))
    with pytest.raises(TableRefusedError, match=r"equality deletes.*has 3 .*rewrite_data"):
        world.commit([{"note": "y"}])


def test_an_owner_who_forbids_it_while_the_pipeline_runs(tmp_path: Path) -> None:
    world = foreign(tmp_path, DDL, Schema(ID, NOTE, AT, COUNTRY))
    table = world.rows.open()
    changed(
        world,
        lambda one: (
            one.transaction().set_properties({"write.wap.enabled": "true"}).commit_transaction()
        ),
    )
    state = table.load()
    with pytest.raises(TableRefusedError, match="write-audit-publish"):
        table.compact(state, target_bytes=2**20)


@pytest.mark.parametrize(
    ("form", "groups"), [(FileFormat.PARQUET, 1), (FileFormat.ORC, 1), (FileFormat.AVRO, 0)]
)
def test_files_that_cannot_be_read_are_not_put_together(form: FileFormat, groups: int) -> None:
    """A table of Spark may have files of Avro: every compaction of it failed."""
    files = [
        DataFile.from_args(
            file_path=f"{n}",
            file_format=form,
            partition=Record(),
            record_count=1,
            file_size_in_bytes=10,
        )
        for n in range(3)
    ]
    for one in files:
        one.spec_id = 0
    tasks = [(FileScanTask(one), 0) for one in files]
    assert len(groups_to_merge(tasks, 0, 2**20)) == groups


def test_a_file_from_before_a_column_was_required_is_written_again(tmp_path: Path) -> None:
    """Its NULLs would be in the table otherwise, because it is committed after the change."""
    world = foreign(tmp_path, "note string", Schema(NOTE))
    table = world.rows.open()
    rows = pa.RecordBatch.from_pydict({"note": ["a", None]}, schema=table.schema())
    files = write_files([rows], table.layout(table.schema()), "task")
    optional = NestedField(1, "note", StringType(), required=False)
    require_fitting(files, Schema(optional), ())
    with pytest.raises(LayoutChangedError, match="the table requires"):
        require_fitting(files, Schema(optional.model_copy(update={"required": True})), ())
