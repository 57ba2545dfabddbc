"""Lists the bad records in the table of a pipeline's rejects, and shows one in full.

Guarantees: records are in the order of topic, partition and offset; attempts of one record in their
order. A list reads no values, and at most `SCAN_ROWS_MAX` rows: beyond that it reports that there
are more. It changes nothing; `run.replay` replays records.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.spark.tables.commit.pipeline_names import pipeline_of
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.formats.port import TableError
from penstock.spark.tables.formats.reading import open_reader
from penstock.spark.tables.formats.rejects import REJECTS

SCAN_ROWS_MAX: Final = 1_000_000
_LISTED: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "error_class",
    "message",
    "schema_id",
    "pipeline",
    "attempt",
)


class BadRecordMissingError(TableError):
    """The bad record does not exist."""


@dataclass(frozen=True, slots=True)
class BadRecordFilter:
    """The filter for the list; None matches all."""

    error_class: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None

    def equal(self) -> dict[str, str | int]:
        """Return the columns to compare, with their values."""
        wanted = {
            "error_class": self.error_class,
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
        }
        return {name: value for name, value in wanted.items() if value is not None}


@dataclass(frozen=True, slots=True)
class BadRecord:
    """One failed attempt; `key`, `value` and `headers` are set if it is shown in full."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    error_class: str
    message: str
    schema_id: int | None
    pipeline: str
    attempt: int
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def owner(self) -> str:
        """The pipeline that owns the record; the name of a replay that tried it last differs."""
        return pipeline_of(self.pipeline)


@dataclass(frozen=True, slots=True)
class BadRecordList:
    """Some of the records, and the number of all records."""

    records: tuple[BadRecord, ...]
    count: int
    is_count_whole: bool
    """False: there are more records than were read."""


def list_bad_records(
    definition: PipelineDefinition, which: BadRecordFilter, *, limit: int
) -> BadRecordList:
    """Return the first records that match the filter, without their values."""
    found = _read(definition, which, _LISTED, SCAN_ROWS_MAX)
    return BadRecordList(tuple(found[:limit]), len(found), len(found) < SCAN_ROWS_MAX)


def show_bad_record(
    definition: PipelineDefinition, topic: str, partition: int, offset: int
) -> tuple[BadRecord, ...]:
    """Return every attempt of one record, in full."""
    which = BadRecordFilter(topic=topic, partition=partition, offset=offset)
    found = _read(definition, which, REJECTS.names, SCAN_ROWS_MAX)
    if not found:
        raise BadRecordMissingError(
            f"{topic}-{partition} at offset {offset} is not among the bad records in "
            f"{definition.table.dlq_name}. `penstock table dlq list` shows what is there."
        )
    return tuple(found)


def _read(
    definition: PipelineDefinition, which: BadRecordFilter, columns: Sequence[str], limit: int
) -> list[BadRecord]:
    reader = open_reader(definition.table, definition.table.dlq_name)
    try:
        rows = reader.rows(columns, equal=which.equal(), limit=limit).to_pylist()
    finally:
        reader.close()
    records = [_record(row) for row in rows]
    return sorted(records, key=lambda one: (one.topic, one.partition, one.offset, one.attempt))


def _record(row: dict[str, Any]) -> BadRecord:
    moment = row["timestamp"]
    return BadRecord(
        row["topic"],
        row["partition"],
        row["offset"],
        None if moment is None else round(moment.timestamp() * 1000),
        row["error_class"],
        row["message"],
        row["schema_id"],
        row["pipeline"],
        row["attempt"],
        row.get("key"),
        row.get("value"),
        tuple((one["key"], one["value"]) for one in row.get("headers") or ()),
    )
