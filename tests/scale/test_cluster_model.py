"""The metadata of a large cluster, in one process (marker `scale`): the bounds of the design."""

import os

import pytest

from benchmarks.cluster_scale import measure

SLOWNESS = 1.0 if os.environ.get("PENSTOCK_PROOF") == "1" else 2.5
"""Other work on the machine doubles the processor time of a change."""
pytestmark = [pytest.mark.scale, pytest.mark.timeout(300)]


def test_a_hundred_thousand_partitions_on_a_hundred_brokers() -> None:
    figures = measure(100_000, 100)
    print(f"\n{figures.text()}")
    assert figures.changed_partitions == 3_000
    assert figures.missed(SLOWNESS) == []
