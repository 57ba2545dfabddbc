"""`ShareGroupChange`: collects the records of one event for one share group.

It reads the present group and collects records; the group itself changes when they are replayed.
The steps are those of Kafka, in its order: the member, the epoch of the group, the target
assignment, the member's own assignment, the partitions that need delivery state. It does NOT check
the client (`share.share_heartbeat`) and sets no timers.
"""

from collections.abc import Container, Iterable
from dataclasses import replace
from uuid import UUID

from penstock.coordinator.groups.assignors import PartitionSets
from penstock.coordinator.groups.assignors.simple import ShareMemberSpecification, assign_simply
from penstock.coordinator.groups.consumer.topics import metadata_hash
from penstock.coordinator.groups.share import records
from penstock.coordinator.groups.share.share_group import ShareGroup
from penstock.coordinator.groups.share.share_member import ShareMember
from penstock.coordinator.groups.share.state_partitions import NamedPartitions, Place
from penstock.coordinator.groups.state.group_state import GroupState
from penstock.coordinator.shard import StoredRecord


class ShareGroupChange:
    """The changes of one event to one group."""

    def __init__(self, state: GroupState, group: ShareGroup, now_ms: int) -> None:
        self._state = state
        self.group = group
        self._now_ms = now_ms
        self.records: list[StoredRecord] = []
        self.epoch = group.epoch
        self._target_epoch = group.target_epoch
        self._targets: dict[str, PartitionSets] = {}
        self._names: Iterable[str] = group.name_counts
        """The topics that the group subscribes to after this event."""
        self._is_subscription_changed = False

    # --- Members and epochs ---

    def update_member(self, old: ShareMember, new: ShareMember) -> None:
        """Write the member's metadata, and a new epoch of the group if one is due."""
        group = self.group
        if new != old:
            self.records.append(records.member_metadata(group.group_id, new))
        self._is_subscription_changed = new.subscribed_names != old.subscribed_names
        is_bumped = self._is_subscription_changed
        if group.epoch <= group.target_epoch:
            is_bumped = is_bumped or group.is_assignment_due(self._state.topics)
        if is_bumped or group.checked_revision != self._state.topics.revision:
            self._names = self._names_with(old, new)
            self._update_epoch(is_bumped=is_bumped)
            if not self.records:
                # Not with records, because the log may refuse them: the next heartbeat checks then.
                group.checked_revision = self._state.topics.revision

    def remove_member(self, member: ShareMember) -> None:
        """A member has left or was fenced: the group begins a new epoch without it."""
        self.records += records.no_member(self.group.group_id, member.member_id)
        counts = self.group.name_counts
        gone = {name for name in member.subscribed_names if counts[name] == 1}
        self._names = counts.keys() - gone
        self._update_epoch(is_bumped=True)

    def _names_with(self, old: ShareMember, new: ShareMember) -> set[str]:
        """All topics that the group will subscribe to when `old` has become `new`."""
        counts = self.group.name_counts
        is_member = old.member_id in self.group.members
        gone = old.subscribed_names - new.subscribed_names if is_member else frozenset()
        return (counts.keys() - {name for name in gone if counts[name] == 1}) | new.subscribed_names

    def _update_epoch(self, *, is_bumped: bool) -> None:
        """Begin a new epoch if members, subscriptions, topics or their states changed."""
        group = self.group
        now_hash = metadata_hash(self._names, self._state.topics)
        if is_bumped or now_hash != group.metadata_hash:
            self.epoch += 1
            self.records.append(records.group_epoch(group.group_id, self.epoch, now_hash))

    # --- Assignments ---

    def update_target(self, new: ShareMember) -> None:
        """Compute a new target assignment if the epoch asks for it and the last is old enough."""
        group = self.group
        if self.epoch <= group.target_epoch or not self._may_compute():
            return
        members = {**group.members, new.member_id: new}
        for member_id, target in self._assigned(members).items():
            known = group.targets.get(member_id)
            if known is not target and known != target:
                self._targets[member_id] = target
                self.records.append(records.member_target(group.group_id, member_id, target))
        self._target_epoch = self.epoch
        self.records.append(records.target_epoch(group.group_id, self.epoch, self._now_ms))

    def _may_compute(self) -> bool:
        """As Kafka 4.3, compute once in an interval, so that many joins cost one computation."""
        computed_ms = self.group.target_computed_ms
        interval_ms = self._state.times.of_share(self.group.group_id).assignment_interval_ms
        return computed_ms == 0 or self._now_ms >= computed_ms + interval_ms

    def _assigned(self, members: dict[str, ShareMember]) -> dict[str, PartitionSets]:
        """The assignment of initialized partitions; members with one subscription share its ids."""
        topics, states = self._state.topics, self.group.state_partitions
        ids: dict[frozenset[str], frozenset[UUID]] = {}
        assignable: dict[UUID, frozenset[int]] = {}
        specified: dict[str, ShareMemberSpecification] = {}
        for member_id, member in members.items():
            names = member.subscribed_names
            if names not in ids:
                views = [view for view in map(topics.by_name, names) if view is not None]
                ids[names] = frozenset(view.topic_id for view in views)
                for view in views:
                    assignable[view.topic_id] = frozenset(
                        number
                        for number in states.initialized_of(view.topic_id)
                        if number < view.partition_count
                    )
            specified[member_id] = ShareMemberSpecification(
                ids[names], self.group.target_of(member_id)
            )
        return assign_simply(specified, assignable)

    def reconcile(self, member: ShareMember) -> ShareMember:
        """Move a member to the target: as partitions are shared, in one step."""
        is_current = member.epoch == self._target_epoch
        if is_current and not self._is_subscription_changed:
            return member
        target = self._targets.get(member.member_id)
        if target is None:
            target = self.group.target_of(member.member_id)
        views = map(self._state.topics.by_name, member.subscribed_names)
        subscribed = {view.topic_id for view in views if view is not None}
        assigned = {one: numbers for one, numbers in target.items() if one in subscribed}
        updated = replace(member, assigned=assigned)
        if not is_current:
            updated = replace(updated, epoch=self._target_epoch, previous_epoch=member.epoch)
        if updated == member:
            return member
        self.records.append(records.current_assignment(self.group.group_id, updated))
        return updated

    # --- Delivery state ---

    def initialize_states(self, under_way: Container[Place]) -> list[Place]:
        """Return the subscribed partitions whose states are to be created now.

        These have no state, and no call for them is under way.
        """
        states = self.group.state_partitions
        fresh: dict[UUID, NamedPartitions] = {}
        places: list[Place] = []
        for name in sorted(self._names):
            view = self._state.topics.by_name(name)
            if view is None:
                continue
            has = states.initialized_of(view.topic_id)
            if len(has) >= view.partition_count:
                continue
            waiting = states.initializing_of(view.topic_id)
            missing = [number for number in range(view.partition_count) if number not in has]
            unknown = frozenset(missing) - waiting
            if unknown:
                fresh[view.topic_id] = NamedPartitions(name, unknown)
            places += [
                (view.topic_id, number)
                for number in missing
                if (view.topic_id, number) not in under_way
            ]
        if fresh:
            group_id = self.group.group_id
            self.records.append(records.state_partitions(group_id, states.begin(fresh)))
        return places
