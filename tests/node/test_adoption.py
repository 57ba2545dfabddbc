"""Logs that were there before the metadata: also compacted ones are served, now and later."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cluster.image import MetadataImage
from penstock.core.clock import SystemClock
from penstock.core.errors import LogDirectoryOfflineError
from penstock.node.log_loading import load_logs
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log_manager import LogManager
from penstock.testing.memory_disk import MemoryDisk
from tests.broker.handlers.asker import Asker, batch_of, values_in
from tests.node.data import TOPIC, broker_on, crash, fill

LOG = f"{TOPIC}-0/00000000000000000000.log"


def compact(path: Path) -> None:
    """Leave of six batches what a cleaner might: the first two and the last two."""
    data = (path / LOG).read_bytes()
    size = len(data) // 6
    (path / LOG).write_bytes(data[: 2 * size] + data[4 * size :])


def forget_metadata(path: Path) -> None:
    for file in path.glob("metadata.sqlite3*"):
        file.unlink()


def assert_served(asker: Asker) -> None:
    kept = [b"0", b"1", b"4", b"5"]
    for offset, missing in ((0, 0), (1, 1), (2, 2), (3, 2), (4, 2), (5, 3)):
        assert values_in(asker.fetch(TOPIC, offset))[: 4 - missing] == kept[missing:]
    assert asker.list_offsets(TOPIC, {0: -1})[0].offset >= 6


def test_an_adopted_log_may_lack_offsets_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with broker_on(path) as asker:
        fill(asker, *(str(number).encode() for number in range(6)))
    forget_metadata(path)
    compact(path)
    with broker_on(path) as asker:
        assert_served(asker)
        assert asker.produce(TOPIC, batch_of(b"new")).base_offset == 6
    with broker_on(path) as asker:
        assert_served(asker)
        crashed = crash(path)
    # So that all of it is verified, and not only the part after the recovery point.
    (crashed / "recovery-point-offset-checkpoint").unlink()
    with broker_on(crashed) as asker:
        assert_served(asker)


def test_a_log_of_ours_may_not_lack_offsets(tmp_path: Path) -> None:
    """Nothing compacts it, so what is missing was lost."""
    with broker_on(tmp_path) as asker:
        fill(asker, *(str(number).encode() for number in range(6)))
    compact(tmp_path)
    with broker_on(tmp_path) as asker:
        assert asker.fetch(TOPIC, 2).error_code


# --- A long recovery ---


class SlowLogs(LogManager):
    """Two logs, of which the second is not begun before the test says so."""

    def __init__(self) -> None:
        super().__init__(MemoryDisk(), ["/data"], SystemClock())
        self.is_begun, self.may_go_on = threading.Event(), threading.Event()
        self.loaded: list[str] = []

    def start(self, settings_for: Callable[[str], LogSettings] | None = None) -> None:
        assert settings_for is not None
        for name in ("first", "second"):
            settings_for(name)
            self.loaded.append(name)
            self.is_begun.set()
            assert self.may_go_on.wait(10.0)


def test_the_loop_turns_while_logs_are_loaded() -> None:
    async def main() -> list[str]:
        logs = SlowLogs()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load_logs(logs, MetadataImage(), {}))
            while not logs.is_begun.is_set():  # noqa: ASYNC110 (the test is that the loop turns)
                await asyncio.sleep(0)
            logs.may_go_on.set()
        return logs.loaded

    assert asyncio.run(main()) == ["first", "second"]


def test_a_start_that_is_given_up_ends_after_the_log_at_hand() -> None:
    """And not before: who asked lets the directory's lock go then."""

    async def main() -> list[str]:
        logs = SlowLogs()
        async with asyncio.TaskGroup() as tasks:
            loading = tasks.create_task(load_logs(logs, MetadataImage(), {}))
            while not logs.is_begun.is_set():  # noqa: ASYNC110 (a thread sets it)
                await asyncio.sleep(0)
            loading.cancel()
            for _ in range(10):
                await asyncio.sleep(0)
            assert not loading.done()
            logs.may_go_on.set()
        assert loading.cancelled()
        return logs.loaded

    assert asyncio.run(main()) == ["first"]


class BrokenLogs(LogManager):
    """Logs on a disk that cannot be read."""

    def __init__(self, code: int) -> None:
        super().__init__(MemoryDisk(), ["/data"], SystemClock())
        self._code = code

    def start(self, settings_for: Callable[[str], LogSettings] | None = None) -> None:
        raise OSError(self._code, os.strerror(self._code), "/data/orders-0/log")


def test_a_disk_that_cannot_be_read_at_the_start_is_named_with_a_remedy() -> None:
    with pytest.raises(LogDirectoryOfflineError, match="/data/orders-0/log") as raised:
        asyncio.run(load_logs(BrokenLogs(errno.EIO), MetadataImage(), {}))
    assert "empty data directory on a new disk" in raised.value.hint
    with pytest.raises(OSError, match="No space"):
        asyncio.run(load_logs(BrokenLogs(errno.ENOSPC), MetadataImage(), {}))
