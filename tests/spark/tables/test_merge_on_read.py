"""Upserts by position deletes: what is written, what maintenance does with it, and each guard.

The contract of the port and any history against a dictionary are in `test_upserts`, crashes and
races in `test_upsert_committer`, other engines in `test_merge_on_read_engines`.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask
from pyiceberg.table import Table as PyIcebergTable
from pyiceberg.types import StringType

from penstock.spark.tables.commit.decisions import TableState
from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.model import MaintenanceSettings, Upserts
from penstock.spark.tables.definition.reader import read_definition
from penstock.spark.tables.files.data_files import FileLayout, write_files
from penstock.spark.tables.files.file_partitions import PartitionField
from penstock.spark.tables.files.maintenance import HOUR_MS, is_worn
from penstock.spark.tables.formats.iceberg import files as iceberg_files
from penstock.spark.tables.formats.iceberg import merge_on_read, position_deletes
from penstock.spark.tables.formats.iceberg import upsert as iceberg_upsert
from penstock.spark.tables.formats.iceberg.change import Change as IcebergChange
from penstock.spark.tables.formats.iceberg.key_places import SharedBound
from penstock.spark.tables.formats.iceberg.position_deletes import (
    PATH_ID,
    Deletion,
    absorbed_by,
    read_positions,
    write_deletes,
)
from penstock.spark.tables.formats.iceberg.reading import IcebergReader
from penstock.spark.tables.formats.iceberg.replacement import replacement
from penstock.spark.tables.formats.iceberg.table import IcebergTable
from penstock.spark.tables.formats.opening import make_table
from penstock.spark.tables.formats.port import TableRefusedError
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.maintenance import TableMaintenance
from penstock.spark.tables.values.cdc.sequence import SEQUENCE
from tests.spark.cdc.test_cdc_model import DDL, Database, shuffled
from tests.spark.tables.change_batches import (
    SCHEMA,
    Change,
    Model,
    applied,
    change_rows,
    commit_changes,
    rows_in,
    stream,
    written_changes,
)
from tests.spark.tables.foreign_world import ForeignWorld
from tests.spark.tables.table_kinds import MergeOnReadKind, SetClock, commit_of, taken
from tests.spark.tables.value_world import ValueWorld

pytestmark = pytest.mark.slow

LATER_MS = 4_000_000_000_000
ROWS = 200


class Upserted:
    """A table of 200 rows in two files, its model, and further upserts by the same handle."""

    def __init__(self, kind: MergeOnReadKind, partitions: Sequence[PartitionField] = ()) -> None:
        self.kind = kind
        self.table = kind.create(partitions)
        assert isinstance(self.table, IcebergTable)
        self.driver, self.state = taken(self.table, "run-a")
        self.model: Model = {}
        self.at = 0
        for first in (0, ROWS // 2):
            self.commit([(key, key) for key in range(first, first + ROWS // 2)])

    def commit(self, batch: Sequence[Change]) -> None:
        rows = change_rows(batch, self.at)
        commit = commit_of(self.state, self.driver, (0, self.at, self.at + len(batch)))
        self.state = self.table.upsert(commit, written_changes(self.table, rows))
        self.model = applied(self.model, rows)
        self.at += len(batch)

    def check(self) -> None:
        """Raise unless readers and facts agree with the model."""
        assert rows_in(self.kind.read()) == self.model
        scanned = [
            key for batch in self.table.scan(["id"]) for key in batch.column("id").to_pylist()
        ]
        assert sorted(scanned) == sorted(self.model)
        assert sum(one.row_count for one in self.table.live_files()) == len(self.model)
        with closing(IcebergReader(self.kind.catalog, "shop.orders")) as reader:
            assert reader.facts().row_count == len(self.model)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def kind(tmp_path: Path, clock: SetClock) -> MergeOnReadKind:
    return MergeOnReadKind(tmp_path, schema=SCHEMA, clock=clock)


@pytest.fixture
def upserted(kind: MergeOnReadKind) -> Upserted:
    return Upserted(kind)


@contextmanager
def opened(kind: MergeOnReadKind) -> Iterator[PyIcebergTable]:
    with closing(load_catalog("default", **kind.catalog)) as catalog:
        yield catalog.load_table("shop.orders")


def tasks_of(kind: MergeOnReadKind) -> list[FileScanTask]:
    with opened(kind) as table:
        return list(table.scan().plan_files())


def total(kind: MergeOnReadKind, name: str) -> int:
    """A total in the summary of the newest snapshot."""
    with opened(kind) as table:
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        return int(snapshot.summary[name] or 0)


def stored(kind: MergeOnReadKind) -> set[str]:
    """Data files and delete files on disk."""
    found = (kind.folder / "warehouse").rglob("*.parquet")
    return {f"file://{one}" for one in found if "_changes" not in one.parts}


# --- What an upsert writes ---


def test_no_row_is_written_again(upserted: Upserted) -> None:
    before = {one.path for one in upserted.table.live_files()}
    held = stored(upserted.kind)
    upserted.commit([(3, 1000), (4, None), (150, 1000), (999, 1)])
    upserted.check()
    after = {one.path: one.row_count for one in upserted.table.live_files()}
    [new] = after.keys() - before
    assert before <= after.keys()
    assert after[new] == 3
    # The new rows, and a delete file for each of the two files.
    assert len(stored(upserted.kind) - held) == 3
    assert total(upserted.kind, "total-position-deletes") == 3
    assert [one.deleted_count for one in upserted.table.live_files()].count(0) == 1


def test_delete_files_stay_few_and_have_each_position_once(upserted: Upserted) -> None:
    chance = random.Random(5)
    for _ in range(30):
        upserted.commit([(chance.randrange(ROWS), chance.randrange(99)) for _ in range(4)])
    upserted.check()
    with opened(upserted.kind) as table:
        for task in table.scan().plan_files():
            assert len(task.delete_files) <= 4
            found = [
                position
                for one in task.delete_files
                for position in read_positions(table.io, one)[task.file.file_path].to_pylist()
            ]
            assert len(found) == len(set(found))
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert len(snapshot.manifests(table.io)) < 60


def test_a_file_without_a_row_left_goes_with_its_delete_files(upserted: Upserted) -> None:
    [first] = [one.path for one in upserted.table.live_files() if one.row_count == ROWS // 2][:1]
    for start in range(0, ROWS // 2, 20):
        upserted.commit([(key, -1) for key in range(start, start + 20)])
    upserted.check()
    assert len(tasks_of(upserted.kind)) == 6
    assert total(upserted.kind, "total-delete-files") == 0
    assert first in stored(upserted.kind), "an older snapshot has it"


def test_the_keys_of_a_file_are_read_once(upserted: Upserted) -> None:
    assert isinstance(upserted.table, IcebergTable)
    for number in range(6):
        upserted.commit([(key, number) for key in range(number, ROWS, 7)])
    upserted.check()
    # Two first files and one of each later batch but the last: none twice.
    assert upserted.table._places.read_count == 2 + 5


def test_without_room_in_the_index_files_are_read_each_time(
    upserted: Upserted, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(upserted.table, IcebergTable)
    upserted.table._places.clear()
    monkeypatch.setattr(upserted.table._places, "_bound", SharedBound(0))
    for number in range(6):
        upserted.commit([(key, number) for key in range(number, ROWS, 7)])
    upserted.check()
    assert upserted.table._places.size_bytes == 0
    assert upserted.table._places.read_count > 2 + 5


def test_both_ways_of_upserts_take_turns(upserted: Upserted) -> None:
    """The setting may be changed at any time: each way reads the table of the other."""
    ways = (Upserts.COPY_ON_WRITE, Upserts.MERGE_ON_READ)
    for number in range(6):
        upserted.table = replace(upserted.kind, upserts=ways[number % 2]).open()
        upserted.state = upserted.table.load()
        upserted.commit([(key, number) for key in range(number, ROWS, 9)])
        upserted.check()
    # Copy on write removed the delete files of the files that it rewrote.
    assert total(upserted.kind, "total-position-deletes") == sum(
        one.deleted_count for one in upserted.table.live_files()
    )


def test_the_definition_chooses_it(tmp_path: Path) -> None:
    """A pipeline's own table, and its table of bad records, which is appended to."""
    settings = {"upserts": "merge_on_read"}
    world = ForeignWorld(tmp_path, mode="upsert", format="iceberg", settings=settings)
    table = world.definition.table
    schema = pa.schema([("id", pa.int64()), ("amount", pa.float64())])
    make_table(table, table.name, schema).close()
    pipeline = world.start()
    rows = [{"id": key, "amount": 1.0} for key in range(4)]
    pipeline.commit(*rows, keys=[{"id": one["id"]} for one in rows])
    pipeline.commit({"id": 2, "amount": 2.0}, None, keys=[{"id": 2}, {"id": 3}])
    assert world.rows("id", "amount") == [(0, 1.0), (1, 1.0), (2, 2.0)]
    with closing(load_catalog("default", **dict(table.catalog))) as catalog:
        files = catalog.load_table(table.name).inspect.files().to_pylist()
        assert sorted((one["content"], one["record_count"]) for one in files) == [
            (0, 1),
            (0, 4),
            (1, 2),
        ]


@pytest.mark.parametrize(
    ("sizes", "count", "absorbed"), [([], 5, 0), ([21], 5, 0), ([20], 5, 1), ([1, 24, 130], 5, 2)]
)
def test_a_delete_file_absorbs_those_that_are_not_much_larger(
    sizes: list[int], count: int, absorbed: int
) -> None:
    files = [DataFile.from_args(record_count=one) for one in sizes]
    assert len(absorbed_by(count, files)) == absorbed


# --- The order of changes ---


def test_an_older_change_does_nothing_in_any_history(tmp_path: Path) -> None:
    """One handle, so that the index has the order of rows, too."""
    schema = pa.schema([*SCHEMA, pa.field(SEQUENCE, pa.string())])
    kind = MergeOnReadKind(tmp_path, schema=schema)
    table = kind.create()
    driver, state = taken(table, "run-a")
    chance = random.Random(11)
    model: dict[int, tuple[str, int | None]] = {}
    for at in range(0, 120, 12):
        rows = change_rows([(chance.randrange(9), n) for n in range(at, at + 12)], at)
        for row in rows:
            row[SEQUENCE] = f"{chance.randrange(60):03d}@{row['_change_offset']:05d}"
            order, _ = model.get(row["id"], ("", None))
            if row[SEQUENCE] >= order:
                model[row["id"]] = row[SEQUENCE], row["amount"]
        changes = written_changes(table, rows)
        commit = commit_of(state, driver, (0, at, at + 12))
        state = table.upsert(commit, replace(changes, is_sequenced=True))
        if at == 60:
            state = table.compact(state, target_bytes=2**20).state
        found = {one["id"]: (one[SEQUENCE], one["amount"]) for one in kind.read().to_pylist()}
        assert found == model


@pytest.mark.parametrize("seed", [1, 2])
def test_the_table_equals_the_database(tmp_path: Path, seed: int) -> None:
    """Shuffled and repeated events, as in `test_cdc_model`."""
    chance = random.Random(seed)
    database = Database(chance)
    records = shuffled([one for part in database.events(60) for one in part], chance)
    names = ["source.lsn", "transaction.total_order"]
    value = {"envelope": "debezium", "sequence_by": names}
    upsert = {"mode": "upsert", "key": ["id"], "upserts": "merge_on_read"}
    world = ValueWorld(tmp_path, "iceberg", DDL, upsert, value=value)
    world.rows.upserts = Upserts.MERGE_ON_READ  # type: ignore[attr-defined] # of an Iceberg table
    while records:
        size = chance.choice([5, 40, 90])
        some, records = records[:size], records[size:]
        world.commit([one.value for one in some], keys=[one.key for one in some])
    assert world.reasons() == {}
    expected = [(key, *row) for key, row in database.rows.items()]
    assert world.held("id", "name", "big") == sorted(expected, key=repr)


# --- Maintenance ---


def worn_history(kind: MergeOnReadKind, clock: SetClock) -> TableCommitter:
    """Upserts with maintenance between them, that change each of forty keys many times."""
    one = TableCommitter(kind.create(), "orders", "run-a")
    one.take()
    maintenance = TableMaintenance(one, MaintenanceSettings(expire_snapshots_ms=HOUR_MS), clock)
    for start in range(0, 300, 30):
        commit_changes(one, start, start + 30)
        clock.advance(minutes=20)
        done = maintenance.after_batch()
        assert done is not None
        assert not done.problem
    return one


def test_maintenance_drops_deleted_rows_and_their_delete_files(
    kind: MergeOnReadKind, clock: SetClock
) -> None:
    one = worn_history(kind, clock)
    model = applied({}, stream(0, 300))
    assert rows_in(kind.read()) == model
    live = one.table.live_files()
    assert sum(file.row_count for file in live) == len(model)
    assert not any(is_worn(file.row_count, file.deleted_count) for file in live)
    done = TableMaintenance(one, MaintenanceSettings(), clock).maintain_now()
    assert not done.problem
    one.expire(older_than_ms=LATER_MS, keep_count=1)
    assert rows_in(kind.read()) == model
    tasks = tasks_of(kind)
    referred = {task.file.file_path for task in tasks}
    referred |= {delete.file_path for task in tasks for delete in task.delete_files}
    assert stored(kind) == referred, "expiry deletes what nothing refers to, and nothing else"


def test_every_kept_state_can_be_read(upserted: Upserted) -> None:
    models: dict[int | str, Model] = {}
    for number in range(10):
        upserted.commit([(key, number) for key in range(number, ROWS, 9)])
        models[upserted.state.version] = upserted.model
        if number % 4 == 3:
            done = upserted.table.compact(upserted.state, target_bytes=2**20)
            upserted.state = done.state
            models[upserted.state.version] = upserted.model
    for kept in (8, 5, 2):
        upserted.table.expire(older_than_ms=LATER_MS, keep_count=kept)
        assert upserted.table.remove_orphans(older_than_ms=0) == 0
        with opened(upserted.kind) as table:
            assert len(table.snapshots()) == kept
            for one in table.snapshots():
                found = table.scan(snapshot_id=one.snapshot_id).to_arrow()
                assert rows_in(found) == models[one.snapshot_id]
    assert upserted.table.remove_orphans(older_than_ms=LATER_MS) > 0, "files of changes"
    upserted.check()


def test_delete_files_without_a_commit_are_orphans(upserted: Upserted) -> None:
    upserted.commit([(3, 1000)])
    known = stored(upserted.kind)
    [task, *_] = tasks_of(upserted.kind)
    layout = upserted.table.layout(SCHEMA)
    write_deletes([Deletion(task.file, pa.array([1, 2], pa.int64()))], layout, layout.directory)
    assert len(stored(upserted.kind)) == len(known) + 1
    upserted.table.remove_orphans(older_than_ms=LATER_MS)
    assert stored(upserted.kind) == known
    upserted.check()


# --- Tables and delete files of others ---


def delete_in_one_file(upserted: Upserted, positions: Mapping[str, Sequence[int]]) -> TableState:
    """Commit one delete file for several data files, as other engines write it."""
    layout = upserted.table.layout(SCHEMA)
    with opened(upserted.kind) as table:
        names = sorted(positions)
        rows = [(name, at) for name in names for at in positions[name]]
        batch = pa.RecordBatch.from_arrays(
            [pa.array([one for one, _ in rows]), pa.array([at for _, at in rows], pa.int64())],
            schema=position_deletes._SCHEMA,
        )
        files = FileLayout(layout.directory, position_deletes._SCHEMA)
        [receipt] = write_files([batch], files, "foreign")
        [task, *_] = list(table.scan().plan_files())
        deletion = Deletion(task.file, batch.column(1))
        entry = position_deletes._entry(deletion, receipt, str(layout.directory))
        entry.lower_bounds[PATH_ID] = to_bytes(StringType(), names[0])
        entry.upper_bounds[PATH_ID] = to_bytes(StringType(), names[-1])
        change = IcebergChange(table)
        producer = replacement(change.update_snapshot())
        producer.append_delete_file(entry)
        producer.commit()
        change.commit_transaction()
    return upserted.table.load()


def test_a_delete_file_for_several_data_files_applies_and_stays(upserted: Upserted) -> None:
    names = [task.file.file_path for task in tasks_of(upserted.kind)]
    found = [(name, pq.read_table(name.removeprefix("file://"))["id"]) for name in names]
    keys = {key: (name, at) for name, ids in found for at, key in enumerate(ids.to_pylist())}
    gone = (5, 6, 120)
    positions: dict[str, list[int]] = {}
    for key in gone:
        name, at = keys[key]
        positions.setdefault(name, []).append(at)
        upserted.model.pop(key)
    upserted.state = delete_in_one_file(upserted, positions)
    upserted.check()
    upserted.commit([(5, 1), (7, 2), (130, None)])  # 5 is back, 7 is changed beside the deleted
    upserted.check()
    assert total(upserted.kind, "total-delete-files") == 3
    done = upserted.table.compact(upserted.state, target_bytes=2**30)
    assert done.removed_count == 3
    assert rows_in(upserted.kind.read()) == upserted.model


def test_a_table_of_version_1_is_refused_with_the_remedy(tmp_path: Path) -> None:
    kind = MergeOnReadKind(tmp_path, schema=SCHEMA, upserts=Upserts.COPY_ON_WRITE)
    kind.create().close()
    with closing(load_catalog("default", **kind.catalog)) as catalog:
        schema = catalog.load_table("shop.orders").schema()
        catalog.drop_table("shop.orders")
        catalog.create_table("shop.orders", schema, properties={"format-version": "1"})
    kind.open().close()
    with pytest.raises(TableRefusedError, match="'format-version' = '2'"):
        replace(kind, upserts=Upserts.MERGE_ON_READ).open()


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"format": "delta", "mode": "upsert", "key": ["id"]}, "deletion vectors"),
        ({"format": "iceberg"}, 'write mode = "upsert"'),
    ],
)
def test_a_definition_that_cannot_merge_on_read_is_refused(
    table: dict[str, Any], problem: str
) -> None:
    section = {"name": "shop.orders", "catalog": {"type": "sql", "warehouse": "/tmp/w"}, **table}
    section["catalog"] |= {"uri": "sqlite:////tmp/c.db"} if table["format"] == "iceberg" else {}
    section["upserts"] = "merge_on_read"
    if table["format"] == "delta":
        section["catalog"] = {"warehouse": "/tmp/w"}
    document = {
        "pipeline": {"name": "orders", "bootstrap_servers": "127.0.0.1:1", "checkpoint": "/tmp/c"},
        "source": {"topics": ["orders"]},
        "table": section,
        "value": {"format": "json", "schema": "id bigint"},
    }
    with pytest.raises(DefinitionError, match=problem):
        read_definition(document, "orders.toml")


# --- Without each guard ---


def deleting_again(upserted: Upserted) -> None:
    for number in range(5):  # keys that come again, and others of the same files
        upserted.commit([(key, number) for key in range(number % 3, ROWS, 10)])
    upserted.check()


def test_with_the_guards_it_holds(upserted: Upserted) -> None:
    deleting_again(upserted)
    upserted.state = upserted.table.compact(upserted.state, target_bytes=2**20).state
    upserted.check()
    assert total(upserted.kind, "total-delete-files") == 0


def test_without_the_check_for_deleted_rows(
    upserted: Upserted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_live(_table: object, _task: object, positions: pa.Array, _places: object) -> pa.Array:
        return pa.repeat(pa.scalar(value=True), len(positions))

    monkeypatch.setattr(merge_on_read, "_live", all_live)
    monkeypatch.setattr(merge_on_read, "absorbed_by", lambda *_: ())
    with pytest.raises(AssertionError):
        deleting_again(upserted)


def test_without_the_positions_of_absorbed_files(
    upserted: Upserted, monkeypatch: pytest.MonkeyPatch
) -> None:
    ascending: Callable[[Sequence[pa.Array]], pa.Array] = position_deletes.ascending
    monkeypatch.setattr(merge_on_read, "ascending", lambda parts: ascending(parts[:1]))
    with pytest.raises(AssertionError, match="twice"):
        deleting_again(upserted)


def test_without_the_removal_of_delete_files_a_compaction_leaves_them(
    upserted: Upserted, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleting_again(upserted)
    monkeypatch.setattr(iceberg_upsert, "own_deletes", lambda _: [])
    upserted.table.compact(upserted.state, target_bytes=2**20)
    assert total(upserted.kind, "total-delete-files") > 0


def test_without_the_share_of_deleted_rows_they_stay(
    kind: MergeOnReadKind, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.tables.files.maintenance.is_worn", lambda *_: False)
    monkeypatch.setattr(iceberg_files, "is_worn", lambda *_: False)
    one = worn_history(kind, clock)
    assert any(is_worn(file.row_count, file.deleted_count) for file in one.table.live_files())


def test_without_the_whole_path_in_the_bounds_a_delete_file_is_not_its_own(
    upserted: Upserted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shortened(kind: object, value: object) -> bytes:
        found = to_bytes(kind, value)  # type: ignore[arg-type] # a type of Iceberg
        return found[:16] if isinstance(kind, StringType) else found

    monkeypatch.setattr(position_deletes, "to_bytes", shortened)
    with pytest.raises(AssertionError):
        deleting_again(upserted)
