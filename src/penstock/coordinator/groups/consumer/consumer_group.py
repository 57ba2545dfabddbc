"""`ConsumerGroup`: the replicated state of one group of KIP-848, changed by its records alone.

`apply` is the only way in: live, on load, and on a scratch copy while a group is being converted.
It also keeps derived state up to date: the owner of each partition, how many members subscribe to a
topic, how many use the classic protocol. It decides NOTHING: `consumer.change` decides which
records to write; timers are soft state and elsewhere.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from penstock.coordinator.groups.assignors import PartitionSets
from penstock.coordinator.groups.consumer import records
from penstock.coordinator.groups.consumer.consumer_member import Member, MemberState
from penstock.coordinator.groups.state.any_group import CommitClaim, OffsetExpiry
from penstock.coordinator.groups.state.subscriptions import CONSUMER_PROTOCOL_TYPE
from penstock.coordinator.shard import StoredRecord
from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.stored import group_records as stored

INITIAL_EPOCH: Final = 1
"""The epoch of a group and of its target assignment before either was written, as in Kafka 4.3."""
NO_TARGET: Final[PartitionSets] = {}
MEMBER_EPOCH_COMMITS_SINCE: Final = 9
"""From this version OffsetCommit can carry the epoch of a member of a consumer group."""


@dataclass(frozen=True, slots=True)
class ResolvedExpression:
    """The topics that a regular expression matched at one revision."""

    topics: frozenset[str]
    revision: int
    """The revision of the cluster's topics it was resolved against."""
    resolved_ms: int


class ConsumerGroup:
    """One consumer group."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = INITIAL_EPOCH
        """Grows when members, subscriptions or topics change; a new target is computed then."""
        self.metadata_hash = 0
        """Hash of the topics the group subscribes to, as of `epoch`."""
        self.target_epoch = INITIAL_EPOCH
        self.target_computed_ms = 0
        self.members: dict[str, Member] = {}
        self.targets: dict[str, PartitionSets] = {}
        self.expressions: dict[str, ResolvedExpression] = {}
        self.has_partition_metadata = False
        """A Kafka broker before 4.1 left a record that must be deleted."""
        self.checked_revision = -1
        """Soft: the revision of the cluster's topics that `epoch` includes."""
        # Derived from the replicated state.
        self.static_members: dict[str, str] = {}
        """Member id by instance id."""
        self.owners: dict[UUID, dict[int, str]] = {}
        """The member that has a partition, or may still be reading it."""
        self.name_counts: Counter[str] = Counter()
        """Members that subscribe to a topic by its name."""
        self.expression_counts: Counter[str] = Counter()
        """Members that subscribe to a regular expression."""
        self.assignor_counts: Counter[str] = Counter()
        self.classic_count = 0
        self.classic_protocol_counts: Counter[str] = Counter()

    # --- Questions that every group answers (see `Group`) ---

    @property
    def type_name(self) -> str:
        """As ListGroups spells it."""
        return "consumer"

    @property
    def state_name(self) -> str:
        """As ListGroups spells it."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def listed_protocol_type(self) -> str:
        """Always `consumer`."""
        return CONSUMER_PROTOCOL_TYPE

    def check_offset_commit(self, claim: CommitClaim) -> ErrorCode:
        """A member commits in its epoch; any client may while there are no members."""
        epoch = claim.generation_or_epoch
        if epoch < 0 and not self.members:
            return ErrorCode.NONE
        is_anonymous = claim.member_id == "" and claim.group_instance_id is None
        if claim.is_transactional and epoch == -1 and is_anonymous:
            return ErrorCode.NONE
        member = self.members.get(claim.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_old_client = claim.api_version < MEMBER_EPOCH_COMMITS_SINCE
        if is_old_client and not claim.is_transactional and not member.is_classic:
            return ErrorCode.UNSUPPORTED_VERSION
        if epoch < member.epoch and _has_had(member, claim.partitions, epoch):
            return ErrorCode.NONE  # KIP-1251: no other member can have committed since
        return _epoch_error(member, epoch)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """A client without a member id may fetch; a member must be in its epoch."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return _epoch_error(member, member_epoch)

    def check_offset_delete(self) -> ErrorCode:
        """Always possible; topics that are subscribed to are checked one by one."""
        return ErrorCode.NONE

    def check_delete(self) -> ErrorCode:
        """Only a group without members can be deleted."""
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to it, by name or by a regular expression."""
        return topic in self.name_counts or any(
            topic in resolved.topics for resolved in self.expressions.values()
        )

    def offset_expiry(self) -> OffsetExpiry | None:
        """Each offset ages since it was committed."""
        return OffsetExpiry(since_ms=None)

    def tombstones(self) -> list[StoredRecord]:
        """The records that delete the group, in the order that Kafka writes them."""
        return records.group_tombstones(self.group_id, self.members, self.expressions)

    # --- Questions ---

    def member_of_instance(self, instance_id: str | None) -> Member | None:
        """The static member that holds an instance id."""
        member_id = self.static_members.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.members[member_id]

    def target_of(self, member_id: str, instance_id: str | None) -> PartitionSets:
        """The target of a member; a static one inherits it from the member it replaces."""
        if instance_id is not None:
            member_id = self.static_members.get(instance_id, member_id)
        return self.targets.get(member_id, NO_TARGET)

    def is_owned(self, topic_id: UUID, partition: int) -> bool:
        """Whether any member has the partition, or may still be reading it."""
        return partition in self.owners.get(topic_id, ())

    def is_waiting_for_others(self, member: Member) -> bool:
        """Whether another member still has a partition of the member's target."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            number not in member.assigned.get(topic_id, ()) and self.is_owned(topic_id, number)
            for topic_id, numbers in self.targets.get(member.member_id, NO_TARGET).items()
            for number in numbers
        )

    def supports_classic(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a classic member with these protocols can be in the group with the others."""
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        if not self.members:
            return any(True for _ in names)
        return any(self.classic_protocol_counts[name] == self.classic_count for name in names)

    def are_all_classic_except(self, leaving: Iterable[Member]) -> bool:
        """Whether only classic members remain when these have left."""
        gone = list(leaving)
        classic_gone = sum(member.is_classic for member in gone)
        return self.classic_count - classic_gone == len(self.members) - len(gone)

    # --- The only way in ---

    def apply(self, key: Message, value: Message | None) -> None:
        """Apply a record to the group. The owner of the group handles the group's own tombstone."""
        match key:
            case stored.ConsumerGroupMetadataKey():
                if isinstance(value, stored.ConsumerGroupMetadataValue):
                    self.epoch = value.epoch
                    self.metadata_hash = value.metadata_hash
            case stored.ConsumerGroupPartitionMetadataKey():
                self.has_partition_metadata = value is not None
            case stored.ConsumerGroupTargetAssignmentMetadataKey():
                self._apply_target_epoch(value)
            case stored.ConsumerGroupMemberMetadataKey():
                self._apply_member(key.member_id, value)
            case stored.ConsumerGroupCurrentMemberAssignmentKey():
                self._apply_current(key.member_id, value)
            case stored.ConsumerGroupTargetAssignmentMemberKey():
                if isinstance(value, stored.ConsumerGroupTargetAssignmentMemberValue):
                    self.targets[key.member_id] = records.target_of(value)
                else:
                    self.targets.pop(key.member_id, None)
            case stored.ConsumerGroupRegularExpressionKey():
                self._apply_expression(key.regular_expression, value)
            case _:
                raise AssertionError(f"{type(key).__name__} is not of a consumer group")

    def _apply_target_epoch(self, value: Message | None) -> None:
        if isinstance(value, stored.ConsumerGroupTargetAssignmentMetadataValue):
            self.target_epoch = value.assignment_epoch
            self.target_computed_ms = value.assignment_timestamp
        else:
            self.target_epoch = -1
            self.target_computed_ms = 0

    def _apply_member(self, member_id: str, value: Message | None) -> None:
        old = self.members.get(member_id)
        if isinstance(value, stored.ConsumerGroupMemberMetadataValue):
            self._put(old, (old or Member(member_id=member_id)).with_metadata(value))
        elif old is not None:
            self._forget(old)
            del self.members[member_id]

    def _apply_current(self, member_id: str, value: Message | None) -> None:
        old = self.members.get(member_id)
        if isinstance(value, stored.ConsumerGroupCurrentMemberAssignmentValue):
            self._put(old, (old or Member(member_id=member_id)).with_current_assignment(value))
        elif old is not None:
            self._put(old, old.without_assignment())

    def _apply_expression(self, expression: str, value: Message | None) -> None:
        if isinstance(value, stored.ConsumerGroupRegularExpressionValue):
            self.expressions[expression] = ResolvedExpression(
                frozenset(value.topics), value.version, value.timestamp
            )
        else:
            self.expressions.pop(expression, None)

    # --- Derived state ---

    def _put(self, old: Member | None, new: Member) -> None:
        if old is not None:
            self._forget(old)
        self.members[new.member_id] = new
        self._count(new, 1)
        if new.instance_id is not None:
            self.static_members[new.instance_id] = new.member_id
        for topic_id, numbers in (*new.assigned.items(), *new.pending_revocation.items()):
            self.owners.setdefault(topic_id, {}).update(dict.fromkeys(numbers, new.member_id))

    def _forget(self, old: Member) -> None:
        self._count(old, -1)
        if self.static_members.get(old.instance_id or "") == old.member_id:
            del self.static_members[old.instance_id or ""]
        for topic_id, numbers in (*old.assigned.items(), *old.pending_revocation.items()):
            owned = self.owners.get(topic_id)
            if owned is None:
                continue
            for number in numbers:
                if owned.get(number) == old.member_id:
                    del owned[number]
            if not owned:
                del self.owners[topic_id]

    def _count(self, member: Member, change: int) -> None:
        _add(self.name_counts, member.subscribed_names, change)
        if member.subscribed_regex:
            _add(self.expression_counts, (member.subscribed_regex,), change)
        if member.server_assignor is not None:
            _add(self.assignor_counts, (member.server_assignor,), change)
        if member.classic is not None:
            self.classic_count += change
            names = {protocol.name for protocol in member.classic.supported_protocols}
            _add(self.classic_protocol_counts, names, change)

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
            dict(self.expressions),
            self.has_partition_metadata,
        )

    def validate(self) -> None:
        """Assert the invariants between events."""
        owned_by: dict[tuple[UUID, int], str] = {}
        for member_id, member in self.members.items():
            assert member_id == member.member_id
            for topic_id, numbers in _all_owned(member):
                for number in numbers:
                    other = owned_by.setdefault((topic_id, number), member_id)
                    assert other == member_id, f"{topic_id}-{number}: {other} and {member_id}"
            if member.instance_id is not None:
                assert self.static_members[member.instance_id] == member_id
            if member.state is not MemberState.UNREVOKED_PARTITIONS:
                assert not member.pending_revocation
            assert member.epoch <= self.epoch
        flat = {(t, n): o for t, numbers in self.owners.items() for n, o in numbers.items()}
        assert flat == owned_by, "who owns what follows from the members"
        assert set(self.targets) <= set(self.members), "only members have targets"
        assert set(self.static_members.values()) <= set(self.members)
        assert self.target_epoch <= self.epoch
        assert set(self.expressions) <= set(self.expression_counts)
        targeted = [
            (topic_id, number)
            for target in self.targets.values()
            for topic_id, numbers in target.items()
            for number in numbers
        ]
        assert len(targeted) == len(set(targeted)), "a partition is to have one owner"


def _all_owned(member: Member) -> Iterable[tuple[UUID, Mapping[int, int]]]:
    yield from member.assigned.items()
    yield from member.pending_revocation.items()


def _add(counts: Counter[str], names: Iterable[str], change: int) -> None:
    for name in names:
        counts[name] += change
        if counts[name] == 0:
            del counts[name]


def _has_had(member: Member, partitions: tuple[tuple[UUID | None, int], ...], epoch: int) -> bool:
    """Whether the member has had all of these without a break since this epoch."""
    for topic_id, number in partitions:
        if topic_id is None:
            return False
        since = member.assigned.get(topic_id, {}).get(number)
        if since is None:
            since = member.pending_revocation.get(topic_id, {}).get(number)
        if since is None or epoch < since:
            return False
    return bool(partitions)


def _epoch_error(member: Member, epoch: int) -> ErrorCode:
    if epoch == member.epoch:
        return ErrorCode.NONE
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
