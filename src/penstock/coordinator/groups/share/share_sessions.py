"""`MemberSessions`: the session timers of members of share groups.

One for each member: it must send heartbeats. It decides nothing: `share.groups` reacts when one
fires. Timers do NOT outlive the shard: `share.groups` sets them anew when the log is loaded.
"""

from typing import Final

from penstock.coordinator.groups.reaction import Reaction
from penstock.coordinator.ports import GroupTimes
from penstock.coordinator.shard import REFUSED_RETRY_MS, TimerKey

SESSION: Final = "share-session"


class MemberSessions:
    """Sets and cancels the timers of members."""

    def __init__(self, times: GroupTimes) -> None:
        self._times = times

    def heard_of(self, group_id: str, member_id: str, reaction: Reaction) -> None:
        """Start the session timeout of the member anew."""
        timeout_ms = self._times.of_share(group_id).session_timeout_ms
        reaction.set_timer((SESSION, group_id, member_id), timeout_ms)

    def ended(self, group_id: str, member_id: str, reaction: Reaction) -> None:
        """Cancel the timer of a member that left."""
        reaction.cancel_timer((SESSION, group_id, member_id))

    def postpone(self, key: TimerKey, reaction: Reaction) -> None:
        """A member whose time is up could not be removed: retry soon."""
        reaction.set_timer(key, REFUSED_RETRY_MS)
