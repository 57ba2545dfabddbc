"""`Call`: a call to a broker as a value, and what carries one.

A call says what to send, what kind of answer comes, and how to read it into what the caller wants.
It is made once, in `client.calls` and its neighbours, and carried by any transport: the blocking
connection, the asyncio one, or a fake. Making a call does no IO, and reading an answer does none.

An error code for the whole request is raised by `read` as `BrokerAnswerError`; what else may go
wrong is the transport's to say (`client.blocking`). Nothing is retried here.
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
    """A request and how to read its answer."""

    request: Message
    answer_type: type | None
    """None: the broker does not answer (Produce with acks=0), and `read` is given None."""
    read: Callable[[Any], Result_co]
    version_max: int | None = None
    """The highest version that the call is written for, if the message knows higher ones."""
    version_min: int | None = None
    """The lowest version that has what the call asks for, if the message knows lower ones."""


@dataclass(frozen=True, slots=True)
class Ticket(Generic[Result_co]):
    """A call that was sent, for whoever wants its answer later."""

    call: Call[Result_co]
    correlation_id: int


class Connection(Protocol):
    """A connection to one broker that one thread uses; what the transports and the fakes are."""

    def carry(self, call: Call[Result]) -> Result:
        """Send the request and wait for its answer."""
        ...

    def send(self, call: Call[Result]) -> Ticket[Result]:
        """Send the request; others may be sent before its answer is received."""
        ...

    def receive(self, ticket: Ticket[Result]) -> Result:
        """Wait for the answer of a call that was sent; each ticket is good for once."""
        ...

    def forget(self, ticket: Ticket[Result]) -> None:
        """Nobody will ask for this answer: it is thrown away when it comes."""
        ...

    def close(self) -> None:
        """Give the socket back; closing twice is the same as once."""
        ...


class SharedConnection(Protocol):
    """A connection to one broker that the tasks of one event loop share."""

    @property
    def is_open(self) -> bool:
        """Whether calls can be made; once it is not, it never is again."""
        ...

    async def carry(self, call: Call[Result]) -> Result:
        """Send the request and wait for its answer."""
        ...

    async def close(self) -> None:
        """Close the connection; closing twice is the same as once."""
        ...


def raise_error(code: ErrorCode, message: str | None, subject: str = "") -> None:
    """Raise `BrokerAnswerError` unless the code says that all is well."""
    if code != ErrorCode.NONE:
        text = ": ".join(part for part in (subject, message) if part)
        raise BrokerAnswerError(code.value, code.name, text)
