"""When records could be read, from the log of a table: every commit, every row, the right order."""

from pathlib import Path

import pytest

from benchmarks.table_latencies import (
    delta_commits,
    iceberg_commits,
    latencies_ms,
    rows_of,
    watched,
)
from tests.spark.tables.table_kinds import (
    START,
    DeltaKind,
    IcebergKind,
    commit_of,
    taken,
    written,
)

MINUTE_MS = 60_000
START_MS = START.timestamp() * 1_000
STARTS = (0, 10, 20)


def filled(kind: DeltaKind | IcebergKind) -> None:
    """Three commits of ten rows, a minute apart by their timestamps."""
    table = kind.create()
    driver, state = taken(table, "run-a")
    for start in STARTS:
        span = (0, start, start + 10)
        state = table.append(commit_of(state, driver, span), written(table, span))


@pytest.mark.parametrize("kind_of", [DeltaKind, IcebergKind])
def test_every_commit_is_found_with_its_files_and_rows(
    tmp_path: Path, kind_of: type[DeltaKind] | type[IcebergKind]
) -> None:
    kind = kind_of(tmp_path)
    filled(kind)
    if isinstance(kind, DeltaKind):
        commits = delta_commits(Path(kind.uri))
    else:
        commits = iceberg_commits(tmp_path / "warehouse" / "shop" / "orders", ())
    assert [len(one.files) for one in commits] == [1, 1, 1]
    assert rows_of(commits) == 30
    assert [one.at_ms for one in commits] == sorted(one.at_ms for one in commits)
    # Records of minutes 5 to 14: five of the first commit, five of the second.
    found = latencies_ms(commits, START_MS + 5 * MINUTE_MS, START_MS + 15 * MINUTE_MS)
    expected = [
        *(commits[0].at_ms - START_MS - minute * MINUTE_MS for minute in range(5, 10)),
        *(commits[1].at_ms - START_MS - minute * MINUTE_MS for minute in range(10, 15)),
    ]
    assert list(found) == pytest.approx(sorted(expected))


def test_a_catalog_shows_a_commit_when_its_database_has_changed(tmp_path: Path) -> None:
    kind = IcebergKind(tmp_path)
    filled(kind)
    table = tmp_path / "warehouse" / "shop" / "orders"
    written_at = [one.at_ms for one in iceberg_commits(table, ())]
    changes = [written_at[0] - 1, written_at[0] + 3, written_at[-1] + 50]
    seen_at = [one.at_ms for one in iceberg_commits(table, changes)]
    assert seen_at[0] == changes[1]
    assert seen_at[-1] == changes[2]


def test_nothing_is_found_before_there_is_a_table(tmp_path: Path) -> None:
    assert delta_commits(tmp_path) == []
    assert iceberg_commits(tmp_path, ()) == []
    with watched("") as changes:
        assert changes == []
