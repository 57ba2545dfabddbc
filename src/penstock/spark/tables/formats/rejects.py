"""The table of bad records: its columns, and its rows for rejected records (pure).

Guarantees: the schema never changes, whatever the values are, so this table cannot fail for the
reason that filled it; a row has the whole record, so that it can be replayed. Only a timestamp that
readers cannot show is null, and then the message has its value.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from penstock.spark.decode.buffers import HEADERS
from penstock.spark.tables.values.limits import shown_timestamps
from penstock.spark.tables.values.parser import Reject, short

REJECTS: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("error_class", pa.string()),
        pa.field("message", pa.string()),
        pa.field("schema_id", pa.int32()),
        pa.field("pipeline", pa.string()),
        pa.field("attempt", pa.int32()),
    ]
)
"""`attempt` is the number of tries of the record, from 1, including replays."""


def reject_rows(
    records: pa.RecordBatch, rejects: Sequence[Reject], *, pipeline: str, attempt: int = 1
) -> pa.RecordBatch:
    """Return the rows for these records, in the order of the rejects; headers only if read."""
    taken = records.take(pa.array([reject.row for reject in rejects], pa.int64()))
    count = len(rejects)
    headers = (
        taken.column("headers") if "headers" in records.schema.names else pa.nulls(count, HEADERS)
    )
    timestamps, implausible = shown_timestamps(taken.column("timestamp"))
    messages = [short(reject.message) for reject in rejects]
    for number, more in implausible.items():
        messages[number] = f"{messages[number]} {more}"
    return pa.RecordBatch.from_arrays(
        [
            *(taken.column(name) for name in ("topic", "partition", "offset")),
            timestamps,
            *(taken.column(name) for name in ("key", "value")),
            headers,
            pa.array([reject.error.value for reject in rejects], pa.string()),
            pa.array(messages, pa.string()),
            pa.array([reject.schema_id for reject in rejects], pa.int32()),
            pa.array([pipeline] * count, pa.string()),
            pa.array([attempt] * count, pa.int32()),
        ],
        schema=REJECTS,
    )
