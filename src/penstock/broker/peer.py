"""`Peer`: the client at the other end of a connection, as every layer of the broker sees it.

The listener creates it with the connection. An authentication will replace it; until then each
client is `ANONYMOUS`, the name that Apache Kafka uses.
"""

from typing import Final, NamedTuple

from penstock.core.types import PLAINTEXT

ANONYMOUS: Final = "ANONYMOUS"
"""The user of a connection without authentication."""


class Peer(NamedTuple):
    """Address and user of a client, and the listener of its connection."""

    address: str
    """The address that the client connects from."""
    user: str = ANONYMOUS
    listener: str = PLAINTEXT
    """The client learns the addresses that brokers advertise for this listener."""


UNKNOWN_PEER: Final = Peer("")
"""For requests that come from no connection."""
