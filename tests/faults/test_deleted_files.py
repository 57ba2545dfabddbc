"""A deleted topic gives its room back: no thread, error or answer keeps one of its files open.

A file is closed when nothing refers to it any more, because threads may still read it. So whatever
keeps a reference keeps the room of a deleted file, until a restart. The garbage collector is off in
these tests, as `penstock serve` all but turns it off.
"""

import asyncio
import errno
import gc
import weakref
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from penstock.core.errors import LogDirectoryOfflineError, QuarantinedLogError, StorageError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.storage.disk.filesystem import File
from penstock.storage.worker_pool import WorkClass, WorkerPool
from penstock.testing.memory_disk import MemoryDisk
from tests.faults.test_full_disk import eventually
from tests.faults.wire import TOPIC, FaultyRoom, Wire
from tests.storage.logs import batch, new_log, producer_batch

OK, STORAGE_ERROR = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR
LARGE = b"x" * 40_000
"""An append of this size is synced by the flusher's thread."""


class WatchedDisk(FaultyRoom):
    """A disk that knows which of its files are open."""

    def __init__(self) -> None:
        super().__init__(MemoryDisk())
        self._opened: list[tuple[str, weakref.ref[File]]] = []

    def open_file(self, path: str) -> File:
        return self._watched(path, super().open_file(path))

    def create_file(self, path: str) -> File:
        return self._watched(path, super().create_file(path))

    def _watched(self, path: str, file: File) -> File:
        self._opened.append((path, weakref.ref(file)))
        return file

    def open_paths(self) -> list[str]:
        """Files of the topic that something still refers to."""
        return [path for path, file in self._opened if file() is not None and TOPIC in path]


@pytest.fixture
def disk() -> WatchedDisk:
    return WatchedDisk()


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """Cycles do not count as closed; objects of other tests are not visited."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()


def fill(disk: WatchedDisk, wire: Wire) -> None:
    disk.bytes_left = 40
    for _ in range(2):
        assert wire.produce(LARGE)[0] == STORAGE_ERROR


def produce(wire: Wire, _disk: WatchedDisk) -> None:
    assert wire.produce(LARGE) == (OK, 0)


def produce_small(wire: Wire, _disk: WatchedDisk) -> None:
    """Synced on the loop."""
    assert wire.produce(b"small") == (OK, 0)


def read_cold(wire: Wire, disk: WatchedDisk) -> None:
    """A thread of the storage reads it."""
    assert wire.produce(LARGE) == (OK, 0)
    disk.is_cold = True
    assert wire.fetch() == (OK, [LARGE])
    disk.is_cold = False


def roll(wire: Wire, _disk: WatchedDisk) -> None:
    """A new segment, and a snapshot of producers on the thread that stores them."""
    assert wire.produce(LARGE, sequence=0, timestamp_ms=1) == (OK, 0)
    assert wire.produce(LARGE, sequence=1, timestamp_ms=10**10) == (OK, 1)


@pytest.mark.parametrize("work", [produce, produce_small, read_cold, roll])
def test_no_file_of_a_deleted_topic_stays_open(
    disk: WatchedDisk, wire: Wire, work: Callable[[Wire, WatchedDisk], None]
) -> None:
    """The flusher's thread kept its last round while it waited for the next one."""
    work(wire, disk)
    assert disk.open_paths()
    fill(disk, wire)
    assert wire.delete(TOPIC) == OK
    eventually(lambda: not disk.open_paths())


def test_a_kept_error_keeps_no_frame() -> None:
    """Each raise would add its frames to it: the batch of every refused request."""
    _, log = new_log(MemoryDisk())
    for kept in (StorageError("closed"), QuarantinedLogError("damaged")):
        log.problem = kept
        for _ in range(3):
            with pytest.raises(type(kept), match=str(kept)) as raised:
                log.append(batch(), leader_epoch=0)
            assert raised.value is not kept
            with pytest.raises(type(kept)):
                log.read(0, 100, offset_limit=9, at_least_one=True, nowait=True)
        assert kept.__traceback__ is None
        assert kept.__context__ is None


def test_an_error_on_a_thread_keeps_nothing_once_it_is_handled() -> None:
    """Job, future and error referred to each other through the frames of the error."""

    class Failing:
        def __call__(self) -> None:
            raise OSError(errno.EIO, "injected")

    calls = [Failing()]
    watched = weakref.ref(calls[0])

    async def ask() -> None:
        pool = WorkerPool(asyncio.get_running_loop())
        with pytest.raises(OSError, match="injected"):
            await pool.run(WorkClass.READS, calls.pop())
        # The thread lets go of the job a moment after its result has arrived.
        for _ in range(1_000):
            if watched() is None:
                break
            await asyncio.sleep(0.001)
        assert watched() is None
        assert await pool.stop(1.0)

    asyncio.run(ask())


def test_a_round_that_failed_keeps_no_frame() -> None:
    """The frames refer to its files, and to the round: a circle."""
    disk = FaultyRoom(MemoryDisk())
    manager, log = new_log(disk)
    log.append(batch(), leader_epoch=0)
    disk.fail_next("sync", errno.EIO)
    flush_round = manager.flushers[0].begin_round()
    manager.flushers[0].execute(flush_round)
    assert flush_round.error is not None
    assert flush_round.error.__traceback__ is None


def test_a_snapshot_that_found_no_room_keeps_no_frame() -> None:
    disk = FaultyRoom(MemoryDisk())
    manager, log = new_log(disk)
    log.append(producer_batch(0), leader_epoch=0)
    log.roll()
    manager.flushers[0].sync_now()
    writer = manager.flushers[0].snapshots
    job = writer.begin()
    assert job is not None
    disk.fail_next("write", errno.ENOSPC)
    writer.execute(job)
    assert job.error is not None
    assert job.error.__traceback__ is None


def test_the_error_of_a_dead_directory_keeps_no_frame() -> None:
    disk = FaultyRoom(MemoryDisk())
    manager, log = new_log(disk)
    directory = manager.flushers[0].directory
    disk.fail_next("write", errno.EIO)
    for _ in range(3):
        with pytest.raises(LogDirectoryOfflineError):
            log.append(batch(), leader_epoch=0)
        with pytest.raises(LogDirectoryOfflineError):
            manager.create_log(TopicPartition("late", 0), UUID(int=9), log.settings)
    assert directory.failure is not None
    assert directory.failure.__traceback__ is None
    assert directory.failure.__cause__ is None
