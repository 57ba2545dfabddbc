"""`ShareGroup`: the replicated state of one share group, changed by its records alone.

`apply` is the only way in, live and on load. It also keeps derived state up to date: how many
members subscribe to a topic, and whether initialized partitions wait to be assigned. It decides
NOTHING: `share.change` decides which records to write; timers are soft state and elsewhere.
"""

from collections import Counter
from typing import Final
from uuid import UUID

from penstock.coordinator.groups.assignors import PartitionSets
from penstock.coordinator.groups.share import records
from penstock.coordinator.groups.share.share_member import ShareMember
from penstock.coordinator.groups.share.state_partitions import NO_STATE, StatePartitions
from penstock.coordinator.groups.state.any_group import CommitClaim, OffsetExpiry
from penstock.coordinator.metadata_view import TopicsView
from penstock.coordinator.shard import StoredRecord
from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.stored import share_records as stored

INITIAL_EPOCH: Final = 1
"""The epoch of a group and of its target assignment before either was written, as in Kafka 4.3."""
SHARE_PROTOCOL_TYPE: Final = "share"
NO_TARGET: Final[PartitionSets] = {}


class ShareGroup:
    """One share group."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = INITIAL_EPOCH
        """Grows when members, subscriptions, topics or partitions with state change."""
        self.metadata_hash = 0
        """Hash of the topics the group subscribes to, as of `epoch`."""
        self.target_epoch = INITIAL_EPOCH
        self.target_computed_ms = 0
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, PartitionSets] = {}
        self.state_partitions = NO_STATE
        self.checked_revision = -1
        """Soft: the revision of the cluster's topics that `epoch` includes."""
        # Derived from the replicated state.
        self.name_counts: Counter[str] = Counter()
        """Members that subscribe to a topic."""
        self._is_due: tuple[int, bool] | None = None
        """`is_assignment_due` at a revision of the topics; None: to be found out."""

    # --- Questions that every group answers (see `Group`) ---

    @property
    def type_name(self) -> str:
        """As ListGroups spells it."""
        return "share"

    @property
    def state_name(self) -> str:
        """As ListGroups spells it: as in Kafka, a share group with members is stable."""
        return "Stable" if self.members else "Empty"

    @property
    def listed_protocol_type(self) -> str:
        """Always `share`."""
        return SHARE_PROTOCOL_TYPE

    def check_offset_commit(self, claim: CommitClaim) -> ErrorCode:  # noqa: ARG002 - the port
        """A share group has no committed offsets."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:  # noqa: ARG002 - the port
        """A share group has no committed offsets: as in Kafka, the answer is empty."""
        return ErrorCode.NONE

    def check_offset_delete(self) -> ErrorCode:
        """A share group has no committed offsets."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_delete(self) -> ErrorCode:
        """Only a group without members can be deleted."""
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to it."""
        return topic in self.name_counts

    def offset_expiry(self) -> OffsetExpiry | None:
        """A share group does not expire: its delivery state is its backlog."""
        return None

    def tombstones(self) -> list[StoredRecord]:
        """The records that delete the group, in the order that Kafka writes them."""
        return records.group_tombstones(self.group_id, self.members)

    # --- Questions ---

    def target_of(self, member_id: str) -> PartitionSets:
        """The target of a member."""
        return self.targets.get(member_id, NO_TARGET)

    def is_assignment_due(self, topics: TopicsView) -> bool:
        """Whether the targets lack initialized partitions of subscribed topics, or have others."""
        if self._is_due is None or self._is_due[0] != topics.revision:
            self._is_due = (topics.revision, bool(self.members) and self._has_other_targets(topics))
        return self._is_due[1]

    def _has_other_targets(self, topics: TopicsView) -> bool:
        targeted: dict[UUID, set[int]] = {}
        for target in self.targets.values():
            for topic_id, numbers in target.items():
                targeted.setdefault(topic_id, set()).update(numbers)
        return any(
            targeted.get(topic_id, set()) != found.numbers
            for topic_id, found in self.state_partitions.initialized.items()
            # A deleted topic has no targets, so it would be due in every heartbeat.
            if found.name in self.name_counts and topics.by_id(topic_id) is not None
        )

    # --- The only way in ---

    def apply(self, key: Message, value: Message | None) -> None:
        """Apply a record to the group. The owner of the group handles the group's own tombstone."""
        self._is_due = None
        match key:
            case stored.ShareGroupMetadataKey():
                if isinstance(value, stored.ShareGroupMetadataValue):
                    self.epoch = value.epoch
                    self.metadata_hash = value.metadata_hash
            case stored.ShareGroupTargetAssignmentMetadataKey():
                self._apply_target_epoch(value)
            case stored.ShareGroupMemberMetadataKey():
                self._apply_member(key.member_id, value)
            case stored.ShareGroupCurrentMemberAssignmentKey():
                self._apply_current(key.member_id, value)
            case stored.ShareGroupTargetAssignmentMemberKey():
                if isinstance(value, stored.ShareGroupTargetAssignmentMemberValue):
                    self.targets[key.member_id] = records.target_of(value)
                else:
                    self.targets.pop(key.member_id, None)
            case stored.ShareGroupStatePartitionMetadataKey():
                if isinstance(value, stored.ShareGroupStatePartitionMetadataValue):
                    self.state_partitions = StatePartitions.from_value(value)
                else:
                    self.state_partitions = NO_STATE
            case _:
                raise AssertionError(f"{type(key).__name__} is not of a share group")

    def _apply_target_epoch(self, value: Message | None) -> None:
        if isinstance(value, stored.ShareGroupTargetAssignmentMetadataValue):
            self.target_epoch = value.assignment_epoch
            self.target_computed_ms = value.assignment_timestamp
        else:
            self.target_epoch = -1
            self.target_computed_ms = 0

    def _apply_member(self, member_id: str, value: Message | None) -> None:
        old = self.members.get(member_id)
        if isinstance(value, stored.ShareGroupMemberMetadataValue):
            new = (old or ShareMember(member_id=member_id)).with_metadata(value)
            self._count(old, -1)
            self._count(new, 1)
            self.members[member_id] = new
        elif old is not None:
            self._count(old, -1)
            del self.members[member_id]

    def _apply_current(self, member_id: str, value: Message | None) -> None:
        old = self.members.get(member_id)
        if isinstance(value, stored.ShareGroupCurrentMemberAssignmentValue):
            member = old or ShareMember(member_id=member_id)
            self.members[member_id] = member.with_current_assignment(value)
        elif old is not None:
            self.members[member_id] = old.without_assignment()

    def _count(self, member: ShareMember | None, change: int) -> None:
        for name in () if member is None else member.subscribed_names:
            self.name_counts[name] += change
            if not self.name_counts[name]:
                del self.name_counts[name]

    # --- Invariants ---

    def snapshot(self) -> tuple[object, ...]:
        """The replicated state as a value, to be compared."""
        return (
            self.group_id,
            self.epoch,
            self.metadata_hash,
            self.target_epoch,
            self.target_computed_ms,
            dict(self.members),
            dict(self.targets),
            self.state_partitions,
        )

    def validate(self) -> None:
        """Assert the invariants between events."""
        counts: Counter[str] = Counter()
        for member_id, member in self.members.items():
            assert member_id == member.member_id
            assert member.epoch <= self.epoch
            counts.update(member.subscribed_names)
        assert counts == self.name_counts
        assert set(self.targets) <= set(self.members), "only members have targets"
        assert self.target_epoch <= self.epoch
        states = self.state_partitions
        for part in (states.initializing, states.initialized):
            assert all(found.numbers for found in part.values()), "a topic has partitions"
        assert not states.deleting.keys() & states.initializing.keys()
