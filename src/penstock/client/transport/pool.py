"""Open connections by address: created at first use, reused, and discarded when they fail.

There is one connection for each broker, because one thread uses it and several calls may be in
flight on it. The pool retries nothing and does not know the cluster; `client.cluster` does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.client.transport.addresses import Address
from penstock.client.transport.call import Call, Connection, Ticket
from penstock.core.errors import (
    AnswerLostError,
    AuthenticationError,
    BrokerUnreachableError,
    ClientError,
    PeerError,
)

Connect = Callable[[Address], Connection]
"""Opens a connection, or raises `BrokerUnreachableError`."""

Result = TypeVar("Result")


class ConnectionPool:
    """The connections of one caller."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._open: dict[Address, Connection] = {}

    def start(self, address: Address, call: Call[Result]) -> "Started[Result]":
        """Send a call to this address; open a connection if there is none."""
        connection = self._open.get(address)
        if connection is None:
            connection = self._open[address] = self._connect(address)
        try:
            return Started(self, address, connection, connection.send(call))
        except (ClientError, PeerError) as error:
            self.discard_if_broken(address, connection, error)
            raise

    def discard_if_broken(
        self, address: Address, connection: Connection, error: BaseException
    ) -> None:
        """Close and remove a connection that is unusable after this error."""
        if breaks_connection(error):
            connection.close()
            if self._open.get(address) is connection:
                del self._open[address]

    def close(self) -> None:
        """Close all connections."""
        while self._open:
            _, connection = self._open.popitem()
            connection.close()


@dataclass(frozen=True, slots=True)
class Started(Generic[Result]):
    """A call in flight to one broker."""

    pool: ConnectionPool
    address: Address
    connection: Connection
    ticket: Ticket[Result]

    def result(self) -> Result:
        """Wait for the answer, once. A connection that fails meanwhile is not used again."""
        try:
            return self.connection.receive(self.ticket)
        except (ClientError, PeerError) as error:
            self.pool.discard_if_broken(self.address, self.connection, error)
            raise

    def forget(self) -> None:
        """Discard the answer when it arrives."""
        self.connection.forget(self.ticket)


def breaks_connection(error: BaseException) -> bool:
    """Whether a connection is unusable after this error: its stream is lost or out of step."""
    return isinstance(
        error, AnswerLostError | AuthenticationError | BrokerUnreachableError | PeerError
    )
