"""Open connections by address: made when first needed, given again, thrown away when they fail.

One connection for each broker, because the callers here wait for each answer. It retries nothing
and knows no cluster; `client.cluster` does.
"""

from collections.abc import Callable
from typing import Protocol

from penstock.client.addresses import Address
from penstock.client.calls import Connection
from penstock.core.errors import AnswerLostError, BrokerUnreachableError, PeerError


class OpenConnection(Connection, Protocol):
    """A connection that can be closed."""

    def close(self) -> None:
        """Give the socket back; closing twice is the same as once."""
        ...


Connect = Callable[[Address], OpenConnection]
"""Opens a connection, or raises `BrokerUnreachableError`."""


class ConnectionPool:
    """The connections of one caller."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._open: dict[Address, OpenConnection] = {}

    def get(self, address: Address) -> OpenConnection:
        """The connection to this address, opened now if there is none."""
        if address not in self._open:
            self._open[address] = self._connect(address)
        return self._open[address]

    def discard(self, address: Address) -> None:
        """Close and forget the connection to this address, if there is one."""
        connection = self._open.pop(address, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close all of them."""
        for address in list(self._open):
            self.discard(address)


def breaks_connection(error: BaseException) -> bool:
    """Whether a connection is of no use after this error: its stream is gone or out of step."""
    return isinstance(error, AnswerLostError | BrokerUnreachableError | PeerError)
