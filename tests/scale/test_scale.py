"""Ten thousand idle connections and four thousand partitions on one broker (marker `scale`).

The bounds are those of the design: an idle connection costs under 20 KB, idle partitions cost under
one percent of a core, and both are kept through a clean stop and a kill. The figures are printed
(`pytest -s`), because how far below the bound they are is worth knowing too.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.scale import (
    IdleConnections,
    ManyPartitions,
    allow_open_files,
    measure_idle_connections,
    measure_many_partitions,
)
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

pytestmark = [pytest.mark.scale, pytest.mark.timeout(600)]

CONNECTIONS = 10_000
PARTITIONS = 4_000
OPEN_FILES = 20_000
CONNECTION_BYTES_MAX = 20_000
IDLE_CPU_SHARE_MAX = 0.01
SLOWER_MAX = 2.0
"""Two runs of the same thing differ by less than this on a busy machine."""
SYNC_NOISE_US = 1_000
"""A sync of the disk now and then takes a millisecond, whoever asks."""
START_SECONDS_MAX = 5.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    allow_open_files(OPEN_FILES)
    with penstock_broker(tmp_path) as running:
        yield running


def test_ten_thousand_idle_connections_cost_only_memory(broker: RunningBroker) -> None:
    found: IdleConnections = measure_idle_connections(broker, CONNECTIONS)
    print(found)
    assert found.bytes_each < CONNECTION_BYTES_MAX
    assert found.idle_cpu_share < IDLE_CPU_SHARE_MAX
    assert found.p50_with_us < SLOWER_MAX * found.p50_without_us
    assert found.p99_with_us < SLOWER_MAX * found.p99_without_us + SYNC_NOISE_US


def test_four_thousand_partitions_rest_and_start_again(broker: RunningBroker) -> None:
    found: ManyPartitions = measure_many_partitions(broker, PARTITIONS)
    print(found)
    assert found.idle_cpu_share < IDLE_CPU_SHARE_MAX
    assert found.start_after_stop_seconds < START_SECONDS_MAX
    assert found.start_after_kill_seconds < START_SECONDS_MAX
