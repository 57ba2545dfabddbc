"""Progress documents for tests: recorded from real queries, and built for a test."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.core.types import TopicPartition
from penstock.spark.progress.reading import QueryProgress, TopicSource

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> list[dict[str, Any]]:
    """The documents of one query, in their order."""
    found: list[dict[str, Any]] = json.loads((RECORDED / f"{name}.json").read_text())
    return found


def source(
    positions: Mapping[tuple[str, int], int],
    ends: Mapping[tuple[str, int], int] | None = None,
    **fields: Any,  # noqa: ANN401 (checked by the classes)
) -> TopicSource:
    """A source that reads topics."""
    return TopicSource(
        {TopicPartition(*at): offset for at, offset in positions.items()},
        {TopicPartition(*at): offset for at, offset in (ends or {}).items()},
        **fields,
    )


def progress(*sources: TopicSource, **fields: Any) -> QueryProgress:  # noqa: ANN401
    """One micro-batch."""
    values: dict[str, Any] = {
        "query_id": "6200e2ad-d4ba-4834-b28e-b9b233382e01",
        "run_id": "run-1",
        "name": "daily",
        "batch_id": 17,
        "row_count": 300,
        "rows_per_second": 1250.4,
        "duration_ms": 240,
    }
    return QueryProgress(sources=sources, **{**values, **fields})
