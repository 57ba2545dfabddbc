"""Rebuilds OpenLineage events with the client's own classes; run by the client's interpreter.

    python lineage_judge.py events.jsonl

Guarantees: each event is built from the classes of `openlineage.client`, which check their fields,
and is written by the client's own serializer. It fails if a field is unknown to a class, or if the
client would write another document: an address of a schema, a name or a value. It imports nothing
of Penstock.
"""

import json
import sys
from pathlib import Path
from typing import Any

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.generated import (
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    processing_engine_run,
    schema_dataset,
    storage_dataset,
)
from openlineage.client.serde import Serde

Document = dict[str, Any]

FACETS = {
    "errorMessage": error_message_run.ErrorMessageRunFacet,
    "jobType": job_type_job.JobTypeJobFacet,
    "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
    "processing_engine": processing_engine_run.ProcessingEngineRunFacet,
    "schema": schema_dataset.SchemaDatasetFacet,
    "storage": storage_dataset.StorageDatasetFacet,
}
OWN = ("penstock_offsets",)
"""A facet that the specification does not have: it needs a producer and a schema only."""


def facets(document: Document) -> Document:
    """The facets of one part, built; ours are checked and left out."""
    found: Document = {}
    for name, value in document.items():
        values = {key: one for key, one in value.items() if not key.startswith("_")}
        if name in OWN:
            assert value["_producer"]
            assert value["_schemaURL"]
            continue
        if name == "schema":
            field = schema_dataset.SchemaDatasetFacetFields
            values["fields"] = [field(**one) for one in values["fields"]]
        found[name] = FACETS[name](**values, producer=value["_producer"])
    return found


def dataset(kind: type[Any], document: Document, more: str) -> Any:  # noqa: ANN401
    """An input or an output, built."""
    return kind(
        namespace=document["namespace"],
        name=document["name"],
        facets=facets(document.get("facets", {})),
        **{more: facets(document.get(more, {}))},
    )


def rebuilt(document: Document) -> Document:
    """The event as the client writes it."""
    event = RunEvent(
        eventType=RunState[document["eventType"]],
        eventTime=document["eventTime"],
        producer=document["producer"],
        run=Run(document["run"]["runId"], facets(document["run"]["facets"])),
        job=Job(
            document["job"]["namespace"],
            document["job"]["name"],
            facets(document["job"]["facets"]),
        ),
        inputs=[dataset(InputDataset, one, "inputFacets") for one in document["inputs"]],
        outputs=[dataset(OutputDataset, one, "outputFacets") for one in document["outputs"]],
    )
    found: Document = json.loads(Serde.to_json(event))
    return found


def plain(value: Any) -> Any:  # noqa: ANN401 (JSON)
    """The same without our own facets and without empty parts, which both sides may leave out."""
    if isinstance(value, dict):
        kept = {name: plain(one) for name, one in value.items() if name not in OWN}
        return {name: one for name, one in kept.items() if one not in ({}, [], None)}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value


def main() -> None:
    """Judge every event of the file."""
    events = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    for number, event in enumerate(events):
        ours, theirs = plain(event), plain(rebuilt(event))
        assert ours == theirs, f"event {number}:\n{ours}\n{theirs}"
    print(len(events))


if __name__ == "__main__":
    main()
