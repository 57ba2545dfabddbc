"""Detection of servers that are not Kafka brokers, by their first bytes (pure).

A client reads the first bytes as the length of a frame. An error about a frame of 1,213,486,160
bytes does not help: these bytes are the letters `HTTP`, and the address is most often the admin
port of the same broker.
"""

from typing import Final

from penstock.client.transport.addresses import DEFAULT_PORT, Address
from penstock.core.errors import (
    AnswerLostError,
    BrokerUnreachableError,
    FrameError,
    PenstockError,
)

_HTTP: Final = int.from_bytes(b"HTTP")
_TLS_RECORDS: Final = range(0x1503_0000, 0x1504_0000)
"""A TLS server answers plain bytes with an alert: type 21, then version 3.x."""


def foreign_protocol(error: PenstockError) -> str:
    """Return the protocol of the server's answer; empty when it is unknown."""
    if isinstance(error, FrameError):
        if error.length == _HTTP:
            return "HTTP"
        if error.length in _TLS_RECORDS:
            return "TLS"
    return ""


def not_a_broker(address: Address, error: PenstockError) -> BrokerUnreachableError:
    """Return the error for a server that accepted a connection and failed the first exchange."""
    kafka_port = f"{DEFAULT_PORT} by default"
    protocol = foreign_protocol(error)
    if protocol == "HTTP":
        return BrokerUnreachableError(
            f"{address} answers in HTTP, not in Kafka's protocol. Is it an admin port?",
            hint=f"Give the broker's Kafka port ({kafka_port}): "
            f"--bootstrap-server {address._replace(port=DEFAULT_PORT)}",
        )
    if protocol == "TLS":
        return BrokerUnreachableError(
            f"{address} expects TLS.",
            hint="Set security.protocol to SSL, or to SASL_SSL for a listener with a login.",
        )
    if isinstance(error, AnswerLostError):
        problem = str(error).replace(f"{address} ", "it ", 1)
        return BrokerUnreachableError(
            f"{address} does not answer as a broker: {problem}",
            hint=f"Check that this is the broker's Kafka port ({kafka_port}). If it expects TLS, "
            "set security.protocol to SSL or SASL_SSL.",
        )
    return BrokerUnreachableError(f"{address} does not answer as a broker: {error}")
