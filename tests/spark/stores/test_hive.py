"""Apache Hive's metastore as the catalog of pipelines: the contract of tables, and its locks.

pyiceberg commits to a metastore under a lock of the table. A driver that is killed between the lock
and its release leaves the lock to the metastore, which drops it after `hive.txn.timeout`.
"""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.exceptions import NoSuchTableError

from penstock.spark.tables.formats.iceberg.table import IcebergTable
from tests.oracle.hive_metastore import HiveMetastore, hive_metastore
from tests.spark.stores.test_one_snapshot import commit_range, committer
from tests.spark.tables.table_kinds import IcebergKind, offsets_in, span
from tests.spark.tables.test_table_port import (  # noqa: F401 - the suite, with other tables
    test_a_column_is_added_with_the_files_that_have_it,
    test_a_commit_follows_a_commit_without_reading,
    test_a_commit_that_did_not_see_a_compaction_is_refused_and_decided_again,
    test_a_commit_without_files_moves_the_position,
    test_a_new_table_holds_nothing,
    test_a_refused_commit_adds_no_rows_and_the_column_can_be_added_again,
    test_a_thousand_partitions_can_be_read_again,
    test_a_zombie_with_an_old_handle_is_refused_and_one_that_looks_is_stopped,
    test_compaction_keeps_rows_and_notes,
    test_expiry_keeps_what_the_next_driver_has_to_know,
    test_files_and_note_come_together,
    test_of_two_committers_with_the_same_knowledge_one_is_refused,
    test_of_two_compactions_at_once_one_is_refused,
    test_two_drivers_that_take_at_once_are_not_both_owners,
    test_two_pipelines_share_a_table,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

LOCK_SECONDS = 6


@dataclass
class HiveKind(IcebergKind):
    """A table in a metastore."""

    metastore: HiveMetastore = field(kw_only=True)

    @property
    def catalog(self) -> dict[str, str]:
        return self.metastore.catalog(self.folder / "warehouse")


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveMetastore]:
    """One metastore for all tests of this file."""
    folder = tmp_path_factory.mktemp("hive")
    with hive_metastore(folder, lock_seconds=LOCK_SECONDS) as running:
        yield running


@pytest.fixture
def kind(metastore: HiveMetastore, tmp_path: Path) -> HiveKind:
    """A table in the metastore; the one of an earlier test is dropped."""
    found = HiveKind(tmp_path, metastore=metastore)
    with closing(load_catalog("default", **found.catalog)) as catalog:
        for name in ("shop.orders", "shop.orders__dlq"):
            with suppress(NoSuchTableError):
                catalog.drop_table(name)
    return found


def test_a_commit_waits_for_the_lock_of_a_driver_that_was_killed(kind: HiveKind) -> None:
    kind.create()
    commit_range(committer(kind.open(), "orders"), 0, 0, 10)
    with closing(load_catalog("default", **kind.catalog)) as catalog:
        assert isinstance(catalog, HiveCatalog)
        with catalog._client as client:
            client.lock(catalog._create_lock_request("shop", "orders"))
    # The lock is never released, as after kill -9; the next driver waits until Hive drops it.
    commit_range(committer(kind.open(), "orders", "another run"), 0, 10, 20)
    table = kind.open()
    assert isinstance(table, IcebergTable)
    assert sorted(table.load().positions_of("orders").values()) == [20]
    assert offsets_in(kind.read()) == span(0, 0, 20)
