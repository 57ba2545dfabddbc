"""Pipelines as JSON documents, and the same content as text (no IO but print).

Fields of the documents are part of the interface: fields are added, never removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.cli.output import print_table
from penstock.cli.text.record_text import bytes_fields, timestamp_text
from penstock.core.quantities import count_text, duration_text, size_text

if TYPE_CHECKING:
    from penstock.spark.tables.inspection.bad_records import BadRecord
    from penstock.spark.tables.inspection.check import CheckReport
    from penstock.spark.tables.inspection.sample import Sample
    from penstock.spark.tables.inspection.status import PipelineStatus, TableStatus

Document = dict[str, Any]

CELL_CHARACTERS_MAX: Final = 40
REJECTS_SHOWN_MAX: Final = 10
LOSSES_SHOWN_MAX: Final = 10
_RECORD: Final = {"topic", "partition", "offset", "timestamp", "key", "headers"}
"""The fields of the column `_kafka`, which is shown as `orders-0@17 TIME`."""
SKIPPED: Final = "skipped"
"""The reason of a loss that the user declared, as in the table's notes."""
_BEFORE_FUNCTION: Final = " before the function; Spark is not started for a check"


# --- check ---


def check_document(report: CheckReport) -> Document:
    """Return the whole report as a document."""
    sample = report.sample
    return {
        "ok": report.is_good,
        "mode": None if report.plan is None else report.plan.mode.value,
        "checks": [
            {"name": one.name, "outcome": one.outcome.value, "text": one.text}
            for one in report.checks
        ],
        "sample": None if sample is None else _sample_document(sample),
    }


def _sample_document(sample: Sample) -> Document:
    return {
        "records": sample.record_count,
        "columns": list(sample.columns),
        "rows": [[_json_cell(cell) for cell in row] for row in sample.rows],
        "rejects": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "offset": one.offset,
                "error_class": one.error_class,
                "message": one.message,
            }
            for one in sample.rejects
        ],
        "expectations": dict(sample.broken),
    }


def print_check(report: CheckReport, row_count_max: int) -> None:
    """Print each step on a line, then rows and rejects of the sample."""
    width = max(len(one.name) for one in report.checks)
    for one in report.checks:
        click.echo(f"{one.outcome.value:<8}{one.name:<{width}}  {one.text}")
    sample = report.sample
    if sample is None:
        return
    if sample.rows and row_count_max:
        shown = sample.rows[-row_count_max:]
        before = _BEFORE_FUNCTION if sample.is_before_function else ""
        click.echo(f"\n{len(shown)} of {count_text(len(sample.rows), 'row')}{before}")
        print_table(sample.columns, [[_cell(cell) for cell in row] for row in shown], folds="")
    if sample.rejects:
        shown_rejects = sample.rejects[:REJECTS_SHOWN_MAX]
        click.echo(f"\n{len(shown_rejects)} of {count_text(len(sample.rejects), 'reject')}")
        print_table(
            ["topic", "partition", "offset", "error", "reason"],
            [
                [one.topic, one.partition, one.offset, one.error_class, one.message]
                for one in shown_rejects
            ],
            folds="reason",
        )


def _cell(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, dict) and value.keys() == _RECORD:
        when = "" if value["timestamp"] is None else f" {_moment(value['timestamp'])}"
        return f"{value['topic']}-{value['partition']}@{value['offset']}{when}"
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    clean = "".join(one if one.isprintable() else "·" for one in text)
    return clean if len(clean) <= CELL_CHARACTERS_MAX else f"{clean[: CELL_CHARACTERS_MAX - 1]}…"


def _moment(value: datetime) -> str:
    """Return a time in the common format; its zone is UTC or missing."""
    spec = "microseconds" if value.microsecond % 1000 else "milliseconds"
    return value.isoformat(timespec=spec).replace("+00:00", "Z")


def _json_cell(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(name): _json_cell(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_json_cell(one) for one in value]
    return value if isinstance(value, bool | int | float | str | None) else str(value)


# --- status ---


def status_document(status: TableStatus) -> Document:
    """Return the status of the table as a document."""
    facts = status.facts
    return {
        "table": status.table,
        "format": status.format,
        # Iceberg's version exceeds the integers that every JSON reader keeps exactly.
        "version": str(facts.version),
        "rows": facts.row_count,
        "files": facts.file_count,
        "file_bytes": facts.file_bytes,
        "snapshots": facts.snapshot_count,
        "oldest_snapshot_ms": facts.oldest_snapshot_ms,
        "newest_record_ms": status.newest_record_ms,
        "freshness_ms": status.freshness_ms,
        "bad_records": status.bad_record_count,
        "pipelines": [_pipeline_document(one) for one in status.pipelines],
    }


def _pipeline_document(one: PipelineStatus) -> Document:
    return {
        "pipeline": one.name,
        "epoch": one.epoch,
        "commits": one.sequence,
        "small_batches": one.small_batches,
        "last_commit_ms": one.last_commit_ms,
        "last_rows": one.rows,
        "last_rejects": one.rejects,
        "last_expectations": dict(one.expectations),
        "lag": one.lag,
        "last_unknown_fields": dict(one.unknown_fields),
        "last_looked_at": one.looked_at,
        "emptied_columns": dict(one.emptied),
        "state": None if one.state is None else one.state._asdict(),
        "lost_offsets": one.lost_count,
        "losses": [
            {
                "topic": lost.topic,
                "partition": lost.partition,
                "from_offset": lost.start_offset,
                "to_offset": lost.end_offset,
                "at_ms": lost.at_ms,
                "reason": lost.reason or "deleted",
            }
            for lost in one.losses
        ],
        "partitions": [
            {
                "topic": part.at.topic,
                "partition": part.at.partition,
                "begin_offset": part.begin_offset,
                "held_offset": part.held_offset,
                "end_offset": part.end_offset,
                "lag": part.lag,
                "lost_offsets": part.lost_count,
            }
            for part in one.partitions
        ],
    }


def print_status(status: TableStatus, *, every_partition: bool) -> None:
    """Print the table in a few lines, then each pipeline."""
    facts = status.facts
    age = "-" if status.freshness_ms is None else f"{duration_text(status.freshness_ms)} ago"
    bad = "-" if status.bad_record_count is None else f"{status.bad_record_count:,}"
    print_table(
        ["table", "format", "rows", "files", "size", "snapshots", "newest record", "bad records"],
        [
            [
                status.table,
                status.format,
                f"{facts.row_count:,}",
                f"{facts.file_count:,}",
                size_text(facts.file_bytes),
                facts.snapshot_count,
                age,
                bad,
            ]
        ],
        folds="",
    )
    names = {one.name for one in status.pipelines}
    for one in status.pipelines:
        if one.owner in names - {one.name}:
            continue  # shown with its pipeline
        click.echo("")
        _print_pipeline(one, status.now_ms, every_partition=every_partition)
        _print_helpers([two for two in status.pipelines if two.owner == one.name != two.name])


def _print_helpers(helpers: Sequence[PipelineStatus]) -> None:
    """Print the replays and backfills of a pipeline, which have their own names."""
    for word in ("replay", "backfill"):
        commits = [one.sequence for one in helpers if one.kind == word]
        if commits:
            count = f"{len(commits)}, " if word == "backfill" else ""
            click.echo(f"{word}s: {count}{count_text(sum(commits), 'commit')}")


def _print_pipeline(one: PipelineStatus, now_ms: int, *, every_partition: bool) -> None:
    last = "-" if one.last_commit_ms is None else timestamp_text(one.last_commit_ms)
    ago = (
        "" if one.last_commit_ms is None else f" ({duration_text(now_ms - one.last_commit_ms)} ago)"
    )
    commits = count_text(one.sequence, "commit")
    if one.small_batches:
        commits += f" ({one.small_batches:,} small ones by the driver)"
    click.echo(f"pipeline {one.name}: epoch {one.epoch}, {commits}, last {last}{ago}")
    broken = "".join(f", {name} broken by {count:,}" for name, count in one.expectations.items())
    rows, rejects = count_text(one.rows, "row"), count_text(one.rejects, "reject")
    click.echo(f"last commit: {rows}, {rejects}{broken}")
    if one.unknown_fields:
        found = ", ".join(f"{name} {count:,}" for name, count in one.unknown_fields.items())
        click.echo(f"fields without a column, in {one.looked_at:,} values looked at: {found}")
    if one.emptied:
        found = ", ".join(f"{name} ({count:,} rows)" for name, count in one.emptied.items())
        click.echo(f"columns that had values and are NULL in the last rows: {found}")
    if one.state is not None:
        watermark, late = timestamp_text(one.state.watermark_ms), one.state.late_count
        batch = f"batch {one.state.batch} of checkpoint {one.state.checkpoint}"
        click.echo(f"state: {batch}, watermark {watermark}, {count_text(late, 'late record')}")
    _print_losses(one)
    if every_partition:
        print_table(
            ["topic", "partition", "from", "held", "end", "lag"],
            [
                [
                    part.at.topic,
                    part.at.partition,
                    part.begin_offset,
                    part.held_offset,
                    part.end_offset,
                    part.lag,
                ]
                for part in one.partitions
            ],
            folds="",
        )
        return
    topics = sorted({part.at.topic for part in one.partitions})
    print_table(
        ["topic", "partitions", "lag"],
        [[topic, *_topic_cells(one, topic)] for topic in topics],
        folds="",
    )


def _print_losses(one: PipelineStatus) -> None:
    """Print offsets that are missing in the table, the newest losses first."""
    if not one.lost_count:
        return
    reasons = {lost.reason for lost in one.losses}
    words = "gone from the topic before they were read"
    if SKIPPED in reasons:
        words = "skipped by the user" if reasons == {SKIPPED} else f"{words}, or skipped"
    click.echo(f"lost: {count_text(one.lost_count, 'offset')}, {words}")
    for lost in one.losses[: -LOSSES_SHOWN_MAX - 1 : -1]:
        when = timestamp_text(lost.at_ms)
        end = f", {SKIPPED}" if lost.reason == SKIPPED else ""
        offsets = f"offsets {lost.start_offset} to {lost.end_offset - 1}"
        click.echo(f"  {lost.at}: {offsets}, at {when}{end}")


def _topic_cells(one: PipelineStatus, topic: str) -> Sequence[object]:
    parts = [part for part in one.partitions if part.at.topic == topic]
    known = [part.lag for part in parts if part.lag is not None]
    return [len(parts), f"{sum(known):,}" if known else None]


# --- bad records ---


def bad_record_document(one: BadRecord, *, is_whole: bool) -> Document:
    """Return one bad record as a document, with its bytes if it was read whole."""
    document: Document = {
        "topic": one.topic,
        "partition": one.partition,
        "offset": one.offset,
        "timestamp_ms": one.timestamp_ms,
        "error_class": one.error_class,
        "message": one.message,
        "schema_id": one.schema_id,
        "pipeline": one.pipeline,
        "attempt": one.attempt,
    }
    if is_whole:
        document |= bytes_fields("key", one.key) | bytes_fields("value", one.value)
        document["headers"] = [
            {"name": name, **bytes_fields("value", value)} for name, value in one.headers
        ]
    return document


def print_bad_records(records: Sequence[BadRecord]) -> None:
    """Print a line for each record, with its pipeline if there are several."""
    is_shared = len({one.owner for one in records}) > 1
    rows = [
        [
            *([one.owner] if is_shared else []),
            one.topic,
            one.partition,
            one.offset,
            None if one.timestamp_ms is None else timestamp_text(one.timestamp_ms),
            one.error_class,
            one.attempt,
            one.message,
        ]
        for one in records
    ]
    columns = ["topic", "partition", "offset", "time", "error", "attempt", "reason"]
    print_table([*(["pipeline"] if is_shared else []), *columns], rows, folds="reason")


def print_bad_record(one: BadRecord) -> None:
    """Print one attempt, a line for each part."""
    moment = "-" if one.timestamp_ms is None else timestamp_text(one.timestamp_ms)
    click.echo(f"{one.topic}-{one.partition} at offset {one.offset}, {moment}")
    click.echo(f"attempt {one.attempt} by {one.pipeline}: {one.error_class}: {one.message}")
    if one.schema_id is not None:
        click.echo(f"schema id: {one.schema_id}")
    click.echo(f"key:       {_bytes_text(one.key)}")
    for name, value in one.headers:
        click.echo(f"header:    {name}={_bytes_text(value)}")
    click.echo(f"value:     {_bytes_text(one.value)}")


def _bytes_text(value: bytes | None) -> str:
    return "-" if value is None else value.decode(errors="backslashreplace")
