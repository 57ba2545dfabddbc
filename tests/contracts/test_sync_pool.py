"""One suite for both pools of syncing threads: Python's and the native one."""

import errno
import os
import select
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.storage.disk.sync_pool import SyncPool, ThreadSyncPool, open_sync_pool

THREADS = 4
Make = Callable[[int], SyncPool]


@pytest.fixture(params=["threads", "native"])
def pool(request: pytest.FixtureRequest) -> Iterator[SyncPool]:
    make: Make = ThreadSyncPool
    if request.param == "native":
        make = pytest.importorskip("penstock.storage.native_sync").NativeSyncPool
    opened = make(THREADS)
    yield opened
    opened.stop()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[int]]:
    descriptors = [
        os.open(tmp_path / str(number), os.O_RDWR | os.O_CREAT, 0o600) for number in range(10)
    ]
    for descriptor in descriptors:
        os.pwrite(descriptor, b"x" * 100, 0)
    yield descriptors
    for descriptor in descriptors:
        os.close(descriptor)


def wait_for_report(pool: SyncPool) -> None:
    readable, _, _ = select.select([pool.report_descriptor], [], [], 5)
    assert readable, "nothing was reported"


def take_one(pool: SyncPool) -> tuple[int, float, list[int]]:
    while True:
        wait_for_report(pool)
        taken = pool.take()
        if taken:
            [batch] = taken
            return batch


def unsyncable() -> int:
    """A descriptor whose sync fails with EINVAL: a pipe."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def test_a_batch_is_reported_once(pool: SyncPool, files: list[int]) -> None:
    ticket = pool.submit(files)
    taken, seconds, outcomes = take_one(pool)
    assert (taken, outcomes) == (ticket, [0] * 10)
    assert seconds > 0
    assert pool.take() == []
    assert not select.select([pool.report_descriptor], [], [], 0)[0]


def test_every_sync_has_its_own_outcome(pool: SyncPool, files: list[int]) -> None:
    """A failed sync is never hidden by those that worked."""
    pipe = unsyncable()
    pool.submit([*files[:3], pipe, *files[3:]])
    outcomes = take_one(pool)[2]
    assert outcomes == [0, 0, 0, errno.EINVAL, *[0] * 7]
    os.close(pipe)


def test_several_batches_are_in_flight(pool: SyncPool, files: list[int]) -> None:
    tickets = [pool.submit([descriptor]) for descriptor in files]
    found: list[int] = []
    while len(found) < len(tickets):
        wait_for_report(pool)
        found += [ticket for ticket, _, outcomes in pool.take() if outcomes == [0]]
    assert sorted(found) == tickets


def test_a_watched_batch_reports_each_sync(pool: SyncPool, files: list[int]) -> None:
    ticket = pool.submit(files)
    outcomes = pool.watch(ticket)
    assert set(outcomes) <= {-1, 0}
    assert len(outcomes) == 10
    assert take_one(pool)[2] == [0] * 10


def test_syncing_and_waiting(pool: SyncPool, files: list[int]) -> None:
    assert pool.sync_all(files) == [0] * 10
    pipe = unsyncable()
    assert pool.sync_all([files[0], pipe]) == [0, errno.EINVAL]
    os.close(pipe)


def test_a_stop_finishes_what_was_submitted(pool: SyncPool, files: list[int]) -> None:
    ticket = pool.submit(files)
    pool.stop()
    [(taken, _, outcomes)] = pool.take()
    assert (taken, outcomes) == (ticket, [0] * 10)


def test_the_native_pool_is_preferred() -> None:
    native = pytest.importorskip("penstock.storage.native_sync")
    opened = open_sync_pool(THREADS)
    assert isinstance(opened, native.NativeSyncPool)
    opened.stop()
