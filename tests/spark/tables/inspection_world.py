"""A topic with a few records, and a pipeline of it whose table is filled up to a point.

No Spark: the committer commits as for a driver.
"""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.client.calls import NewTopic
from penstock.client.cluster import Cluster
from penstock.client.records.topic_writer import TopicWriter
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.blocking import connect
from penstock.spark.tables.commit.decisions import Offer
from penstock.spark.tables.commit.note import BatchRanges, CommitCounts, PartitionRange
from penstock.spark.tables.definition.file import load_definition
from penstock.spark.tables.definition.model import Metadata, PipelineDefinition
from penstock.spark.tables.files.data_files import write_files
from penstock.spark.tables.formats.opening import make_table
from penstock.spark.tables.formats.rejects import REJECTS
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.values.columns import with_metadata

VALUES = [
    b'{"id": 1, "amount": 2.5}',
    b'{"id": 2, "amount": -1.0}',
    b'{"id": "three"}',
    b"no JSON",
    b'{"id": 5, "amount": 4.0}',
]
FILE = """
[pipeline]
name = "orders"
bootstrap_servers = "{bootstrap}"
checkpoint = "{folder}/checkpoint"

[source]
topics = ["orders"]

[table]
format = "{format}"
name = "shop.orders"
catalog = {{ type = "sql", uri = "sqlite:///{folder}/catalog.db", warehouse = "file://{folder}/w" }}

[value]
format = "json"
schema = "id bigint, amount double"

[[expectations]]
name = "positive_amount"
sql = "amount > 0"
action = "quarantine"
"""


@dataclass(frozen=True)
class World:
    """One pipeline."""

    file: Path
    definition: PipelineDefinition
    bootstrap: str


def cluster_of(bootstrap: str) -> Cluster:
    return Cluster(parse_addresses(bootstrap), lambda address: connect(address, timeout_seconds=10))


def fill_topic(bootstrap: str, values: list[bytes], partitions: int = 2) -> None:
    with cluster_of(bootstrap) as cluster:
        cluster.create_topic(NewTopic("orders", partitions, 1))
        writer = TopicWriter(cluster, "orders", partition=0)
        for value in values:
            writer.append(b"key", value)
        writer.flush()


def new_world(folder: Path, bootstrap: str, format_: str) -> World:
    # Delta's catalog is its warehouse; other properties go to its storage.
    text = FILE.format(bootstrap=bootstrap, folder=folder, format=format_)
    if format_ == "delta":
        text = text.replace(f'type = "sql", uri = "sqlite:///{folder}/catalog.db", ', "")
    file = folder / f"{format_}.toml"
    file.write_text(text)
    return World(file, load_definition(file), bootstrap)


def _ranges(end: int) -> BatchRanges:
    return BatchRanges((PartitionRange("orders", 0, 0, end),))


def fill_tables(world: World, end: int = 4) -> None:
    """One commit of rows and one of rejects: offsets below `end`."""
    settings = world.definition.table
    moment = pa.scalar(1_700_000_000_000_000, pa.timestamp("us", "UTC"))
    rows = pa.RecordBatch.from_pydict(
        {
            "id": pa.array([1], pa.int64()),
            "amount": pa.array([2.5]),
        }
    )
    source = pa.RecordBatch.from_pydict(
        {
            "topic": pa.array(["orders"]),
            "partition": pa.array([0], pa.int32()),
            "offset": pa.array([0], pa.int64()),
            "timestamp": pa.array([moment.as_py()], pa.timestamp("us", "UTC")),
            "key": pa.array([b"key"]),
        }
    )
    rows = with_metadata(rows, source, Metadata.STRUCT)
    rejects = pa.RecordBatch.from_pylist(
        [
            {
                "topic": "orders",
                "partition": 0,
                "offset": offset,
                "timestamp": moment.as_py(),
                "key": b"key",
                "value": VALUES[offset],
                "headers": [{"key": "h", "value": b"1"}],
                "error_class": error,
                "message": f"reason {offset}",
                "schema_id": None,
                "pipeline": "orders",
                "attempt": 1,
            }
            for offset, error in [(2, "type_mismatch"), (3, "malformed")]
        ],
        schema=REJECTS,
    )
    for name, batch in [(settings.dlq_name, rejects), (settings.name, rows)]:
        table = make_table(settings, name, batch.schema)
        committer = TableCommitter(table, "orders", "run")
        committer.take()
        receipts = list(write_files([batch], table.layout(batch.schema), "task"))
        counts = CommitCounts(1, 2, {"positive_amount": 1}, 1_700_000_000_000)
        committer.commit(Offer(committer.driver, _ranges(end), counts), receipts)
