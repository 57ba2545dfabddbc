"""The status of many tables as a document and as a table of lines: only formatting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.output import print_table
from penstock.cli.table.text import Document, status_document
from penstock.core.quantities import duration_text, size_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.spark.tables.inspection.many_status import TopicTable


def many_document(tables: Sequence[TopicTable]) -> Document:
    """Return the status of each table as a document."""
    return {
        "tables": [
            {
                "topic": one.topic,
                "table": one.table or None,
                "lag": one.lag,
                "problem": one.problem or None,
                "status": None if one.status is None else status_document(one.status),
            }
            for one in tables
        ]
    }


def print_many(tables: Sequence[TopicTable]) -> None:
    """Print a line for each topic."""
    has_problems = any(one.problem for one in tables)
    columns = ["topic", "table", "rows", "files", "size", "newest record", "bad records", "lag"]
    print_table(
        [*columns, *(["problem"] if has_problems else [])],
        [[*_cells(one), *([one.problem] if has_problems else [])] for one in tables],
        folds="problem" if has_problems else "",
    )


def _cells(one: TopicTable) -> list[object]:
    lag = None if one.lag is None else f"{one.lag:,}"
    status = one.status
    if status is None:
        return [one.topic, one.table or None, None, None, None, None, None, lag]
    facts, fresh, bad = status.facts, status.freshness_ms, status.bad_record_count
    return [
        one.topic,
        one.table,
        f"{facts.row_count:,}",
        f"{facts.file_count:,}",
        size_text(facts.file_bytes),
        None if fresh is None else f"{duration_text(fresh)} ago",
        None if bad is None else f"{bad:,}",
        lag,
    ]
