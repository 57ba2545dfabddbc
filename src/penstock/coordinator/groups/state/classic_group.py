"""`ClassicGroup`: a live group of the classic protocol: its state, members and waiting requests.

`TRANSITIONS` lists the states and their order. The group keeps its members, its leader, the members
that have rejoined and the members that must send SyncGroup; `validate` checks it. It decides
nothing about time and answers no request: `classic.rebalance` does. It is soft state; only the
`GroupMetadataValue` of `stored_value` survives a crash.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final

from penstock.coordinator.groups.state.any_group import CommitClaim, OffsetExpiry
from penstock.coordinator.groups.state.classic_member import ClassicMember
from penstock.coordinator.groups.state.subscriptions import (
    CONSUMER_PROTOCOL_TYPE,
    subscribed_topics,
)
from penstock.coordinator.shard import StoredRecord, Ticket
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.join_group import JoinGroupRequestProtocol
from penstock.protocol.stored.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupMetadataValueMember,
)


class ClassicState(Enum):
    """The state of a group; the value is Kafka's name of it."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are asked to rejoin; rejoined members wait for their JoinGroup answer."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """A new generation began; members wait for the leader's assignment."""
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: Final[dict[ClassicState, frozenset[ClassicState]]] = {
    ClassicState.EMPTY: frozenset({ClassicState.PREPARING_REBALANCE}),
    ClassicState.PREPARING_REBALANCE: frozenset(
        {ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY}
    ),
    ClassicState.COMPLETING_REBALANCE: frozenset({ClassicState.PREPARING_REBALANCE}),
    ClassicState.STABLE: frozenset({ClassicState.COMPLETING_REBALANCE}),
    ClassicState.DEAD: frozenset(ClassicState),
}
"""For each state, the states that it may follow."""


class ClassicGroup:
    """One classic group; an empty one without a protocol type is a simple consumer's."""

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = ClassicState.EMPTY
        self.previous_state = ClassicState.DEAD
        self.state_since_ms = now_ms
        """When it entered its state; -1: not known."""
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """Member id by group instance id."""
        self.pending_joins: set[str] = set()
        """Ids that were sent with MEMBER_ID_REQUIRED and have not joined yet."""
        self.pending_syncs: set[str] = set()
        """Members of this generation that have not sent SyncGroup."""
        self.awaiting_join_count = 0
        self.protocol_counts: dict[str, int] = {}
        """How many members support a protocol."""
        self.metadata_bytes = 0
        """Size of the metadata of all protocols of all members."""
        self.on_metadata: Callable[[int], None] | None = None
        """Called with the number of bytes that were added, while a shard keeps the group."""
        self.topics: frozenset[str] | None = None
        """Topics that the members subscribe to; None: not known."""
        self.initial_delay_ms: int | None = None
        """The first rebalance of an empty group waits this long; None: it is not one."""
        self.initial_remaining_ms = 0
        """How much longer the first rebalance may be delayed by more members."""
        self.new_member_added = False
        """A member joined during the first rebalance, which may therefore be delayed further."""

    @classmethod
    def from_stored(cls, group_id: str, value: GroupMetadataValue) -> "ClassicGroup":
        """The group as it was last written: empty or stable."""
        group = cls(group_id, value.current_state_timestamp)
        group.generation_id = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.leader_id = value.leader
        if value.members:
            group.state = ClassicState.STABLE
        for stored in value.members:
            timeout_ms = stored.rebalance_timeout
            protocol = JoinGroupRequestProtocol(
                name=value.protocol or "", metadata=stored.subscription
            )
            member = ClassicMember(
                member_id=stored.member_id,
                group_instance_id=stored.group_instance_id,
                client_id=stored.client_id,
                client_host=stored.client_host,
                rebalance_timeout_ms=stored.session_timeout if timeout_ms == -1 else timeout_ms,
                session_timeout_ms=stored.session_timeout,
                protocol_type=value.protocol_type,
                protocols=(protocol,),
                assignment=stored.assignment,
            )
            group.add(member)
        group.learn_topics()
        return group

    # --- Questions that every group answers (see `Group`) ---

    @property
    def type_name(self) -> str:
        """As ListGroups spells it."""
        return "classic"

    @property
    def state_name(self) -> str:
        """As ListGroups spells it."""
        return self.state.value

    @property
    def listed_protocol_type(self) -> str:
        """The protocol type of the members, or an empty string."""
        return self.protocol_type or ""

    def check_offset_commit(self, claim: CommitClaim) -> ErrorCode:
        """Whether a member may commit: a simple consumer only while there are no members."""
        is_empty = self.state is ClassicState.EMPTY
        if claim.generation_or_epoch < 0 and is_empty:
            return ErrorCode.NONE
        says_who = claim.member_id != "" or claim.group_instance_id is not None
        if claim.generation_or_epoch >= 0 or says_who:
            error = self.check_member(claim.member_id, claim.group_instance_id)
            if error is not ErrorCode.NONE:
                return error
            if claim.generation_or_epoch != self.generation_id:
                return ErrorCode.ILLEGAL_GENERATION
        elif not claim.is_transactional and not is_empty:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not claim.is_transactional and self.state is ClassicState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_offset_fetch(
        self,
        member_id: str | None,  # noqa: ARG002 - anybody may read a classic group's offsets
        member_epoch: int,  # noqa: ARG002
    ) -> ErrorCode:
        """Every client may fetch."""
        return ErrorCode.NONE

    def check_offset_delete(self) -> ErrorCode:
        """A group with members loses offsets only if its subscriptions can be decoded."""
        if self.state is ClassicState.EMPTY or self.uses_consumer_protocol:
            return ErrorCode.NONE
        return ErrorCode.NON_EMPTY_GROUP

    def check_delete(self) -> ErrorCode:
        """Only an empty group can be deleted."""
        return ErrorCode.NONE if self.state is ClassicState.EMPTY else ErrorCode.NON_EMPTY_GROUP

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads it; a consumer group whose topics are not known reads all."""
        if self.topics is None:
            return self.uses_consumer_protocol
        return topic in self.topics

    def offset_expiry(self) -> OffsetExpiry | None:
        """A simple group's offsets age by commit; an empty group's since it became empty."""
        if self.protocol_type is None:
            return OffsetExpiry(since_ms=None)
        if self.state is ClassicState.EMPTY:
            return OffsetExpiry(since_ms=None if self.state_since_ms == -1 else self.state_since_ms)
        knows_topics = self.uses_consumer_protocol and self.topics is not None
        if knows_topics and self.state is ClassicState.STABLE:
            return OffsetExpiry(since_ms=None)
        return None

    def tombstones(self) -> list[StoredRecord]:
        """The record that deletes the group."""
        return [StoredRecord(GroupMetadataKey(group=self.group_id), None)]

    # --- Questions of the classic protocol ---

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether the members are consumers, whose metadata we can read."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def is_simple(self) -> bool:
        """Whether no member ever joined: the group has only offsets."""
        return (
            self.protocol_type is None
            and self.state is ClassicState.EMPTY
            and not self.pending_joins
        )

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin now."""
        return self.state in TRANSITIONS[ClassicState.PREPARING_REBALANCE]

    @property
    def has_all_joined(self) -> bool:
        """Whether no member is missing."""
        return len(self.members) == self.awaiting_join_count and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of any member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """NONE if this is a member; a static one must be the latest of its instance."""
        if group_instance_id is not None:
            existing = self.static_members.get(group_instance_id)
            if existing is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if existing != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols can be in the group with the others."""
        if self.state is ClassicState.EMPTY:
            return protocol_type != "" and any(True for _ in names)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(
            self.protocol_counts.get(name, 0) == count for name in names
        )

    def select_protocol(self) -> str:
        """The protocol that all support and most prefer; the first with a vote wins a tie."""
        count = len(self.members)
        candidates = {name for name, votes in self.protocol_counts.items() if votes == count}
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__)

    def stored_value(self, assignments: dict[str, bytes]) -> GroupMetadataValue:
        """The record of this generation."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=self.state_since_ms,
            members=tuple(
                GroupMetadataValueMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata_of(self.protocol_name),
                    assignment=assignments[member.member_id],
                )
                for member in self.members.values()
            ),
        )

    def stored_bytes(self, assignments: dict[str, bytes]) -> int:
        """About how large `stored_value` is; names are counted by their characters."""
        return sum(
            len(member.metadata_of(self.protocol_name))
            + len(assignments[member.member_id])
            + len(member.member_id)
            + len(member.client_id)
            for member in self.members.values()
        )

    # --- Changes ---

    def move_to(self, state: ClassicState, now_ms: int) -> None:
        """Change the state, as the table allows."""
        assert self.state in TRANSITIONS[state], f"{self.group_id}: {self.state} -> {state}"
        self.previous_state = self.state
        self.state = state
        self.state_since_ms = now_ms

    def add(self, member: ClassicMember, join_ticket: Ticket | None = None) -> None:
        """Add a member; the first one leads and sets the protocol type of the group."""
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        assert self.protocol_type == member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        self.wait_for_join(member, join_ticket)
        self.pending_joins.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member, or an id that has not joined yet; another member leads if it led."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            self.wait_for_join(member, None)
            if member.group_instance_id is not None:
                del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)

    def replace_static(self, old: ClassicMember, new_id: str) -> ClassicMember:
        """Give an instance a new member id, for a process that was restarted."""
        assert old.join_ticket is None
        assert old.sync_ticket is None
        assert old.group_instance_id is not None
        del self.members[old.member_id]
        new = ClassicMember(
            member_id=new_id,
            group_instance_id=old.group_instance_id,
            client_id=old.client_id,
            client_host=old.client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocol_type=old.protocol_type,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        self.members[new_id] = new
        if self.leader_id == old.member_id:
            self.leader_id = new_id
        self.static_members[old.group_instance_id] = new_id
        self.pending_syncs.discard(old.member_id)
        return new

    def take_back_static(self, old: ClassicMember, new: ClassicMember) -> None:
        """Undo a replacement that could not be written: the old process is the member again."""
        assert old.group_instance_id is not None
        leads = self.leader_id == new.member_id
        self.remove(new.member_id)
        self.members[old.member_id] = old
        self._count_protocols(old, 1)
        self.static_members[old.group_instance_id] = old.member_id
        if leads:
            self.leader_id = old.member_id

    def set_protocols(
        self, member: ClassicMember, protocols: tuple[JoinGroupRequestProtocol, ...]
    ) -> None:
        """Change the protocols that a member supports."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def wait_for_join(self, member: ClassicMember, ticket: Ticket | None) -> None:
        """Set, replace or remove the member's waiting JoinGroup."""
        self.awaiting_join_count += (ticket is not None) - (member.join_ticket is not None)
        member.join_ticket = ticket

    def elect_joined_leader(self) -> bool:
        """Ensure that the leader is a member that has rejoined; False if no member has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_ticket is not None:
            return True
        for member in self.members.values():
            if member.join_ticket is not None:
                self.leader_id = member.member_id
                return True
        return False

    def begin_generation(self, now_ms: int) -> None:
        """Begin the next generation with the present members."""
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.learn_topics()
        target = ClassicState.COMPLETING_REBALANCE if self.members else ClassicState.EMPTY
        self.move_to(target, now_ms)
        self.pending_syncs.clear()
        self.initial_delay_ms = None
        self.new_member_added = False

    def learn_topics(self) -> None:
        """Read the members' topics from their metadata, if it can be decoded."""
        self.topics = None
        if not self.uses_consumer_protocol:
            return
        if not self.members:
            self.topics = frozenset()
        elif self.protocol_name is not None:
            name = self.protocol_name
            metadata = (member.metadata_of(name) for member in self.members.values())
            self.topics = subscribed_topics(metadata)

    def _count_protocols(self, member: ClassicMember, change: int) -> None:
        more = change * metadata_bytes(member.protocols)
        self.metadata_bytes += more
        if self.on_metadata is not None:
            self.on_metadata(more)
        for name in {protocol.name for protocol in member.protocols}:
            count = self.protocol_counts.get(name, 0) + change
            if count:
                self.protocol_counts[name] = count
            else:
                del self.protocol_counts[name]

    def validate(self) -> None:
        """Assert the invariants between events."""
        members = self.members
        assert self.state is not ClassicState.DEAD, "a dead group is not kept"
        assert (self.state is ClassicState.EMPTY) <= (not members)
        assert (self.leader_id in members) if members else self.leader_id is None
        assert not self.pending_joins & members.keys()
        assert self.pending_syncs <= members.keys()
        waiting = [member for member in members.values() if member.join_ticket is not None]
        assert len(waiting) == self.awaiting_join_count
        assert not waiting or self.state is ClassicState.PREPARING_REBALANCE
        syncing = [member for member in members.values() if member.sync_ticket is not None]
        assert not syncing or self.state is ClassicState.COMPLETING_REBALANCE
        instances = {m.group_instance_id: m.member_id for m in members.values()}
        instances.pop(None, None)
        assert instances == self.static_members
        counts: dict[str, int] = {}
        for member in members.values():
            assert member.protocol_type == self.protocol_type
            for name in {protocol.name for protocol in member.protocols}:
                counts[name] = counts.get(name, 0) + 1
        assert counts == self.protocol_counts
        assert self.metadata_bytes == sum(metadata_bytes(m.protocols) for m in members.values())
        if self.state in {ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE}:
            assert members
            assert self.protocol_counts[self.protocol_name or ""] == len(members)


def metadata_bytes(protocols: tuple[JoinGroupRequestProtocol, ...]) -> int:
    """Size of a member's metadata and of the names of its protocols."""
    return sum(len(protocol.name) + len(protocol.metadata) for protocol in protocols)
