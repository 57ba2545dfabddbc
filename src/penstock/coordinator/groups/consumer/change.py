"""`GroupChange`: collects the records of one event for one consumer group.

It reads the present group and collects records; the group itself changes when they are replayed.
The steps are those of Kafka, in its order: the member, its subscription, the epoch of the group,
the target assignment, the member's own assignment. It does NOT check the client
(`consumer.heartbeat`, `consumer.classic_members`) and sets no timers.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from penstock.coordinator.groups import regular_expressions
from penstock.coordinator.groups.assignors import ASSIGNORS, PartitionSets
from penstock.coordinator.groups.consumer import records
from penstock.coordinator.groups.consumer.consumer_group import ConsumerGroup, ResolvedExpression
from penstock.coordinator.groups.consumer.consumer_member import Member
from penstock.coordinator.groups.consumer.reconciliation import (
    ReportedPartitions,
    Target,
    reconcile,
)
from penstock.coordinator.groups.consumer.topics import (
    metadata_hash,
    specification,
    subscribed_ids,
)
from penstock.coordinator.groups.state.group_state import GroupState
from penstock.coordinator.shard import Permissions, StoredRecord
from penstock.security.acls.values import Operation, ResourceType

EXPRESSION_REFRESH_INTERVAL_MS_MIN: Final = 10_000
"""Between two resolutions of the same expressions, as in Kafka: each reads every topic."""


class GroupChange:
    """The changes of one event to one group."""

    def __init__(
        self,
        state: GroupState,
        group: ConsumerGroup,
        now_ms: int,
        permissions: Permissions | None = None,
    ) -> None:
        self._state = state
        self.group = group
        self._now_ms = now_ms
        self._permissions = permissions
        """Of the client of this event: an expression matches the topics that it may describe."""
        self.records: list[StoredRecord] = []
        self.epoch = group.epoch
        self.target_epoch = group.target_epoch
        self._targets: dict[str, PartitionSets] = {}
        self._expressions: dict[str, ResolvedExpression] | None = None
        self._replaced_id: str | None = None
        self.is_subscription_changed = False

    # --- Members ---

    def replace_static(self, old: Member, new_id: str) -> Member:
        """Give an instance a new member id; it keeps its partitions and its target."""
        group_id = self.group.group_id
        new = replace(old, member_id=new_id, epoch=0, previous_epoch=0)
        target = self.group.targets.get(old.member_id, {})
        self.records += records.no_member(group_id, old.member_id)
        self.records.append(records.member_metadata(group_id, new))
        self.records.append(records.member_target(group_id, new_id, target))
        self.records.append(records.current_assignment(group_id, new))
        self._replaced_id = old.member_id
        return new

    def update_member(self, old: Member, new: Member) -> None:
        """Write the member's metadata, and a new epoch of the group if one is due."""
        group = self.group
        if new != old:
            self.records.append(records.member_metadata(group.group_id, new))
        is_named_change = new.subscribed_names != old.subscribed_names
        is_pattern_change = new.subscribed_regex != old.subscribed_regex
        is_resolved_anew = self._update_expressions(old, new)
        self.is_subscription_changed = is_named_change or is_pattern_change
        is_bumped = self.is_subscription_changed or is_resolved_anew
        if is_bumped or group.checked_revision != self._state.topics.revision:
            self._update_epoch(self._names_with(old, new), is_bumped=is_bumped)
            if not self.records:
                # Not with records, because the log may refuse them: the next heartbeat checks then.
                group.checked_revision = self._state.topics.revision

    def remove_members(self, leaving: list[Member]) -> None:
        """Members have left or were fenced: the group begins a new epoch without them."""
        group = self.group
        for member in leaving:
            self.records += records.no_member(group.group_id, member.member_id)
        names = Counter(group.name_counts)
        patterns: Counter[str] = Counter()
        for member in leaving:
            names.subtract(member.subscribed_names)
            if member.subscribed_regex:
                patterns[member.subscribed_regex] += 1
        expressions = dict(group.expressions)
        for pattern, count in patterns.items():
            if group.expression_counts[pattern] == count:
                self.records.append(records.no_expression(group.group_id, pattern))
                expressions.pop(pattern, None)
        self._expressions = expressions
        remaining = {name for name, count in names.items() if count > 0}
        for resolved in expressions.values():
            remaining |= resolved.topics
        self._update_epoch(remaining, is_bumped=True)

    # --- Regular expressions ---

    @property
    def expressions(self) -> dict[str, ResolvedExpression]:
        """The expressions as they will be after this event."""
        return self.group.expressions if self._expressions is None else self._expressions

    def _update_expressions(self, old: Member, new: Member) -> bool:
        """Resolve new or outdated expressions; whether any matches other topics than before."""
        group = self.group
        before, after = old.subscribed_regex, new.subscribed_regex
        if before != after:
            if before and group.expression_counts[before] == 1:
                self.records.append(records.no_expression(group.group_id, before))
                self._expressions = {k: v for k, v in group.expressions.items() if k != before}
            if after and after not in group.expression_counts:
                regular_expressions.check(after)
        wanted = [after] if after and after not in self.expressions else []
        if self._are_expressions_outdated():
            wanted += self.expressions
        return self._resolve(wanted)

    def _are_expressions_outdated(self) -> bool:
        """Whether topics were added or the interval is over; not before the minimum interval."""
        if not self.expressions:
            return False
        oldest = min(self.expressions.values(), key=lambda resolved: resolved.resolved_ms)
        age_ms = self._now_ms - oldest.resolved_ms
        if age_ms <= EXPRESSION_REFRESH_INTERVAL_MS_MIN:
            return False
        interval_ms = self._state.settings.consumer_regex_refresh_interval_ms
        return oldest.revision < self._state.topics.revision or age_ms > interval_ms

    def _resolve(self, patterns: list[str]) -> bool:
        if not patterns:
            return False
        topics = self._state.topics
        names = list(topics.names())
        expressions = dict(self.expressions)
        is_changed = False
        for pattern in patterns:
            found = self._described(regular_expressions.matching(pattern, names))
            known = expressions.get(pattern)
            is_changed = is_changed or found != (known.topics if known else frozenset())
            expressions[pattern] = ResolvedExpression(found, topics.revision, self._now_ms)
            self.records.append(
                records.expression(
                    self.group.group_id, pattern, found, topics.revision, self._now_ms
                )
            )
        self._expressions = expressions
        return is_changed

    def _described(self, names: frozenset[str]) -> frozenset[str]:
        """The topics that the client may describe; as in Kafka, the whole group gets these."""
        permissions = self._permissions
        if permissions is None:
            return names
        return frozenset(
            name
            for name in names
            if permissions.allows(Operation.DESCRIBE, ResourceType.TOPIC, name, is_logged=False)
        )

    # --- Epochs ---

    def _names_with(self, old: Member, new: Member) -> set[str]:
        """All topics that the group will subscribe to when `old` has become `new`."""
        counts = self.group.name_counts
        is_member = old.member_id in self.group.members or self._replaced_id is not None
        gone = old.subscribed_names - new.subscribed_names if is_member else ()
        names = set(counts)
        names.difference_update(name for name in gone if counts[name] == 1)
        names |= new.subscribed_names
        for resolved in self.expressions.values():
            names |= resolved.topics
        return names

    def _update_epoch(self, names: Iterable[str], *, is_bumped: bool) -> None:
        """Begin a new epoch if members, subscriptions or topics changed."""
        group = self.group
        now_hash = metadata_hash(names, self._state.topics)
        if is_bumped or now_hash != group.metadata_hash:
            self.epoch += 1
            self.records.append(records.group_epoch(group.group_id, self.epoch, now_hash))
        if group.has_partition_metadata:
            self.records.append(records.no_partition_metadata(group.group_id))

    # --- Assignments ---

    def update_target(self, old: Member, new: Member) -> None:
        """Compute a new target assignment if the epoch asks for it and the last is old enough."""
        group = self.group
        if self.epoch <= group.target_epoch or not self._may_compute():
            return
        members = {
            member_id: member
            for member_id, member in group.members.items()
            if member_id != self._replaced_id
        }
        members[new.member_id] = new
        targets = group.targets
        if self._replaced_id is not None:
            targets = {**targets, new.member_id: group.targets.get(self._replaced_id, {})}
        assign = ASSIGNORS[self._preferred_assignor(old, new)]
        group_specification = specification(
            members.values(), targets, self.expressions, self._state.topics
        )
        for member_id, target in assign(group_specification).items():
            known = group.targets.get(member_id)
            if known is not target and known != target:
                self._targets[member_id] = target
                self.records.append(records.member_target(group.group_id, member_id, target))
        self.target_epoch = self.epoch
        self.records.append(records.target_epoch(group.group_id, self.epoch, self._now_ms))

    def _may_compute(self) -> bool:
        """As Kafka 4.3, compute once in an interval, so that many joins cost one computation."""
        computed_ms = self.group.target_computed_ms
        interval_ms = self._state.times.of(self.group.group_id).assignment_interval_ms
        return computed_ms == 0 or self._now_ms >= computed_ms + interval_ms

    def _preferred_assignor(self, old: Member, new: Member) -> str:
        """The assignor that most members prefer; the default if none has one."""
        counts = dict(self.group.assignor_counts)
        is_member = old.member_id in self.group.members or self._replaced_id is not None
        if is_member and old.server_assignor is not None:
            counts[old.server_assignor] = counts.get(old.server_assignor, 1) - 1
        if new.server_assignor is not None:
            counts[new.server_assignor] = counts.get(new.server_assignor, 0) + 1
        best = max(counts, key=counts.__getitem__, default=None)
        if best is None or counts[best] <= 0:
            return self._state.settings.consumer_assignors[0]
        return best

    def reconcile(self, member: Member, reported: ReportedPartitions | None) -> Member:
        """Move a member towards the target, as far as possible now."""
        if not self.is_subscription_changed and member.is_reconciled_to(self.target_epoch):
            return member
        partitions = self._targets.get(member.member_id)
        if partitions is None:
            partitions = self.group.target_of(member.member_id, member.instance_id)
        target = Target(
            epoch=self.target_epoch,
            partitions=partitions,
            subscribed=subscribed_ids(member, self.expressions, self._state.topics),
            is_owned=self.group.is_owned,
        )
        updated = reconcile(
            member, target, reported, is_subscription_changed=self.is_subscription_changed
        )
        if updated is not member and updated != member:
            self.records.append(records.current_assignment(self.group.group_id, updated))
            return updated
        return member
