"""Free space is measured at the start and later; a change is logged once, with the remedy."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from penstock.storage.disk.disk_guard import DiskState
from penstock.storage.disk.disk_watch import DiskWatch
from penstock.storage.disk.filesystem import FileSystem, Space
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk

MIB = 1 << 20
GIB = 1 << 30
PATH = "/data"


class Gauge(FaultyDisk):
    """A disk of 1,000 GiB with the free space that the test sets."""

    def __init__(self, free_bytes: int) -> None:
        super().__init__(MemoryDisk())
        self.free_bytes = free_bytes
        self.is_broken = False

    def space(self, path: str) -> Space:
        assert path == PATH
        if self.is_broken:
            raise OSError("the disk does not answer")
        return Space(self.free_bytes, 1_000 * GIB)


class Directory:
    def __init__(self, disk: FileSystem) -> None:
        self.path = PATH
        self.filesystem = disk


@pytest.fixture
def disk() -> Gauge:
    return Gauge(300 * MIB)


@pytest.fixture
def watch(disk: Gauge) -> DiskWatch:
    return DiskWatch([Directory(disk)], free_bytes_min=100 * MIB, free_share_min=0.0)


async def at_once(call: Callable[[], Space]) -> Space:
    return call()


def sampled(watch: DiskWatch, disk: Gauge, free_mib: int) -> bool:
    disk.free_bytes = free_mib * MIB
    return asyncio.run(watch.sample(at_once))


def test_it_knows_a_full_disk_before_the_first_sample(watch: DiskWatch, disk: Gauge) -> None:
    disk.free_bytes = MIB
    watch.measure_all()
    assert watch.guards[PATH].state is DiskState.FULL
    # Free space has not been measured yet.
    assert sampled(watch, disk, 1)


def test_room_is_asked_for_once_until_there_is_some(watch: DiskWatch, disk: Gauge) -> None:
    asked = [sampled(watch, disk, free) for free in (300, 150, 90, 150, 300, 90, 90)]
    assert asked == [False, True, False, False, False, True, False]


def test_a_disk_that_does_not_answer_changes_nothing(watch: DiskWatch, disk: Gauge) -> None:
    assert sampled(watch, disk, 90)
    disk.is_broken = True
    assert not sampled(watch, disk, 300)
    watch.measure_all()
    assert watch.guards[PATH].state is DiskState.FULL


def test_the_log_says_what_changed_and_what_to_do(
    watch: DiskWatch, disk: Gauge, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for free in (150, 140, 90, 95, 130, 300):
            sampled(watch, disk, free)
    low, full, low_again, room = (record.getMessage() for record in caplog.records)
    assert "150 MiB free, produce is refused below 100 MiB" in low
    assert "90 MiB free: produce is refused until 120 MiB are free" in full
    assert "Delete topics" in full
    assert "130 MiB free" in low_again
    assert "has room again: 300 MiB free" in room
