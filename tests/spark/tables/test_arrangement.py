"""Partition transforms and sort orders of Iceberg tables, and their change by a definition.

Tables are read with `pyiceberg` alone, also with filters that skip partitions. The required rows of
upserts are those of a dictionary.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table as PyIcebergTable

from penstock.spark.errors import OptionError
from penstock.spark.tables.commit.decisions import TableState
from penstock.spark.tables.commit.stops import CommitStoppedError
from penstock.spark.tables.definition.model import PartitionField as DefinedField
from penstock.spark.tables.definition.model import SortField as DefinedSort
from penstock.spark.tables.definition.model import TableFormat, TableSettings
from penstock.spark.tables.definition.model import Transform as DefinedTransform
from penstock.spark.tables.files.data_files import write_files
from penstock.spark.tables.files.file_order import SortField
from penstock.spark.tables.files.file_partitions import PartitionField, Transform
from penstock.spark.tables.files.table_facts import CREATED_KEY
from penstock.spark.tables.formats.arranging import needed_arrangement
from penstock.spark.tables.formats.iceberg.table import IcebergTable
from penstock.spark.tables.formats.port import (
    AnswerLostError,
    Arrangement,
    LayoutChangedError,
    PartitionsDifferError,
    Table,
    TableMovedError,
)
from penstock.spark.tables.run.committer import TableCommitter
from tests.spark.tables.change_batches import SCHEMA as CHANGED
from tests.spark.tables.change_batches import (
    Model,
    applied,
    change_rows,
    rows_in,
    written_changes,
)
from tests.spark.tables.table_kinds import (
    START,
    IcebergKind,
    MergeOnReadKind,
    commit_of,
    offsets_in,
    span,
    taken,
    written,
)

TRANSFORMED = (
    PartitionField("_kafka_timestamp", Transform.YEAR),
    PartitionField("_kafka_offset", Transform.BUCKET, 4),
    PartitionField("name", Transform.TRUNCATE, 6),
)
BUCKETS = (PartitionField("_kafka_partition", Transform.BUCKET, 8),)
DAYS = (PartitionField("_kafka_timestamp", Transform.DAY),)
BY_NAME = (SortField("name", is_descending=True, nulls_first=False), SortField("amount"))


@contextmanager
def stored(kind: IcebergKind) -> Iterator[PyIcebergTable]:
    """The table, by pyiceberg alone."""
    with load_catalog("default", **kind.catalog) as catalog:
        yield catalog.load_table("shop.orders")


def settings(kind: IcebergKind) -> TableSettings:
    return TableSettings(TableFormat.ICEBERG, "shop.orders", tuple(sorted(kind.catalog.items())))


def by_buckets(kind: IcebergKind) -> TableSettings:
    """A definition that partitions by buckets and sorts by name."""
    return replace(
        settings(kind),
        partition_by=(DefinedField(DefinedTransform.BUCKET, "_kafka_partition", 8),),
        keeps_partitions=False,
        sort_by=(DefinedSort("name", is_descending=True), DefinedSort("amount")),
        keeps_sort=False,
    )


def committer(table: Table, run: str = "run-a", pipeline: str = "orders") -> TableCommitter:
    found = TableCommitter(table, pipeline, run, sleep_s=lambda _: None)
    found.take()
    return found


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("_kafka_offset = 7", [7]),
        ("name = 'name 23'", [23]),
        ("name LIKE 'name 4%'", [4, 41, 42, 43, 44, 46, 47, 48, 49]),
        (f"_kafka_timestamp >= '{(START + timedelta(minutes=48)).isoformat()}'", [48, 49]),
    ],
    ids=["bucket", "truncate", "prefix", "year"],
)
def test_readers_skip_partitions_and_find_every_row(
    tmp_path: Path, where: str, wanted: Sequence[int]
) -> None:
    kind = IcebergKind(tmp_path)
    table = kind.create(TRANSFORMED)
    driver, state = taken(table, "run-a")
    table.append(commit_of(state, driver, (0, 0, 50)), written(table, (0, 0, 50)))
    assert offsets_in(kind.read()) == span(0, 0, 50)
    with stored(kind) as found:
        names = [one.name for one in found.spec().fields]
        rows = found.scan(row_filter=where).to_arrow()
        files = len(list(found.scan(row_filter=where).plan_files()))
        every = len(list(found.scan().plan_files()))
    assert names == ["_kafka_timestamp_year", "_kafka_offset_bucket_4", "name_trunc_6"]
    assert sorted(rows["_kafka_offset"].to_pylist()) == list(wanted)
    assert files < every or "timestamp" in where


@pytest.mark.parametrize("kind_of", [IcebergKind, MergeOnReadKind])
@pytest.mark.parametrize(
    "fields",
    [
        (PartitionField("id", Transform.BUCKET, 4),),
        (PartitionField("id", Transform.TRUNCATE, 10),),
        (PartitionField("amount", Transform.BUCKET, 3),),  # rows move between partitions
        (PartitionField("_kafka_timestamp", Transform.YEAR),),
    ],
    ids=str,
)
def test_upserts_into_transformed_partitions_and_after_a_change(
    tmp_path: Path, kind_of: type[IcebergKind], fields: tuple[PartitionField, ...]
) -> None:
    kind = kind_of(tmp_path, schema=CHANGED)
    table = kind.create(fields)
    driver, state = taken(table, "run-a")
    model: Model = {}
    for number, at in enumerate(range(0, 120, 20)):
        batch = [((at + n * 7) % 50, None if n % 9 == 8 else (at + n) % 4) for n in range(20)]
        rows = change_rows(batch, at)
        if number == 3:  # files of the old partitions are changed from here on
            sort = (SortField("id"),)
            wanted = Arrangement((PartitionField("id", Transform.BUCKET, 5),), sort)
            state = table.arrange(state, wanted)
        changes = written_changes(table, rows)
        state = table.upsert(commit_of(state, driver, (0, at, at + 20)), changes)
        if number == 4:
            state = table.compact(state, target_bytes=2**20).state
        model = applied(model, rows, CHANGED)
        assert rows_in(kind.read()) == model


def test_a_changed_definition_changes_new_files_only(tmp_path: Path) -> None:
    kind = IcebergKind(tmp_path)
    table = kind.create(DAYS)
    one = committer(table)
    state = table.append(commit_of(one.state, one.driver, (0, 0, 30)), written(table, (0, 0, 30)))
    one.reload()
    assert one.arrange(by_buckets(kind))
    assert not one.arrange(by_buckets(kind)), "it has it by now"
    assert table.arrangement() == Arrangement(BUCKETS, BY_NAME)
    assert one.state.version == state.version, "it is no snapshot"
    table.append(commit_of(one.state, one.driver, (0, 30, 60)), written(table, (0, 30, 60)))
    assert offsets_in(kind.read()) == span(0, 0, 60)
    with stored(kind) as found:
        specs = {spec.spec_id: [f.name for f in spec.fields] for spec in found.specs().values()}
        files = [task.file for task in found.scan().plan_files()]
        assert specs == {0: ["_kafka_timestamp_day"], 1: ["_kafka_partition_bucket_8"]}
        assert {(one.spec_id, one.sort_order_id) for one in files} == {(0, None), (1, 1)}
        (new,) = [one for one in files if one.spec_id == 1]
        names = pq.read_table(new.file_path.removeprefix("file://"))["name"].to_pylist()
    texts = [one for one in names if one is not None]
    assert texts == sorted(texts, reverse=True)
    assert names == texts + [None] * (len(names) - len(texts))


def test_a_definition_can_go_back(tmp_path: Path) -> None:
    """The old spec and the old order are used again, with the ids of their fields."""
    kind = IcebergKind(tmp_path)
    one = committer(kind.create(DAYS))
    assert one.arrange(by_buckets(kind))
    days = (DefinedField(DefinedTransform.DAY, "_kafka_timestamp"),)
    back = replace(settings(kind), partition_by=days, keeps_partitions=False, keeps_sort=False)
    assert one.arrange(back)
    with stored(kind) as found:
        assert (found.spec().spec_id, found.sort_order().order_id) == (0, 0)
    more = replace(back, partition_by=(*days, *by_buckets(kind).partition_by))
    assert one.arrange(more)
    with stored(kind) as found:
        ids = [(field.field_id, field.name) for field in found.spec().fields]
    assert ids == [(1000, "_kafka_timestamp_day"), (1001, "_kafka_partition_bucket_8")]
    assert one.arrange(replace(settings(kind), keeps_partitions=False)), "no partitions at all"
    assert one.table.arrangement() == Arrangement()
    state = one.state
    one.table.append(commit_of(state, one.driver, (0, 0, 9)), written(one.table, (0, 0, 9)))
    assert offsets_in(kind.read()) == span(0, 0, 9)


def test_a_definition_without_the_keys_keeps_them(tmp_path: Path) -> None:
    kind = IcebergKind(tmp_path)
    one = committer(kind.create(DAYS))
    assert not one.arrange(settings(kind))
    assert one.table.arrangement() == Arrangement(DAYS, ())


def test_a_table_of_another_owner_is_not_changed(tmp_path: Path) -> None:
    kind = IcebergKind(tmp_path)
    kind.create(DAYS).close()
    with stored(kind) as found, found.transaction() as change:
        change.remove_properties(CREATED_KEY)
    one = committer(kind.open())
    with pytest.raises(PartitionsDifferError, match=r"another program created it.*ALTER TABLE"):
        one.arrange(by_buckets(kind))
    assert one.table.arrangement() == Arrangement(DAYS, ())
    days = (DefinedField(DefinedTransform.DAY, "_kafka_timestamp"),)
    assert not one.arrange(replace(settings(kind), partition_by=days, keeps_partitions=False))


def test_a_table_of_several_pipelines_is_not_changed(tmp_path: Path) -> None:
    """Their definitions would change it back and forth."""
    kind = IcebergKind(tmp_path)
    committer(kind.create(DAYS), pipeline="returns")
    one = committer(kind.open())
    with pytest.raises(
        PartitionsDifferError, match=r"other pipelines write to it, too \(returns\)"
    ):
        one.arrange(by_buckets(kind))
    assert one.table.arrangement() == Arrangement(DAYS, ())


def test_a_backfill_belongs_to_its_pipeline(tmp_path: Path) -> None:
    """Its note names it, and its definition is that of its pipeline."""
    kind = IcebergKind(tmp_path)
    backfill = committer(kind.create(DAYS), pipeline="orders.backfill-2025")
    assert backfill.arrange(by_buckets(kind))
    assert committer(kind.open(), pipeline="orders").arrange(
        replace(settings(kind), keeps_partitions=False)
    )
    other = committer(kind.open(), pipeline="returns.backfill-2025")
    with pytest.raises(PartitionsDifferError, match=r"write to it, too \(orders\)"):
        other.arrange(by_buckets(kind))


NUMBERS: list[tuple[pa.DataType, int | Decimal, int | Decimal]] = [
    (pa.int32(), -(2**31), -(2**31) + 8),
    (pa.int64(), -(2**63), -(2**63) + 8),
    (pa.decimal128(4, 2), Decimal("-99.99"), Decimal("-99.90")),
]
"""Types, each with a number that has no multiple of 10 below it, and the first one that has."""


def with_numbers(kind: IcebergKind, numbers: Sequence[object], number: pa.DataType) -> Table:
    """A table with a row of each number; the key is its place."""
    kind.schema = pa.schema([("id", pa.int32()), ("n", number)])
    table = kind.create()
    rows = pa.RecordBatch.from_pydict(
        {"id": pa.array(range(len(numbers)), pa.int32()), "n": pa.array(numbers, number)}
    )
    driver, state = taken(table, "run-a")
    files = write_files([rows], table.layout(table.schema()), "task-0")
    table.append(commit_of(state, driver, (0, 0, len(numbers))), files)
    return table


def by_tens(kind: IcebergKind) -> TableSettings:
    """A definition that truncates numbers."""
    tens = (DefinedField(DefinedTransform.TRUNCATE, "n", 10),)
    return replace(settings(kind), partition_by=tens, keeps_partitions=False)


@pytest.mark.parametrize("is_known", [True, False], ids=["bound", "no bound"])
@pytest.mark.parametrize(("number", "bad", "good"), NUMBERS, ids=[str(one[0]) for one in NUMBERS])
def test_a_row_without_a_truncated_value_keeps_the_partitions(
    tmp_path: Path,
    number: pa.DataType,
    bad: int | Decimal,
    good: int | Decimal,
    is_known: bool,
) -> None:
    """An upsert would rewrite the row, and could not."""
    kind = IcebergKind(tmp_path)
    table = with_numbers(kind, [None, good, good], number)
    with stored(kind) as found:
        if not is_known:
            with found.transaction() as change:
                change.set_properties({"write.metadata.metrics.column.n": "none"})
        more = {"id": pa.array([3, 4], pa.int32()), "n": pa.array([bad, None], number)}
        found.append(pa.table(more))
        bounds = [task.file.lower_bounds for task in found.scan().plan_files()]
        assert sum(2 in one for one in bounds) == (2 if is_known else 1)
    one = committer(table, run="run-b")
    with pytest.raises(
        OptionError, match=rf"column 'n' of table shop.orders holds {bad}, .*bucket"
    ):
        one.arrange(by_tens(kind))
    with pytest.raises(OptionError, match=f"holds {bad}, "):
        table.arrange(one.state, Arrangement((PartitionField("n", Transform.TRUNCATE, 10),)))
    assert table.arrangement() == Arrangement()
    with stored(kind) as found:
        found.delete("id = 3")
    one.reload()
    assert one.arrange(by_tens(kind))
    rows_changed = [
        {"id": key, "n": n, "_change_deleted": False, "_change_topic": "orders"}
        | {"_change_partition": 0, "_change_offset": key}
        for key, n in ((1, 7), (4, 8))
    ]
    changes = written_changes(table, rows_changed)
    table.upsert(commit_of(one.state, one.driver, (0, 3, 5)), changes)
    rows = {row["id"]: row["n"] for row in kind.read().to_pylist()}
    assert rows == {0: None, 1: 7, 2: good, 4: 8}


def test_a_column_that_the_table_lacks_is_named(tmp_path: Path) -> None:
    kind = IcebergKind(tmp_path)
    one = committer(kind.create())
    city = (DefinedField(DefinedTransform.BUCKET, "city", 4),)
    with pytest.raises(OptionError, match=r"no column 'city'.*first commit adds it"):
        one.arrange(replace(settings(kind), partition_by=city, keeps_partitions=False))


def test_files_of_before_a_change_are_written_again(tmp_path: Path) -> None:
    kind = IcebergKind(tmp_path)
    table = kind.create(DAYS)
    one = committer(table)
    files = written(table, (0, 0, 5))
    one.arrange(by_buckets(kind))
    with pytest.raises(LayoutChangedError, match="by now"):
        table.append(commit_of(one.state, one.driver, (0, 0, 5)), files)


def test_a_file_of_another_order_is_not_marked(tmp_path: Path) -> None:
    kind = IcebergKind(tmp_path)
    table = kind.create()
    one = committer(table)
    one.arrange(replace(settings(kind), sort_by=(DefinedSort("amount"),), keeps_sort=False))
    files = written(table, (0, 0, 5))
    assert [file.sort for file in files] == [(SortField("amount"),)]
    one.arrange(replace(by_buckets(kind), keeps_partitions=True))
    table.append(commit_of(one.state, one.driver, (0, 0, 5)), files)
    with stored(kind) as found:
        assert [task.file.sort_order_id for task in found.scan().plan_files()] == [None]


def test_a_replaced_driver_changes_nothing(tmp_path: Path) -> None:
    kind = IcebergKind(tmp_path)
    zombie = committer(kind.create(DAYS))
    committer(kind.open(), run="run-b")
    with pytest.raises(CommitStoppedError):
        zombie.arrange(by_buckets(kind))
    again = kind.open()
    again.load()
    assert again.arrangement() == Arrangement(DAYS, ())


class _Unsteady(IcebergTable):
    """A table whose first change of its arrangement ends in this way."""

    def __init__(self, kind: IcebergKind, *, is_done: bool) -> None:
        super().__init__(kind.catalog, "shop.orders")
        self._is_done = is_done
        self.calls = 0

    def arrange(self, after: TableState, wanted: Arrangement) -> TableState:
        self.calls += 1
        if self.calls > 1:
            return super().arrange(after, wanted)
        if self._is_done:
            super().arrange(after, wanted)
            raise AnswerLostError("no answer")
        raise TableMovedError("another commit")


@pytest.mark.parametrize(("is_done", "calls"), [(True, 1), (False, 2)])
def test_a_lost_answer_and_a_conflict_are_tried_again(
    tmp_path: Path, is_done: bool, calls: int
) -> None:
    kind = IcebergKind(tmp_path)
    kind.create(DAYS).close()
    table = _Unsteady(kind, is_done=is_done)
    assert committer(table).arrange(by_buckets(kind))
    assert table.arrangement() == Arrangement(BUCKETS, BY_NAME)
    assert table.calls == calls


def test_an_order_by_a_transform_is_left_to_its_owner(tmp_path: Path) -> None:
    from pyiceberg.transforms import BucketTransform

    kind = IcebergKind(tmp_path)
    kind.create().close()
    with stored(kind) as found, found.update_sort_order() as change:
        change.asc("name", BucketTransform(num_buckets=4))
    table = kind.open()
    driver, state = taken(table, "run-a")
    table.append(commit_of(state, driver, (0, 0, 5)), written(table, (0, 0, 5)))
    with stored(kind) as found:
        assert [task.file.sort_order_id for task in found.scan().plan_files()] == [None]


def test_the_order_of_a_new_table_is_in_its_metadata(tmp_path: Path) -> None:
    kind = IcebergKind(tmp_path)
    columns = kind.schema.append(pa.field("_kafka", pa.struct([("offset", pa.int64())])))
    sort = (SortField("_kafka.offset"), *BY_NAME)
    IcebergTable.create(kind.catalog, "shop.orders", columns, sort=sort).close()
    with stored(kind) as found:
        order = found.sort_order()
        assert [str(one.direction) for one in order.fields] == ["ASC", "DESC", "ASC"]
        assert [str(one.null_order) for one in order.fields] == [
            "NULLS FIRST",
            "NULLS LAST",
            "NULLS FIRST",
        ]
    assert kind.open().arrangement() == Arrangement((), sort)
    bad = (SortField("_kafka"),)
    with pytest.raises(OptionError, match="has no order"):
        IcebergTable.create(kind.catalog, "shop.others", columns, sort=bad)


def test_a_fixed_arrangement_is_left_alone(tmp_path: Path) -> None:
    """A Delta table refuses other partitions when it is opened."""
    from tests.spark.tables.table_kinds import DeltaKind

    kind = DeltaKind(tmp_path)
    table = kind.create(DAYS)
    wanted = replace(settings(IcebergKind(tmp_path)), keeps_partitions=False, keeps_sort=False)
    assert needed_arrangement(wanted, "orders", table, table.load()) is None
    kind.partitions = ()
    with pytest.raises(PartitionsDifferError, match="cannot change"):
        kind.open()
