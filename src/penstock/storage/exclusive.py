"""`Exclusive`: a lock that coroutines wait for, as `service` gives it to others. A port only.

Storage is plain blocking code with one asyncio door; what must be awaited elsewhere in it comes
through arguments: this, and functions that run a call on a thread or rest a while.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class Exclusive(Protocol):
    """Held by one at a time: `async with`."""

    async def __aenter__(self) -> None:
        """Wait for it."""
        ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let the next one have it."""
        ...


class Work(Protocol):
    """Runs blocking calls on a worker thread."""

    async def __call__(self, call: Callable[[], Result]) -> Result:
        """What the call gives."""
        ...


class Rest(Protocol):
    """Lets others have the loop for a while."""

    async def __call__(self, seconds: float, /) -> None:
        """Return after so long."""
        ...
