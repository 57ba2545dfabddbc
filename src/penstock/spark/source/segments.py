"""The sealed segments of a query, from its options."""

from penstock.spark.sealed.sealed_segments import SealedSegments
from penstock.spark.source.options import SourceOptions


def segments_of(options: SourceOptions) -> SealedSegments:
    """Return the leased segments of a query."""
    return SealedSegments(
        options.sealed,
        options.client,
        options.splitting,
        is_read_committed=options.is_read_committed,
    )
