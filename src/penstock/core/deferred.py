"""`Deferred`: a result that is set later, with at most one listener.

Hot handlers return it instead of a coroutine: creating and running a task costs about as much as
the rest of a small request. It is not a `Future`: it belongs to one thread, has one listener,
cannot be awaited, and never swallows a result, because setting it twice is a broken invariant.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")

_UNSET: object = object()


class Deferred(Generic[Result]):
    """A value that is set once and handed to one listener."""

    __slots__ = ("_listener", "_result")

    def __init__(self) -> None:
        self._result: object = _UNSET
        self._listener: Callable[[Result], None] | None = None

    @property
    def is_set(self) -> bool:
        """Whether the result is set."""
        return self._result is not _UNSET

    def set(self, result: Result) -> None:
        """Set the result; the listener, if there is one, is called at once."""
        assert self._result is _UNSET, "a deferred result is set once"
        self._result = result
        if self._listener is not None:
            self._listener(result)

    def then(self, listener: Callable[[Result], None]) -> None:
        """Call `listener` with the result, now if it is set."""
        assert self._listener is None, "a deferred result has one listener"
        self._listener = listener
        if self._result is not _UNSET:
            listener(self._result)  # type: ignore[arg-type]
