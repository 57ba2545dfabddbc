"""Cost of an upsert by the size of the table: copy on write beside merge on read, in Iceberg.

    python -m benchmarks.table_upsert_growth [--rows 100000 1000000 10000000] [--changes 10000]
        [--rounds 5] [--markdown]

The batches are those of `benchmarks.table_upserts`: `recent` changes keys of the newest tenth of
the table, `spread` those of the whole table, a tenth of each batch is new. Both tables begin with
ten files of the same rows, and take turns. CPU time is that of the process with all its threads; on
a busy machine it says more than the seconds. Bytes are those of the new data and delete files.
Compaction does not run, and is not in the figures. The first upsert of a driver reads the keys of
the files into the index of merge on read; it has its own column. `--markdown` writes the table into
docs/internals/tables.md.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.report import put_between_marks
from benchmarks.table_upserts import DOCUMENT, FILES, SCHEMA, batches
from penstock.spark.tables.commit.decisions import Offer
from penstock.spark.tables.commit.note import CommitCounts
from penstock.spark.tables.commit.steps import Committed
from penstock.spark.tables.files.data_files import write_files
from penstock.spark.tables.files.upsert import Changes
from penstock.spark.tables.formats.change_files import changes_layout
from penstock.spark.tables.run.committer import TableCommitter
from tests.spark.tables.table_kinds import IcebergKind, MergeOnReadKind, batch_ranges

HEADINGS = (
    "rows",
    "keys",
    "copy on write, s",
    "CPU s",
    "MB",
    "merge on read, s",
    "CPU s",
    "MB",
    "its first upsert, s",
)
ROUNDS_OF_LARGE = 3
"""Copy on write rewrites ten million rows in each round."""


@dataclass(frozen=True)
class Cost:
    """The cost of one upsert."""

    seconds: float
    cpu_seconds: float
    megabytes: float


def first_rows(first: int, count: int) -> pa.Table:
    """Rows as those of `table_upserts.rows_of`, without a Python object for each."""
    keys = pa.arange(first, first + count)
    customers = pc.subtract(keys, pc.multiply(pc.divide(keys, 9973), 9973)).cast(pa.string())
    names = pc.binary_join_element_wise(
        "customer ", customers, " of version 0, order ", keys.cast(pa.string()), ""
    )
    times = pc.multiply(keys, 1_000).cast(pa.timestamp("us", "UTC"))
    amounts = pc.multiply(keys.cast(pa.float64()), 0.25)
    return pa.table([keys, amounts, names, times], schema=SCHEMA)


class Contestant:
    """A table with its committer."""

    def __init__(self, kind: IcebergKind, row_count: int) -> None:
        kind.folder.mkdir(parents=True)
        self._committer = TableCommitter(kind.create(), "orders", "run")
        self._committer.take()
        self._kind = kind
        size = row_count // FILES
        layout = self._committer.table.layout(SCHEMA)
        files = [
            receipt
            for number in range(FILES)
            for receipt in write_files(
                first_rows(number * size, size).to_batches(max_chunksize=65_536), layout, "first"
            )
        ]
        self._committer.commit(
            Offer(self._committer.driver, batch_ranges((0, 0, row_count)), CommitCounts(row_count)),
            files,
        )
        self._at = row_count
        self._layout = changes_layout(self._committer.table, SCHEMA)

    def upsert(self, rows: pa.Table) -> Cost:
        """Upsert the rows, whose files of changes are written before the clock starts."""
        count = rows.num_rows
        changed = [
            *rows.columns,
            pa.array([False] * count),
            pa.array(["orders"] * count),
            pa.array([0] * count, pa.int32()),
            pa.array(range(self._at, self._at + count), pa.int64()),
        ]
        table = pa.table(changed, schema=self._layout.schema)
        receipts = write_files(table.to_batches(), self._layout, "changes")
        changes = Changes(self._layout.directory, tuple(receipts), ("id",))
        ranges = batch_ranges((0, self._at, self._at + count))
        offer = Offer(self._committer.driver, ranges, CommitCounts(count))
        held = self._sizes()
        begin, cpu = time.perf_counter(), time.process_time()
        done = self._committer.commit(offer, (), changes=changes)
        cost = time.perf_counter() - begin, time.process_time() - cpu
        assert isinstance(done, Committed)
        self._at += count
        written = sum(size for path, size in self._sizes().items() if path not in held)
        return Cost(*cost, written / 1e6)

    def digest(self) -> tuple[int, int, float]:
        """Return a digest of the rows; it must be equal for both tables."""
        found = self._kind.read()
        total = pc.sum(found["amount"]).as_py()
        return found.num_rows, pc.sum(found["id"]).as_py(), round(total, 1)

    def _sizes(self) -> dict[Path, int]:
        folder = self._kind.folder / "warehouse"
        found = [one for one in folder.rglob("*.parquet") if "_changes" not in one.parts]
        return {one: one.stat().st_size for one in found}


def measured(
    folder: Path, row_count: int, share: float, options: argparse.Namespace
) -> tuple[list[Cost], list[Cost]]:
    """Return the costs of the upserts: copy on write, and merge on read."""
    kinds: tuple[Callable[..., IcebergKind], ...] = (IcebergKind, MergeOnReadKind)
    contestants = [
        Contestant(one(folder / str(number), schema=SCHEMA), row_count)
        for number, one in enumerate(kinds)
    ]
    rounds = min(options.rounds, ROUNDS_OF_LARGE) if row_count > 10**6 else options.rounds
    costs: tuple[list[Cost], list[Cost]] = ([], [])
    for number, rows in enumerate(batches(row_count, options.changes, share, rounds + 1)):
        for one in (0, 1) if number % 2 else (1, 0):
            costs[one].append(contestants[one].upsert(rows))
    assert contestants[0].digest() == contestants[1].digest(), "both tables have the same rows"
    return costs


def cells(costs: Sequence[Cost]) -> tuple[str, str, str]:
    """Return the median seconds with their spread, and the medians of CPU time and bytes."""
    seconds = [one.seconds for one in costs]
    middle = statistics.median(seconds)
    return (
        f"{middle:.2f} ({min(seconds):.2f}-{max(seconds):.2f})",
        f"{statistics.median(one.cpu_seconds for one in costs):.2f}",
        f"{statistics.median(one.megabytes for one in costs):.1f}",
    )


def markdown(lines: Sequence[tuple[str, ...]], options: argparse.Namespace) -> str:
    """Return the table with a note about the conditions."""
    rule = tuple("---" for _ in HEADINGS)
    table = "\n".join(f"| {' | '.join(line)} |" for line in (HEADINGS, rule, *lines))
    return (
        f"{table}\n\nMedians (and least to greatest) of {options.rounds} upserts of "
        f"{options.changes:,} changes, of {ROUNDS_OF_LARGE} above a million rows, after a first "
        f"one; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end. "
        "`python -m benchmarks.table_upsert_growth --markdown` writes this table."
    )


def main() -> int:
    """Measure tables of each size, with both kinds of batches."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, nargs="+", default=[10**5, 10**6, 10**7])
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--markdown", action="store_true", help="write the table into the document")
    options = parser.parse_args()
    lines: list[tuple[str, ...]] = []
    for row_count in options.rows:
        for keys, share in (("recent", 0.1), ("spread", 1.0)):
            with tempfile.TemporaryDirectory() as folder:
                copied, marked = measured(Path(folder), row_count, share, options)
            first = f"{marked[0].seconds:.2f}"
            lines.append((f"{row_count:,}", keys, *cells(copied[1:]), *cells(marked[1:]), first))
            print(*lines[-1], flush=True)
    shown = RichTable(*HEADINGS)
    for line in lines:
        shown.add_row(*line)
    Console().print(shown)
    if options.markdown:
        text = put_between_marks(
            DOCUMENT.read_text(), markdown(lines, options), name="table upsert growth"
        )
        DOCUMENT.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
