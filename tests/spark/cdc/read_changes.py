"""Reads records as changes of rows, with a row that has a value of every type of a database."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.spark.tables.definition.ddl import parse_ddl
from penstock.spark.tables.definition.model import ChangeSettings, Envelope
from penstock.spark.tables.values.cdc.database_changes import ChangeValues, ReadChanges
from tests.spark.cdc.events import DDL, Record

ROW: dict[str, Any] = {
    "id": 1,
    "name": "Ada",
    "amount": Decimal("12.50"),
    "big": 9_007_199_254_740_993,
    "at": datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC).replace(tzinfo=None),
    "seen": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "born": date(1912, 6, 23),
    "doc": '{"a": [1, 2]}',
    "code": "3b241101-e2bb-4255-8caf-4136c566a962",
    "data": b"\x00\xff",
    "tags": [1, None, 3],
    "is_open": True,
}
STORED = {**ROW, "at": ROW["at"].replace(tzinfo=UTC)}
DEBEZIUM = ChangeSettings(Envelope.DEBEZIUM)
SEQUENCED = ChangeSettings(Envelope.DEBEZIUM, sequence_by=("source.lsn", "transaction.total_order"))
FLAT = ChangeSettings(Envelope.DEBEZIUM_FLAT, "__deleted", ("__lsn",))


def batch_of(records: Sequence[Record], partition: int = 0) -> pa.RecordBatch:
    """Records as the source gives them."""
    count = len(records)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([one.key for one in records], pa.binary()),
            "value": pa.array([one.value for one in records], pa.binary()),
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
        }
    )


def read(
    records: Sequence[Record],
    settings: ChangeSettings = DEBEZIUM,
    ddl: str = DDL,
    key: Sequence[str] = ("id",),
) -> ReadChanges:
    return ChangeValues(parse_ddl(ddl), settings, key).read(batch_of(records))


def decimal_of(scale: int) -> dict[str, Any]:
    """A decimal in a schema part."""
    return {
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": str(scale)},
    }


def reasons(found: ReadChanges) -> dict[int, str]:
    return {one.row: one.message for one in found.rows.rejects}


def numbers(found: ReadChanges) -> list[int]:
    assert found.rows.row_numbers is not None
    listed: list[int] = found.rows.row_numbers.to_pylist()
    return listed
