"""Each safeguard taken out of a broker makes the checker find something (marker `crash`).

A row is the change, the run that leads into the dangerous moment, and the anomalies of which at
least one must be found, in one of a few runs: whether a client is active at the critical moment is
chance. With only the dangerous moments extended nothing may be found: this shows that the missing
guard was detected, not the delay.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.loop_disk import LoopDisk
from tests.crash.rounds import seed_of_this_run
from tests.histories.brokers import history_penstock
from tests.histories.plan import Plan
from tests.histories.run import KEPT, require_valid, run_history

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]

RUNS_MAX = 5
QUIET = Plan(seconds=6.0, faults=(), in_transactions=True)
ZOMBIES = Plan(
    seconds=12.0,
    faults=("zombie",),
    pause_seconds=0.8,
    in_transactions=True,
    think_seconds=0.15,
)
KILLS = Plan(seconds=8.0, faults=("kill-broker",), pause_seconds=1.0)
CUT = Plan(seconds=6.0, faults=(), via="subscribe", ends_with_power_cut=True)

BACKFILL = dataclasses.replace(KILLS, seconds=12.0, pause_seconds=1.5, has_old_timestamps=True)
OPERATORS = Plan(seconds=8.0, faults=("kill-client",), pause_seconds=0.25, topics=4)
DELETIONS = dataclasses.replace(
    OPERATORS, faults=("kill-broker",), upheavals=("delete-records",), seconds=10.0
)
COMPACTION = Plan(seconds=10.0, faults=(), upheavals=("compaction",), pause_seconds=1.5, topics=4)
"""The policy stays long enough for a pass of the cleaner, and nothing else happens."""
RETENTION = dataclasses.replace(OPERATORS, upheavals=("retention", "settings"))
NEW_TOPICS = dataclasses.replace(OPERATORS, upheavals=("recreate",))

MUTATIONS = (
    ("expiry-by-timestamps,late-answer", BACKFILL, {"duplicate"}),
    ("no-start-checkpoint", DELETIONS, {"deleted-read"}),
    ("eager-compaction", COMPACTION, {"vanished", "unseen", "lost-write"}),
    ("eager-retention", RETENTION, {"vanished", "unseen", "lost-write"}),
    ("deleted-topics-come-back", NEW_TOPICS, {"resurrected"}),
    ("no-epoch-check", ZOMBIES, {"unseen", "lost-write", "G1a", "duplicate", "precommitted-read"}),
    ("offsets-before-durable,slower-sync", CUT, {"impossible-position"}),
    ("no-last-stable-offset", QUIET, {"G1a", "precommitted-read", "int-poll-skip", "G1c"}),
    ("no-sequence-check,late-answer", KILLS, {"duplicate"}),
    ("no-abort-marker", QUIET, {"G1a", "unseen"}),
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    made = LoopDisk(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(("changes", "plan", "expected"), MUTATIONS, ids=[m[0] for m in MUTATIONS])
def test_without_the_guard_the_checker_finds_it(
    disk: LoopDisk, tmp_path: Path, changes: str, plan: Plan, expected: set[str]
) -> None:
    told = []
    for attempt in range(RUNS_MAX):
        run_plan = dataclasses.replace(plan, seed=seed_of_this_run() + attempt)
        data_dir = disk.path / f"data-{attempt}"
        made = history_penstock(tmp_path / f"broker-{attempt}", data_dir=data_dir, changes=changes)
        with made as broker:
            result = run_history(broker, run_plan, KEPT / changes, disk)
        found = [(n, cases) for n, cases in result.report.forbidden.items() if n in expected]
        if found:
            name, cases = found[0]
            text = f"{len(cases)} times {name}, {cases[0].text} (run {attempt + 1})"
            print(f"\nguard {changes}: {text}")
            return
        told.append(f"{result.line()}\n{result.report.text()}")
    pytest.fail("without the guard nothing was found:\n" + "\n".join(told))


def test_with_every_guard_and_longer_dangerous_moments_nothing_is_found(
    disk: LoopDisk, tmp_path: Path
) -> None:
    changes = "slower-sync,late-answer"
    plan = dataclasses.replace(
        CUT, seed=seed_of_this_run(), in_transactions=True, faults=("kill-broker",), seconds=8.0
    )
    made = history_penstock(tmp_path / "broker", data_dir=disk.path / "data", changes=changes)
    with made as broker:
        require_valid(run_history(broker, plan, KEPT / changes, disk), broker)
