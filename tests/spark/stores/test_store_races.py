"""Writers that race on a real store, and stores that do not refuse the loser.

Two pipelines commit to one table at once, each batch as soon as it can: every row is there once.
Then on a store whose conditional writes do not hold: a Delta table is refused at the start, and
without that check its commits are lost. (Commits to an Iceberg table are in its catalog.)
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.core.errors import PenstockError
from penstock.spark.tables.commit.decisions import Offer
from penstock.spark.tables.commit.note import CommitCounts
from penstock.spark.tables.commit.steps import Committed
from penstock.spark.tables.commit.stops import CommitStoppedError, StopReason
from penstock.spark.tables.definition.model import TableFormat, TableSettings
from penstock.spark.tables.formats.delta import conditional
from penstock.spark.tables.formats.opening import make_table
from penstock.spark.tables.formats.port import Table, TableRefusedError
from penstock.spark.tables.formats.secrets import resolved
from penstock.spark.tables.run.committer import TableCommitter
from tests.spark.stores.lake import KINDS, Lake, LakeKind
from tests.spark.stores.proxies import forgetful_store
from tests.spark.tables.table_kinds import SCHEMA, batch_ranges, offsets_in, span, written

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

BATCHES = 12
ROUNDS_MAX = 8
ROWS = 5


@pytest.fixture
def forgetful(lake: Lake) -> Iterator[str]:
    """The address of the same store, without conditional writes."""
    with forgetful_store(lake.store) as address:
        yield address


def commit_batches(table: Table, pipeline: str, partition: int, errors: list[Exception]) -> None:
    """Commit batch after batch; others may commit in between."""
    try:
        one = TableCommitter(table, pipeline, f"run-{pipeline}")
        one.take()
        for number in range(BATCHES):
            found = (partition, number * ROWS, (number + 1) * ROWS)
            offer = Offer(one.driver, batch_ranges(found), CommitCounts(ROWS))
            assert isinstance(one.commit(offer, written(table, found)), Committed)
    except Exception as error:  # noqa: BLE001 - the test raises it
        errors.append(error)


def race(first: Table, second: Table) -> list[Exception]:
    errors: list[Exception] = []
    writers = [
        threading.Thread(target=commit_batches, args=(table, f"orders-{number}", number, errors))
        for number, table in enumerate((first, second))
    ]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    return errors


@pytest.mark.parametrize("name", KINDS)
def test_two_writers_that_race_commit_everything_once(
    name: str, lake: Lake, tmp_path: Path
) -> None:
    kind = LakeKind(lake, name, tmp_path)
    kind.create()
    assert not race(kind.open(), kind.open())
    rows = BATCHES * ROWS
    assert offsets_in(kind.read()) == span(0, 0, rows) + span(1, 0, rows)


@pytest.mark.parametrize("name", KINDS)
def test_a_replaced_driver_is_fenced(name: str, lake: Lake, tmp_path: Path) -> None:
    kind = LakeKind(lake, name, tmp_path)
    kind.create()
    first, second = (TableCommitter(kind.open(), "orders", run) for run in ("one", "two"))
    first.take()
    second.take()
    for one in (second, first):
        offer = Offer(one.driver, batch_ranges((0, 0, ROWS)), CommitCounts(ROWS))
        files = written(one.table, (0, 0, ROWS))
        if one is second:
            one.commit(offer, files)
            continue
        with pytest.raises(CommitStoppedError) as caught:
            one.commit(offer, files)
        assert caught.value.reason is StopReason.FENCED
    assert offsets_in(kind.read()) == span(0, 0, ROWS)


def through(lake: Lake, forgetful: str, name: str, folder: Path) -> TableSettings:
    catalog = {
        key: text.replace(lake.store.address, forgetful)
        for key, text in lake.catalog(name, folder).items()
    }
    format_ = TableFormat.DELTA if name == "delta" else TableFormat.ICEBERG
    return TableSettings(format_, "shop.orders", tuple(sorted(catalog.items())))


def test_a_store_that_loses_commits_is_refused_for_delta(
    lake: Lake, forgetful: str, tmp_path: Path
) -> None:
    settings = through(lake, forgetful, "delta", tmp_path)
    with pytest.raises(TableRefusedError, match="accepts two commits of one version"):
        make_table(settings, "shop.orders", SCHEMA)
    assert not list(lake.store.data.rglob("_penstock_probe/*/*.json"))
    good = LakeKind(lake, "delta", tmp_path)
    made = make_table(
        TableSettings(TableFormat.DELTA, "shop.orders", tuple(sorted(good.catalog.items()))),
        "shop.orders",
        SCHEMA,
    )
    made.close()


def test_without_the_probe_such_a_store_loses_commits(
    lake: Lake, forgetful: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A race may go well by chance, so it has several rounds."""
    monkeypatch.setattr(conditional, "require_conditional_commits", lambda *_: None)
    for number in range(ROUNDS_MAX):
        folder = tmp_path / f"{tmp_path.name}-{number}"
        folder.mkdir()
        if loses_commits(through(lake, forgetful, "delta", folder)):
            return
    pytest.fail("the condition of a write was not needed")


def loses_commits(settings: TableSettings) -> bool:
    """Whether two writers lose rows there, or meet an error."""
    tables = [make_table(settings, "shop.orders", SCHEMA) for _ in range(2)]
    errors = race(*tables)
    assert all(isinstance(one, PenstockError) for one in errors)
    options = resolved(dict(settings.catalog))
    held: pa.Table = DeltaTable(
        f"{options.pop('warehouse')}/shop/orders", storage_options=options
    ).to_pyarrow_table()
    rows = BATCHES * ROWS
    return bool(errors) or offsets_in(held) != span(0, 0, rows) + span(1, 0, rows)
