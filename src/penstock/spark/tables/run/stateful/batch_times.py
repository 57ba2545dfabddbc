"""The watermark of a batch and the moment of its planning, in its offset document (pure).

Guarantees: a batch that is repeated after a crash has the same times, whatever the clock shows
then. So the same definition has the same late and future records.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from penstock.spark.errors import CheckpointError

WATERMARK: Final = "watermark_ms"
PLANNED: Final = "planned_ms"
"""The keys in an offset document."""


class BatchTimes(NamedTuple):
    """The watermark of a batch, and the moment by the driver's clock at which it was planned."""

    watermark_ms: int
    planned_ms: int


def with_times(document: Mapping[str, Any], times: BatchTimes) -> dict[str, Any]:
    """Return the offset document with the times."""
    return {**document, WATERMARK: times.watermark_ms, PLANNED: times.planned_ms}


def times_of(document: Mapping[str, Any]) -> BatchTimes:
    """Return the times of the batch that ends with this document."""
    watermark_ms, planned_ms = document.get(WATERMARK), document.get(PLANNED)
    if not isinstance(watermark_ms, int) or not isinstance(planned_ms, int):
        raise CheckpointError(
            f"the offset of a stateful batch has {WATERMARK} {watermark_ms} and {PLANNED} "
            f"{planned_ms}, and both must be numbers. Set another table.name, pipeline.name and "
            "pipeline.checkpoint, and compute the table again."
        )
    return BatchTimes(watermark_ms, planned_ms)


def plain(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the offset document without the times, for the source."""
    return {key: one for key, one in document.items() if key not in {WATERMARK, PLANNED}}
