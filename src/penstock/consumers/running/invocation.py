"""`Invoker`: calls handlers, sync or async, with a timeout.

An async handler runs on the event loop and is cancelled at its timeout. A sync handler runs in a
daemon thread. A thread cannot be cancelled: after its timeout the call counts as failed, the thread
is abandoned, and its result is ignored. If as many threads are abandoned as handlers may run at the
same time, the invoker raises `ConsumerStoppedError`: the process needs a restart.

It does NOT retry and does not know topics.
"""

import asyncio
import contextlib
import inspect
import queue
import threading
from collections.abc import Callable
from typing import Any, Final

from penstock.consumers.errors import ConsumerStoppedError

_END: Final = None
_Job = tuple[Callable[[Any], Any], Any, "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class HandlerTimeoutError(TimeoutError):
    """A handler did not return in time."""


class Invoker:
    """The threads and timeouts of one consumer's handlers."""

    def __init__(self, *, concurrency: int, timeout_seconds: float, name: str) -> None:
        self._timeout_seconds = timeout_seconds
        self._concurrency = concurrency
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0
        self._abandoned: set[asyncio.Future[Any]] = set()

    async def call(self, function: Callable[[Any], Any], argument: Any) -> Any:  # noqa: ANN401
        """Return the result of the handler; raise its error, or `HandlerTimeoutError`."""
        if _is_async(function):
            try:
                async with asyncio.timeout(self._timeout_seconds) as limit:
                    return await function(argument)
            except TimeoutError as error:
                if limit.expired():
                    raise self._late() from error
                raise
        result = await self._in_thread(function, argument)
        if inspect.isawaitable(result):  # a sync function that returns a coroutine
            return await asyncio.wait_for(result, self._timeout_seconds)
        return result

    async def _in_thread(self, function: Callable[[Any], Any], argument: Any) -> Any:  # noqa: ANN401
        if len(self._abandoned) >= self._concurrency:
            raise ConsumerStoppedError(
                f"{len(self._abandoned)} handlers of {self._name} did not return within "
                f"{self._timeout_seconds:g} s and still run, the limit is {self._concurrency}.",
                hint="Restart the process, and give the calls in the handler timeouts.",
            )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._busy += 1
        future.add_done_callback(self._freed)
        if self._threads < self._busy:
            self._threads += 1
            thread = threading.Thread(target=self._work, name=f"{self._name}-handler", daemon=True)
            thread.start()
        self._jobs.put((function, argument, future, loop))
        done, _ = await asyncio.wait({future}, timeout=self._timeout_seconds)
        if not done:
            self._abandoned.add(future)
            future.add_done_callback(self._abandoned.discard)
            future.add_done_callback(_retrieve)
            raise self._late()
        return future.result()

    def _freed(self, _: "asyncio.Future[Any]") -> None:
        self._busy -= 1

    def _work(self) -> None:
        """The loop of a thread."""
        while (job := self._jobs.get()) is not _END:
            function, argument, future, loop = job
            try:
                result, error = function(argument), None
            except BaseException as raised:  # noqa: BLE001 (raised again in the task)
                result, error = None, _as_exception(raised)
            with contextlib.suppress(RuntimeError):  # the loop is closed: the run has ended
                loop.call_soon_threadsafe(_resolve, future, result, error)

    def close(self) -> None:
        """End the idle threads; abandoned ones end with their handler or with the process."""
        for _ in range(self._threads):
            self._jobs.put(_END)

    def _late(self) -> HandlerTimeoutError:
        return HandlerTimeoutError(f"the handler did not return within {self._timeout_seconds:g} s")


def _is_async(function: Callable[[Any], Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 (a handler may be an object)
    )


def _as_exception(raised: BaseException) -> Exception:
    if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
        return raised
    # SystemExit in a thread, and StopIteration in a future, would not arrive as errors.
    return RuntimeError(f"the handler raised {type(raised).__name__}: {raised}")


def _resolve(future: "asyncio.Future[Any]", result: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _retrieve(future: "asyncio.Future[Any]") -> None:
    """Read the error of an abandoned call, or asyncio would log it as lost."""
    if not future.cancelled():
        future.exception()
