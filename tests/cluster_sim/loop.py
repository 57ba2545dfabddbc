"""`SimulatedLoop`: an asyncio event loop with virtual time, shared by several simulated machines.

Each callback and timer belongs to a `Machine`, found by a context variable that tasks inherit. The
callbacks of one machine run in the order of `call_soon`, as asyncio guarantees; the order of the
machines in a round is drawn from the seed. Time moves only when no callback is ready, plus a
microsecond for each turn of a machine. Nothing waits in real time.

A machine can be paused (its callbacks wait), blocked for a time (a sync on the loop) and crashed:
its callbacks, timers and tasks are dropped, and no `finally` of its coroutines runs before the end
of the run. An exception that no task handles ends the run.

Threads, executors and sockets are in `threads` and `network`. It is NOT for real IO: there is no
selector.
"""

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from itertools import count
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

TURN_SECONDS: Final = 1e-6
"""Virtual duration of a turn of one machine."""
TURNS_WITHOUT_TIME_MAX: Final = 200_000
"""Turns without a timer: more of them are an endless loop of callbacks."""

MACHINE: Final[ContextVar["Machine"]] = ContextVar("machine")


class Handle:
    """A scheduled callback."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "machine", "when_seconds")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[object, ...],
        machine: "Machine",
        context: Context,
        when_seconds: float = 0.0,
    ) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.machine = machine
        self.context = context
        self.when_seconds = when_seconds
        self.is_cancelled = False

    def cancel(self) -> None:
        """Drop the callback."""
        self.is_cancelled = True
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        """Return whether the callback was dropped."""
        return self.is_cancelled

    def when(self) -> float:
        """Return the time of a timer."""
        return self.when_seconds


class Machine:
    """A process of the simulation: a broker, a client, or the world itself."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.owner: object = None
        """The broker whose process this is."""
        self.ready: deque[Handle] = deque()
        self.is_dead = False
        self.is_paused = False
        self.busy_until_seconds = 0.0
        """The loop of the machine runs nothing before this time."""
        self.tasks: list[asyncio.Task[Any]] = []
        """Also of a dead machine: a collected coroutine would run its `finally`."""
        self.context = Context()
        self.context.run(MACHINE.set, self)

    def __repr__(self) -> str:
        return f"Machine({self.name})"

    def keep(self, task: "asyncio.Task[Any]") -> None:
        """Hold a task; forget finished ones from time to time."""
        if len(self.tasks) >= 256:
            self.tasks = [one for one in self.tasks if not one.done()]
        self.tasks.append(task)


class SimulatedTask(asyncio.Task[Any]):
    """A task whose hash is its number: `asyncio.TaskGroup` cancels the tasks of a set in its order.

    The hash of other tasks is their place in memory, which differs from run to run.
    """

    number = 0

    def __hash__(self) -> int:
        return self.number


class UnhandledError(AssertionError):
    """An exception of a callback or a task that nothing handled."""


class SimulatedLoop(asyncio.AbstractEventLoop):
    """The event loop of all machines."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"loop {seed}")
        self.world = Machine("world")
        self.current = self.world
        """The machine whose callback runs now."""
        self.machines: list[Machine] = [self.world]
        self.all_machines: list[Machine] = [self.world]
        """Dead ones too."""
        self.events: list[str] = []
        """The trace of the run."""
        self.after_turn: Callable[[Machine], None] | None = None
        """Called after each turn of a machine that is not the world: invariants."""
        self.handles_run = 0
        self.failure: BaseException | None = None
        self.postpone_seconds: float | None = None
        """While a simulated thread runs: its calls to the loop are delayed by this."""
        self._now_seconds = 1_000.0
        self._timers: list[tuple[float, int, Handle]] = []
        self._numbers = count()
        self._is_over = False

    # --- Machines ---

    def add_machine(self, name: str) -> Machine:
        """Return a new machine."""
        machine = Machine(name)
        self.machines.append(machine)
        self.all_machines.append(machine)
        return machine

    def crash(self, machine: Machine) -> None:
        """Drop everything that the machine would do."""
        machine.is_dead = True
        machine.ready.clear()
        self.machines.remove(machine)

    @contextmanager
    def acting_as(self, machine: Machine) -> Iterator[None]:
        """Schedule calls as this machine."""
        before, self.current = self.current, machine
        try:
            yield
        finally:
            self.current = before

    def start(
        self, machine: Machine, work: Coroutine[Any, Any, Result], name: str = ""
    ) -> "asyncio.Task[Result]":
        """Start a task on a machine."""
        return machine.context.copy().run(self.create_task, work, name=name or machine.name)

    def block(self, seconds: float) -> None:
        """Let the current thread or loop take this time."""
        if self.postpone_seconds is not None:
            self.postpone_seconds += seconds
        else:
            machine = self.current
            begin = max(self._now_seconds, machine.busy_until_seconds)
            machine.busy_until_seconds = begin + seconds

    def note(self, event: str) -> None:
        """Add an event to the trace, unless the run is over."""
        if self._is_over:
            return
        self.events.append(f"{self._now_seconds - 1_000.0:.6f} {event}")

    # --- Time ---

    def time(self) -> float:
        """Return the virtual time, as the current machine sees it."""
        now, busy = self._now_seconds, self.current.busy_until_seconds
        if self.postpone_seconds is not None:
            return now + self.postpone_seconds
        return busy if busy > now else now  # noqa: FURB136 - `max` takes twice as long

    # --- Scheduling ---

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> Handle:
        """Run a callback in the next turn of its machine."""
        if context is None:
            machine, context = self.current, copy_context()
        else:
            machine = context.get(MACHINE, self.world)
        handle = Handle(callback, args, machine, context)
        if not machine.is_dead:
            machine.ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> Handle:
        """As `call_soon`; from a simulated thread, after the time that its work took."""
        if self.postpone_seconds is None:
            return self.call_soon(callback, *args, context=context)
        return self.call_at(self.time(), callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> Handle:
        """Run a callback after a virtual time."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: object,
        context: Context | None = None,
    ) -> Handle:
        """Run a callback at a virtual time."""
        if context is None:
            machine, context = self.current, copy_context()
        else:
            machine = context.get(MACHINE, self.world)
        handle = Handle(callback, args, machine, context, when)
        if not machine.is_dead:
            heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def at(
        self, machine: Machine, delay_seconds: float, callback: Callable[..., object], *args: object
    ) -> Handle:
        """Run a callback on a machine after a time of the world."""
        when = self._now_seconds + delay_seconds
        return self.call_at(when, callback, *args, context=machine.context.copy())

    # --- Futures and tasks ---

    def create_future(self) -> "asyncio.Future[Any]":
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, Any] | Coroutine[Any, Any, Any],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> "asyncio.Task[Any]":
        """Start a task on the current machine."""
        machine = MACHINE.get(self.world) if context is None else context.get(MACHINE, self.world)
        number = next(self._numbers)
        # The name is always given: the default one is counted over all runs of this process.
        text = f"task-{number}" if name is None else str(name)
        task = SimulatedTask(coro, loop=self, name=text, context=context)
        task.number = number
        machine.keep(task)
        return task

    # --- Running ---

    def run_until_complete(  # type: ignore[override]
        self, work: Coroutine[Any, Any, Result]
    ) -> Result:
        """Run everything until this work of the world is done; return its result."""
        task = self.start(self.world, work, "world")
        asyncio.events._set_running_loop(self)
        try:
            turns = 0
            while not task.done():
                turns = turns + 1 if self._run_round() else 0
                if self.failure is not None:
                    raise UnhandledError(f"{self.failure!r} was not handled") from self.failure
                if turns > TURNS_WITHOUT_TIME_MAX:
                    raise UnhandledError("callbacks run for ever without a timer")
        finally:
            asyncio.events._set_running_loop(None)
        return task.result()

    def _run_round(self) -> bool:
        """Run one turn of each machine with callbacks; else move the time. Whether any ran."""
        now = self._now_seconds
        timers = self._timers
        while timers and timers[0][0] <= now:
            self._timer_due(heapq.heappop(timers)[2])
        runnable = [
            one
            for one in self.machines
            if one.ready and not one.is_paused and one.busy_until_seconds <= now
        ]
        if not runnable:
            self._move_time()
            return False
        if len(runnable) > 1:
            self.random.shuffle(runnable)
        for machine in runnable:
            self._run_turn(machine)
        return True

    def _timer_due(self, handle: Handle) -> None:
        if not handle.is_cancelled and not handle.machine.is_dead:
            handle.machine.ready.append(handle)

    def _move_time(self) -> None:
        timers = self._timers
        while timers and (timers[0][2].is_cancelled or timers[0][2].machine.is_dead):
            heapq.heappop(timers)
        nearest = [timers[0][0]] if timers else []
        nearest += [
            one.busy_until_seconds for one in self.machines if one.ready and not one.is_paused
        ]
        if not nearest:
            raise UnhandledError("the simulation stands still: no callback and no timer is left")
        self._now_seconds = max(self._now_seconds, min(nearest))

    def _run_turn(self, machine: Machine) -> None:
        """Run the callbacks that are ready now; later ones wait for the next turn."""
        self.current = machine
        ready = machine.ready
        left = len(ready)
        # A crash of the machine, by the world's turn, empties the queue.
        while left and ready:
            left -= 1
            handle = ready.popleft()
            callback = handle.callback
            if callback is None:
                continue
            self.handles_run += 1
            try:
                handle.context.run(callback, *handle.args)
            except Exception as error:  # noqa: BLE001 - ends the run
                self.failure = self.failure or error
        self._now_seconds += TURN_SECONDS
        if self.after_turn is not None and machine is not self.world:
            self.after_turn(machine)
        self.current = self.world

    def end(self) -> None:
        """Drop everything: coroutines that are collected later reach nothing."""
        self._is_over = True
        for machine in self.all_machines:
            machine.is_dead = True
            machine.ready.clear()
        self._timers.clear()

    # --- The rest of the interface ---

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Fail the run, unless it is over."""
        error = context.get("exception")
        if not self._is_over and self.failure is None:
            self.failure = error or UnhandledError(str(context.get("message")))

    def get_debug(self) -> bool:
        """Return False."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Do nothing."""

    def is_running(self) -> bool:
        """Return whether the run goes on."""
        return not self._is_over

    def is_closed(self) -> bool:
        """Return whether the run is over."""
        return self._is_over

    def close(self) -> None:
        """End the run."""
        self.end()
