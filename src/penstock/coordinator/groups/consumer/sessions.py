"""`Sessions`: the timers of members of consumer groups.

Four for each member: it must send heartbeats (session); it must give up revoked partitions
(rebalance); a classic member that must rejoin has to do so (join), and one that joined must fetch
its assignment (sync). It decides nothing: `consumer` reacts when one fires. Timers do NOT outlive
the shard: `consumer.loaded` sets them anew.
"""

from collections.abc import Iterable
from typing import Final

from penstock.coordinator.groups.consumer.consumer_member import Member, MemberState
from penstock.coordinator.groups.reaction import Reaction
from penstock.coordinator.ports import GroupTimes
from penstock.coordinator.shard import REFUSED_RETRY_MS, TimerKey

SESSION: Final = "consumer-session"
REBALANCE: Final = "consumer-rebalance"
JOIN: Final = "consumer-join"
SYNC: Final = "consumer-sync"
KINDS: Final = frozenset({SESSION, REBALANCE, JOIN, SYNC})


class Sessions:
    """Sets and cancels the timers of members."""

    def __init__(self, times: GroupTimes) -> None:
        self._times = times
        self._must_rejoin: set[TimerKey] = set()
        """Join timers that run: a repeated request to rejoin does not extend the time."""

    def heard_of(self, group_id: str, member: Member, reaction: Reaction) -> None:
        """Start the session timeout of the member anew."""
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        else:
            timeout_ms = self._times.of(group_id).session_timeout_ms
        reaction.set_timer((SESSION, group_id, member.member_id), timeout_ms)

    def reconciled(self, group_id: str, member: Member, reaction: Reaction) -> None:
        """After a reconciliation: start the time to give up partitions, if the member must."""
        if member.is_classic:
            return  # it has the join and the sync timer instead
        key = (REBALANCE, group_id, member.member_id)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            reaction.set_timer(key, member.rebalance_timeout_ms)
        else:
            reaction.cancel_timer(key)

    def must_rejoin(self, group_id: str, member: Member, reaction: Reaction) -> None:
        """Start the timeout in which a classic member must rejoin."""
        key = (JOIN, group_id, member.member_id)
        if key not in self._must_rejoin:
            self._must_rejoin.add(key)
            reaction.set_timer(key, member.rebalance_timeout_ms)

    def joined(self, group_id: str, member: Member, reaction: Reaction) -> None:
        """A classic member has joined: now it must sync."""
        key = (JOIN, group_id, member.member_id)
        if key in self._must_rejoin:
            self._must_rejoin.discard(key)
            reaction.cancel_timer(key)
        self.heard_of(group_id, member, reaction)
        reaction.set_timer((SYNC, group_id, member.member_id), member.rebalance_timeout_ms)

    def synced(self, group_id: str, member: Member, reaction: Reaction) -> None:
        """A classic member fetched its assignment."""
        reaction.cancel_timer((SYNC, group_id, member.member_id))
        self.heard_of(group_id, member, reaction)

    def ended(self, group_id: str, member_ids: Iterable[str], reaction: Reaction) -> None:
        """Cancel the timers of members that left, or that are in a classic group now."""
        for member_id in member_ids:
            for kind in (SESSION, REBALANCE, JOIN, SYNC):
                reaction.cancel_timer((kind, group_id, member_id))
            self._must_rejoin.discard((JOIN, group_id, member_id))

    def fired(self, key: TimerKey) -> None:
        """The timer runs no more."""
        self._must_rejoin.discard(key)

    # --- When the log refuses the records ---

    def tried(self, group_id: str, member: Member, reaction: Reaction) -> None:
        """The member did its part, but the log refused the records: restart its timeouts."""
        self.heard_of(group_id, member, reaction)
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            self.reconciled(group_id, member, reaction)
        key = (JOIN, group_id, member.member_id)
        if key in self._must_rejoin:
            reaction.set_timer(key, member.rebalance_timeout_ms)

    def postpone(self, key: TimerKey, reaction: Reaction) -> None:
        """A member whose time is up could not be removed: retry soon."""
        if isinstance(key, tuple) and key[0] == JOIN:
            self._must_rejoin.add(key)
        reaction.set_timer(key, REFUSED_RETRY_MS)
