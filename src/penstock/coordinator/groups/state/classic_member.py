"""`ClassicMember`: one member of a classic group, and its waiting requests.

Its group counts waiting members and supported protocols: after a member was added, `protocols` and
`join_ticket` are changed through the group only. It is NOT the stored form of a member.
"""

from typing import Final

from penstock.coordinator.shard import Ticket
from penstock.protocol.messages.join_group import JoinGroupRequestProtocol

NO_ASSIGNMENT: Final = b""


class ClassicMember:
    """One member of a classic group."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_ticket",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_ticket",
    )

    def __init__(
        self,
        *,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: tuple[JoinGroupRequestProtocol, ...],
        assignment: bytes = NO_ASSIGNMENT,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        """In the order of the member's preference."""
        self.assignment = assignment
        self.join_ticket: Ticket | None = None
        """Its JoinGroup that waits for the others."""
        self.sync_ticket: Ticket | None = None
        """Its SyncGroup that waits for the leader's."""
        self.is_new = False
        """No JoinGroup of it was answered yet, so it cannot send heartbeats."""

    @property
    def needs_no_heartbeat(self) -> bool:
        """Whether it waits for the coordinator; a new one may be gone, so it must expire."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)

    def metadata_of(self, protocol_name: str | None) -> bytes:
        """The member's metadata for a protocol that it supports."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        raise AssertionError(f"member {self.member_id} has no protocol {protocol_name}")

    def vote(self, candidates: set[str]) -> str:
        """The candidate that the member prefers."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)
