"""`ShareMember`: one member of a share group, as a value.

It joins the records of a member: its metadata and its current assignment. A change creates a new
value. Partitions are shared, so a member gives none up: there is no reconciliation, and it moves to
a new target in one step. Deadlines are NOT here: those are timers.
"""

from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from penstock.coordinator.groups.assignors import PartitionSets
from penstock.protocol.stored.share_records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupCurrentMemberAssignmentValueTopicPartitions,
    ShareGroupMemberMetadataValue,
)

JOIN_EPOCH: Final = 0
"""The epoch of a member that joins."""
LEAVE_EPOCH: Final = -1
"""The epoch of a member that leaves."""
STABLE_STATE: Final = 0
"""The only state of a member; the number is that of Kafka's records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember:
    """One member of a share group."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_names: frozenset[str] = frozenset()
    epoch: int = JOIN_EPOCH
    previous_epoch: int = LEAVE_EPOCH
    """The epoch before, which a member may repeat when an answer was lost."""
    assigned: PartitionSets = field(default_factory=dict)

    def with_metadata(self, value: ShareGroupMemberMetadataValue) -> "ShareMember":
        """The member with the metadata of a record."""
        return replace(
            self,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_names=frozenset(value.subscribed_topic_names),
        )

    def with_current_assignment(
        self, value: ShareGroupCurrentMemberAssignmentValue
    ) -> "ShareMember":
        """The member with the current assignment of a record."""
        assigned: dict[UUID, frozenset[int]] = {}
        for topic in value.assigned_partitions:
            assert topic.topic_id is not None, "a stored assignment names its topics"
            assigned[topic.topic_id] = frozenset(topic.partitions)
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=assigned,
        )

    def without_assignment(self) -> "ShareMember":
        """The member after its current assignment was deleted: it is being removed."""
        return replace(self, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned={})

    def metadata_value(self) -> ShareGroupMemberMetadataValue:
        """The member's metadata, to be stored."""
        return ShareGroupMemberMetadataValue(
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=tuple(sorted(self.subscribed_names)),
        )

    def assignment_value(self) -> ShareGroupCurrentMemberAssignmentValue:
        """The member's current assignment, to be stored."""
        return ShareGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=STABLE_STATE,
            assigned_partitions=tuple(
                ShareGroupCurrentMemberAssignmentValueTopicPartitions(
                    topic_id=topic_id, partitions=tuple(sorted(self.assigned[topic_id]))
                )
                for topic_id in sorted(self.assigned)
            ),
        )
