"""`Cancellation`: a flag that cancels work on other threads or in queues.

The owner cancels it once, on the event loop. Listeners are called at once, on the loop; a scan on a
worker thread reads `is_cancelled` between its slices and ends early. Each connection has one. It is
cancelled when the client disconnects, so it also identifies the client to a queue that serves
clients in turn.

It is not `asyncio` cancellation: nothing is raised in a coroutine, and a handler that changes state
is never interrupted half-way.
"""

from collections.abc import Callable


class Cancellation:
    """Cancelled once, never reset."""

    __slots__ = ("_listeners", "is_cancelled")

    def __init__(self) -> None:
        self.is_cancelled = False
        self._listeners: dict[object, Callable[[], None]] | None = None
        """Created with the first listener: most connections have none."""

    def cancel(self) -> None:
        """Cancel the work."""
        self.is_cancelled = True
        listeners, self._listeners = self._listeners, None
        if listeners is not None:
            for listener in listeners.values():
                listener()

    def subscribe(self, key: object, listener: Callable[[], None]) -> None:
        """Call `listener` on cancellation; do nothing if that has happened already."""
        if not self.is_cancelled:
            if self._listeners is None:
                self._listeners = {}
            self._listeners[key] = listener

    def unsubscribe(self, key: object) -> None:
        """Remove the listener of this key, if there is one."""
        if self._listeners is not None:
            self._listeners.pop(key, None)
