"""`Group`: the questions that a group of any protocol answers.

Offsets, listing, deleting and expiry work on this alone. It is NOT the way to change a group: each
protocol has its own parts for that.
"""

from typing import NamedTuple, Protocol
from uuid import UUID

from penstock.coordinator.shard import StoredRecord
from penstock.protocol.error_codes import ErrorCode


class CommitClaim(NamedTuple):
    """The identity with which a client commits offsets."""

    member_id: str
    group_instance_id: str | None
    generation_or_epoch: int
    is_transactional: bool
    api_version: int
    partitions: tuple[tuple[UUID | None, int], ...] = ()
    """Topic and partition of each committed offset, for groups of KIP-848."""


class OffsetExpiry(NamedTuple):
    """When offsets of a group expire: `retention` after this moment."""

    since_ms: int | None
    """The moment the group became empty; None: the time of each commit counts."""


class Group(Protocol):
    """A group of either protocol, as offsets and the group APIs see it."""

    @property
    def group_id(self) -> str:
        """The group's name."""
        ...

    @property
    def type_name(self) -> str:
        """`classic` or `consumer`, as ListGroups spells it."""
        ...

    @property
    def state_name(self) -> str:
        """The state, spelled as ListGroups does (`Empty`, `Stable`, `Reconciling`, ...)."""
        ...

    @property
    def listed_protocol_type(self) -> str:
        """The protocol type for ListGroups: `consumer`, or the one of the members, or empty."""
        ...

    def check_offset_commit(self, claim: CommitClaim) -> ErrorCode:
        """NONE, or why this member may not commit now."""
        ...

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """NONE, or why this member may not fetch offsets now."""
        ...

    def check_offset_delete(self) -> ErrorCode:
        """NONE, or why offsets cannot be deleted now."""
        ...

    def check_delete(self) -> ErrorCode:
        """NONE, or why the group cannot be deleted now."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads this topic, as far as the group knows."""
        ...

    def offset_expiry(self) -> OffsetExpiry | None:
        """When offsets expire; None: not in the present state of the group."""
        ...

    def tombstones(self) -> list[StoredRecord]:
        """The records that delete the group itself, without its offsets."""
        ...
