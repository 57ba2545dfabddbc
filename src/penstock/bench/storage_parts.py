"""The four figures of a log: write, read active, read sealed, lookup; one run for each.

`parts_of` (pure) derives the four workloads from one; `run_storage` runs them in turn, each on a
topic of its own. The active segment is the one that is written to: a topic with large segments has
no other. In the topic with the smallest segments all but the last are sealed.
"""

from dataclasses import replace
from typing import Final

from penstock.bench.measurement import Measurement, StorageFigures
from penstock.bench.runner import Watch, labelled, run
from penstock.bench.workload import CONSUME, LOOKUP, PRODUCE, Workload
from penstock.client.security.options import NO_SECURITY, Security

SEGMENT_BYTES: Final = "segment.bytes"
ACTIVE_SEGMENT_BYTES: Final = 1_073_741_824
"""Kafka's default, above the bytes that fill a topic."""
SEALED_SEGMENT_BYTES: Final = 1_048_576
"""The smallest value that Kafka accepts."""


def parts_of(workload: Workload) -> dict[str, Workload]:
    """Return the workload of each figure, by its name."""

    def reading(kind: str, segment_bytes: int) -> Workload:
        settings = {**workload.topic_settings, SEGMENT_BYTES: str(segment_bytes)}
        return replace(workload, kind=kind, topic_settings=settings)

    return {
        "write": replace(workload, kind=PRODUCE),
        "read active": reading(CONSUME, ACTIVE_SEGMENT_BYTES),
        "read sealed": reading(CONSUME, SEALED_SEGMENT_BYTES),
        "lookup": reading(LOOKUP, SEALED_SEGMENT_BYTES),
    }


def run_storage(
    workload: Workload,
    bootstrap: str,
    *,
    security: Security = NO_SECURITY,
    watch: Watch | None = None,
) -> StorageFigures:
    """Measure the four figures of one broker."""
    watcher: Watch = watch or (lambda _part, _progress: None)
    figures: dict[str, Measurement] = {}
    for name, part in parts_of(workload).items():
        figures[name] = run(part, bootstrap, security=security, watch=labelled(watcher, name))
    return StorageFigures(figures)
