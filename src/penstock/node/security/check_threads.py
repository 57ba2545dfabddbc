"""`CheckThreads`: checks of credentials on a few threads, with a bounded queue.

A check computes for milliseconds or waits for another server, so it never runs on the event loop.
Guarantees: at most `threads_max` checks run and `queued_max` wait; above that a check fails at once
with `TooManyChecksError`, and the login may be tried again. A check whose login has ended is not
started. The threads are daemon threads and are started when they are needed: a server that does not
answer keeps neither the loop nor the process. They have a low priority: a flood of logins is not to
slow the others down.

All methods belong to one event loop. It is NOT storage's pool: a flood of logins must not delay
reads of records.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from penstock.broker.connections.login_ports import ChecksBusyError
from penstock.core.errors import PenstockError
from penstock.storage.thread_priority import lower_priority

Result = TypeVar("Result")

PASSWORD_THREADS: Final = 2
"""Threads that hash passwords. A hash takes 50 ms and 16 MiB, without the interpreter's lock."""
PASSWORDS_QUEUED_MAX: Final = 64
"""Hashes that wait: under two seconds of work, a fifth of the time of a login."""


class CheckUnavailableError(PenstockError):
    """A credential cannot be checked now; the client may try again."""


class TooManyChecksError(CheckUnavailableError, ChecksBusyError):
    """The queue of the threads is full."""


class _Job:
    """One check and the promise of its result."""

    __slots__ = ("call", "waiting")

    def __init__(self, call: Callable[[], Any], waiting: "asyncio.Future[Any]") -> None:
        self.call = call
        self.waiting = waiting


class CheckThreads:
    """Threads for one kind of check."""

    def __init__(self, name: str, *, threads_max: int, queued_max: int) -> None:
        self._name = name
        self._threads_max = threads_max
        self._queued_max = queued_max
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads = 0
        self._pending = 0
        self.refused = 0
        """Checks that found the queue full."""

    @property
    def pending(self) -> int:
        """Checks that run or wait."""
        return self._pending

    async def run(self, call: Callable[[], Result]) -> Result:
        """Return the result of `call`, run on a thread; raise its error."""
        if self._pending >= self._threads_max + self._queued_max:
            self.refused += 1
            raise TooManyChecksError(
                f"{self._pending} checks of credentials are pending ({self._name}); at most "
                f"{self._queued_max} may wait"
            )
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Result] = loop.create_future()
        self._pending += 1
        if self._threads < min(self._pending, self._threads_max):
            self._threads += 1
            threading.Thread(
                target=self._serve,
                args=(loop,),
                name=f"{self._name}-{self._threads}",
                daemon=True,
            ).start()
        self._queue.put(_Job(call, waiting))
        return await waiting

    def stop(self) -> None:
        """End the threads when their present checks have ended."""
        for _ in range(self._threads):
            self._queue.put(None)
        self._threads = 0

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        lower_priority()
        while (job := self._queue.get()) is not None:
            result, error = None, None
            if not job.waiting.done():
                try:
                    result = job.call()
                except Exception as raised:  # noqa: BLE001 - raised where it is awaited
                    # Without its frames: they refer to the password.
                    error = raised.with_traceback(None)
            try:
                loop.call_soon_threadsafe(self._settle, job.waiting, result, error)
            except RuntimeError:
                return  # the loop is closed
            del job, result, error

    def _settle(
        self, waiting: "asyncio.Future[Any]", result: object, error: Exception | None
    ) -> None:
        self._pending -= 1
        if waiting.done():
            return
        if error is not None:
            with contextlib.suppress(asyncio.InvalidStateError):
                waiting.set_exception(error)
        else:
            waiting.set_result(result)


def password_threads() -> CheckThreads:
    """Return the threads that hash passwords."""
    return CheckThreads(
        "password-check", threads_max=PASSWORD_THREADS, queued_max=PASSWORDS_QUEUED_MAX
    )
