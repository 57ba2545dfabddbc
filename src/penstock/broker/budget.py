"""`MemoryBudget`: bytes that all connections share, bounded (pure).

There are three: requests that are being handled, whose bytes are given back when they are answered;
requests of which a part has arrived; and answers that clients are slow to take. While one of the
first two is spent, the connections that would add to it stop reading; they are resumed in the order
in which they stopped. A budget of handled requests empties by itself. One of unfinished requests
does not, so one connection at a time may go on to the end of its request (`may_finish`), and the
budget is passed by one request at most. While the third is spent, a fetch gets a single batch.
"""

from collections.abc import Callable


class MemoryBudget:
    """A number of bytes that connections share."""

    __slots__ = ("_bytes_max", "_finisher", "_waiting", "reserved_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._finisher: Callable[[], None] | None = None
        self._waiting: dict[Callable[[], None], None] = {}
        self.reserved_bytes = 0

    @property
    def is_spent(self) -> bool:
        """Whether connections must stop reading."""
        return self.reserved_bytes >= self._bytes_max

    @property
    def left_bytes(self) -> int:
        """What may still be reserved."""
        return max(0, self._bytes_max - self.reserved_bytes)

    @property
    def waiting_count(self) -> int:
        """Connections that stopped reading for want of budget."""
        return len(self._waiting)

    def resize(self, bytes_max: int) -> None:
        """Share another number of bytes; who waits goes on if there is more now."""
        self._bytes_max = bytes_max
        self.release(0)

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

    def may_finish(self, resume: Callable[[], None]) -> bool:
        """Whether this one goes on although the budget is spent: one at a time does."""
        if self._finisher is None:
            self._finisher = resume
        return self._finisher == resume

    def finished(self, resume: Callable[[], None]) -> None:
        """It has finished, or cannot go on for another reason: the next one may."""
        if self._finisher == resume:
            self._finisher = None
            successor = next(iter(self._waiting), None)
            if successor is not None:
                del self._waiting[successor]
                successor()

    def stop_waiting(self, resume: Callable[[], None]) -> None:
        """The connection is gone."""
        self._waiting.pop(resume, None)
        self.finished(resume)
