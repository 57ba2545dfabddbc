"""Periodic duties: they run until cancelled, survive a failure, and follow a new pace."""

import asyncio

import pytest

from penstock.core.settings.tree import LogCareSettings, Settings
from penstock.node import duties
from penstock.node.duties import StorageDuties
from penstock.node.pace import Pace


class Storage:
    """Counts its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.marks: dict[str, float] = {}
        self.called = asyncio.Event()
        self.fails = False

    async def _call(self, name: str) -> None:
        self.calls.append(name)
        self.called.set()
        if self.fails:
            raise RuntimeError("not a disk's error")

    async def checkpoint(self) -> None:
        await self._call("checkpoint")

    async def run_retention(self) -> None:
        await self._call("retention")

    async def clean_logs(self) -> None:
        await self._call("compaction")

    async def sample_space(self) -> None:
        await self._call("space")

    async def flush_owed(self) -> None:
        await self._call("sync")

    def change_guards(self, **marks: float) -> None:
        self.marks = marks

    async def hears(self, count: int) -> None:
        while len(self.calls) < count:
            self.called.clear()
            await asyncio.wait_for(self.called.wait(), 5)


async def ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_duty_that_fails_is_tried_again_until_all_are_cancelled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(duties, "SPACE_SECONDS", 0.001)

    async def go() -> None:
        storage = Storage()
        storage.fails = True
        running = StorageDuties(storage, Settings())  # type: ignore[arg-type]
        task = asyncio.get_running_loop().create_task(running.run())
        await storage.hears(3)
        assert set(storage.calls) == {"space"}
        assert not task.done()
        await ended(task)

    asyncio.run(go())
    assert "a periodic duty of storage failed" in caplog.text


def test_who_waits_for_an_hour_follows_a_shorter_pace_at_once() -> None:
    async def go() -> None:
        storage = Storage()
        hour = LogCareSettings(
            checkpoint_interval_ms=3_600_000,
            retention_check_interval_ms=3_600_000,
            compaction_check_interval_ms=3_600_000,
        )
        running = StorageDuties(storage, Settings(log=hour))  # type: ignore[arg-type]
        task = asyncio.get_running_loop().create_task(running.run())
        await asyncio.sleep(0)
        assert storage.calls == []
        short = hour.model_copy(update={"retention_check_interval_ms": 1})
        running.follow(Settings(log=short))
        await storage.hears(2)
        assert set(storage.calls) == {"retention"}
        assert storage.marks == {"free_bytes_min": 134_217_728, "free_share_min": 0.0}
        await ended(task)

    asyncio.run(go())


def test_what_has_passed_counts_and_a_longer_pace_is_kept() -> None:
    async def go() -> None:
        pace = Pace(50)
        rest = asyncio.get_running_loop().create_task(pace.rest())
        await asyncio.sleep(0)
        pace.change(3_600_000)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(rest), 0.1)
        pace.change(1)
        await asyncio.wait_for(rest, 5)

    asyncio.run(go())
