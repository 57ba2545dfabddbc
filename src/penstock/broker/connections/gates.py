"""The gate of a new connection, on listeners with logins only.

Other listeners do not load the modules of logins: a broker without them starts sooner.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.broker.connections.entrance import Entrance
    from penstock.broker.connections.gate import Gate, Gated
    from penstock.broker.connections.listener_state import ListenerState
    from penstock.broker.connections.session import Session
    from penstock.protocol.connection import ServerConnection


def gate_for(
    connection: "Gated",
    entrance: "Entrance",
    state: "ListenerState",
    session: "Session",
    protocol: "ServerConnection",
) -> "Gate | None":
    """Return the way of a new connection through its login; None without logins."""
    if entrance.logins is None:
        return None
    from penstock.broker.connections.gate import Gate

    return Gate(connection, entrance.logins, state, session, protocol)
