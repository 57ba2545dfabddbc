"""`WorkerPool`: blocking work of storage on threads, in classes that cannot starve each other.

    class      work                                                waits for
    duties     checkpoints, segment swaps, deletes, compaction     the broker's own tasks
    reads      cold reads, loads of coordinators                   clients
    lookups    searches by time, which may decode a whole batch    clients
    batches    checks of produced batches that are large           clients

The threads of every class but `reads` have a lower priority than the event loop
(`thread_priority`).

Each class has its own threads and its own bound of queued jobs, so that a client that asks for the
most expensive searches delays only other searches. Within a class, clients take turns: a client
with sixty queued jobs waits behind its own jobs, not others behind it. Above the bound a job is
refused with `StorageBusyError`, which clients retry. Replication gets a class of its own when it is
built.

A job is cancelled when its client is gone or the pool stops: a queued one is dropped, a running one
sees it through `Turns` between two slices. Either way the caller gets `WorkCancelledError` at once;
the thread stays in use until the job really ends, so that the number of threads is a bound.

`stop` waits for running jobs for a bounded time and never blocks the event loop. The threads are
daemon threads: a job that hangs on a dead disk does not keep the process alive. Duties are crash
safe at every step, so such a stop has the same effect as a crash.

All bookkeeping happens on the event loop; there is no lock. Threads get jobs through one queue of
their class and report through `call_soon_threadsafe`. The loop is an argument, as are all
awaitables in storage (`exclusive`).
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Mapping
from enum import Enum
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

from penstock.core.cancellation import Cancellation
from penstock.core.errors import PenstockError, StorageBusyError, WorkCancelledError
from penstock.core.limits import (
    BATCH_THREADS,
    BATCHES_QUEUED_MAX,
    DUTIES_QUEUED_MAX,
    DUTY_THREADS,
    LOOKUP_REST_RATIO,
    LOOKUP_REST_SECONDS_MAX,
    LOOKUP_SLICE_SECONDS,
    LOOKUP_THREADS,
    LOOKUPS_QUEUED_MAX,
    READ_THREADS,
    READS_QUEUED_MAX,
)
from penstock.storage.thread_priority import lower_priority

Result = TypeVar("Result")

THREAD_PREFIX: Final = "storage-"
"""Threads of a pool are named by it, its class and a number."""


class Promise(Protocol):
    """A result that a coroutine waits for: `asyncio.Future`."""

    def done(self) -> bool:
        """Whether it is set or cancelled."""
        ...

    def set_result(self, result: object, /) -> None:
        """Set the result."""
        ...

    def set_exception(self, error: BaseException, /) -> None:
        """Raise `error` in the awaiting coroutine."""
        ...

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait for it."""
        ...


class Alarm(Protocol):
    """A call that is due later: `asyncio.TimerHandle`."""

    def cancel(self) -> None:
        """Do not call."""
        ...


class Loop(Protocol):
    """The part of the event loop that the pool uses."""

    def create_future(self) -> Promise:
        """A promise without a result."""
        ...

    def call_soon_threadsafe(self, call: Callable[..., None], *given: object) -> object:
        """Call on the loop, from any thread; `RuntimeError` when it is closed."""
        ...

    def call_later(self, seconds: float, call: Callable[[], None]) -> Alarm:
        """Call on the loop after a time."""
        ...


class WorkClass(Enum):
    """The class of a job; the value is the name of its threads."""

    DUTIES = "duties"
    READS = "reads"
    LOOKUPS = "lookups"
    BATCHES = "batches"


class ClassBounds(NamedTuple):
    """How many jobs of one class may run and wait."""

    threads_max: int
    queued_max: int


BOUNDS: Final[Mapping[WorkClass, ClassBounds]] = {
    WorkClass.DUTIES: ClassBounds(DUTY_THREADS, DUTIES_QUEUED_MAX),
    WorkClass.READS: ClassBounds(READ_THREADS, READS_QUEUED_MAX),
    WorkClass.LOOKUPS: ClassBounds(LOOKUP_THREADS, LOOKUPS_QUEUED_MAX),
    WorkClass.BATCHES: ClassBounds(BATCH_THREADS, BATCHES_QUEUED_MAX),
}


class Turns:
    """Called by a scan between two slices: raises when it is cancelled, and rests.

    A thread that walks over bytes holds the interpreter. After each slice it sleeps in proportion,
    so that the event loop gets its turn even on one core.
    """

    __slots__ = ("_begun", "_rest", "_tokens", "slice_seconds")

    def __init__(
        self,
        *tokens: Cancellation,
        slice_seconds: float = LOOKUP_SLICE_SECONDS,
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        self._tokens = tokens
        self._rest = rest
        self._begun: float | None = None
        """Set by the first call: a search may wait in the queue for long before it runs."""
        self.slice_seconds = slice_seconds

    def __call__(self) -> None:
        """Raise `WorkCancelledError` if the job is cancelled; rest if the slice is over."""
        for token in self._tokens:
            if token.is_cancelled:
                raise WorkCancelledError("the scan was cancelled: its result is not wanted")
        now = time.monotonic()
        if self._begun is None:
            self._begun = now
        elapsed = now - self._begun
        if elapsed >= self.slice_seconds:
            # A slow disk is not work: the rest has a bound.
            self._rest(min(elapsed * LOOKUP_REST_RATIO, LOOKUP_REST_SECONDS_MAX))
            self._begun = time.monotonic()


class _Job:
    """One call and the promise of its result."""

    __slots__ = ("call", "client", "error", "result", "waiting")

    def __init__(
        self,
        call: Callable[[], object],
        client: Cancellation | None,
        waiting: Promise,
    ) -> None:
        self.call = call
        self.client = client
        self.waiting = waiting
        self.result: object = None
        self.error: BaseException | None = None

    def execute(self) -> None:
        """Run the call; on a thread."""
        try:
            self.result = self.call()
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            if isinstance(error, OSError | PenstockError):
                # Without its frames: they refer to this job, and to files that may be deleted.
                # Anything else is a defect, and keeps its frames for the log.
                error.__traceback__ = None
            self.error = error

    def settle(self) -> None:
        """Set the outcome; on the loop. The promise may be cancelled already."""
        error, self.error = self.error, None
        if not self.waiting.done():
            if error is not None:
                self.waiting.set_exception(error)
            else:
                self.waiting.set_result(self.result)


class _FairQueue:
    """Jobs that wait: clients take turns, the jobs of one client stay in order."""

    def __init__(self) -> None:
        self._by_client: OrderedDict[Cancellation | None, deque[_Job]] = OrderedDict()
        self.size = 0

    def put(self, job: _Job) -> None:
        self._by_client.setdefault(job.client, deque()).append(job)
        self.size += 1

    def take(self) -> _Job | None:
        """The next job that is not cancelled."""
        while self._by_client:
            client, jobs = self._by_client.popitem(last=False)
            job = jobs.popleft()
            self.size -= 1
            if jobs:
                self._by_client[client] = jobs
            if not job.waiting.done():
                return job
        return None

    def discard(self, job: _Job) -> None:
        """Drop a job if it still waits."""
        jobs = self._by_client.get(job.client)
        if jobs is not None and job in jobs:
            jobs.remove(job)
            self.size -= 1
            if not jobs:
                del self._by_client[job.client]


class _WorkClassState:
    """The threads and the queue of one class."""

    def __init__(self, kind: WorkClass, bounds: ClassBounds) -> None:
        self.kind = kind
        self.bounds = bounds
        self.queue = _FairQueue()
        self.running: set[_Job] = set()
        self.threads = 0
        self.inbox: SimpleQueue[_Job | None] = SimpleQueue()


class WorkerPool:
    """Runs blocking calls for one event loop."""

    def __init__(
        self,
        loop: Loop,
        bounds: Mapping[WorkClass, ClassBounds] = BOUNDS,
    ) -> None:
        self._loop = loop
        self._classes = {kind: _WorkClassState(kind, limits) for kind, limits in bounds.items()}
        self.stopping = Cancellation()
        """Cancelled when the pool stops; scans check it through `Turns`."""
        self._on_idle: Promise | None = None
        """Set while a stop waits for running jobs."""

    def queued(self, kind: WorkClass) -> int:
        """Jobs that wait for a thread."""
        return self._classes[kind].queue.size

    def running(self, kind: WorkClass) -> int:
        """Jobs that have a thread."""
        return len(self._classes[kind].running)

    async def run(
        self,
        kind: WorkClass,
        call: Callable[[], Result],
        client: Cancellation | None = None,
    ) -> Result:
        """Return the result of `call`, run on a thread of its class."""
        state = self._classes[kind]
        if self.stopping.is_cancelled or (client is not None and client.is_cancelled):
            raise WorkCancelledError("the work was not started: the client or the broker is gone")
        if state.queue.size >= state.bounds.queued_max:
            raise StorageBusyError(
                f"{state.queue.size} jobs of storage wait already ({kind.value}, at most "
                f"{state.bounds.queued_max}); retry later"
            )
        waiting = self._loop.create_future()
        job = _Job(call, client, waiting)
        if len(state.running) < state.bounds.threads_max:
            self._begin(state, job)
        else:
            state.queue.put(job)
        if client is not None:
            client.subscribe(job, partial(_give_up, job))
        try:
            return cast("Result", await waiting)
        finally:
            if client is not None:
                client.unsubscribe(job)
            # Cancelled or given up before it began: its place is free at once.
            state.queue.discard(job)
            # An error refers to this frame, and through these names to itself. Such a cycle keeps
            # everything in its frames, also files, until the garbage collector runs.
            del job, waiting

    def _begin(self, state: _WorkClassState, job: _Job) -> None:
        state.running.add(job)
        if state.threads < len(state.running):
            state.threads += 1
            threading.Thread(
                target=self._serve,
                args=(state,),
                name=f"{THREAD_PREFIX}{state.kind.value}-{state.threads}",
                daemon=True,
            ).start()
        state.inbox.put(job)

    def _serve(self, state: _WorkClassState) -> None:
        """The main loop of a thread: one job after the other, until it gets None."""
        if state.kind is not WorkClass.READS:
            lower_priority()
        while (job := state.inbox.get()) is not None:
            job.execute()
            try:
                self._loop.call_soon_threadsafe(self._finish, state, job)
            except RuntimeError:
                # The loop is closed: a stop abandoned this job.
                return
            job = None

    def _finish(self, state: _WorkClassState, job: _Job) -> None:
        """A job has ended; the next one gets its thread. On the loop."""
        state.running.discard(job)
        job.settle()
        following = state.queue.take()
        if following is not None:
            self._begin(state, following)
        if self._on_idle is not None and not self._is_busy():
            self._end_wait()

    async def stop(self, seconds_max: float) -> bool:
        """Drop waiting jobs, cancel running ones, end the threads; whether all duties have ended.

        Waits at most `seconds_max`, for duties and for reads. A thread that is still busy then is
        abandoned; it ends with its job or with the process.
        """
        self.stopping.cancel()
        for state in self._classes.values():
            while (job := state.queue.take()) is not None:
                _give_up(job)
            if state.kind is not WorkClass.DUTIES:
                for job in state.running:
                    _give_up(job)
        if self._is_busy():
            self._on_idle = self._loop.create_future()
            alarm = self._loop.call_later(seconds_max, self._end_wait)
            await self._on_idle
            alarm.cancel()
            self._abandon()
        for state in self._classes.values():
            for _ in range(state.threads):
                state.inbox.put(None)
        return not self._classes[WorkClass.DUTIES].running

    def _abandon(self) -> None:
        """Abandon jobs that have not ended in time: their callers must not wait either."""
        for state in self._classes.values():
            for job in state.running:
                _give_up(job)

    def _is_busy(self) -> bool:
        return any(state.running for state in self._classes.values())

    def _end_wait(self) -> None:
        if self._on_idle is not None and not self._on_idle.done():
            self._on_idle.set_result(None)


def _give_up(job: _Job) -> None:
    if not job.waiting.done():
        job.waiting.set_exception(
            WorkCancelledError("the work was cancelled: the client or the broker is gone")
        )
