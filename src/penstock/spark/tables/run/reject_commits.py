"""Brings the rejects of a batch into their table, before the rows of the batch are committed.

Guarantees: when it returns, the table of rejects has exactly these of the batch's offsets, whatever
an earlier attempt left there. That the rows of the batch are to be committed was decided before.
"""

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.tables.commit import Offer
from penstock.spark.tables.commit_rejects import is_held, reject_rule
from penstock.spark.tables.committer import TableCommitter
from penstock.spark.tables.data_files import open_directory
from penstock.spark.tables.run.report import BatchReport


def bring_rejects(committer: TableCommitter, offer: Offer, report: BatchReport) -> None:
    """Add the rejects, or put right what is there."""
    if not is_held(committer.state, offer):
        if report.reject_files:
            committer.commit(offer, report.reject_files, rule=reject_rule)
        return
    raise NotImplementedError


def _written(directory: str, report: BatchReport) -> pa.Table:
    filesystem, root = open_directory(directory)
    parts = [
        pq.read_table(f"{root}/{one.path}", filesystem=filesystem) for one in report.reject_files
    ]
    return pa.concat_tables(parts)
