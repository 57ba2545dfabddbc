"""`PushServer`: creates the connections of push clients. Its owner listens on the addresses."""

from penstock.edge.push.connection import PushConnection
from penstock.edge.push.ports import PushDoor
from penstock.edge.push.shared import PushShared


class PushServer(PushShared):
    """The push sessions of one broker."""

    def connection(self, door: PushDoor) -> PushConnection:
        """Return the protocol of a new connection at a door."""
        return PushConnection(self, door)
