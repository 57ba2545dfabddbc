"""Rounds on a real disk: files of one round are synced together, and one that fails is final."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.core.clock import SystemClock
from penstock.core.errors import LogDirectoryOfflineError
from penstock.core.limits import ROUND_ALONE_SECONDS
from penstock.core.stopping import StopDeadline
from penstock.core.types import TopicPartition
from penstock.storage.disk.filesystem import DiskFileSystem
from penstock.storage.group_commit import GroupCommit
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log_manager import LogManager
from tests.storage.logs import TOPIC_ID, Clock, batch

SETTINGS = LogSettings(retention_ms=-1)


class ScriptedPool:
    """A pool whose syncs end when the test says so."""

    report_descriptor = -1

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}
        """Outcomes by ticket; -1 where the sync has not ended."""
        self.watched: set[int] = set()

    def submit(self, descriptors: list[int]) -> int:
        ticket = len(self.batches)
        self.batches[ticket] = [-1] * len(descriptors)
        return ticket

    def take(self) -> list[tuple[int, float, list[int]]]:
        done = [
            (ticket, 0.001, outcomes)
            for ticket, outcomes in self.batches.items()
            if outcomes and -1 not in outcomes
        ]
        for ticket, _, _ in done:
            self.batches[ticket] = []
        return done

    def watch(self, ticket: int) -> list[int]:
        self.watched.add(ticket)
        return self.batches[ticket]

    def sync_all(self, descriptors: list[int]) -> list[int]:
        return [0] * len(descriptors)

    def stop(self) -> None:
        """No threads."""


class Scene:
    """Several logs on the real disk behind a pool of the test's."""

    def __init__(self, path: Path, count: int = 3) -> None:
        self.clock = Clock()
        self.clock.seconds = 1.0
        self.manager = LogManager(DiskFileSystem(), [str(path / "data")], self.clock)
        self.manager.start(lambda _topic: SETTINGS)
        self.flusher = self.manager.flushers[0]
        self.logs = [
            self.manager.create_log(TopicPartition("many", number), TOPIC_ID, SETTINGS)
            for number in range(count)
        ]
        self.append(*self.logs)
        self.flusher.sync_now()
        self.pool = ScriptedPool()
        self.flusher.start(lambda _round: None, self.pool)

    def append(self, *logs: PartitionLog) -> None:
        for log in logs:
            log.append(batch(), leader_epoch=0)

    def begin(self) -> None:
        self.flusher.submit(self.flusher.begin_round())

    def durable(self) -> list[int]:
        return [log.durable_offset for log in self.logs]

    def complete(self) -> None:
        for flush_round in self.flusher.take_synced():
            self.flusher.complete_round(flush_round)

    def close(self) -> None:
        self.flusher.stop()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_the_files_of_a_round_are_one_batch(scene: Scene) -> None:
    scene.append(*scene.logs)
    scene.begin()
    assert scene.pool.batches == {0: [-1, -1, -1]}
    assert scene.durable() == [1, 1, 1]
    scene.pool.batches[0] = [0, 0, 0]
    scene.complete()
    assert scene.durable() == [2, 2, 2]
    assert not scene.flusher.is_round_under_way
    scene.close()


@pytest.mark.parametrize("failed", [0, 2])
def test_one_failed_sync_of_a_batch_is_final(scene: Scene, failed: int) -> None:
    """Guards against a failed sync that is hidden by, or tried again after, those that worked."""
    scene.append(*scene.logs)
    scene.begin()
    outcomes = [0, 0, 0]
    outcomes[failed] = errno.EIO
    scene.pool.batches[0] = outcomes
    with pytest.raises(LogDirectoryOfflineError, match="Input/output error"):
        scene.complete()
    assert scene.durable() == [1, 1, 1]
    assert not scene.flusher.directory.dirty, "nothing is tried again"
    with pytest.raises(LogDirectoryOfflineError):
        scene.append(scene.logs[0])
    scene.close()


def test_jobs_with_names_go_to_the_thread_and_hold_up_no_other(scene: Scene) -> None:
    scene.logs[0].roll()
    scene.append(*scene.logs)
    scene.begin()
    assert scene.pool.batches == {0: [-1, -1]}
    scene.pool.batches[0] = [0, 0]
    scene.complete()
    assert scene.durable() == [1, 2, 2]
    assert scene.flusher.is_round_under_way, "the thread's report is not taken"
    scene.close()


def test_a_young_round_holds_up_the_next(scene: Scene) -> None:
    """Group commit: what comes during a round shares the next."""
    scene.append(scene.logs[0])
    scene.begin()
    scene.append(scene.logs[1], scene.logs[2])
    assert scene.flusher.path().name == "NOBODY"
    assert scene.flusher.complete_early() == []
    assert not scene.pool.watched
    scene.close()


def test_a_slow_file_holds_up_its_own_log_only(scene: Scene) -> None:
    """Guards all other logs against one file whose sync takes long."""
    slow, quick, other = scene.logs
    scene.append(slow, quick)
    scene.begin()
    scene.append(slow, quick, other)
    scene.clock.seconds += 2 * ROUND_ALONE_SECONDS
    scene.pool.batches[0] = [-1, 0]
    assert scene.flusher.complete_early() == [quick]
    assert scene.durable() == [1, 2, 1]
    assert scene.pool.watched == {0}
    assert scene.flusher.path().name == "THREAD"
    scene.begin()
    assert scene.pool.batches[1] == [-1, -1], "the slow log has a job under way"
    scene.pool.batches[1] = [0, 0]
    scene.complete()
    assert scene.durable() == [1, 3, 2]
    assert scene.flusher.path().name == "NOBODY", "only the slow log has something to sync"
    scene.pool.batches[0] = [0, 0]
    scene.complete()
    assert scene.durable() == [2, 3, 2]
    scene.begin()
    scene.pool.batches[2] = [0]
    scene.complete()
    assert scene.durable() == [3, 3, 2]
    scene.close()


def test_a_log_that_was_told_early_keeps_its_next_job(scene: Scene) -> None:
    """The end of the old round must not release a log whose next job is under way."""
    slow, quick, _ = scene.logs
    scene.append(slow, quick)
    scene.begin()
    scene.clock.seconds += 2 * ROUND_ALONE_SECONDS
    scene.pool.batches[0] = [-1, 0]
    scene.flusher.complete_early()
    scene.append(quick)
    scene.begin()
    scene.pool.batches[0] = [0, 0]
    scene.complete()
    assert quick.is_flushing
    assert not slow.is_flushing
    assert quick.durable_offset == 2
    scene.close()


def test_after_a_failure_nothing_is_told_early(scene: Scene) -> None:
    slow, quick, _ = scene.logs
    scene.append(slow, quick)
    scene.begin()
    scene.clock.seconds += 2 * ROUND_ALONE_SECONDS
    scene.pool.batches[0] = [-1, 0]
    scene.flusher.directory.fail(OSError(errno.EIO, "gone"))
    assert scene.flusher.complete_early() == []
    assert scene.durable() == [1, 1, 1]
    scene.close()


Story = Callable[[GroupCommit, LogManager, asyncio.Event], Awaitable[None]]


def run_commit(path: Path, story: Story) -> None:
    """A group commit with the real pool on the real disk."""

    async def go() -> None:
        manager = LogManager(DiskFileSystem(), [str(path / "data")], SystemClock())
        manager.start(lambda _topic: SETTINGS)
        moved = asyncio.Event()
        commit = GroupCommit(
            manager.flushers,
            on_durable=lambda _logs: moved.set(),
            on_failure=lambda _path, _error: None,
            on_idle=moved.set,
        )
        commit.start(asyncio.get_running_loop())
        await story(commit, manager, moved)
        commit.begin_stop()
        while commit.is_syncing:
            moved.clear()
            await asyncio.wait_for(moved.wait(), 5)
        commit.finish_stop(StopDeadline(SystemClock()))
        commit.stop_pools()
        manager.close()

    asyncio.run(go())


def test_many_logs_become_durable_on_a_real_disk(tmp_path: Path) -> None:
    async def story(commit: GroupCommit, manager: LogManager, moved: asyncio.Event) -> None:
        logs = [
            manager.create_log(TopicPartition("many", number), TOPIC_ID, SETTINGS)
            for number in range(20)
        ]
        for count in range(1, 4):
            for log in logs:
                log.append(batch(), leader_epoch=0)
            commit.schedule()
            async with asyncio.timeout(10):
                while any(log.durable_offset < count for log in logs):
                    moved.clear()
                    await moved.wait()
        assert manager.flushers[0].flushed_bytes > 0

    run_commit(tmp_path, story)
    manager = LogManager(DiskFileSystem(), [str(tmp_path / "data")], Clock())
    manager.start(lambda _topic: SETTINGS)
    assert {log.end_offset for log in manager.logs.values()} == {3}
    manager.close()
