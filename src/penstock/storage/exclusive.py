"""`Exclusive`: a lock for coroutines, which `service` passes to other modules. A port only.

Storage is plain blocking code with one asyncio module; other modules get awaitables as arguments:
this lock, and functions that run a call on a thread or sleep.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class Exclusive(Protocol):
    """Held by one coroutine at a time: `async with`."""

    async def __aenter__(self) -> None:
        """Acquire the lock."""
        ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release the lock."""
        ...


class Work(Protocol):
    """Runs blocking calls on a worker thread."""

    async def __call__(self, call: Callable[[], Result]) -> Result:
        """Return the result of the call."""
        ...


class Rest(Protocol):
    """Sleeps, so that other tasks run."""

    async def __call__(self, seconds: float, /) -> None:
        """Return after `seconds`."""
        ...
