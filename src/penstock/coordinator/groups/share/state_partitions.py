"""`StatePartitions`: the partitions of a share group that have delivery state.

```
   (none) ──► initializing ──► initialized ──► deleting ──► (none)
                   │ refused                       ▲
                   ▼                               │ a group or its offsets are deleted
                (none) ◄───────────────────────────┘
```

An initializing partition waits for the share coordinator to create its state; only initialized ones
are assigned to members. A topic in `deleting` waits for its states to be deleted. A value: each
change returns a new one. It does NOT call the share coordinator.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias
from uuid import UUID

from penstock.protocol.stored.share_records import (
    ShareGroupStatePartitionMetadataValue,
    ShareGroupStatePartitionMetadataValueTopicInfo,
    ShareGroupStatePartitionMetadataValueTopicPartitionsInfo,
)

Place: TypeAlias = tuple[UUID, int]
"""A topic id and a partition."""


class NamedPartitions(NamedTuple):
    """Partitions of one topic."""

    name: str
    numbers: frozenset[int]


ByTopic: TypeAlias = Mapping[UUID, NamedPartitions]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePartitions:
    """The partitions of one group."""

    initializing: ByTopic = field(default_factory=dict)
    initialized: ByTopic = field(default_factory=dict)
    deleting: Mapping[UUID, str] = field(default_factory=dict)
    """The names of topics whose states are being deleted."""

    @property
    def is_empty(self) -> bool:
        """Whether no partition has state, or will have or had it."""
        return not self.initializing and not self.initialized and not self.deleting

    def initialized_of(self, topic_id: UUID) -> frozenset[int]:
        """The initialized partitions of a topic."""
        found = self.initialized.get(topic_id)
        return frozenset() if found is None else found.numbers

    def initializing_of(self, topic_id: UUID) -> frozenset[int]:
        """The partitions of a topic that wait for their state."""
        found = self.initializing.get(topic_id)
        return frozenset() if found is None else found.numbers

    def topic_ids(self) -> set[UUID]:
        """Every topic that is mentioned."""
        return {*self.initializing, *self.initialized, *self.deleting}

    # --- Changes ---

    def begin(self, more: ByTopic) -> "StatePartitions":
        """These partitions wait for their state, also if they are deleted or have one now."""
        deleting = {one: name for one, name in self.deleting.items() if one not in more}
        return replace(self, initializing=_with(self.initializing, more), deleting=deleting)

    def finish(self, created: Iterable[Place]) -> "StatePartitions":
        """These partitions have their state. Partitions that do not wait any more are left out."""
        by_topic = _by_topic(created, self.initializing)
        return replace(
            self,
            initializing=_without(self.initializing, by_topic),
            initialized=_with(self.initialized, by_topic),
        )

    def give_up(self, refused: Iterable[Place]) -> "StatePartitions":
        """These partitions wait no more; a state that they had before stays."""
        by_topic = _by_topic(refused, self.initializing)
        return replace(self, initializing=_without(self.initializing, by_topic))

    def begin_deletion(self, topic_ids: Iterable[UUID]) -> "StatePartitions":
        """The states of these topics are being deleted."""
        gone = set(topic_ids)
        names = {**self.names(), **self.deleting}
        return StatePartitions(
            initializing=_except(self.initializing, gone),
            initialized=_except(self.initialized, gone),
            deleting={**self.deleting, **{one: names[one] for one in gone if one in names}},
        )

    def finish_deletion(self, topic_ids: Iterable[UUID]) -> "StatePartitions":
        """The states of these topics are deleted."""
        gone = set(topic_ids)
        deleting = {one: name for one, name in self.deleting.items() if one not in gone}
        return replace(self, deleting=deleting)

    def without_topics(self, topic_ids: Iterable[UUID]) -> "StatePartitions":
        """These topics do not exist any more."""
        gone = set(topic_ids)
        return StatePartitions(
            initializing=_except(self.initializing, gone),
            initialized=_except(self.initialized, gone),
            deleting={one: name for one, name in self.deleting.items() if one not in gone},
        )

    def names(self) -> dict[UUID, str]:
        """The names of the topics with partitions that have state or wait for it."""
        return {
            topic_id: found.name
            for part in (self.initializing, self.initialized)
            for topic_id, found in part.items()
        }

    # --- Records ---

    @classmethod
    def from_value(cls, value: ShareGroupStatePartitionMetadataValue) -> "StatePartitions":
        """The partitions of a record."""
        deleting: dict[UUID, str] = {}
        for topic in value.deleting_topics:
            assert topic.topic_id is not None, "a stored topic has an id"
            deleting[topic.topic_id] = topic.topic_name
        return cls(
            initializing=_read(value.initializing_topics),
            initialized=_read(value.initialized_topics),
            deleting=deleting,
        )

    def to_value(self) -> ShareGroupStatePartitionMetadataValue:
        """The record of the partitions."""
        return ShareGroupStatePartitionMetadataValue(
            initializing_topics=_written(self.initializing),
            initialized_topics=_written(self.initialized),
            deleting_topics=tuple(
                ShareGroupStatePartitionMetadataValueTopicInfo(
                    topic_id=topic_id, topic_name=self.deleting[topic_id]
                )
                for topic_id in sorted(self.deleting)
            ),
        )


NO_STATE = StatePartitions()


def _by_topic(places: Iterable[Place], known: ByTopic) -> dict[UUID, NamedPartitions]:
    """Group the places that are in `known`."""
    numbers: dict[UUID, set[int]] = {}
    for topic_id, number in places:
        if topic_id in known and number in known[topic_id].numbers:
            numbers.setdefault(topic_id, set()).add(number)
    return {
        topic_id: NamedPartitions(known[topic_id].name, frozenset(found))
        for topic_id, found in numbers.items()
    }


def _with(part: ByTopic, more: ByTopic) -> dict[UUID, NamedPartitions]:
    found = dict(part)
    for topic_id, (name, numbers) in more.items():
        before = found.get(topic_id)
        both = numbers if before is None else before.numbers | numbers
        found[topic_id] = NamedPartitions(name, both)
    return found


def _without(part: ByTopic, less: ByTopic) -> dict[UUID, NamedPartitions]:
    found: dict[UUID, NamedPartitions] = {}
    for topic_id, (name, numbers) in part.items():
        rest = numbers - less[topic_id].numbers if topic_id in less else numbers
        if rest:
            found[topic_id] = NamedPartitions(name, rest)
    return found


def _except(part: ByTopic, gone: set[UUID]) -> dict[UUID, NamedPartitions]:
    return {topic_id: found for topic_id, found in part.items() if topic_id not in gone}


def _read(
    topics: tuple[ShareGroupStatePartitionMetadataValueTopicPartitionsInfo, ...],
) -> dict[UUID, NamedPartitions]:
    found: dict[UUID, NamedPartitions] = {}
    for topic in topics:
        assert topic.topic_id is not None, "a stored topic has an id"
        found[topic.topic_id] = NamedPartitions(topic.topic_name, frozenset(topic.partitions))
    return found


def _written(
    part: ByTopic,
) -> tuple[ShareGroupStatePartitionMetadataValueTopicPartitionsInfo, ...]:
    return tuple(
        ShareGroupStatePartitionMetadataValueTopicPartitionsInfo(
            topic_id=topic_id,
            topic_name=part[topic_id].name,
            partitions=tuple(sorted(part[topic_id].numbers)),
        )
        for topic_id in sorted(part)
    )
