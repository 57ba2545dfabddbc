"""The OpenLineage events of a pipeline, as documents (pure: times and ids are arguments).

    job       the pipeline, in the user's namespace, with the facet `jobType` (STREAMING or BATCH)
    run       one start of the pipeline; a restart is another run
    inputs    a topic each: kafka://host:port, its name, and the offsets of the run so far
    outputs   the tables of rows and of rejects, with the columns, and what the run wrote so far

START when the query runs, RUNNING after commits, COMPLETE at a clean end (also by Ctrl-C), FAIL
with the error otherwise. The documents follow OpenLineage 2-0-2 and its facets; the facet with the
offsets is ours. Values are bounded, so an event stays small.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from penstock.core.types import TopicPartition
from penstock.spark.tables.definition.model import PipelineDefinition, TableFormat

PRODUCER: Final = "urn:penstock:pipelines"
_SPEC: Final = "https://openlineage.io/spec"
SCHEMA_URL: Final = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
OFFSETS_FACET: Final = "penstock_offsets"
PARTITIONS_MAX: Final = 1_000
"""Further partitions are counted, not named."""
FIELDS_MAX: Final = 1_000
ERROR_CHARACTERS_MAX: Final = 2_000
_FACETS: Final = {
    "jobType": "2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet",
    "schema": "1-2-0/SchemaDatasetFacet.json#/$defs/SchemaDatasetFacet",
    "storage": "1-0-1/StorageDatasetFacet.json#/$defs/StorageDatasetFacet",
    "outputStatistics": (
        "1-0-2/OutputStatisticsOutputDatasetFacet.json#/$defs/OutputStatisticsOutputDatasetFacet"
    ),
    "errorMessage": "1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet",
    "processing_engine": "1-1-1/ProcessingEngineRunFacet.json#/$defs/ProcessingEngineRunFacet",
}

Document = dict[str, Any]


class EventType(Enum):
    """The states of a run that are reported."""

    START = "START"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"


@dataclass(slots=True)
class RunTotals:
    """What one run has done so far."""

    starts: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    """`rows`, `rejects`, `files` and `bytes`."""
    columns: tuple[tuple[str, str], ...] = ()

    def add(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        counts: Mapping[str, int],
        columns: tuple[tuple[str, str], ...],
    ) -> None:
        """Add a committed batch."""
        for at, offset in starts.items():
            self.starts.setdefault(at, offset)
        self.ends.update({at: offset for at, offset in ends.items() if at in self.starts})
        self.counts.update(counts)
        self.columns = columns


@dataclass(frozen=True, slots=True)
class LineageJob:
    """The parts of all events of one pipeline."""

    definition: PipelineDefinition
    namespace: str
    is_continuous: bool
    version: str
    """The version of Penstock."""


def event(
    job: LineageJob,
    kind: EventType,
    *,
    run_id: str,
    at_ms: int,
    totals: RunTotals,
    error: str = "",
) -> Document:
    """Return one event."""
    facets: Document = {"processing_engine": _facet("processing_engine", **_engine(job))}
    if error:
        facets["errorMessage"] = _facet(
            "errorMessage", message=error[:ERROR_CHARACTERS_MAX], programmingLanguage="PYTHON"
        )
    kind_of_job = {
        "processingType": "STREAMING" if job.is_continuous else "BATCH",
        "integration": "PENSTOCK",
        "jobType": "PIPELINE",
    }
    return {
        "eventType": kind.value,
        "eventTime": time_text(at_ms),
        "producer": PRODUCER,
        "schemaURL": SCHEMA_URL,
        "run": {"runId": run_id, "facets": facets},
        "job": {
            "namespace": job.namespace,
            "name": job.definition.pipeline.name,
            "facets": {"jobType": _facet("jobType", **kind_of_job)},
        },
        "inputs": _inputs(job.definition, totals),
        "outputs": _outputs(job.definition, totals),
    }


def time_text(at_ms: int) -> str:
    """Return a time as events have it."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _engine(job: LineageJob) -> Document:
    return {
        "version": job.version,
        "name": "Penstock",
        "openlineageAdapterVersion": job.version,
    }


def _facet(kind: str, /, **values: object) -> Document:
    return {"_producer": PRODUCER, "_schemaURL": f"{_SPEC}/facets/{_FACETS[kind]}", **values}


def _inputs(definition: PipelineDefinition, totals: RunTotals) -> list[Document]:
    first = definition.pipeline.bootstrap_servers.split(",")[0].strip()
    seen = {at.topic for at in totals.ends}
    topics = sorted({*definition.source.topics, *seen})
    return [
        {
            "namespace": f"kafka://{first}",
            "name": topic,
            "facets": {OFFSETS_FACET: _offsets(topic, totals)} if topic in seen else {},
        }
        for topic in topics
    ]


def _offsets(topic: str, totals: RunTotals) -> Document:
    partitions = sorted(at for at in totals.ends if at.topic == topic)
    return {
        "_producer": PRODUCER,
        "_schemaURL": f"{PRODUCER}:offsets:1",
        "partitionCount": len(partitions),
        "partitions": [
            {
                "partition": at.partition,
                "startOffset": totals.starts[at],
                "endOffset": totals.ends[at],
            }
            for at in partitions[:PARTITIONS_MAX]
        ],
    }


def _outputs(definition: PipelineDefinition, totals: RunTotals) -> list[Document]:
    table = definition.table
    namespace = _warehouse(definition)
    storage = _facet(
        "storage",
        storageLayer="iceberg" if table.format is TableFormat.ICEBERG else "delta",
        fileFormat="parquet",
    )
    rows: Document = {"namespace": namespace, "name": table.name, "facets": {"storage": storage}}
    if totals.columns:
        rows["facets"]["schema"] = _facet("schema", fields=_fields(totals.columns))
    rows["outputFacets"] = {
        "outputStatistics": _facet(
            "outputStatistics",
            rowCount=totals.counts["rows"],
            size=totals.counts["bytes"],
            fileCount=totals.counts["files"],
        )
    }
    rejects: Document = {
        "namespace": namespace,
        "name": table.dlq_name,
        "facets": {"storage": storage},
        "outputFacets": {
            "outputStatistics": _facet("outputStatistics", rowCount=totals.counts["rejects"])
        },
    }
    return [rows, rejects]


def _fields(columns: Sequence[tuple[str, str]]) -> list[Document]:
    return [{"name": name, "type": kind} for name, kind in columns[:FIELDS_MAX]]


def _warehouse(definition: PipelineDefinition) -> str:
    """Return the namespace of the tables: the warehouse or the catalog, without a password."""
    catalog = dict(definition.table.catalog)
    place = definition.table.path or catalog.get("warehouse") or catalog.get("uri") or "default"
    scheme, separator, rest = place.partition("://")
    if not separator:
        return place
    return f"{scheme}://{rest.rpartition('@')[2]}"
