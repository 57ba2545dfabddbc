"""A sample of the soak for every change (marker `chaos`): seventy seconds, looser on time.

Losses and counts are judged as in the whole one. Memory has no time to settle, and the machine may
be busy with other tests, so those two bounds are wide: `make soak` runs half an hour on a quiet
machine.
"""

import pytest

from tests.soak.run import soak
from tests.soak.verdict import Bounds, broken, figures

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]

MINUTES = 70 / 60
UNLOADED_SECONDS = 10.0
BOUNDS = Bounds(memory_mb_per_hour=5_000.0, memory_mb=400.0, times_slower=4.0, slack_ms=100.0)


def test_a_sample() -> None:
    found = soak(MINUTES, unloaded_seconds=UNLOADED_SECONDS)
    assert broken(found, BOUNDS) == []
    print(figures(found))
