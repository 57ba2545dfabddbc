"""`Call`: a call to a broker as a value, and the connections that carry it.

A call has the request, the type of the answer, and a function that reads the answer into the
caller's result. It is created once, in `client.calls` and its neighbours. Any transport carries it:
the blocking connection, the asyncio connection, or a fake. Neither creating a call nor reading an
answer does IO.

`read` raises an error code for the whole request as `BrokerAnswerError`. The transport raises all
other errors (`client.transport.blocking`). Nothing is retried here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from penstock.core.errors import BrokerAnswerError
from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode

Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Call(Generic[Result_co]):
    """A request and the function that reads its answer."""

    request: Message
    answer_type: type | None
    """None: the broker does not answer (Produce with acks=0), and `read` gets None."""
    read: Callable[[Any], Result_co]
    version_max: int | None = None
    """The highest version that the call supports, if the message has higher ones."""
    version_min: int | None = None
    """The lowest version that has the requested feature, if the message has lower ones."""


@dataclass(frozen=True, slots=True)
class Ticket(Generic[Result_co]):
    """A sent call, to receive its answer later."""

    call: Call[Result_co]
    correlation_id: int


class Connection(Protocol):
    """A connection to one broker for one thread; the interface of the transports and the fakes."""

    def carry(self, call: Call[Result]) -> Result:
        """Send the request and wait for its answer."""
        ...

    def send(self, call: Call[Result]) -> Ticket[Result]:
        """Send the request; more requests may be sent before its answer is received."""
        ...

    def receive(self, ticket: Ticket[Result]) -> Result:
        """Wait for the answer of a sent call; each ticket can be used once."""
        ...

    def forget(self, ticket: Ticket[Result]) -> None:
        """Discard the answer of this call when it arrives."""
        ...

    def close(self) -> None:
        """Close the socket; closing twice has the same effect as once."""
        ...


class SharedConnection(Protocol):
    """A connection to one broker that the tasks of one event loop share."""

    @property
    def is_open(self) -> bool:
        """Whether calls can be sent; once False, it stays False."""
        ...

    async def carry(self, call: Call[Result]) -> Result:
        """Send the request and wait for its answer."""
        ...

    async def close(self) -> None:
        """Close the connection; closing twice has the same effect as once."""
        ...


def raise_error(code: ErrorCode, message: str | None, subject: str = "") -> None:
    """Raise `BrokerAnswerError` unless the code is NONE."""
    if code != ErrorCode.NONE:
        text = ": ".join(part for part in (subject, message) if part)
        raise BrokerAnswerError(code.value, code.name, text)
