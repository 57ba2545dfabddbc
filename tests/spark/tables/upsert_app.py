"""A driver that upserts, in a process of its own, for tests that kill it.

    python -m tests.spark.tables.upsert_app KIND FOLDER RUN BATCHES

KIND is delta, iceberg or merge_on_read. It acquires the table, continues at the table's position,
and commits changes of ten offsets at a time, with a compaction now and then. It prints when it has
the table and when it has committed once, because starting takes longer than a commit. It ends after
its batches or when another driver has the table.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from penstock.core.types import TopicPartition
from penstock.spark.tables.commit.stops import CommitStoppedError, StopReason
from penstock.spark.tables.formats.port import AnswerLostError, TableMovedError
from penstock.spark.tables.run.committer import TableCommitter
from tests.spark.tables.change_batches import SCHEMA, commit_changes
from tests.spark.tables.table_kinds import DeltaKind, IcebergKind, Kind, MergeOnReadKind

BATCH = 10
COMPACT_EVERY = 4


def kind_of(name: str, folder: Path) -> Kind:
    """The kind of table with this name."""
    kinds: dict[str, Callable[..., Kind]] = {
        "delta": DeltaKind,
        "iceberg": IcebergKind,
        "merge_on_read": MergeOnReadKind,
    }
    return kinds[name](folder, schema=SCHEMA)


def drive(kind: Kind, run: str, batch_count: int) -> int:
    """Commit so many batches, from where the table is; the offset behind the last one."""
    one = TableCommitter(kind.open(), "orders", run)
    resumed = one.take()
    at = 0 if resumed is None else resumed.positions[TopicPartition("orders", 0)].offset
    print("taken", flush=True)
    for number in range(batch_count):
        commit_changes(one, at, at + BATCH)
        at += BATCH
        if number == 0:
            print("committed", flush=True)
        if number % COMPACT_EVERY == COMPACT_EVERY - 1:
            try:
                one.table.compact(one.table.load(), target_bytes=2**20)
            except (TableMovedError, AnswerLostError):
                continue
    return at


if __name__ == "__main__":
    try:
        drive(kind_of(sys.argv[1], Path(sys.argv[2])), sys.argv[3], int(sys.argv[4]))
    except CommitStoppedError as stopped:
        if stopped.reason is not StopReason.FENCED:
            raise
