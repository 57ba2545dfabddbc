"""A disk that does not keep up: unsynced bytes are bounded, or the kernel would stop the loop.

A write into the page cache waits for the disk, up to 0.2 s at a time, when too much is unwritten
(measured on a loop device with a small limit of its own). Appends happen on the event loop.
"""

import asyncio

import pytest

from penstock.core.errors import DiskFullError
from penstock.core.limits import OWED_BYTES_MAX, UNSYNCED_BYTES_MAX
from penstock.storage.log.log_settings import FlushMode
from penstock.storage.service import StorageService
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.logs import Clock, batch, new_log


def test_an_append_is_refused_while_too_much_waits_for_the_disk() -> None:
    """Guards the loop against producers with acks=0, whose requests wait for nothing."""
    manager, log = new_log(MemoryDisk())
    flusher, directory = manager.flushers[0], manager.flushers[0].directory
    log.append(batch(), leader_epoch=0)
    directory.bytes_waiting = UNSYNCED_BYTES_MAX
    flush_round = flusher.begin_round()
    log.append(batch(), leader_epoch=0)
    with pytest.raises(DiskFullError, match="slower than the producers"):
        log.append(batch(), leader_epoch=0)
    assert log.end_offset == 2, "nothing of it is kept"
    flusher.execute(flush_round)
    flusher.complete_round(flush_round)
    log.append(batch(), leader_epoch=0)
    flusher.sync_now()
    assert directory.bytes_waiting_max == UNSYNCED_BYTES_MAX
    assert log.durable_offset == 3


def test_mode_interval_syncs_early_when_much_is_owed() -> None:
    async def go() -> None:
        manager, log = new_log(MemoryDisk(), flush_mode=FlushMode.INTERVAL)
        service = StorageService(
            manager, Clock(), on_durable=lambda _logs: None, on_failure=lambda _path, _error: None
        )
        service.start(asyncio.get_running_loop())
        log.append(batch(), leader_epoch=0)
        service.schedule_flush()
        await asyncio.sleep(0)
        was_early = manager.flushers[0].is_round_under_way
        log.append(batch(), leader_epoch=0)
        manager.flushers[0].directory.bytes_waiting += OWED_BYTES_MAX
        service.schedule_flush()
        await asyncio.sleep(0)
        assert (was_early, manager.flushers[0].is_round_under_way) == (False, True)
        await service.stop()
        assert log.synced_offset == 2

    asyncio.run(go())
