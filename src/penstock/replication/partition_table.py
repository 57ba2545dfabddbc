"""`PartitionTable`: the partitions of this broker, by name and by topic id. In memory only."""

from collections.abc import Callable, Iterator

from penstock.core.errors import PenstockError, UnknownTopicOrPartitionError
from penstock.core.types import TopicPartition
from penstock.replication.followers.read_replicas import RemoteReaders
from penstock.replication.followers.start_waits import StartWaits
from penstock.replication.hosted_partition import HostedPartition


class PartitionTable:
    """The partitions that are here, and the errors of the ones that cannot be served."""

    def __init__(self) -> None:
        self.unserved: dict[TopicPartition, PenstockError] = {}
        self._partitions: dict[TopicPartition, HostedPartition] = {}
        self._by_topic: dict[str | bytes, dict[int, HostedPartition]] = {}
        """The same by topic, under its name and under the 16 bytes of its id."""
        self.readers = RemoteReaders()
        self.start_waits = StartWaits()
        self.on_internal_role: Callable[[TopicPartition], None] | None = None
        """Called when a partition of an internal topic begins a role, or is served no more."""
        self.on_logs_failed: Callable[[list[TopicPartition]], None] | None = None
        """Called with partitions whose logs take no more records, because their disk failed."""

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, name: TopicPartition) -> bool:
        return name in self._partitions

    def __iter__(self) -> Iterator[HostedPartition]:
        return iter(self._partitions.values())

    def _add(self, partition: HostedPartition) -> None:
        """Add a partition, or replace it by its next role."""
        before = self._partitions.get(partition.name)
        if before is not None:
            self.readers.forget(before)
        self._partitions[partition.name] = partition
        for topic in (partition.name.topic, partition.topic_id.bytes):
            self._by_topic.setdefault(topic, {})[partition.name.partition] = partition
        self.unserved.pop(partition.name, None)
        if partition.is_internal and self.on_internal_role is not None:
            self.on_internal_role(partition.name)

    def _take_out(self, name: TopicPartition) -> HostedPartition | None:
        self.unserved.pop(name, None)
        partition = self._partitions.pop(name, None)
        if partition is not None:
            self.readers.forget(partition)
            for topic in (name.topic, partition.topic_id.bytes):
                siblings = self._by_topic[topic]
                del siblings[name.partition]
                if not siblings:
                    del self._by_topic[topic]
            if partition.is_internal and self.on_internal_role is not None:
                self.on_internal_role(name)
        return partition

    def refuse(self, name: TopicPartition, error: PenstockError) -> None:
        """Answer every request for a partition with an error: its log cannot be served."""
        self.unserved[name] = error

    def partition(self, name: TopicPartition) -> HostedPartition:
        """The partition; raises `UnknownTopicOrPartitionError`, or the error of its log."""
        partition = self._partitions.get(name)
        if partition is None:
            if name in self.unserved:
                raise self.unserved[name]
            raise UnknownTopicOrPartitionError(f"there is no partition {name} here")
        return partition

    def find(self, topic: str | bytes, partition: int) -> HostedPartition | None:
        """The partition of a topic, by its name or the 16 bytes of its id, if it is served."""
        siblings = self._by_topic.get(topic)
        return None if siblings is None else siblings.get(partition)

    def is_served(self, name: TopicPartition) -> bool:
        """Whether the partition is here and its log is whole."""
        partition = self._partitions.get(name)
        return partition is not None and partition.log.problem is None
