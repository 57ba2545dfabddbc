"""The results of a handler: an answer now, an answer later, or none.

`Answer` is a response, an encoded response, or `NoAnswer`. A handler that cannot answer at once
returns a `Deferred` of it; the subclasses here say in addition what its connection may do
meanwhile.
"""

from collections.abc import Callable
from typing import Final, Protocol

from penstock.core.deferred import Deferred
from penstock.core.errors import PeerError
from penstock.protocol.codec import Message


class NoAnswer:
    """The result of a handler when the client wants no answer (acks=0)."""

    __slots__ = ("close_connection",)

    def __init__(self, *, close_connection: bool) -> None:
        self.close_connection = close_connection


class BrokenRequest(NoAnswer):
    """A request whose bytes were found invalid on a worker thread: the peer was wrong."""

    __slots__ = ("error",)

    def __init__(self, error: PeerError) -> None:
        super().__init__(close_connection=True)
        self.error = error


class EncodedAnswer:
    """An answer that is already encoded as a frame: the hottest handler writes its bytes itself."""

    __slots__ = ("frame",)

    def __init__(self, frame: bytes) -> None:
        self.frame = frame


Answer = Message | NoAnswer | EncodedAnswer
"""The final result of a handler."""


class Waiter(Protocol):
    """The work that an answer waits for; notified when the client disconnects or sends no more."""

    def abandon(self) -> None:
        """The client has disconnected: stop waiting. The answer need not be set."""
        ...

    def hurry(self) -> None:
        """The client sends no more: if there is enough for an answer now, set it."""
        ...


class WaitingAnswer(Deferred["Answer"]):
    """An answer that waits for other requests or the disk, and that its client may abandon."""

    __slots__ = ("waiter",)

    def __init__(self, waiter: Waiter) -> None:
        super().__init__()
        self.waiter = waiter


class HoldingAnswer(WaitingAnswer):
    """An answer to a request that is still being handled: later ones of its connection wait."""

    __slots__ = ("is_holding", "on_release")

    def __init__(self, waiter: Waiter) -> None:
        super().__init__(waiter)
        self.is_holding = True
        self.on_release: Callable[[], None] | None = None

    def release(self) -> None:
        """The request has had its effect; its answer may still wait for others."""
        self.is_holding = False
        on_release, self.on_release = self.on_release, None
        if on_release is not None:
            on_release()


NO_ANSWER: Final = NoAnswer(close_connection=False)
CLOSE_CONNECTION: Final = NoAnswer(close_connection=True)
"""Kafka's way to report an error to an acks=0 producer: the connection is closed."""
DEFECT: Final = NoAnswer(close_connection=True)
"""For a request that failed unexpectedly after it was parked: it is counted as a defect."""
