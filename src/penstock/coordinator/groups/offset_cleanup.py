"""`OffsetCleanup`: offsets and groups that nobody needs any more are forgotten.

Offsets expire when the retention has passed since their commit, or since their group became empty;
never while a member reads their topic or a transaction holds one. A group without members and
without offsets is deleted. Offsets of a deleted topic are deleted with it. Work is done in portions
so that no batch of tombstones is too large and nobody waits long for one pass. It does NOT run by
itself: a timer that it sets drives it.
"""

from collections import deque
from typing import Final, NamedTuple

from penstock.coordinator.groups.classic import ClassicGroups
from penstock.coordinator.groups.group import Group, GroupState, OffsetExpiry
from penstock.coordinator.groups.offset_store import CommittedOffset
from penstock.coordinator.groups.offsets import offset_tombstone
from penstock.coordinator.groups.reaction import Reaction
from penstock.coordinator.metadata_view import TopicsView
from penstock.coordinator.shard import StoredRecord, TimerKey
from penstock.protocol.error_codes import ErrorCode

EXPIRY: Final = ("offset-expiry",)
"""The timer of the next look at all groups, or of its next portion."""
DELETED_TOPICS: Final = ("offsets-of-deleted-topics",)
"""The timer of the next portion of tombstones for deleted topics."""
GROUPS_PER_PASS_MAX: Final = 1_000
"""Groups that are looked at in one turn: some milliseconds of work."""
RECORDS_PER_PASS_MAX: Final = 2_000
"""Tombstones in one batch: at most about 600 bytes each, so that a batch stays near 1 MiB."""


class _Doomed(NamedTuple):
    """An offset to be forgotten, unless it was committed anew meanwhile."""

    group_id: str
    topic: str
    partition: int
    record_offset: int | None
    """Of the committed offset; None: there is only a pending one."""


class OffsetCleanup:
    """Forgets what is old."""

    def __init__(self, state: GroupState, classic: ClassicGroups) -> None:
        self._state = state
        self._store = state.offsets
        self._classic = classic
        self._groups_to_check: deque[str] = deque()
        self._doomed: deque[_Doomed] = deque()

    def loaded(self, reaction: Reaction) -> None:
        """Start the timer. A topic that is missing now may be missing in our image only."""
        reaction.set_timer(EXPIRY, self._state.settings.offsets_retention_check_interval_ms)

    def timer_fired(self, key: TimerKey, reaction: Reaction) -> bool:
        """Do the next portion; False: the timer is somebody else's."""
        if key == EXPIRY:
            self._expire(reaction)
        elif key == DELETED_TOPICS:
            self._forget_doomed(reaction)
        else:
            return False
        return True

    def delete_group(self, group: Group) -> list[StoredRecord]:
        """The tombstones of a group and of all its offsets. A live classic group stays."""
        group_id = group.group_id
        committed = self._store.of_group(group_id)
        keys = [(topic, partition) for topic, of in committed.items() for partition in of]
        for topic, partition in self._store.pending_of_group(group_id):
            if partition not in committed.get(topic, {}):
                keys.append((topic, partition))
        records = [offset_tombstone(group_id, topic, partition) for topic, partition in keys]
        return records + group.tombstones()

    # --- Expiry ---

    def _expire(self, reaction: Reaction) -> None:
        if not self._groups_to_check:
            everybody = (*self._state.classic, *self._state.consumer)
            self._groups_to_check.extend(everybody)
        for _ in range(min(len(self._groups_to_check), GROUPS_PER_PASS_MAX)):
            if reaction.record_count >= RECORDS_PER_PASS_MAX:
                break
            self._expire_group(self._groups_to_check.popleft(), reaction)
        delay_ms = self._state.settings.offsets_retention_check_interval_ms
        reaction.set_timer(EXPIRY, 0 if self._groups_to_check else delay_ms)

    def _expire_group(self, group_id: str, reaction: Reaction) -> None:
        group = self._state.find(group_id)
        if group is None:
            return
        if self._expire_offsets(group, reaction) and group.check_delete() is ErrorCode.NONE:
            reaction.write_all(group.tombstones())
            self._classic.forget(group_id, reaction)

    def _expire_offsets(self, group: Group, reaction: Reaction) -> bool:
        """Write the tombstones; True if no offset is left and no transaction holds one."""
        offsets = self._store.of_group(group.group_id)
        expiry = group.offset_expiry()
        if offsets and expiry is None:
            return False
        nothing_left = not self._store.has_pending(group.group_id)
        for topic, partitions in offsets.items():
            if expiry is None or group.is_subscribed_to(topic):
                nothing_left = False
                continue
            for partition, offset in partitions.items():
                is_pending = self._store.is_pending(group.group_id, topic, partition)
                if not is_pending and self._is_expired(offset, expiry, reaction.now_ms):
                    record = offset_tombstone(group.group_id, topic, partition)
                    reaction.write(record.key, record.value)
                else:
                    nothing_left = False
        return nothing_left

    def _is_expired(self, offset: CommittedOffset, expiry: OffsetExpiry, now_ms: int) -> bool:
        value = offset.value
        if value.expire_timestamp != -1:
            return now_ms >= value.expire_timestamp
        since_ms = value.commit_timestamp if expiry.since_ms is None else expiry.since_ms
        return now_ms - since_ms >= self._state.settings.offsets_retention_ms

    # --- Deleted topics ---

    def topics_changed(self, before: TopicsView, after: TopicsView, reaction: Reaction) -> None:
        """Forget the offsets of topics that are gone, or gone and made anew."""
        gone = []
        for name in self._store.topics():
            old, new = before.by_name(name), after.by_name(name)
            if old is not None and (new is None or new.topic_id != old.topic_id):
                gone.append(name)
        self._doom(sorted(gone), reaction)

    def _doom(self, topics: list[str], reaction: Reaction) -> None:
        for topic in topics:
            for group_id, _, partition in self._store.of_topic(topic):
                offset = self._store.get(group_id, topic, partition)
                record_offset = None if offset is None else offset.record_offset
                self._doomed.append(_Doomed(group_id, topic, partition, record_offset))
        if self._doomed:
            self._forget_doomed(reaction)

    def _forget_doomed(self, reaction: Reaction) -> None:
        while self._doomed and reaction.record_count < RECORDS_PER_PASS_MAX:
            doomed = self._doomed.popleft()
            offset = self._store.get(doomed.group_id, doomed.topic, doomed.partition)
            record_offset = None if offset is None else offset.record_offset
            if record_offset == doomed.record_offset:
                record = offset_tombstone(doomed.group_id, doomed.topic, doomed.partition)
                reaction.write(record.key, record.value)
        if self._doomed:
            reaction.set_timer(DELETED_TOPICS, 0)
