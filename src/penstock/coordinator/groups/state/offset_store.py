"""`OffsetStore`: committed offsets, and offsets that wait for the end of a transaction.

Replicated state: `replay` and `replay_marker` are the only ways to change it. Rules:

- an offset written in a transaction is pending until that producer's marker; a commit stores it, an
  abort drops it;
- when both exist, the record that was written later wins, whenever the marker is written, so that
  the
  answer does not depend on records that compaction has removed;
- a tombstone removes the committed offset and every pending one of that partition.

It does NOT know groups or members, and checks no permissions.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from penstock.coordinator.shard import Producer
from penstock.protocol.stored.group_records import OffsetCommitKey, OffsetCommitValue


class CommittedOffset(NamedTuple):
    """An offset and where its record lies in the log."""

    value: OffsetCommitValue
    record_offset: int


PartitionKey: TypeAlias = tuple[str, str, int]
"""Group, topic, partition."""
TopicOffsets: TypeAlias = dict[str, dict[int, CommittedOffset]]
"""By topic, then by partition."""


class OffsetStore:
    """The offsets of all groups of one shard."""

    def __init__(self) -> None:
        self._committed: dict[str, TopicOffsets] = {}
        self._pending: dict[int, dict[PartitionKey, CommittedOffset]] = {}
        """By producer id. A producer has an entry exactly while an offset of it is pending."""
        self._open: dict[str, dict[tuple[str, int], set[int]]] = {}
        """By group, then by partition: the producers with a pending offset."""
        self._groups_by_topic: dict[str, int] = {}
        """How many groups have committed offsets of a topic: deleted topics are found by it."""
        self.end_offset = 0
        """The offset behind the last record: later records are written there or after it."""

    # --- Questions ---

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """The committed offset."""
        topics = self._committed.get(group_id)
        partitions = None if topics is None else topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def of_group(self, group_id: str) -> TopicOffsets:
        """All committed offsets of a group. Not to be changed."""
        return self._committed.get(group_id, {})

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a transaction that has not ended wrote this offset."""
        partitions = self._open.get(group_id)
        return partitions is not None and (topic, partition) in partitions

    def has_pending(self, group_id: str) -> bool:
        """Whether a transaction that has not ended wrote any offset of this group."""
        return group_id in self._open

    def keys_of_group(self, group_id: str) -> Iterator[tuple[str, int]]:
        """Topic and partition of every offset of a group, committed or pending, each once."""
        committed = self._committed.get(group_id, {})
        for topic, partitions in committed.items():
            for partition in partitions:
                yield topic, partition
        for topic, partition in self._open.get(group_id, ()):
            if partition not in committed.get(topic, ()):
                yield topic, partition

    def count_of_group(self, group_id: str) -> int:
        """How many offsets a group has, committed and pending."""
        committed = sum(map(len, self._committed.get(group_id, {}).values()))
        return committed + len(self._open.get(group_id, ()))

    def last_written(self, group_id: str, topic: str, partition: int) -> int:
        """Where the newest record of an offset is, committed or pending; -1: there is none."""
        key = (group_id, topic, partition)
        committed = self.get(group_id, topic, partition)
        newest = -1 if committed is None else committed.record_offset
        for producer_id in self._open.get(group_id, {}).get((topic, partition), ()):
            newest = max(newest, self._pending[producer_id][key].record_offset)
        return newest

    def group_ids(self) -> set[str]:
        """The groups with committed or pending offsets."""
        return self._committed.keys() | self._open.keys()

    def committed(self) -> Iterator[tuple[PartitionKey, int]]:
        """Every committed offset of every group."""
        for group_id, topics in self._committed.items():
            for topic, partitions in topics.items():
                for partition, found in partitions.items():
                    yield (group_id, topic, partition), found.value.offset

    def topics(self) -> set[str]:
        """The topics of all offsets, pending ones too."""
        pending = {topic for partitions in self._open.values() for topic, _ in partitions}
        return self._groups_by_topic.keys() | pending

    # --- Changes ---

    def replay(
        self,
        key: OffsetCommitKey,
        value: OffsetCommitValue | None,
        producer: Producer | None,
        offset: int,
    ) -> None:
        """Apply a record."""
        self.end_offset = offset + 1
        if value is None:
            self._remove(key.group, key.topic, key.partition)
        elif producer is None:
            self._put(key.group, key.topic, key.partition, CommittedOffset(value, offset))
        else:
            pending = self._pending.setdefault(producer.producer_id, {})
            pending[key.group, key.topic, key.partition] = CommittedOffset(value, offset)
            partitions = self._open.setdefault(key.group, {})
            partitions.setdefault((key.topic, key.partition), set()).add(producer.producer_id)

    def replay_marker(self, producer: Producer, *, commits: bool) -> None:
        """Apply the end of a transaction."""
        pending = self._pending.pop(producer.producer_id, {})
        for (group_id, topic, partition), offset in pending.items():
            self._close(group_id, topic, partition, producer.producer_id)
            if not commits:
                continue
            existing = self.get(group_id, topic, partition)
            if existing is None or offset.record_offset > existing.record_offset:
                self._put(group_id, topic, partition, offset)

    def _put(self, group_id: str, topic: str, partition: int, offset: CommittedOffset) -> None:
        topics = self._committed.get(group_id)
        if topics is None:
            topics = self._committed[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
            self._groups_by_topic[topic] = self._groups_by_topic.get(topic, 0) + 1
        partitions[partition] = offset

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._committed.get(group_id, {})
        partitions = topics.get(topic, {})
        if partitions.pop(partition, None) is not None and not partitions:
            del topics[topic]
            self._groups_by_topic[topic] -= 1
            if not self._groups_by_topic[topic]:
                del self._groups_by_topic[topic]
            if not topics:
                del self._committed[group_id]
        for producer_id in tuple(self._open.get(group_id, {}).get((topic, partition), ())):
            self._close(group_id, topic, partition, producer_id)
            pending = self._pending[producer_id]
            del pending[group_id, topic, partition]
            if not pending:
                del self._pending[producer_id]

    def _close(self, group_id: str, topic: str, partition: int, producer_id: int) -> None:
        partitions = self._open[group_id]
        producers = partitions[topic, partition]
        producers.remove(producer_id)
        if not producers:
            del partitions[topic, partition]
            if not partitions:
                del self._open[group_id]

    # --- For tests and validation ---

    def snapshot(self) -> object:
        """The whole state as a plain value: equal states have equal snapshots."""
        committed = {
            (group_id, topic, partition): offset
            for group_id, topics in self._committed.items()
            for topic, partitions in topics.items()
            for partition, offset in partitions.items()
        }
        return committed, {producer: dict(pending) for producer, pending in self._pending.items()}

    def validate(self) -> None:
        """Assert that the indexes agree with the offsets."""
        counts: dict[str, int] = {}
        for topics in self._committed.values():
            assert topics, "a group without offsets is not kept"
            for topic, partitions in topics.items():
                assert partitions, "a topic without offsets is not kept"
                counts[topic] = counts.get(topic, 0) + 1
        assert counts == self._groups_by_topic
        from_pending: dict[str, dict[tuple[str, int], set[int]]] = {}
        for producer_id, pending in self._pending.items():
            assert pending, "a producer with nothing pending is not kept"
            for group_id, topic, partition in pending:
                partitions_open = from_pending.setdefault(group_id, {})
                partitions_open.setdefault((topic, partition), set()).add(producer_id)
        assert from_pending == self._open
