"""`Member`: one member of a consumer group (KIP-848), as a value.

It joins the records of a member: its metadata (`ConsumerGroupMemberMetadataValue`) and its current
assignment (`ConsumerGroupCurrentMemberAssignment Value`). A change creates a new value. Deadlines
and tickets are NOT here: those are timers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, TypeAlias
from uuid import UUID

from penstock.coordinator.groups.assignors import PartitionSets
from penstock.protocol.stored.group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupCurrentMemberAssignmentValueTopicPartitions,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMemberMetadataValueClassicMemberMetadata,
)

JOIN_EPOCH: Final = 0
"""The epoch of a member that joins."""
LEAVE_EPOCH: Final = -1
"""The epoch of a member that leaves permanently."""
STATIC_LEAVE_EPOCH: Final = -2
"""The epoch of a static member that will come back."""
UNKNOWN_TIMEOUT_MS: Final = -1

OwnedPartitions: TypeAlias = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic, each with the epoch at which the member got it (KIP-1251)."""


class MemberState(IntEnum):
    """The reconciliation state of a member; the numbers are those of Kafka's records."""

    STABLE = 0
    """It has its target assignment."""
    UNREVOKED_PARTITIONS = 1
    """It must give partitions up and has not confirmed it."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others still have."""
    UNKNOWN = 127
    """A newer broker wrote a state that this one does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member of a consumer group."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = UNKNOWN_TIMEOUT_MS
    subscribed_names: frozenset[str] = frozenset()
    subscribed_regex: str = ""
    """The regular expression it subscribes to; empty: none."""
    server_assignor: str | None = None
    classic: ConsumerGroupMemberMetadataValueClassicMemberMetadata | None = None
    """Set for a member that uses the classic protocol."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = LEAVE_EPOCH
    """The epoch before, which a member may repeat when an answer was lost."""
    state: MemberState = MemberState.STABLE
    assigned: OwnedPartitions = field(default_factory=dict)
    """Partitions that it may read now."""
    pending_revocation: OwnedPartitions = field(default_factory=dict)
    """Partitions that it must give up, and may still be reading."""

    @property
    def is_classic(self) -> bool:
        """Whether it uses the classic protocol."""
        return self.classic is not None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether it has all of the target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> "Member":
        """The member with the metadata of a record."""
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            subscribed_names=frozenset(value.subscribed_topic_names),
            subscribed_regex=value.subscribed_topic_regex or "",
            server_assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def with_current_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> "Member":
        """The member with the current assignment of a record."""
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=_state_of(value.state),
            assigned=_owned(value.assigned_partitions, value.member_epoch),
            pending_revocation=_owned(value.partitions_pending_revocation, value.member_epoch),
        )

    def without_assignment(self) -> "Member":
        """The member after its current assignment was deleted: it is being removed."""
        return replace(
            self,
            epoch=LEAVE_EPOCH,
            previous_epoch=LEAVE_EPOCH,
            assigned={},
            pending_revocation={},
        )

    def metadata_value(self) -> ConsumerGroupMemberMetadataValue:
        """The member's metadata, to be stored."""
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=tuple(sorted(self.subscribed_names)),
            subscribed_topic_regex=self.subscribed_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic_member_metadata=self.classic,
        )

    def assignment_value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """The member's current assignment, to be stored."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=int(self.state),
            assigned_partitions=_stored(self.assigned),
            partitions_pending_revocation=_stored(self.pending_revocation),
        )


def same_partitions(first: OwnedPartitions, second: OwnedPartitions) -> bool:
    """Whether both have the same partitions, whatever their epochs."""
    return first.keys() == second.keys() and all(
        partitions.keys() == second[topic_id].keys() for topic_id, partitions in first.items()
    )


def owned_since(partitions: PartitionSets, epoch: int) -> OwnedPartitions:
    """Partitions that a member got at one epoch."""
    return {
        topic_id: dict.fromkeys(sorted(numbers), epoch) for topic_id, numbers in partitions.items()
    }


def _state_of(number: int) -> MemberState:
    try:
        return MemberState(number)
    except ValueError:
        return MemberState.UNKNOWN


def _owned(
    stored: tuple[ConsumerGroupCurrentMemberAssignmentValueTopicPartitions, ...], epoch: int
) -> OwnedPartitions:
    owned: dict[UUID, Mapping[int, int]] = {}
    for topic in stored:
        assert topic.topic_id is not None, "a stored assignment names its topics"
        epochs = topic.assignment_epochs
        if epochs:
            owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
        else:
            # Brokers before 4.3 wrote none. The member's own epoch is the strictest that is safe.
            owned[topic.topic_id] = dict.fromkeys(topic.partitions, epoch)
    return owned


def _stored(
    owned: OwnedPartitions,
) -> tuple[ConsumerGroupCurrentMemberAssignmentValueTopicPartitions, ...]:
    return tuple(
        ConsumerGroupCurrentMemberAssignmentValueTopicPartitions(
            topic_id=topic_id,
            partitions=tuple(sorted(owned[topic_id])),
            assignment_epochs=tuple(epoch for _, epoch in sorted(owned[topic_id].items())),
        )
        for topic_id in sorted(owned)
    )
