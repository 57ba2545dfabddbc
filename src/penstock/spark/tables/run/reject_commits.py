"""Commits the rejects of a batch to their table, before the rows of the batch are committed.

Guarantees: when it returns, the table of rejects has exactly these rejects of the batch's offsets,
even if an earlier attempt left others there. The caller has already decided to commit the rows.
"""

from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.spark.tables.commit.decisions import Offer, decide
from penstock.spark.tables.commit.note import BatchRanges
from penstock.spark.tables.commit.rejects import is_held, reject_rule
from penstock.spark.tables.commit.steps import Rule
from penstock.spark.tables.files.data_files import open_directory, remove_files, write_files
from penstock.spark.tables.files.storages import reached
from penstock.spark.tables.files.upsert import Changes, as_changes
from penstock.spark.tables.formats.change_files import changes_layout
from penstock.spark.tables.formats.port import Table
from penstock.spark.tables.formats.rejects import REJECTS
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.tasks.report import BatchReport

PLACE: Final = ["topic", "partition", "offset"]
"""The columns that identify a record."""
KEY: Final = [*PLACE, "pipeline"]
"""The columns that identify a reject: pipelines from two clusters may share a table."""


def commit_rejects(
    committer: TableCommitter, offer: Offer, report: BatchReport, pipeline: str
) -> None:
    """Add the rejects, or replace those of this pipeline."""
    if not is_held(committer.state, offer):
        if report.reject_files:
            committer.commit(offer, report.reject_files, rule=reject_rule)
        return
    committer.reload()
    held = held_rejects(committer.table, report.ranges, pipeline)
    come = written_rejects(committer.table, report)
    gone = held.join(come.select(KEY), KEY, join_type="left anti")
    new = come.select(KEY).join(held, KEY, join_type="left anti")
    if gone.num_rows or new.num_rows:
        change_rejects(committer, offer, come, gone, rule=reject_rule)
    remove_files(committer.table.layout(REJECTS).directory, report.reject_files)


def withdraw_rejects(committer: TableCommitter, offer: Offer) -> None:
    """Delete the rejects of a batch whose rows another pipeline has committed.

    Two pipelines that run at the same time can both decide to commit a batch. The rejects of the
    later one are committed when its rows are rejected: its batch would never be repeated to correct
    them.
    """
    committer.reload()
    held = held_rejects(committer.table, offer.ranges, offer.driver.pipeline)
    if held.num_rows:
        change_rejects(committer, offer, REJECTS.empty_table(), held, rule=reject_rule)


def change_rejects(
    committer: TableCommitter,
    offer: Offer,
    come: pa.Table,
    gone: pa.Table,
    *,
    rule: Rule = decide,
) -> None:
    """Add or replace rejects, and delete others, in one commit."""
    layout = changes_layout(committer.table, REJECTS)
    missing = [pa.nulls(gone.num_rows, one.type) for one in REJECTS if one.name not in KEY]
    names = [*KEY, *(one.name for one in REJECTS if one.name not in KEY)]
    whole = pa.table([*gone.select(KEY).columns, *missing], names=names).select(REJECTS.names)
    batches = [
        as_changes(batch, batch, deleted=deleted)
        for table, deleted in ((come, False), (whole.cast(REJECTS), True))
        for batch in table.combine_chunks().to_batches()
    ]
    receipts = write_files(batches, layout, f"rejects-{uuid4().hex[:8]}")
    changes = Changes(layout.directory, tuple(receipts), tuple(KEY))
    committer.commit(offer, (), changes=changes, rule=rule)


def held_rejects(table: Table, ranges: BatchRanges, pipeline: str) -> pa.Table:
    """Return the keys of a pipeline's rejects in these ranges."""
    schema = pa.schema([REJECTS.field(name) for name in KEY])
    own = (one.filter(pc.equal(one.column("pipeline"), pipeline)) for one in table.scan(KEY))
    found = [_within(batch, ranges) for batch in own]
    return pa.Table.from_batches([one for one in found if one.num_rows], schema)


def _within(batch: pa.RecordBatch, ranges: BatchRanges) -> pa.RecordBatch:
    chosen = pa.repeat(pa.scalar(False), batch.num_rows)  # noqa: FBT003 - Arrow's own signature
    offsets = batch.column("offset")
    for one in ranges.ranges:
        is_same = pc.and_(
            pc.equal(batch.column("topic"), one.topic),
            pc.equal(batch.column("partition"), one.partition),
        )
        is_inside = pc.and_(
            pc.greater_equal(offsets, one.start_offset), pc.less(offsets, one.end_offset)
        )
        chosen = pc.or_(chosen, pc.and_(is_same, is_inside))
    return batch.filter(chosen)


def written_rejects(table: Table, report: BatchReport) -> pa.Table:
    """Return the rejects of the batch, from the files that tasks wrote."""
    directory = table.layout(REJECTS).directory
    with reached(directory):
        filesystem, root = open_directory(directory)
        parts = [
            pq.ParquetFile(f"{root}/{one.path}", filesystem=filesystem).read().cast(REJECTS)
            for one in report.reject_files
        ]
    return pa.concat_tables([REJECTS.empty_table(), *parts])
