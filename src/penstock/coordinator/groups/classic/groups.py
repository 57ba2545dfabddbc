"""`ClassicGroups`: the interface to all classic groups of a shard.

`join`, `sync`, `heartbeat` and `leave` are the protocol; `replay` stores records; `loaded` creates
the live groups; `forget` ends one. Other parts use this class to change a live classic group
(upgrade it, delete it, let a commit prolong a session). A simple consumer's group has no record of
its own: its offsets alone restore it.
"""

from penstock.coordinator.groups.classic import rebalance as classic_rebalance
from penstock.coordinator.groups.classic.join import ClassicJoin
from penstock.coordinator.groups.classic.members import ClassicMembers
from penstock.coordinator.groups.classic.rebalance import (
    Rebalances,
    heartbeat_key,
    join_key,
    record_bytes,
    sync_key,
)
from penstock.coordinator.groups.reaction import Reaction
from penstock.coordinator.groups.state.classic_group import ClassicGroup, ClassicState
from penstock.coordinator.groups.state.group_state import GroupState
from penstock.coordinator.shard import TimerKey
from penstock.protocol.stored.group_records import GroupMetadataKey, GroupMetadataValue


class ClassicGroups:
    """The classic half of a group shard."""

    def __init__(self, state: GroupState) -> None:
        self._state = state
        self.rebalances = Rebalances(state)
        self._join = ClassicJoin(state, self.rebalances)
        self._members = ClassicMembers(state, self.rebalances)
        self.join = self._join.handle
        self.sync = self._members.sync
        self.heartbeat = self._members.heartbeat
        self.leave = self._members.leave

    # --- Replicated state ---

    def replay(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        """Store the record of a group; the live group is changed by its handlers."""
        state = self._state
        before = state.stored_classic.pop(key.group, None)
        if before is not None:
            state.classic_bytes -= record_bytes(before)
        if value is not None:
            state.stored_classic[key.group] = value
            state.classic_bytes += record_bytes(value)

    # --- Live groups ---

    def loaded(self, reaction: Reaction) -> None:
        """Create the groups of the stored records; members get a whole session timeout."""
        for group_id, value in self._state.stored_classic.items():
            if group_id not in self._state.consumer:
                self.adopt(ClassicGroup.from_stored(group_id, value), reaction)
        for group_id in self._state.offsets.group_ids():
            if self._state.find(group_id) is None:
                self.ensure_simple(group_id, reaction.now_ms)

    def adopt(self, group: ClassicGroup, reaction: Reaction) -> None:
        """Take over a group with its members, loaded or downgraded, and watch their sessions."""
        self._state.keep_classic(group)
        for member in group.members.values():
            self.rebalances.expect_heartbeat(group, member, reaction)
        if len(group.members) > self._state.settings.classic_group_members_max:
            self.rebalances.prepare(group, reaction)

    def ensure_simple(self, group_id: str, now_ms: int) -> ClassicGroup:
        """The group of a client that commits without being a member; created when it is missing."""
        group = self._state.classic.get(group_id)
        if group is None:
            group = ClassicGroup(group_id, now_ms)
            self._state.keep_classic(group)
        return group

    def committed(self, group: ClassicGroup, member_id: str, reaction: Reaction) -> None:
        """Prolong the session of a member that commits offsets."""
        member = group.members.get(member_id)
        if member is not None and group.state is not ClassicState.COMPLETING_REBALANCE:
            self.rebalances.expect_heartbeat(group, member, reaction)

    def forget(self, group_id: str, reaction: Reaction) -> None:
        """Drop a live group that was deleted or became another kind; no request may wait in it."""
        group = self._state.drop_classic(group_id)
        if group is None:
            return
        tickets = [t for m in group.members.values() for t in (m.join_ticket, m.sync_ticket)]
        assert all(ticket is None for ticket in tickets), "answer the members that wait first"
        for member_id in (*group.members, *sorted(group.pending_joins)):
            reaction.cancel_timer(heartbeat_key(group_id, member_id))
        reaction.cancel_timer(join_key(group_id))
        reaction.cancel_timer(sync_key(group_id))
        group.move_to(ClassicState.DEAD, reaction.now_ms)

    def timer_fired(self, key: TimerKey, reaction: Reaction) -> bool:
        """React to a timer of a classic group; False: it is not one."""
        if not isinstance(key, tuple):
            return False
        group = self._state.classic.get(key[1]) if len(key) > 1 else None
        if key[0] == classic_rebalance.HEARTBEAT:
            if group is not None:
                self.rebalances.session_ended(group, key[2], reaction)
        elif key[0] == classic_rebalance.JOIN:
            if group is not None:
                self.rebalances.join_time_is_up(group, reaction)
        elif key[0] == classic_rebalance.SYNC:
            if group is not None:
                self.rebalances.sync_time_is_up(group, reaction)
        else:
            return False
        return True

    def validate(self) -> None:
        """Assert the invariants between events."""
        groups, written = self._state.classic.values(), self._state.stored_classic.values()
        kept_bytes = sum(group.metadata_bytes for group in groups)
        assert self._state.classic_bytes == kept_bytes + sum(map(record_bytes, written))
        for group_id, group in self._state.classic.items():
            assert group_id == group.group_id
            assert group_id not in self._state.consumer, "a group has one protocol"
            group.validate()
            stored = self._state.stored_classic.get(group_id)
            if group.state is ClassicState.STABLE:
                assert stored is not None
                assert stored.generation == group.generation_id
                assignments = {m.member_id: m.assignment for m in stored.members}
                live = {m.member_id: m.assignment for m in group.members.values()}
                assert assignments == live, "a stable group is what was written"
