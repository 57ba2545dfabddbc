"""Budgets that all connections share: `MemoryBudget` in bytes, `RequestBudget` in requests too.

Pure. There are three: requests that are being handled, whose bytes are released when they are
answered; requests of which a part has arrived; and answers that clients read slowly. While one of
the first two is spent, the connections that would add to it stop reading; they are resumed in the
order in which they stopped. A budget of handled requests empties by itself. One of unfinished
requests does not, so one connection at a time may go on to the end of its request (`may_finish`),
and the budget is passed by one request at most. While the third is spent, a fetch gets a single
batch.

A request that waits by its client's own wish (`session.WAITING_APIS`) holds no bytes and does not
count: other clients must not wait for it, and a connection has one of them at most. `pauses` counts
how often a connection had to stop reading.
"""

from collections.abc import Callable


class MemoryBudget:
    """A number of bytes that connections share."""

    __slots__ = ("_finisher", "_waiting", "bytes_max", "pauses", "reserved_bytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.pauses = 0
        self._finisher: Callable[[], None] | None = None
        self._waiting: dict[Callable[[], None], None] = {}
        self.reserved_bytes = 0

    @property
    def is_spent(self) -> bool:
        """Whether connections must stop reading."""
        return self.reserved_bytes >= self.bytes_max

    @property
    def left_bytes(self) -> int:
        """Bytes that may still be reserved."""
        return max(0, self.bytes_max - self.reserved_bytes)

    @property
    def waiting_count(self) -> int:
        """Connections that stopped reading for want of budget."""
        return len(self._waiting)

    def resize(self, bytes_max: int) -> None:
        """Change the number of bytes shared; waiting connections resume if there is more now."""
        self.bytes_max = bytes_max
        self.release(0)

    def reserve(self, size_bytes: int) -> None:
        """Count a request; may pass the bound by the requests that were complete already."""
        self.reserved_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """A request was answered; waiting connections resume."""
        self.reserved_bytes -= size_bytes
        assert self.reserved_bytes >= 0
        while self._waiting and not self.is_spent:
            resume = next(iter(self._waiting))
            del self._waiting[resume]
            resume()

    def wait(self, resume: Callable[[], None]) -> None:
        """Call `resume` once, when the budget allows."""
        if resume not in self._waiting:
            self._waiting[resume] = None
            self.pauses += 1

    def may_finish(self, resume: Callable[[], None]) -> bool:
        """Whether this connection may go on although the budget is spent: one at a time may."""
        if self._finisher is None:
            self._finisher = resume
        return self._finisher == resume

    def finished(self, resume: Callable[[], None]) -> None:
        """The connection has finished, or cannot go on for another reason: the next one may."""
        if self._finisher == resume:
            self._finisher = None
            successor = next(iter(self._waiting), None)
            if successor is not None:
                del self._waiting[successor]
                successor()

    def stop_waiting(self, resume: Callable[[], None]) -> None:
        """Forget a connection that is closed."""
        self._waiting.pop(resume, None)
        self.finished(resume)


class RequestBudget(MemoryBudget):
    """The bytes of the requests that are being handled, and their number."""

    __slots__ = ("request_pauses", "requests", "requests_max")

    def __init__(self, bytes_max: int, requests_max: int) -> None:
        super().__init__(bytes_max)
        self.requests_max = requests_max
        self.requests = 0
        self.request_pauses = 0
        """How many of the pauses were for the number of requests."""

    @property
    def is_spent(self) -> bool:
        """Whether connections must stop reading."""
        return self.requests >= self.requests_max or self.reserved_bytes >= self.bytes_max

    def reserve(self, size_bytes: int) -> None:
        """Count a request; one without bytes waits by its client's wish and is not counted."""
        self.reserved_bytes += size_bytes
        if size_bytes:
            self.requests += 1

    def release(self, size_bytes: int) -> None:
        """A request was answered; waiting connections resume."""
        if size_bytes:
            self.requests -= 1
            assert self.requests >= 0
        super().release(size_bytes)

    def wait(self, resume: Callable[[], None]) -> None:
        """Call `resume` once, when the budget allows."""
        before = self.pauses
        super().wait(resume)
        if self.requests >= self.requests_max:
            self.request_pauses += self.pauses - before
