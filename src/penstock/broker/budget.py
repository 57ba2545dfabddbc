"""`MemoryBudget`: request bytes in flight over all connections, bounded (pure).

A connection reserves a request's bytes when it is complete and gives them back when the request is
answered. While the budget is spent, connections stop reading; they are resumed in the order in
which they stopped. One request may always be taken when nothing is in flight, so that a request
larger than the whole budget cannot wait for ever.
"""

from collections.abc import Callable


class MemoryBudget:
    """A number of bytes that connections share."""

    __slots__ = ("_bytes_max", "_waiting", "reserved_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: dict[Callable[[], None], None] = {}
        self.reserved_bytes = 0

    @property
    def is_spent(self) -> bool:
        """Whether connections must stop reading."""
        return self.reserved_bytes >= self._bytes_max

    @property
    def waiting_count(self) -> int:
        """Connections that stopped reading for want of budget."""
        return len(self._waiting)

    def reserve(self, size_bytes: int) -> None:
        """Count a request; may pass the bound by the requests that were complete already."""
        self.reserved_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """A request was answered; whoever waits goes on."""
        self.reserved_bytes -= size_bytes
        assert self.reserved_bytes >= 0
        while self._waiting and not self.is_spent:
            resume = next(iter(self._waiting))
            del self._waiting[resume]
            resume()

    def wait(self, resume: Callable[[], None]) -> None:
        """Call `resume` once, when the budget allows."""
        self._waiting[resume] = None

    def stop_waiting(self, resume: Callable[[], None]) -> None:
        """The connection is gone."""
        self._waiting.pop(resume, None)
