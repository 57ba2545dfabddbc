"""The cost that `TableCommitter` adds to a commit of the bare library, side by side.

    python -m benchmarks.table_commits [--rounds 60]

The same Parquet files go into two tables of each format: into one by the library alone, into the
other by a `TableCommitter`. They take turns, so that the machine's noise falls on both. The files
are written before the clock starts. Exit code 1 when the median is above `RATIO_MAX` times the
library's.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction
from pyiceberg.catalog import load_catalog
from rich.console import Console
from rich.table import Table as RichTable

from penstock.spark.tables.commit.decisions import Offer
from penstock.spark.tables.commit.note import CommitCounts
from penstock.spark.tables.files.data_files import FileReceipt
from penstock.spark.tables.formats.delta.actions import add_action
from penstock.spark.tables.formats.iceberg.files import data_files
from penstock.spark.tables.run.committer import TableCommitter
from tests.spark.tables.table_kinds import (
    DeltaKind,
    IcebergKind,
    batch_ranges,
    written,
)

RATIO_MAX = 1.5
FILES = 2
ROWS = 1_000
WARM_UP = 5

Step = Callable[[int], None]


def files_of(committer: TableCommitter, number: int) -> list[FileReceipt]:
    """Two files, as two tasks would write them."""
    start = number * ROWS
    return written(committer.table, *((one, start, start + ROWS) for one in range(FILES)))


def ours(
    committer: TableCommitter,
) -> tuple[Callable[[int], list[FileReceipt]], Callable[..., None]]:
    """Write files, and commit them with a note."""

    def commit(number: int, files: list[FileReceipt]) -> None:
        start = number * ROWS
        ranges = batch_ranges(*((one, start, start + ROWS) for one in range(FILES)))
        committer.commit(Offer(committer.driver, ranges, CommitCounts(FILES * ROWS)), files)

    return lambda number: files_of(committer, number), commit


def bare_delta(kind: DeltaKind) -> Callable[[int, list[FileReceipt]], None]:
    """One entry by deltalake alone."""
    table = DeltaTable(kind.uri)

    def commit(number: int, files: list[FileReceipt]) -> None:
        actions: list[AddAction | RemoveAction] = [add_action(one, (), number) for one in files]
        table.create_write_transaction(actions, mode="append", schema=table.schema())
        table.update_incremental()

    return commit


def bare_iceberg(kind: IcebergKind) -> Callable[[int, list[FileReceipt]], None]:
    """One snapshot by pyiceberg alone."""
    table = load_catalog("default", **kind.catalog).load_table("shop.orders")

    def commit(_number: int, files: list[FileReceipt]) -> None:
        found = data_files(files, table.metadata, table.schema(), f"{table.location()}/data")
        with table.transaction() as change, change.update_snapshot().merge_append() as append:
            for one in found:
                append.append_data_file(one)

    return commit


def measure(name: str, folder: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each commit: the library's, and ours."""
    kinds = []
    for part in ("bare", "ours"):
        (folder / name / part).mkdir(parents=True)
        kind_of = DeltaKind if name == "delta" else IcebergKind
        kinds.append(kind_of(folder / name / part))
    tables = [kind.create() for kind in kinds]
    writer = TableCommitter(tables[0], "bare", "run")
    committer = TableCommitter(tables[1], "orders", "run")
    committer.take()
    bare_kind = kinds[0]
    bare = bare_delta(bare_kind) if isinstance(bare_kind, DeltaKind) else bare_iceberg(bare_kind)
    write_ours, commit_ours = ours(committer)
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + WARM_UP):
        turns = [
            (times[0], bare, files_of(writer, number)),
            (times[1], commit_ours, write_ours(number)),
        ]
        for found, commit, files in turns if number % 2 else turns[::-1]:
            begin = time.perf_counter()
            commit(number, files)
            if number >= WARM_UP:
                found.append((time.perf_counter() - begin) * 1000)
    return times


def main() -> int:
    """Measure both formats and say whether the target is met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    shown = RichTable("format", "library, ms", "with the note, ms", "ratio", f"at most {RATIO_MAX}")
    is_met = True
    with tempfile.TemporaryDirectory() as folder:
        for name in ("delta", "iceberg"):
            bare, noted = (statistics.median(one) for one in measure(name, Path(folder), rounds))
            is_met = is_met and noted / bare <= RATIO_MAX
            verdict = "met" if noted / bare <= RATIO_MAX else "missed"
            shown.add_row(name, f"{bare:.1f}", f"{noted:.1f}", f"{noted / bare:.2f}", verdict)
    Console().print(shown)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
