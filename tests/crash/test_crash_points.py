"""Crash-point enumeration: a cut after every single change of a workload, with every fate.

A cut is right when all acknowledged records exist, all records were appended, the state of
producers is that of a replay, recovering twice is recovering once, and a cut inside recovery
changes none of this. The fast test uses a sample; `make crash` uses more; with
PENSTOCK_CRASH_FULL=1 every prefix is used for several workloads and seeds.
"""

import os

import pytest

from penstock.testing.recording_disk import Fate
from tests.crash.workload import check_cut, cuts, record

FULL = os.environ.get("PENSTOCK_CRASH_FULL") == "1"


def test_a_sample_of_cuts() -> None:
    history = record(seed=1, steps=6)
    every = list(cuts(history, 1))
    for changes, fate, seed in every[:: max(1, len(every) // 12)]:
        check_cut(history, changes, fate, seed)


@pytest.mark.crash
@pytest.mark.parametrize("workload_seed", range(20 if FULL else 2))
def test_every_cut(workload_seed: int) -> None:
    history = record(seed=workload_seed)
    seeds = 5 if FULL else 1
    step = 1 if FULL else 3
    checked = 0
    points = 0
    for number, (changes, fate, seed) in enumerate(cuts(history, seeds)):
        if number % step == workload_seed % step:
            try:
                checked += check_cut(history, changes, fate, seed)
            except Exception as error:
                error.add_note(
                    f"workload {workload_seed}, cut after {changes} changes,"
                    f" {fate.value}, seed {seed}"
                )
                raise
            points += 1
    print(
        f"workload {workload_seed}: {len(history.disk.changes)} changes, {points} cuts,"
        f" {checked} recoveries checked"
    )


def test_the_workload_has_everything() -> None:
    history = record()
    labels = " ".join(change.label for change in history.disk.changes)
    for word in (
        ".snapshot",
        ".txnindex",
        "leader-epoch-checkpoint",
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        ".kafka_cleanshutdown",
        "-delete",
        "remove /data/orders-0/00000000000000000000.log",
    ):
        assert word in labels, word
    assert history.disk.after(0, Fate.LOST).list_directory("/") == []
