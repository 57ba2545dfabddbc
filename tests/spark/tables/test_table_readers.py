"""The same rows read by others: DuckDB and Arrow, with partitions and a schema that has grown.

And features of one format alone: widened columns, rollbacks.
"""

from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from penstock.spark.tables.commit.decisions import Offer, decide
from penstock.spark.tables.commit.stops import Stop, StopReason
from penstock.spark.tables.files.data_files import write_files
from penstock.spark.tables.files.file_partitions import PartitionField, Transform
from penstock.spark.tables.formats.delta.history import HistoryError
from penstock.spark.tables.formats.port import SchemaRefusedError, Table
from tests.spark.tables.table_kinds import (
    SCHEMA,
    DeltaKind,
    IcebergKind,
    Kind,
    batch_ranges,
    commit_of,
    offsets_in,
    rows_of,
    span,
    taken,
    written,
)

pytestmark = pytest.mark.slow

PARTITIONS = (
    PartitionField("_kafka_timestamp", Transform.DAY),
    PartitionField("_kafka_timestamp", Transform.HOUR),
    PartitionField("_kafka_timestamp", Transform.MONTH),
    PartitionField("_kafka_partition"),
    PartitionField("name"),
)


def filled(table: Table) -> None:
    driver, state = taken(table, "run-a")
    files = written(table, (0, 0, 150), (1, 0, 30))
    state = table.append(commit_of(state, driver, (0, 0, 150), (1, 0, 30)), files)
    wider = table.schema().append(pa.field("city", pa.string()))
    rows = rows_of(0, 150, 160, city=pa.array(["Bern"] * 10))
    files = write_files([rows], table.layout(wider), "task")
    table.append(commit_of(state, driver, (0, 150, 160)), files, wider)


@pytest.mark.parametrize("fields", [(), PARTITIONS[:1], PARTITIONS[3:], PARTITIONS[1:3]])
@pytest.mark.parametrize("kind_of", [DeltaKind, IcebergKind])
def test_rows_come_back_through_the_formats_own_reader(
    tmp_path: Path, kind_of: type[DeltaKind] | type[IcebergKind], fields: tuple[PartitionField, ...]
) -> None:
    kind: Kind = kind_of(tmp_path)
    table = kind.create(fields)
    filled(table)
    found = kind.read().sort_by([("_kafka_partition", "ascending"), ("_kafka_offset", "ascending")])
    assert offsets_in(found) == span(0, 0, 160) + span(1, 0, 30)
    expected = pa.concat_tables(
        [
            pa.Table.from_batches([rows_of(0, 0, 150)]),
            pa.Table.from_batches([rows_of(0, 150, 160, city=pa.array(["Bern"] * 10))]),
            pa.Table.from_batches([rows_of(1, 0, 30)]),
        ],
        promote_options="permissive",
    )
    assert found.select(expected.column_names).to_pylist() == expected.to_pylist()
    assert sum(one.row_count for one in table.live_files()) == 190


def test_duckdb_reads_the_files_of_a_delta_table(tmp_path: Path) -> None:
    kind = DeltaKind(tmp_path)
    filled(kind.create(PARTITIONS[:1]))
    rows = DeltaTable(kind.uri).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("orders", rows)
        found = connection.sql(
            "select _kafka_partition, count(*), count(distinct _kafka_offset), max(city) "
            "from orders where _kafka_timestamp_day >= date '2026-01-31' group by 1 order by 1"
        ).fetchall()
    assert found == [(0, 160, 160, "Bern"), (1, 30, 30, None)]


def test_duckdb_reads_the_files_of_an_iceberg_table(tmp_path: Path) -> None:
    kind = IcebergKind(tmp_path)
    filled(kind.create(PARTITIONS[:1]))
    with load_catalog("default", **kind.catalog) as catalog, duckdb.connect() as connection:
        catalog.load_table("shop.orders").scan().to_duckdb("orders", connection)
        found = connection.sql(
            "select _kafka_partition, count(*), count(distinct _kafka_offset), max(city) "
            "from orders group by 1 order by 1"
        ).fetchall()
    assert found == [(0, 160, 160, "Bern"), (1, 30, 30, None)]


@pytest.mark.parametrize("kind_of", [DeltaKind, IcebergKind])
def test_statistics_let_a_reader_skip_files_and_never_rows(
    tmp_path: Path, kind_of: type[DeltaKind] | type[IcebergKind]
) -> None:
    kind: Kind = kind_of(tmp_path)
    table = kind.create()
    driver, state = taken(table, "run-a")
    for start in (0, 100):
        commit = commit_of(state, driver, (0, start, start + 100))
        state = table.append(commit, written(table, (0, start, start + 100)))
    for offset in (0, 99, 100, 199):
        if isinstance(kind, DeltaKind):
            rows = DeltaTable(kind.uri).to_pyarrow_table(
                filters=pc.field("_kafka_offset") == offset
            )
        else:
            assert isinstance(kind, IcebergKind)
            with load_catalog("default", **kind.catalog) as catalog:
                scan = catalog.load_table("shop.orders").scan(f"_kafka_offset == {offset}")
                assert len(list(scan.plan_files())) == 1
                rows = scan.to_arrow()
        assert rows["_kafka_offset"].to_pylist() == [offset]


def test_iceberg_widens_a_column_in_the_same_commit(tmp_path: Path) -> None:
    kind = IcebergKind(tmp_path)
    table = kind.create()
    driver, state = taken(table, "run-a")
    state = table.append(commit_of(state, driver, (0, 0, 5)), written(table, (0, 0, 5)))
    wider = SCHEMA.set(SCHEMA.get_field_index("amount"), pa.field("amount", pa.int64()))
    big = pa.array([2**40] * 5, pa.int64())
    files = write_files([rows_of(0, 5, 10, amount=big)], table.layout(wider), "task")
    state = table.append(commit_of(state, driver, (0, 5, 10)), files, wider)
    found = kind.read().sort_by("_kafka_offset")["amount"].to_pylist()
    assert found == [-3, -2, -1, 0, 1] + [2**40] * 5
    table.compact(state, target_bytes=2**20)
    assert sorted(kind.read()["amount"].to_pylist()) == sorted(found)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (pa.field("s.a", pa.int32()), "'s.a' and field 'a' in column 's'"),
        (pa.field("l.element", pa.int32()), "'l.element' and field 'element' in column 'l'"),
        (pa.field("m.value.b", pa.int32()), "'m.value.b' and field 'b' in column 'm'"),
    ],
)
def test_iceberg_says_which_columns_have_one_name(
    tmp_path: Path, other: pa.Field, told: str
) -> None:
    struct = pa.struct([("a", pa.int32())])
    lists = pa.list_(pa.struct([("c", pa.int32())]))
    maps = pa.map_(pa.string(), pa.struct([("b", pa.int32())]))
    nested = pa.schema([("s", struct), ("l", lists), ("m", maps)])
    with pytest.raises(SchemaRefusedError, match=told):
        IcebergKind(tmp_path, schema=pa.schema([other, *nested])).create()
    table = IcebergKind(tmp_path, schema=pa.schema([other])).create()
    for added in (nested, pa.schema([other, *nested])):
        with pytest.raises(SchemaRefusedError, match=told):
            table.layout(added)
    beside = pa.schema([other, pa.field("other.s", struct)])  # a dot alone is a name like others
    assert table.layout(beside).schema.names == [other.name, "other.s"]


def test_delta_says_that_it_does_not_widen(tmp_path: Path) -> None:
    table = DeltaKind(tmp_path).create()
    driver, state = taken(table, "run-a")
    wider = SCHEMA.set(SCHEMA.get_field_index("amount"), pa.field("amount", pa.int64()))
    with pytest.raises(SchemaRefusedError, match="widest type"):
        table.append(commit_of(state, driver, (0, 0, 5)), [], wider)


def test_delta_notices_that_its_notes_were_removed(tmp_path: Path) -> None:
    kind = DeltaKind(tmp_path)
    table = kind.create()
    driver, state = taken(table, "run-a")
    table.append(commit_of(state, driver, (0, 0, 10)), written(table, (0, 0, 10)))
    log = tmp_path / "orders" / "_delta_log"
    for entry in log.glob("*.json"):
        entry.write_text(entry.read_text().replace("penstock.note", "somebody.else"))
    robbed = kind.open()
    assert robbed.load().notes == {}
    with pytest.raises(HistoryError, match="2 commits"):
        taken(robbed, "run-b")


@pytest.mark.parametrize(
    ("kind_of", "by_time"), [(DeltaKind, False), (DeltaKind, True), (IcebergKind, False)]
)
def test_after_a_rollback_the_pipeline_goes_on_from_what_is_there(
    tmp_path: Path, kind_of: type[DeltaKind] | type[IcebergKind], by_time: bool
) -> None:
    kind: Kind = kind_of(tmp_path)
    table = kind.create()
    driver, state = taken(table, "run-a")
    state = table.append(commit_of(state, driver, (0, 0, 10)), written(table, (0, 0, 10)))
    good = state.version
    state = table.append(commit_of(state, driver, (0, 10, 20)), written(table, (0, 10, 20)))
    if isinstance(kind, DeltaKind):
        entry = Path(kind.uri) / "_delta_log" / f"{good:020d}.json"
        written_at = datetime.fromtimestamp(entry.stat().st_mtime, UTC)
        DeltaTable(kind.uri).restore(written_at if by_time else good)
    else:
        assert isinstance(kind, IcebergKind)
        with load_catalog("default", **kind.catalog) as catalog:
            admin = catalog.load_table("shop.orders")
            admin.manage_snapshots().rollback_to_snapshot(good).commit()
    assert offsets_in(kind.read()) == span(0, 0, 10)
    decision = decide(table.load(), Offer(driver, batch_ranges((0, 20, 30))))
    assert isinstance(decision, Stop)
    assert decision.reason is StopReason.WENT_BACK
    again = kind.open()
    new_driver, state = taken(again, "run-b")
    assert new_driver.epoch == 2
    assert list(state.positions_of("orders").values()) == [10]
    again.append(commit_of(state, new_driver, (0, 10, 20)), written(again, (0, 10, 20)))
    assert offsets_in(kind.read()) == span(0, 0, 20)
    assert kind.open().load() == again.load()


@pytest.mark.parametrize("kind_of", [DeltaKind, IcebergKind])
def test_nested_columns_come_back_and_are_compacted(
    tmp_path: Path, kind_of: type[DeltaKind] | type[IcebergKind]
) -> None:
    kind: Kind = kind_of(tmp_path)
    table = kind.create()
    driver, state = taken(table, "run-a")
    nested = pa.struct(
        [("tags", pa.list_(pa.string())), ("at", pa.struct([("x", pa.int64()), ("y", pa.int32())]))]
    )
    prices = pa.map_(pa.string(), pa.float64())
    wider = SCHEMA.append(pa.field("detail", nested)).append(pa.field("prices", prices))
    details = [{"tags": ["a", None], "at": {"x": 2**40, "y": None}}, None]
    found_prices = [[("chf", 1.5)], None]
    for start in (0, 2):
        rows = rows_of(
            0,
            start,
            start + 2,
            detail=pa.array(details, nested),
            prices=pa.array(found_prices, prices),
        )
        files = write_files([rows], table.layout(wider), "task")
        state = table.append(commit_of(state, driver, (0, start, start + 2)), files, wider)
    for _ in range(2):
        found = kind.read().sort_by("_kafka_offset")
        assert found["detail"].to_pylist() == details * 2
        assert found["prices"].to_pylist() == found_prices * 2
        table.compact(table.load(), target_bytes=2**20)
    assert len(table.live_files()) == 1
