"""The simulated disk: the state after a crash, and its faults."""

import errno
import random

import pytest

from tests.cluster_sim.disk import SimulatedDisk
from tests.cluster_sim.loop import SimulatedLoop


def new_disk(seed: int) -> SimulatedDisk:
    loop = SimulatedLoop(seed)  # type: ignore[abstract]
    return SimulatedDisk(loop, random.Random(seed))


def test_a_kill_keeps_everything_that_was_written() -> None:
    disk = new_disk(1)
    disk.create_file("/log").write_at(b"unsynced", 0)
    assert disk.after_kill().read_file("/log") == b"unsynced"


def test_a_power_cut_keeps_synced_bytes_and_a_prefix_of_the_rest() -> None:
    outcomes = set()
    for seed in range(200):
        disk = new_disk(seed)
        file = disk.create_file("/log")
        disk.sync_directory("/")
        file.write_at(b"A" * 10, 0)
        file.sync()
        file.write_at(b"B" * 10, 10)
        found = disk.after_power_loss().read_file("/log")
        assert found[:10] == b"A" * 10
        assert set(found[10:]) <= {0, ord("B")}
        outcomes.add(found)
    assert bytes(b"A" * 10) in outcomes, "no power cut lost the unsynced tail"
    assert any(b"\0" in found for found in outcomes), "no power cut tore the tail"
    assert len(outcomes) > 5


def test_a_power_cut_may_lose_a_name_that_was_not_synced() -> None:
    found = set()
    for seed in range(30):
        disk = new_disk(seed)
        disk.create_file("/log").sync()
        found.add(tuple(disk.after_power_loss().list_directory("/")))
    assert found == {(), ("log",)}


def test_faults() -> None:
    disk = new_disk(1)
    file = disk.create_file("/log")
    disk.is_full = True
    with pytest.raises(OSError, match="no space") as full:
        file.write_at(b"x", 0)
    assert full.value.errno == errno.ENOSPC
    disk.is_full, disk.is_failing = False, True
    file.write_at(b"x", 0)
    with pytest.raises(OSError, match="input/output"):
        file.sync()
    assert disk.after_power_loss().list_directory("/") in ([], ["log"])
