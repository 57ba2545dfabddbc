"""Worker classes: bounds, turns between clients, cancellation, a stop that is bounded in time."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TypeVar

import pytest

from penstock.core.cancellation import Cancellation
from penstock.core.errors import StorageBusyError, WorkCancelledError
from penstock.core.limits import LOOKUP_REST_SECONDS_MAX
from penstock.storage.thread_priority import NICER_BY
from penstock.storage.worker_pool import (
    ClassBounds,
    Turns,
    WorkClass,
    WorkerPool,
)

Result = TypeVar("Result")

SECONDS_MAX = 5.0
DUTIES, READS, LOOKUPS = WorkClass.DUTIES, WorkClass.READS, WorkClass.LOOKUPS
SMALL = {
    DUTIES: ClassBounds(1, 2),
    READS: ClassBounds(2, 4),
    LOOKUPS: ClassBounds(1, 8),
    WorkClass.BATCHES: ClassBounds(1, 8),
}


def run(scene: Callable[[WorkerPool], Coroutine[None, None, None]]) -> None:
    """Play a scene on a small pool; it must end soon."""

    async def go() -> None:
        pool = WorkerPool(asyncio.get_running_loop(), SMALL)
        async with asyncio.timeout(SECONDS_MAX):
            await scene(pool)
            await pool.stop(SECONDS_MAX)

    asyncio.run(go())


def start(work: Coroutine[None, None, Result]) -> asyncio.Task[Result]:
    """Run it beside the scene, which awaits it."""
    return asyncio.get_running_loop().create_task(work)


class Blocked:
    """A job that blocks until the test releases it."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        assert self.may_end.wait(SECONDS_MAX)
        return "done"


async def begun(job: Blocked) -> None:
    """Until a thread has taken the job."""
    assert await asyncio.to_thread(job.begun.wait, SECONDS_MAX)


def test_results_and_errors_come_back() -> None:
    async def scene(pool: WorkerPool) -> None:
        assert await pool.run(READS, lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            await pool.run(READS, lambda: 1 // 0)

    run(scene)


def test_a_class_that_is_busy_does_not_delay_another() -> None:
    """Guards defect 5: searches by time took all threads, and duties and reads waited for them."""

    async def scene(pool: WorkerPool) -> None:
        blocked = Blocked()
        searches = [start(pool.run(LOOKUPS, blocked)) for _ in range(5)]
        await begun(blocked)
        assert await pool.run(READS, lambda: "read") == "read"
        assert await pool.run(DUTIES, lambda: "swept") == "swept"
        blocked.may_end.set()
        assert await asyncio.gather(*searches) == ["done"] * 5

    run(scene)


def test_no_more_jobs_run_at_once_than_the_class_has_threads() -> None:
    async def scene(pool: WorkerPool) -> None:
        jobs = [Blocked() for _ in range(4)]
        waiting = [start(pool.run(READS, job)) for job in jobs]
        await begun(jobs[0])
        await begun(jobs[1])
        assert (pool.running(READS), pool.queued(READS)) == (2, 2)
        assert not jobs[2].begun.is_set()
        for job in jobs:
            job.may_end.set()
        await asyncio.gather(*waiting)

    run(scene)


def test_a_full_queue_refuses_with_an_error_that_clients_retry() -> None:
    async def scene(pool: WorkerPool) -> None:
        blocked = Blocked()
        waiting = [start(pool.run(DUTIES, blocked)) for _ in range(3)]
        await begun(blocked)
        with pytest.raises(StorageBusyError, match=r"2 jobs .* at most 2"):
            await pool.run(DUTIES, blocked)
        blocked.may_end.set()
        await asyncio.gather(*waiting)
        assert await pool.run(DUTIES, lambda: 1) == 1

    run(scene)


def test_clients_take_turns() -> None:
    """A client with many queued searches does not delay the one search of another client."""

    async def scene(pool: WorkerPool) -> None:
        order: list[str] = []
        blocked, greedy, modest = Blocked(), Cancellation(), Cancellation()
        first = start(pool.run(LOOKUPS, blocked, greedy))
        await begun(blocked)
        rest = [
            start(pool.run(LOOKUPS, partial(order.append, f"g{number}"), greedy))
            for number in range(3)
        ]
        await asyncio.sleep(0)
        other = start(pool.run(LOOKUPS, lambda: order.append("m"), modest))
        await asyncio.sleep(0)
        blocked.may_end.set()
        await asyncio.gather(first, other, *rest)
        assert order == ["g0", "m", "g1", "g2"]

    run(scene)


def test_jobs_of_a_client_that_is_gone_are_dropped() -> None:
    """Guards defect 5: the searches of clients that had left were still carried out."""

    async def scene(pool: WorkerPool) -> None:
        blocked, client, ran = Blocked(), Cancellation(), []
        running = start(pool.run(LOOKUPS, blocked, client))
        await begun(blocked)
        queued = start(pool.run(LOOKUPS, lambda: ran.append(1), client))
        await asyncio.sleep(0)
        client.cancel()
        for waiting in (running, queued):
            with pytest.raises(WorkCancelledError):
                await waiting
        assert pool.queued(LOOKUPS) == 0
        assert pool.running(LOOKUPS) == 1, "its thread is busy until the job has really ended"
        with pytest.raises(WorkCancelledError):
            await pool.run(LOOKUPS, lambda: ran.append(2), client)
        blocked.may_end.set()
        assert await pool.run(LOOKUPS, lambda: "next") == "next"
        assert ran == []

    run(scene)


def test_a_cancelled_task_gives_its_place_up() -> None:
    async def scene(pool: WorkerPool) -> None:
        blocked, ran = Blocked(), []
        running = start(pool.run(LOOKUPS, blocked))
        await begun(blocked)
        queued = start(pool.run(LOOKUPS, lambda: ran.append(1)))
        await asyncio.sleep(0)
        queued.cancel()
        await asyncio.wait([queued])
        assert pool.queued(LOOKUPS) == 0
        blocked.may_end.set()
        await running
        assert ran == []

    run(scene)


def test_a_scan_ends_between_two_slices_when_its_client_is_gone() -> None:
    async def scene(pool: WorkerPool) -> None:
        client, slices = Cancellation(), 0
        first_slice = threading.Event()

        def scan() -> None:
            nonlocal slices
            turns = Turns(client, pool.stopping, rest=lambda _: None)
            while True:
                slices += 1
                first_slice.set()
                turns()

        waiting = start(pool.run(LOOKUPS, scan, client))
        assert await asyncio.to_thread(first_slice.wait, SECONDS_MAX)
        client.cancel()
        with pytest.raises(WorkCancelledError):
            await waiting
        assert await pool.run(LOOKUPS, lambda: "free again") == "free again"

    run(scene)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a priority is of the process")
def test_the_event_loop_preempts_every_thread_but_those_of_cold_reads() -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    async def scene(pool: WorkerPool) -> None:
        of_loop = priority()
        nicer = {kind: await pool.run(kind, priority) - of_loop for kind in WorkClass}
        assert nicer.pop(WorkClass.READS) == 0
        assert set(nicer.values()) == {NICER_BY}, nicer

    run(scene)


class Rests:
    """A clock that the test moves, and how long a scan rested."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.seconds: list[float] = []
        monkeypatch.setattr("penstock.storage.worker_pool.time.monotonic", lambda: self.now)

    def turns(self) -> Turns:
        return Turns(slice_seconds=0.002, rest=self.seconds.append)


def test_a_scan_rests_in_proportion_to_its_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    rests = Rests(monkeypatch)
    turns = rests.turns()
    turns()
    rests.now += 0.001
    turns()
    assert rests.seconds == []
    rests.now += 0.002
    turns()
    assert rests.seconds == [pytest.approx(0.003)]


def test_a_scan_does_not_rest_for_the_time_it_waited_in_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guards look-ups under load: each rested for as long as it had waited in the queue."""
    rests = Rests(monkeypatch)
    turns = rests.turns()
    rests.now += 60.0
    turns()
    assert rests.seconds == []


def test_a_scan_that_waited_for_a_slow_disk_rests_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rests = Rests(monkeypatch)
    turns = rests.turns()
    turns()
    rests.now += 60.0
    turns()
    assert rests.seconds == [LOOKUP_REST_SECONDS_MAX]


def test_a_stop_drops_what_waits_and_waits_for_duties() -> None:
    async def scene(pool: WorkerPool) -> None:
        duty, ran = Blocked(), []
        running = start(pool.run(DUTIES, duty))
        queued = start(pool.run(DUTIES, lambda: ran.append(1)))
        await begun(duty)
        stopping = start(pool.stop(SECONDS_MAX))
        await asyncio.sleep(0)
        assert not stopping.done()
        duty.may_end.set()
        assert await stopping
        assert await running == "done"
        with pytest.raises(WorkCancelledError):
            await queued
        with pytest.raises(WorkCancelledError):
            await pool.run(DUTIES, lambda: ran.append(2))
        assert ran == []

    run(scene)


@pytest.mark.parametrize("kind", list(WorkClass))
def test_a_stop_is_bounded_although_a_job_never_ends(kind: WorkClass) -> None:
    """Guards defect 6: a stop joined the threads on the loop, for as long as a job took."""

    async def scene(pool: WorkerPool) -> None:
        hangs = Blocked()
        waiting = start(pool.run(kind, hangs))
        await begun(hangs)
        assert await pool.stop(0.01) is (kind is not DUTIES)
        busy = [thread for thread in threading.enumerate() if thread.name.startswith("storage-")]
        assert busy
        assert all(thread.daemon for thread in busy), "a process must not wait for them"
        await asyncio.wait([waiting])
        assert isinstance(waiting.exception(), WorkCancelledError)
        hangs.may_end.set()

    run(scene)


def test_a_job_that_outlives_its_loop_ends_quietly() -> None:
    hangs = Blocked()
    earlier = set(threading.enumerate())

    async def go() -> None:
        pool = WorkerPool(asyncio.get_running_loop(), SMALL)
        waiting = start(pool.run(READS, hangs))
        await begun(hangs)
        await pool.stop(0.0)
        await asyncio.wait([waiting])
        waiting.exception()

    asyncio.run(go())
    threads = [thread for thread in threading.enumerate() if thread not in earlier]
    assert [thread.name.rpartition("-")[0] for thread in threads] == ["storage-reads"]
    hangs.may_end.set()
    for thread in threads:
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()
