"""`Leaving`: removes members of consumer groups, on their request or by a timer.

Fencing removes a member permanently; the others are informed in their next heartbeats. When only
classic members remain, the group becomes a classic one again. A static member that will come back
keeps its partitions: that is NOT leaving in this sense.
"""

from functools import partial

from penstock.coordinator.groups.classic.groups import ClassicGroups
from penstock.coordinator.groups.consumer.change import GroupChange
from penstock.coordinator.groups.consumer.consumer_group import ConsumerGroup
from penstock.coordinator.groups.consumer.consumer_member import Member
from penstock.coordinator.groups.consumer.sessions import Sessions
from penstock.coordinator.groups.consumer.upgrade import can_downgrade, downgrade, downgrade_records
from penstock.coordinator.groups.reaction import Reaction
from penstock.coordinator.groups.state.group_state import GroupState


class Leaving:
    """Removes members."""

    def __init__(self, state: GroupState, classic: ClassicGroups, sessions: Sessions) -> None:
        self._state = state
        self._classic = classic
        self._sessions = sessions

    def fence(self, group: ConsumerGroup, leaving: list[Member], reaction: Reaction) -> None:
        """Remove members and begin a new epoch, or become a classic group."""
        if not leaving:
            return
        if can_downgrade(group, leaving, self._state.settings):
            gone = {member.member_id for member in leaving}
            staying = [m for m in group.members.values() if m.member_id not in gone]
            self.become_classic(group, staying, {}, reaction, must_rebalance=True)
            return
        change = GroupChange(self._state, group, reaction.now_ms)
        change.remove_members(leaving)
        reaction.write_all(change.records)
        member_ids = [member.member_id for member in leaving]
        reaction.when_written(partial(self._sessions.ended, group.group_id, member_ids))

    def become_classic(
        self,
        group: ConsumerGroup,
        staying: list[Member],
        replaced: dict[str, str],
        reaction: Reaction,
        *,
        must_rebalance: bool,
    ) -> None:
        """Go on as a classic group with these members; `replaced`: new id to old id."""
        topics = self._state.topics
        classic = downgrade(group, staying, replaced, topics, reaction.now_ms)
        member_ids = (group.members.keys() - set(replaced.values())) | replaced.keys()
        reaction.write_all(downgrade_records(group, sorted(member_ids), classic))
        ended = (*group.members, *replaced)
        reaction.when_written(partial(self._sessions.ended, group.group_id, ended))
        reaction.when_written(partial(self._classic.adopt, classic))
        if must_rebalance:
            reaction.when_written(partial(self._classic.rebalances.prepare, classic))
