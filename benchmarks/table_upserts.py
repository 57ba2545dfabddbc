"""Seconds of an upsert into a table of a million rows, beside the bare libraries.

    python -m benchmarks.table_upserts [--rounds 5] [--rows 1000000] [--changes 10000]
        [--markdown]

Two kinds of batches: `recent` changes keys that lie in the newest tenth of the table, as most
topics do, and `spread` changes keys of the whole table. A tenth of each batch is new keys. Ours has
the commit with its note and the reduction to the last change of each key; the files of changes are
written before the clock starts. The libraries are given the same rows from memory, each key once:
`DeltaTable.merge` with the setting that lets it pass over files, and `Table.upsert` of pyiceberg,
which cannot delete. Both tables begin with ten files of the same rows, and contestants take turns.
`--markdown` writes the table into docs/internals/tables.md.
"""

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.report import put_between_marks
from penstock.spark.tables.commit.decisions import Offer
from penstock.spark.tables.commit.note import CommitCounts
from penstock.spark.tables.commit.steps import Committed
from penstock.spark.tables.files.data_files import write_files
from penstock.spark.tables.files.upsert import Changes
from penstock.spark.tables.formats.change_files import changes_layout
from penstock.spark.tables.run.committer import TableCommitter
from tests.spark.tables.table_kinds import DeltaKind, IcebergKind, batch_ranges

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("amount", pa.float64()),
        pa.field("name", pa.string()),
        pa.field("_timestamp", pa.timestamp("us", "UTC")),
    ]
)
DOCUMENT = Path(__file__).parent.parent / "docs" / "internals" / "tables.md"
HEADINGS = ("format", "keys", "library, s", "ours, s", "ours / library")
FILES = 10
SEED = 7

Upsert = Callable[[pa.Table], float]
"""Upserts the rows into the table; returns the seconds."""


def rows_of(keys: list[int], version: int) -> pa.Table:
    """A row of some 120 bytes for each key."""
    return pa.table(
        [
            pa.array(keys, pa.int64()),
            pa.array([one * 0.25 + version for one in keys], pa.float64()),
            pa.array([f"customer {one % 9973} of version {version}, order {one}" for one in keys]),
            pa.array([one * 1_000 for one in keys], pa.timestamp("us", "UTC")),
        ],
        schema=SCHEMA,
    )


def batches(row_count: int, change_count: int, share: float, rounds: int) -> Iterator[pa.Table]:
    """Changes of keys in the newest `share` of the table, a tenth of them new."""
    chance = random.Random(SEED)
    end = row_count
    for number in range(rounds):
        new = change_count // 10
        first = int(end * (1 - share))
        keys = chance.sample(range(first, end), change_count - new) + list(range(end, end + new))
        end += new
        yield rows_of(keys, number + 1)


def filled(kind: DeltaKind | IcebergKind, row_count: int) -> tuple[TableCommitter, int]:
    """A table with the rows in ten files, and the next offset."""
    kind.folder.mkdir(parents=True)
    committer = TableCommitter(kind.create(), "orders", "run")
    committer.take()
    size = row_count // FILES
    files = []
    for number in range(FILES):
        rows = rows_of(list(range(number * size, (number + 1) * size)), 0)
        files += write_files(rows.to_batches(), committer.table.layout(SCHEMA), "first")
    ranges = batch_ranges((0, 0, row_count))
    committer.commit(Offer(committer.driver, ranges, CommitCounts(row_count)), files)
    return committer, row_count


def ours(kind: DeltaKind | IcebergKind, row_count: int) -> Upsert:
    """By the committer, from files of changes."""
    committer, at = filled(kind, row_count)
    layout = changes_layout(committer.table, SCHEMA)

    def upsert(rows: pa.Table) -> float:
        nonlocal at
        count = rows.num_rows
        changed = [
            *rows.columns,
            pa.array([False] * count),
            pa.array(["orders"] * count),
            pa.array([0] * count, pa.int32()),
            pa.array(range(at, at + count), pa.int64()),
        ]
        table = pa.table(changed, schema=layout.schema)
        receipts = write_files(table.to_batches(), layout, "changes")
        offer = Offer(committer.driver, batch_ranges((0, at, at + count)), CommitCounts(count))
        begin = time.perf_counter()
        done = committer.commit(
            offer, (), changes=Changes(layout.directory, tuple(receipts), ("id",))
        )
        took = time.perf_counter() - begin
        assert isinstance(done, Committed)
        at += count
        return took

    return upsert


def bare_delta(kind: DeltaKind, row_count: int) -> Upsert:
    """By deltalake alone."""
    filled(kind, row_count)
    table = DeltaTable(kind.uri)

    def upsert(rows: pa.Table) -> float:
        begin = time.perf_counter()
        merge = table.merge(
            rows, "t.id = s.id", source_alias="s", target_alias="t", streamed_exec=False
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        return time.perf_counter() - begin

    return upsert


def bare_iceberg(kind: IcebergKind, row_count: int) -> Upsert:
    """By pyiceberg alone."""
    filled(kind, row_count)
    table = load_catalog("default", **kind.catalog).load_table("shop.orders")

    def upsert(rows: pa.Table) -> float:
        begin = time.perf_counter()
        table.upsert(rows, join_cols=["id"])
        return time.perf_counter() - begin

    return upsert


def digest(found: pa.Table) -> tuple[int, float]:
    """Return a digest of the rows; it must be equal for both tables."""
    return found.num_rows, float(sum(found["amount"].to_pylist()))


def measured(
    name: str, folder: Path, options: argparse.Namespace, share: float
) -> tuple[list[float], list[float]]:
    """Seconds of each upsert: the library's, and ours."""
    kind_of = DeltaKind if name == "delta" else IcebergKind
    bare_kind, our_kind = (kind_of(folder / one, schema=SCHEMA) for one in ("bare", "ours"))
    if isinstance(bare_kind, DeltaKind):
        bare = bare_delta(bare_kind, options.rows)
    else:
        bare = bare_iceberg(bare_kind, options.rows)
    contestants = (bare, ours(our_kind, options.rows))
    times: tuple[list[float], list[float]] = ([], [])
    for number, rows in enumerate(batches(options.rows, options.changes, share, options.rounds)):
        for one in (0, 1) if number % 2 else (1, 0):
            times[one].append(contestants[one](rows))
    assert digest(bare_kind.read()) == digest(our_kind.read()), "both tables have the same rows"
    return times


def markdown(lines: list[tuple[str, ...]], options: argparse.Namespace) -> str:
    """Return the table with a note about the conditions."""
    rule = tuple("---" for _ in HEADINGS)
    table = "\n".join(f"| {' | '.join(line)} |" for line in (HEADINGS, rule, *lines))
    return (
        f"{table}\n\nMedians of {options.rounds} upserts of {options.changes:,} changes into "
        f"{options.rows:,} rows; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end."
    )


def main() -> int:
    """Measure both formats and both kinds of batches."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--markdown", action="store_true", help="write the table into the document")
    options = parser.parse_args()
    lines: list[tuple[str, ...]] = []
    for name in ("delta", "iceberg"):
        for keys, share in (("recent", 0.1), ("spread", 1.0)):
            with tempfile.TemporaryDirectory() as folder:
                bare, noted = map(statistics.median, measured(name, Path(folder), options, share))
            lines.append((name, keys, f"{bare:.2f}", f"{noted:.2f}", f"{noted / bare:.2f}"))
    shown = RichTable(*HEADINGS)
    for line in lines:
        shown.add_row(*line)
    Console().print(shown)
    if options.markdown:
        text = put_between_marks(
            DOCUMENT.read_text(), markdown(lines, options), name="table upserts"
        )
        DOCUMENT.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
