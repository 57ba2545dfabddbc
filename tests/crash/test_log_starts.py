"""DeleteRecords: once answered, no cut restores the records; the sync guarantees it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from penstock.storage.log.log_settings import FlushMode
from penstock.storage.log_manager import LogManager
from penstock.storage.log_starts import LogStarts
from penstock.storage.managed_directory import ManagedDirectory
from penstock.testing.recording_disk import Fate, RecordingDisk
from tests.crash.workload import FATES
from tests.storage.logs import PARTITION, SMALL, batch, let_go, new_log, open_manager, sync

SETTINGS = replace(SMALL, retention_ms=-1)
Result = TypeVar("Result")


async def at_once(call: Callable[[], Result]) -> Result:
    """A worker thread that is this one."""
    return call()


def advanced(manager: LogManager, offset: int) -> None:
    """Move the start as the service does; segments below it go."""

    async def go() -> None:
        log = manager.get_log(PARTITION)
        assert log is not None
        starts = LogStarts(manager, at_once, asyncio.Lock)
        assert await starts.advance([(log, offset)]) == [None]

    asyncio.run(go())


def record() -> tuple[RecordingDisk, list[tuple[int, int]]]:
    """The disk, and which start was answered after how many changes."""
    disk = RecordingDisk()
    manager, log = new_log(disk, SETTINGS)
    answered = []
    for offset in (3, 17, 30):
        for _ in range(15):
            log.append(batch(), leader_epoch=0)
        sync(manager)
        advanced(manager, offset)
        answered.append((len(disk.changes), offset))
        manager.run_retention(0)
    return disk, answered


def first_failure() -> str:
    """The first cut after which an answered start is lost, or nothing."""
    disk, answered = record()
    for changes in range(answered[0][0], len(disk.changes) + 1):
        owed = max(offset for since, offset in answered if since <= changes)
        for fate in FATES:
            for seed in range(3 if fate in (Fate.SUBSET, Fate.TORN) else 1):
                manager = open_manager(disk.after(changes, fate, seed), SETTINGS)
                log = manager.get_log(PARTITION)
                assert log is not None
                if log.log_start_offset < owed:
                    return f"{changes} changes, {fate.value}: {log}, and {owed} was answered"
    return ""


def test_a_start_that_was_answered_never_goes_back() -> None:
    assert first_failure() == ""


def test_without_the_checkpoint_it_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ManagedDirectory, "write_log_starts", lambda _self: None)
    assert first_failure()


@pytest.mark.parametrize("segment_bytes", [1_000, 1_000_000])
def test_a_log_that_a_cut_left_shorter_than_its_start_goes_on_at_its_start(
    segment_bytes: int,
) -> None:
    settings = replace(SETTINGS, segment_bytes=segment_bytes)
    disk = RecordingDisk()
    manager, log = new_log(disk, settings, flush_mode=FlushMode.INTERVAL)
    for _ in range(15):
        log.append(batch(), leader_epoch=0)
    flush(manager)
    for _ in range(15):
        log.append(batch(), leader_epoch=0)
    # Acknowledged and not synced, as this mode has it; the start is synced.
    advanced(manager, 30)
    cut = disk.after(len(disk.changes), Fate.LOST, 0)
    again = open_manager(cut, settings, flush_mode=FlushMode.INTERVAL)
    shorter = again.get_log(PARTITION)
    assert shorter is not None
    assert (shorter.log_start_offset, shorter.end_offset) == (30, 30)
    shorter.validate()
    written = shorter.append(batch(), leader_epoch=0).base_offset
    flush(again)
    let_go(again)
    third = open_manager(cut, settings).get_log(PARTITION)
    assert third is not None
    assert third.log_start_offset <= written < third.end_offset


def flush(manager: LogManager) -> None:
    flusher = manager.flushers[0]
    flush_round = flusher.begin_owed_round()
    assert flush_round is not None
    flusher.execute(flush_round)
    flusher.complete_round(flush_round)
