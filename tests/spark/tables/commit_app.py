"""A driver in a process of its own, for tests that kill it.

    python -m tests.spark.tables.commit_app delta|iceberg FOLDER RUN BATCHES

It acquires the table, continues at the table's position, and commits batches of ten offsets, with a
compaction now and then. It ends after its batches or when another driver has acquired the table.
"""

import sys
from pathlib import Path

from penstock.core.types import TopicPartition
from penstock.spark.tables.commit.decisions import Offer
from penstock.spark.tables.commit.note import CommitCounts
from penstock.spark.tables.commit.stops import CommitStoppedError, StopReason
from penstock.spark.tables.formats.port import AnswerLostError, TableMovedError
from penstock.spark.tables.run.committer import TableCommitter
from tests.spark.tables.table_kinds import DeltaKind, IcebergKind, Kind, batch_ranges, written

BATCH = 10
COMPACT_EVERY = 4


def kind_of(name: str, folder: Path) -> Kind:
    """The kind of table with this name."""
    return DeltaKind(folder) if name == "delta" else IcebergKind(folder)


def drive(kind: Kind, run: str, batch_count: int) -> None:
    """Commit so many batches, from where the table is."""
    one = TableCommitter(kind.open(), "orders", run)
    resumed = one.take()
    at = 0 if resumed is None else resumed.positions[TopicPartition("orders", 0)].offset
    print("taken", flush=True)
    for number in range(batch_count):
        batch = (0, at, at + BATCH)
        files = written(one.table, batch)
        one.commit(Offer(one.driver, batch_ranges(batch), CommitCounts(BATCH)), files)
        at += BATCH
        if number % COMPACT_EVERY == COMPACT_EVERY - 1:
            try:
                one.table.compact(one.table.load(), target_bytes=2**20)
            except (TableMovedError, AnswerLostError):
                continue


if __name__ == "__main__":
    try:
        drive(kind_of(sys.argv[1], Path(sys.argv[2])), sys.argv[3], int(sys.argv[4]))
    except CommitStoppedError as stopped:
        if stopped.reason is not StopReason.FENCED:
            raise
