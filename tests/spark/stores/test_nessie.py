"""Project Nessie as the catalog of pipelines: notes are found although it keeps one snapshot only.

Nessie moves each commit of a table into its own history, so the table's metadata have the current
snapshot without a parent. The contract of tables, first commits, a branch that is reset, and a
pipeline that is killed (kill -9 of Python and Java). The same without Nessie is in
`test_one_snapshot.py`.

It needs Java 21 and 245 MB, so it runs with PENSTOCK_PROOF=1 only (`tools/prove.py --only nessie`).
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from penstock.spark.tables.commit.decisions import Offer
from penstock.spark.tables.commit.note import CommitCounts
from penstock.spark.tables.formats.iceberg.table import IcebergTable
from penstock.spark.tables.formats.port import SchemaRefusedError, Table, TableRefusedError
from penstock.spark.tables.formats.secrets import resolved
from tests.oracle.nessie import nessie_catalog
from tests.oracle.object_store import object_store
from tests.oracle.penstock_broker import penstock_broker
from tests.spark.stores.lake import BUCKET, LakeKind
from tests.spark.stores.nessie_lake import NessieLake
from tests.spark.stores.test_one_snapshot import commit_range, committer
from tests.spark.stores.test_store_pipelines import COUNT, penstock, send, write_definition
from tests.spark.tables.pipeline_world import World
from tests.spark.tables.table_kinds import (
    SCHEMA,
    batch_ranges,
    offsets_in,
    rows_of,
    span,
    written,
)
from tests.spark.tables.test_table_port import (  # noqa: F401 - the suite, with other tables
    test_a_commit_follows_a_commit_without_reading,
    test_a_commit_that_did_not_see_a_compaction_is_refused_and_decided_again,
    test_a_commit_without_files_moves_the_position,
    test_a_new_table_holds_nothing,
    test_a_zombie_with_an_old_handle_is_refused_and_one_that_looks_is_stopped,
    test_compaction_keeps_rows_and_notes,
    test_files_and_note_come_together,
    test_of_two_committers_with_the_same_knowledge_one_is_refused,
    test_of_two_compactions_at_once_one_is_refused,
    test_two_drivers_that_take_at_once_are_not_both_owners,
    test_two_pipelines_share_a_table,
)
from tests.spark.topics import create_topic

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3_600)]

GROWTH_SECONDS_MAX = 600.0
"""A start of Spark and a batch; 180 s on two cores with a load of 25."""


@pytest.fixture(scope="module")
def nessie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NessieLake]:
    """The store and Nessie."""
    folder: Path = tmp_path_factory.mktemp("nessie")
    with object_store(folder / "store") as store:
        store.create_bucket(BUCKET)
        with nessie_catalog(folder / "catalog", store, f"s3://{BUCKET}/nessie") as catalog:
            yield NessieLake(store, catalog, folder)


@pytest.fixture
def kind(nessie: NessieLake, tmp_path: Path) -> LakeKind:
    """A table in Nessie."""
    return LakeKind(nessie, "rest", tmp_path)


def iceberg(table: Table) -> IcebergTable:
    assert isinstance(table, IcebergTable)
    return table


def test_the_next_driver_finds_the_notes_of_all_pipelines(kind: LakeKind) -> None:
    kind.create()
    first, second = committer(kind.open(), "orders"), committer(kind.open(), "returns")
    for number in range(3):
        commit_range(first, 0, number * 10, number * 10 + 10)
        commit_range(second, 1, number * 5, number * 5 + 5)
    table = iceberg(kind.open())
    state = table.load()
    [snapshot] = table._table.metadata.snapshots
    assert snapshot.parent_snapshot_id is None
    assert sorted(state.positions_of("orders").values()) == [30]
    assert sorted(state.positions_of("returns").values()) == [15]
    commit_range(committer(kind.open(), "orders", "another run"), 0, 30, 40)
    assert offsets_in(kind.read()) == span(0, 0, 40) + span(1, 0, 15)


def test_a_commit_of_another_program_hides_no_note(kind: LakeKind) -> None:
    kind.create()
    commit_range(committer(kind.open(), "orders"), 0, 0, 10)
    iceberg(kind.open())._table.append(pa.Table.from_batches([rows_of(7, 0, 1)]).cast(SCHEMA))
    commit_range(committer(kind.open(), "orders", "another run"), 0, 10, 20)
    assert offsets_in(kind.read()) == span(0, 0, 20) + span(7, 0, 1)


def test_a_branch_that_is_reset_holds_what_its_note_says(
    kind: LakeKind, nessie: NessieLake
) -> None:
    kind.create()
    one = committer(kind.open(), "orders")
    commit_range(one, 0, 0, 10)
    before = head_of(nessie)
    commit_range(one, 0, 10, 20)
    reset_to(nessie, before, head_of(nessie))
    assert sorted(kind.open().load().positions_of("orders").values()) == [10]
    commit_range(committer(kind.open(), "orders", "another run"), 0, 10, 30)
    assert offsets_in(kind.read()) == span(0, 0, 30)


def test_files_of_earlier_commits_are_kept(kind: LakeKind, nessie: NessieLake) -> None:
    """Nessie's history refers to them; it sets `gc.enabled = false`."""
    kind.create()
    one = committer(kind.open(), "orders")
    for number in range(3):
        commit_range(one, 0, number * 10, number * 10 + 10)
    before = head_of(nessie)
    table = iceberg(kind.open())
    table.compact(table.load(), target_bytes=2**20)
    assert table.remove_orphans(older_than_ms=2**60) == 0
    reset_to(nessie, before, head_of(nessie))
    assert offsets_in(kind.read()) == span(0, 0, 30)


def test_a_table_without_a_snapshot_is_refused(kind: LakeKind, nessie: NessieLake) -> None:
    """Nessie 0.99 accepts a first commit although another writer was first."""
    with closing(load_catalog("default", **resolved(kind.catalog))) as catalog:
        catalog.create_namespace(kind.table_name.rpartition(".")[0])
        catalog.create_table(kind.table_name, SCHEMA)
        first, second = (catalog.load_table(kind.table_name) for _ in range(2))
        with pytest.raises(TableRefusedError, match=r"has no snapshot.*drop the empty table"):
            kind.open()
        with pytest.raises(TableRefusedError, match="has no snapshot"):
            kind.create()
        for number, table in enumerate((first, second)):
            table.append(pa.Table.from_batches([rows_of(number, 0, 5)]).cast(SCHEMA))
    assert offsets_in(kind.read()) == span(1, 0, 5), "Nessie lost the rows of the first writer"
    commit_range(committer(kind.open(), "orders"), 0, 0, 10)
    assert offsets_in(kind.read()) == span(0, 0, 10) + span(1, 0, 5)


def test_a_crash_before_the_first_snapshot_leaves_a_table_that_is_refused(
    kind: LakeKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(_self: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("pyiceberg.table.Transaction.commit_transaction", crash)
        with pytest.raises(KeyboardInterrupt):
            kind.create()
    with pytest.raises(TableRefusedError, match="has no snapshot"):
        kind.create()
    with closing(load_catalog("default", **resolved(kind.catalog))) as catalog:
        catalog.drop_table(kind.table_name)
    commit_range(committer(kind.create(), "orders"), 0, 0, 10)
    assert offsets_in(kind.read()) == span(0, 0, 10)


def test_new_columns_are_refused_with_the_reason(kind: LakeKind) -> None:
    kind.create()
    commit_range(one := committer(kind.open(), "orders"), 0, 0, 10)
    wider = pa.schema([*SCHEMA, pa.field("city", pa.string())])
    offer = Offer(one.driver, batch_ranges((0, 10, 20)), CommitCounts(10))
    with pytest.raises(SchemaRefusedError, match=r"Nessie refused .* issue 11341.*ALTER TABLE"):
        one.commit(offer, written(one.table, (0, 10, 20)), wider)
    commit_range(committer(kind.open(), "orders", "another run"), 0, 10, 20)
    assert offsets_in(kind.read()) == span(0, 0, 20)


def head_of(nessie: NessieLake) -> str:
    found = json.load(urllib.request.urlopen(f"{api(nessie)}/trees/main", timeout=30))
    return str(found["reference"]["hash"])


def reset_to(nessie: NessieLake, wanted: str, head: str) -> None:
    """Move the branch, as an operator does."""
    request = urllib.request.Request(
        f"{api(nessie)}/trees/main@{head}?type=BRANCH",
        data=json.dumps({"type": "BRANCH", "name": "main", "hash": wanted}).encode(),
        headers={"Content-Type": "application/json"},
        method="PUT",
    )
    urllib.request.urlopen(request, timeout=30).close()


def api(nessie: NessieLake) -> str:
    return f"{nessie.rest.address.removesuffix('/iceberg/main')}/api/v2"


def test_a_pipeline_that_is_killed_goes_on_where_its_table_ends(
    nessie: NessieLake, tmp_path: Path
) -> None:
    """By the command line: a run, a run that is killed after a commit, and one more."""
    with penstock_broker(tmp_path / "broker") as broker:
        create_topic(broker.bootstrap, "orders")
        world = nessie.world("rest", tmp_path, broker.bootstrap, "orders")
        file = write_definition(world, schema="id bigint, amount double, name string")
        send(world, 0, COUNT)
        penstock(nessie, "run", file, "--once")
        assert world.offsets() == [(0, number) for number in range(COUNT)]
        send(world, COUNT, COUNT)
        killed_after_commit(world, file)
        send(world, 2 * COUNT, COUNT)
        penstock(nessie, "run", file, "--once")
        assert world.offsets() == [(0, number) for number in range(3 * COUNT)]


def killed_after_commit(world: World, definition: Path) -> None:
    """Run the pipeline until its table has grown, and kill Python and Java at once."""
    with (world.folder / "killed.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "table", "run", str(definition)],
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    before, deadline = len(world.offsets()), time.monotonic() + GROWTH_SECONDS_MAX
    try:
        while len(world.offsets()) == before:
            assert process.poll() is None, (world.folder / "killed.log").read_text()
            assert time.monotonic() < deadline, (world.folder / "killed.log").read_text()
            time.sleep(0.5)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
