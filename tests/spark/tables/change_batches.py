"""Changes for tests of upserts, and the required table after them: a plain dictionary.

A key is a number; a change is one record: an amount, or None for a deletion. Offsets follow each
other in one partition.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from penstock.spark.tables.commit.decisions import Offer, Skip, Trim
from penstock.spark.tables.commit.note import CommitCounts
from penstock.spark.tables.commit.steps import Committed
from penstock.spark.tables.files.data_files import write_files
from penstock.spark.tables.files.upsert import Changes
from penstock.spark.tables.formats.change_files import changes_layout
from penstock.spark.tables.formats.port import Table
from penstock.spark.tables.run.committer import TableCommitter
from tests.spark.tables.table_kinds import batch_ranges

KEY_COUNT = 40
START = datetime(2026, 1, 31, 22, 30, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("amount", pa.int32()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("_kafka_partition", pa.int32()),
        pa.field("_kafka_offset", pa.int64()),
        pa.field("_kafka_timestamp", pa.timestamp("us", "UTC")),
    ]
)

Change = tuple[int, int | None]
"""A key, and its amount or None."""
Row = dict[str, Any]
Model = dict[Any, Row]


def change_rows(
    batch: Sequence[Change], offset: int, partition: int = 0, schema: pa.Schema = SCHEMA
) -> list[Row]:
    """A record for each change, an hour apart."""
    found = []
    for number, (key, amount) in enumerate(batch, offset):
        is_deleted = amount is None
        row = {
            "id": key,
            "amount": amount,
            "tags": None if is_deleted else [f"tag {amount}"],
            "_kafka_partition": None if is_deleted else partition,
            "_kafka_offset": None if is_deleted else number,
            "_kafka_timestamp": None if is_deleted else START + timedelta(hours=number),
            "_change_deleted": is_deleted,
            "_change_topic": "orders",
            "_change_partition": partition,
            "_change_offset": number,
        }
        if "city" in schema.names and not is_deleted:
            row["city"] = f"city {amount}"
        found.append(row)
    return found


def applied(model: Mapping[Any, Row], rows: Sequence[Row], schema: pa.Schema = SCHEMA) -> Model:
    """The model after these records, in this order."""
    after = {key: {"city": None, **row} for key, row in model.items()}
    for row in rows:
        if row["_change_deleted"]:
            after.pop(row["id"], None)
        else:
            after[row["id"]] = {"city": None} | {name: row.get(name) for name in schema.names}
    return after


def written_changes(
    table: Table,
    *parts: Sequence[Row],
    key: Sequence[str] = ("id",),
    schema: pa.Schema | None = None,
) -> Changes:
    """Files of changes, one for each part, as tasks write them."""
    layout = changes_layout(table, schema or table.schema())
    receipts = [
        receipt
        for part in parts
        for receipt in write_files(
            pa.Table.from_pylist(list(part), layout.schema).to_batches(), layout, "changes"
        )
    ]
    return Changes(layout.directory, tuple(receipts), tuple(key))


def rows_in(found: pa.Table) -> Model:
    """What a table has, by key; a key that is there twice fails."""
    names = [*SCHEMA.names, "city"]  # not the columns that Delta has for partitions
    rows = [{name: row.get(name) for name in names} for row in found.to_pylist()]
    model = {row["id"]: row for row in rows}
    assert len(model) == len(rows), "a key is there twice"
    return model


def stream(start: int, end: int) -> list[Row]:
    """The records of a topic that is the same for everybody: the same offsets, the same changes."""
    changes = [
        (offset * 7919 % KEY_COUNT, None if offset % 11 == 0 else offset)
        for offset in range(start, end)
    ]
    return change_rows(changes, start)


def commit_changes(one: TableCommitter, start: int, end: int) -> Committed | Skip | Trim:
    """Write the changes of these offsets of the stream, and commit them."""
    ranges = batch_ranges((0, start, end))
    offer = Offer(one.driver, ranges, CommitCounts(end - start))
    rows = stream(start, end)
    return one.commit(offer, (), changes=written_changes(one.table, rows[::2], rows[1::2]))
