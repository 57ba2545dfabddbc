"""Events of a pipeline for tests."""

from collections.abc import Mapping
from typing import Any

from penstock.core.types import TopicPartition
from penstock.spark.offsets import PartitionPosition, StreamOffset
from penstock.spark.tables.run.events import BatchDone, MaintenanceDone

PIPELINE = "orders"
TABLES = ("shop.orders", "shop.orders__dlq")
AT = TopicPartition("orders", 0)


def held(offsets: Mapping[TopicPartition, int], cluster_id: str | None = None) -> StreamOffset:
    return StreamOffset(
        {at: PartitionPosition(one) for at, one in offsets.items()}, cluster_id=cluster_id
    )


def batch(start: int = 0, end: int = 10, **more: Any) -> BatchDone:  # noqa: ANN401 (fields of an event)
    """A batch of one partition, all of whose records are rows."""
    values: dict[str, Any] = {
        "batch_id": 0,
        "records": end - start,
        "rows": end - start,
        "rejects": 0,
        "expectations": {},
        "files": 1,
        "file_bytes": 100,
        "commit_ms": 40.0,
        "duration_ms": 400.0,
        "newest_timestamp_ms": 1_000_000,
        "committed_at_ms": 1_002_000,
        "position": held({AT: end}),
        "starts": {AT: start},
        "ends": {AT: end},
        "newest_ms": 1_000_000,
        "columns": (("id", "int64"), ("amount", "double")),
    }
    return BatchDone(**{**values, **more})


def maintained(table: str, problem: str = "") -> MaintenanceDone:
    return MaintenanceDone(0, 0, 0, 0, 7, 7_000, None, 5.0, problem, table, 3)
