"""`Peer`: the client at the other end of a connection, as every layer of the broker sees it.

The listener creates it with the connection, and an authentication replaces it. Without an
authentication the client is `User:ANONYMOUS`, as in Apache Kafka.
"""

from typing import Final, NamedTuple

from penstock.core.types import CLUSTER_LISTENER, PLAINTEXT
from penstock.security.principal import ANONYMOUS, Principal


class Peer(NamedTuple):
    """Address and identity of a client, and the listener of its connection."""

    address: str
    """The address that the client connects from."""
    principal: Principal = ANONYMOUS
    listener: str = PLAINTEXT
    """The client learns the addresses that brokers advertise for this listener."""
    mechanism: str = ""
    """The SASL mechanism of its login; empty without one."""
    door: str = ""
    """The name of the door it came through, for the audit log; empty: that of the listener."""

    @property
    def is_broker(self) -> bool:
        """Whether it came through the listener of the brokers."""
        return self.listener == CLUSTER_LISTENER


UNKNOWN_PEER: Final = Peer("")
"""For requests that come from no connection."""
