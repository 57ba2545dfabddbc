"""Parses Spark's report on a micro-batch (pure).

`read_progress` parses the JSON document of a `StreamingQueryProgress`. The offsets identify sources
that read topics: `format("penstock")` and Spark's own `kafka` source. The rows of every other
source (rate, files, tables) are counted, without offsets.

It is lenient: unreadable offsets count as none and are never an error, because these values are
only displayed.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.types import TopicPartition
from penstock.spark.errors import CheckpointError
from penstock.spark.offsets import StreamOffset, read_offset

KAFKA_DESCRIPTION: Final = "Kafka"
"""The start of the source description of Spark's own connector: `KafkaV2[Subscribe[orders]]`."""


@dataclass(frozen=True, slots=True)
class TopicSource:
    """One source of a query that reads topics."""

    positions: Mapping[TopicPartition, int]
    """The next offset to read, after the batch."""
    ends: Mapping[TopicPartition, int]
    """The ends of the partitions when the batch was planned; empty if the source reports none."""
    cluster_id: str | None = None
    """The cluster that the offsets belong to; Spark's own connector does not report it."""
    group_id: str | None = None
    """The group for the position, if the source's options name one."""
    group_prefix: str | None = None
    """The prefix of the group's name, if the source's options name one."""
    reports_group: bool = True
    """False: the source was not queried this time, for example in a batch repeated after a
    restart."""
    skipped_offset_count: int = 0
    """The number of offsets that this run skipped, with `failOnDataLoss=false`, as far as known."""
    skipped_partition_count: int = 0
    """How often a partition lost data in this run."""


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """One finished micro-batch."""

    query_id: str
    """The id of the query, unchanged after a restart from the checkpoint."""
    run_id: str
    """The id of this start of the query."""
    name: str | None
    batch_id: int
    row_count: int
    rows_per_second: float
    duration_ms: int
    sources: tuple[TopicSource, ...]


def read_progress(document: Mapping[str, Any]) -> QueryProgress:
    """Return the progress of one micro-batch."""
    sources = document.get("sources") or ()
    return QueryProgress(
        query_id=str(document.get("id", "")),
        run_id=str(document.get("runId", "")),
        name=document.get("name"),
        batch_id=_whole(document.get("batchId")),
        row_count=_whole(document.get("numInputRows")),
        rows_per_second=_rate(document.get("processedRowsPerSecond")),
        duration_ms=_whole(document.get("batchDuration")),
        sources=tuple(source for source in map(_read_source, sources) if source is not None),
    )


def lag_by_topic(progress: QueryProgress) -> dict[str, int | None]:
    """Return the records between the position and the end, by topic; None if the end is unknown."""
    lags: dict[str, int | None] = {}
    for source in progress.sources:
        for at, position in source.positions.items():
            lag = lags.setdefault(at.topic, 0)
            end = source.ends.get(at)
            if end is None or lag is None:
                lags[at.topic] = None
            else:
                # A log that lost its end may end before the position; a lag is never negative.
                lags[at.topic] = lag + max(0, end - position)
    return dict(sorted(lags.items()))


def positions_of(
    progress: QueryProgress, cluster_id: str | None = None
) -> dict[TopicPartition, int]:
    """Return the query's positions, in order; with a cluster id, of that or an unknown cluster.

    If two sources of the query read a partition, its position is that of the slower source.
    """
    found: dict[TopicPartition, int] = {}
    for source in progress.sources:
        if cluster_id is not None and source.cluster_id not in {None, cluster_id}:
            continue
        for at, position in source.positions.items():
            found[at] = min(position, found.get(at, position))
    return dict(sorted(found.items()))


def _read_source(source: object) -> TopicSource | None:
    end, latest = _field(source, "endOffset"), _field(source, "latestOffset")
    is_kafka = str(_field(source, "description")).startswith(KAFKA_DESCRIPTION)
    position = _read_offset(end, is_kafka=is_kafka)
    if position is None or not position.positions:
        return None
    last = _read_offset(latest, is_kafka=is_kafka)
    return TopicSource(
        {at: place.offset for at, place in position.positions.items()},
        {} if last is None else {at: place.offset for at, place in last.positions.items()},
        cluster_id=position.cluster_id,
        group_id=_text(_field(latest, "group", "id")),
        group_prefix=_text(_field(latest, "group", "prefix")),
        reports_group=is_kafka or last is not None,
        skipped_offset_count=_whole(_field(latest, "skipped", "records")),
        skipped_partition_count=_whole(_field(latest, "skipped", "partitions")),
    )


def _read_offset(document: object, *, is_kafka: bool) -> StreamOffset | None:
    """Return the offsets in a document of a source that reads topics; None for any other source."""
    if not isinstance(document, dict) or not (is_kafka or "version" in document):
        return None
    try:
        return read_offset(document)
    except CheckpointError:
        return None


def _field(document: object, *names: str) -> object:
    """Return the value at this path of names in a document; None when it is missing."""
    for name in names:
        document = document.get(name) if isinstance(document, Mapping) else None
    return document


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _rate(value: object) -> float:
    """Return the rate; Spark omits it if it is undefined, as for a batch of zero duration."""
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return 0.0
