"""Large groups, many groups and many offsets on one broker (marker `scale`).

The bounds are those of the project: a thousand members of a KIP-848 group have their parts within
ten seconds, and their restart takes no partition from a living member twice; ten thousand groups
that commit every five seconds are served; a million offsets are known ten seconds after a kill. The
figures are printed (`pytest -s`): how far below the bound they are is worth knowing too.
"""

import os
from pathlib import Path

import pytest

from benchmarks.group_load import measure_large_group, measure_many_groups
from benchmarks.groups import OPEN_FILES, QUICK_HEARTBEAT
from benchmarks.offset_log import measure_offset_load
from benchmarks.scale import allow_open_files
from tests.oracle.penstock_broker import penstock_broker

pytestmark = [pytest.mark.scale, pytest.mark.timeout(600)]

SLACK = 1.0 if "PENSTOCK_PROOF" in os.environ else 12.0
"""The proof holds the targets. A shared machine may be several times slower: there, what is found
is work that grows faster than it should."""
MEMBERS = 1_000
STABLE_SECONDS_MAX = 10.0 * SLACK
GROUPS = 10_000
COMMIT_P99_MS_MAX = 250.0 * SLACK
"""Far above what a quiet machine shows; a broker that cannot keep up is seconds late."""
OFFSETS = 1_000_000
LOAD_SECONDS_MAX = 10.0 * SLACK


@pytest.fixture(autouse=True)
def _open_files() -> None:
    allow_open_files(OPEN_FILES)


def test_a_thousand_members_have_their_parts_soon_and_restart_without_moves(tmp_path: Path) -> None:
    with penstock_broker(tmp_path, environment=QUICK_HEARTBEAT) as broker:
        found = measure_large_group(broker, MEMBERS, MEMBERS)
    print(found)
    assert found.stable_seconds < STABLE_SECONDS_MAX
    assert found.revocations_max <= 1


def test_ten_thousand_groups_commit_every_five_seconds(tmp_path: Path) -> None:
    with penstock_broker(tmp_path) as broker:
        found = measure_many_groups(broker, GROUPS, period_seconds=5.0, periods=2)
    print(found)
    assert found.commits == 2 * GROUPS
    assert found.p99_ms < COMMIT_P99_MS_MAX


def test_a_million_offsets_are_known_soon_after_a_kill(tmp_path: Path) -> None:
    found = measure_offset_load(tmp_path, OFFSETS, records_in_batch=100)
    print(found)
    assert found.load_seconds < LOAD_SECONDS_MAX
