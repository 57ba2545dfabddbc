"""Threads of storage as callbacks of the simulated loop, and the other parts of a real process.

`SimulatedThread` and `SimulatedQueue` replace `threading.Thread` and `SimpleQueue`. A thread of
storage takes one job after the other from its queue; here each job is one callback after a delay
drawn from the seed. A thread that finds its queue empty ends its function with `ParkedError`, and
the next job calls the function again: the functions keep no state between two jobs. Calls from the
thread to the loop arrive after the time that the work took (`SimulatedLoop.block`).

`simulated_process` replaces threads, clocks and random bytes for the time of a run, so that
production code needs no injection for them. It changes global state: one run at a time.
"""

import asyncio
import os
import random
import sys
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from penstock.cluster import persistent_map
from penstock.storage import flusher, snapshot_writer, worker_pool
from tests.cluster_sim.loop import MACHINE, Machine, SimulatedLoop

WALL_CLOCK_BEGIN_MS: Final = 1_700_000_000_000
"""The date at virtual time 0."""
THREAD_SECONDS_MAX: Final = 0.002
"""Longest time until an idle thread begins its next job."""


class ParkedError(BaseException):
    """The queue of a simulated thread is empty."""


class SimulatedThread:
    """A thread whose function takes jobs from one `SimulatedQueue`."""

    running: "SimulatedThread | None" = None
    """The thread whose function runs now."""
    loop: SimulatedLoop
    random: random.Random

    def __init__(
        self,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        assert target is not None
        assert not kwargs
        self._target = target
        self._args = args
        self.name = name or "thread"
        self.daemon = daemon
        self._is_scheduled = False
        self._machine: Machine | None = None
        self.may_take = False
        """Whether the function may take a job: one for each activation."""

    def start(self) -> None:
        """Call the function soon."""
        self._machine = MACHINE.get()
        self.activate()

    def activate(self) -> None:
        """Schedule the next activation, unless there is one."""
        assert self._machine is not None
        if not self._is_scheduled:
            self._is_scheduled = True
            delay = self.random.random() * THREAD_SECONDS_MAX
            self.loop.at(self._machine, delay, self._activated)

    def _activated(self) -> None:
        loop = self.loop
        self._is_scheduled = False
        SimulatedThread.running, self.may_take = self, True
        loop.postpone_seconds = 0.0
        try:
            self._target(*self._args)
        except ParkedError:
            pass
        finally:
            SimulatedThread.running = None
            loop.postpone_seconds = None

    def join(self, timeout: float | None = None) -> None:
        """Return at once: the owner stops a thread when nothing is under way."""

    def is_alive(self) -> bool:
        """Return True."""
        return True


class SimulatedQueue:
    """The queue of one or more simulated threads."""

    def __init__(self) -> None:
        self._items: deque[object] = deque()
        self._parked: deque[SimulatedThread] = deque()

    @classmethod
    def __class_getitem__(cls, _item: object) -> type["SimulatedQueue"]:
        return cls

    def put(self, item: object) -> None:
        """Add a job and wake a thread."""
        self._items.append(item)
        if self._parked:
            self._parked.popleft().activate()

    def get(self) -> object:
        """Return the next job, one for each activation of a thread."""
        thread = SimulatedThread.running
        assert thread is not None, "only simulated threads wait for jobs"
        if self._items and thread.may_take:
            thread.may_take = False
            return self._items.popleft()
        if self._items:
            thread.activate()
        else:
            self._parked.append(thread)
        raise ParkedError


def run_in_executor(
    loop: SimulatedLoop, draws: random.Random, work: Callable[..., object], *args: object
) -> "asyncio.Future[object]":
    """Run a function inside the loop after a delay; return the future of its result."""
    future = loop.create_future()
    machine = MACHINE.get(loop.world)

    def execute() -> None:
        loop.postpone_seconds = 0.0
        try:
            try:
                result, error = work(*args), None
            except Exception as raised:  # noqa: BLE001 - raised where it is awaited
                result, error = None, raised
            loop.call_soon_threadsafe(_settle, future, result, error)
        finally:
            loop.postpone_seconds = None

    loop.at(machine, draws.random() * THREAD_SECONDS_MAX, execute)
    return future


def _settle(future: "asyncio.Future[object]", result: object, error: BaseException | None) -> None:
    if not future.done():
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def same_hash(value: object) -> int:
    """Return a hash of text that is the same in every process: maps of topics have its order."""
    return zlib.crc32(value.encode()) if isinstance(value, str) else hash(value)


class RandomBytes:
    """`os.urandom` from the seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(f"bytes {seed}")

    def __call__(self, size: int) -> bytes:
        return self._random.randbytes(size)


@contextmanager
def simulated_process(loop: SimulatedLoop, seed: int) -> Iterator[None]:
    """Replace threads, clocks and random bytes until the end of the block."""
    draws = random.Random(f"threads {seed}")

    def time_ns() -> int:
        return WALL_CLOCK_BEGIN_MS * 1_000_000 + int(loop.time() * 1e9)

    def executor(
        _executor: object, work: Callable[..., object], *args: object
    ) -> "asyncio.Future[object]":
        return run_in_executor(loop, draws, work, *args)

    replaced: list[tuple[Any, str, Any]] = [
        (time, "monotonic", loop.time),
        (time, "perf_counter", loop.time),
        (time, "time", lambda: time_ns() / 1e9),
        (time, "time_ns", time_ns),
        (time, "monotonic_ns", lambda: int(loop.time() * 1e9)),
        (time, "sleep", loop.block),
        (os, "urandom", random_bytes := RandomBytes(seed)),
        (random, "_urandom", random_bytes),
        (threading, "Thread", SimulatedThread),
        (flusher, "SimpleQueue", SimulatedQueue),
        (snapshot_writer, "SimpleQueue", SimulatedQueue),
        (worker_pool, "SimpleQueue", SimulatedQueue),
        (snapshot_writer, "lower_priority", lambda: None),
        (worker_pool, "lower_priority", lambda: None),
        (loop, "run_in_executor", executor),
    ]
    switch_seconds = sys.getswitchinterval()
    with ExitStack() as stack:
        for place, name, replacement in replaced:
            stack.enter_context(patch.object(place, name, replacement))
        # Not left behind: a run that is over is collected before the next one.
        for name, value in (("loop", loop), ("random", draws)):
            stack.enter_context(patch.object(SimulatedThread, name, value, create=True))
        stack.enter_context(patch.object(persistent_map, "hash", same_hash, create=True))
        stack.callback(sys.setswitchinterval, switch_seconds)
        yield
