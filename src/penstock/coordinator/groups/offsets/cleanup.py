"""`OffsetCleanup`: deletes expired offsets and groups.

Offsets expire when the retention has passed since their commit, or since their group became empty;
never while a member reads their topic or a transaction holds one. A group without members and
without offsets is deleted. Offsets of a deleted topic are deleted with it, unless an offset was
committed since for a topic of the same name. Work is done in portions, so that no batch of
tombstones is too large and no request waits long for one pass; if the log has no room for them,
they are retried later. It does NOT run by itself: timers that it sets drive it.
"""

from collections import deque
from collections.abc import Collection
from functools import partial
from typing import Final

from penstock.coordinator.groups.classic.groups import ClassicGroups
from penstock.coordinator.groups.offsets.requests import offset_tombstone
from penstock.coordinator.groups.reaction import Reaction
from penstock.coordinator.groups.state.group_state import Group, GroupState, OffsetExpiry
from penstock.coordinator.groups.state.offset_store import CommittedOffset
from penstock.coordinator.portions import Portion
from penstock.coordinator.shard import REFUSED_RETRY_MS, TimerKey
from penstock.protocol.error_codes import ErrorCode

EXPIRY: Final = ("offset-expiry",)
"""The timer of the next check of all groups, or of its next portion."""
DELETED_TOPICS: Final = ("offsets-of-deleted-topics",)
"""The timer of the next portion of tombstones for deleted topics."""
GROUPS_PER_PASS_MAX: Final = 1_000
"""Groups that are checked in one turn: some milliseconds of work."""
OFFSETS_PER_PASS_MAX: Final = 10_000
"""Offsets that are checked in one turn, for the same reason; the last group is checked whole, and
has at most as many as the broker has partitions."""


class _Gone:
    """Topics that were deleted, and the groups that are still to be searched for them."""

    __slots__ = ("groups", "limits")

    def __init__(self) -> None:
        self.limits: dict[str, int] = {}
        """By topic: records before this offset of the log belong to the deleted topic."""
        self.groups: deque[str] | None = None
        """None until the search begins; topics may be added until then."""


class OffsetCleanup:
    """Deletes expired offsets and groups."""

    def __init__(self, state: GroupState, classic: ClassicGroups) -> None:
        self._state = state
        self._store = state.offsets
        self._classic = classic
        self._groups_to_check: deque[str] = deque()
        self._gone: deque[_Gone] = deque()
        """At most two: a search that has begun, and the next one."""

    def loaded(self, reaction: Reaction) -> None:
        """Start the timer. A topic that is missing now may be missing in our image only."""
        reaction.set_timer(EXPIRY, self._state.settings.offsets_retention_check_interval_ms)

    def timer_fired(self, key: TimerKey, reaction: Reaction) -> bool:
        """Do the next portion; False if the timer is not its own."""
        if key == EXPIRY:
            self._expire(reaction)
        elif key == DELETED_TOPICS:
            self._forget_gone(reaction)
        else:
            return False
        return True

    # --- Expiry ---

    def _expire(self, reaction: Reaction) -> None:
        queue, portion = self._groups_to_check, Portion()
        if not queue:
            queue.extend((*self._state.classic, *self._state.consumer))
        looked_at = 0
        for _ in range(min(len(queue), GROUPS_PER_PASS_MAX)):
            if looked_at >= OFFSETS_PER_PASS_MAX:
                break
            looked_at += self._store.count_of_group(queue[0])
            if not self._expire_group(queue[0], portion, reaction):
                break
            queue.popleft()
        delay_ms = self._state.settings.offsets_retention_check_interval_ms
        reaction.set_timer(EXPIRY, 0 if queue else delay_ms)
        reaction.when_refused(self._expire_later)

    def _expire_later(self, reaction: Reaction) -> None:
        """The log has no room: wait for the next regular check of all groups."""
        self._groups_to_check.clear()
        reaction.set_timer(EXPIRY, self._state.settings.offsets_retention_check_interval_ms)

    def _expire_group(self, group_id: str, portion: Portion, reaction: Reaction) -> bool:
        """Write the tombstones of a group, or of some of its offsets; False: not all fit."""
        group = self._state.find(group_id)
        if group is None:
            return True
        expired, stays = self._expired(group, reaction.now_ms)
        for topic, partition in expired:
            if not portion.take(group_id, topic):
                return False
            reaction.write_all([offset_tombstone(group_id, topic, partition)])
        if not stays and group.check_delete() is ErrorCode.NONE:
            tombstones = group.tombstones()
            if not portion.take(group_id, record_count=len(tombstones)):
                return False
            reaction.write_all(tombstones)
            reaction.when_written(partial(self._classic.forget, group_id))
        return True

    def _expired(self, group: Group, now_ms: int) -> tuple[list[tuple[str, int]], bool]:
        """Expired topics and partitions; whether any offset stays or a transaction holds one."""
        group_id = group.group_id
        offsets, expiry = self._store.of_group(group_id), group.offset_expiry()
        if expiry is None:
            return [], bool(offsets) or self._store.has_pending(group_id)
        expired, stays = [], self._store.has_pending(group_id)
        for topic, partitions in offsets.items():
            if group.is_subscribed_to(topic):
                stays = True
                continue
            for partition, offset in partitions.items():
                is_pending = self._store.is_pending(group_id, topic, partition)
                if not is_pending and self._is_expired(offset, expiry, now_ms):
                    expired.append((topic, partition))
                else:
                    stays = True
        return expired, stays

    def _is_expired(self, offset: CommittedOffset, expiry: OffsetExpiry, now_ms: int) -> bool:
        value = offset.value
        if value.expire_timestamp != -1:
            return now_ms >= value.expire_timestamp
        since_ms = value.commit_timestamp if expiry.since_ms is None else expiry.since_ms
        return now_ms - since_ms >= self._state.settings.offsets_retention_ms

    # --- Deleted topics ---

    def topics_gone(self, names: Collection[str], reaction: Reaction) -> None:
        """Delete the offsets of topics that were deleted, or deleted and created anew."""
        if not names:
            return
        known = self._store.topics()
        gone = [name for name in names if name in known]
        if not gone:
            return
        is_idle = not self._gone
        if is_idle or self._gone[-1].groups is not None:
            self._gone.append(_Gone())
        self._gone[-1].limits.update(dict.fromkeys(gone, self._store.end_offset))
        if is_idle:
            self._forget_gone(reaction)

    def _forget_gone(self, reaction: Reaction) -> None:
        gone, portion = self._gone[0], Portion()
        if gone.groups is None:
            gone.groups = deque(sorted(self._store.group_ids()))
        searched: list[str] = []
        looked_at = 0
        while gone.groups and len(searched) < GROUPS_PER_PASS_MAX:
            if looked_at >= OFFSETS_PER_PASS_MAX:
                break
            looked_at += self._store.count_of_group(gone.groups[0])
            if not self._forget_gone_of(gone.groups[0], gone.limits, portion, reaction):
                break
            searched.append(gone.groups.popleft())
        reaction.when_written(self._search_on)
        reaction.when_refused(partial(self._search_again, searched))

    def _forget_gone_of(
        self, group_id: str, limits: dict[str, int], portion: Portion, reaction: Reaction
    ) -> bool:
        """Write tombstones for the offsets of deleted topics; False: not all of them fit."""
        for topic, partition in self._store.keys_of_group(group_id):
            limit = limits.get(topic)
            if limit is None or self._store.last_written(group_id, topic, partition) >= limit:
                continue
            if not portion.take(group_id, topic):
                return False
            reaction.write_all([offset_tombstone(group_id, topic, partition)])
        return True

    def _search_on(self, reaction: Reaction) -> None:
        if not self._gone[0].groups:
            self._gone.popleft()
        if self._gone:
            reaction.set_timer(DELETED_TOPICS, 0)

    def _search_again(self, searched: list[str], reaction: Reaction) -> None:
        """The log has no room: search these groups again later."""
        groups = self._gone[0].groups
        assert groups is not None
        groups.extendleft(reversed(searched))
        reaction.set_timer(DELETED_TOPICS, REFUSED_RETRY_MS)
