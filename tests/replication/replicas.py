"""A `ReplicaManager` over a log in memory, whose disk and clock the test moves.

Guarantees: nothing is durable until `Node.sync`, and no time passes until `ManualTimer.advance`.
So a test can hold a request at any point between append and commit.
"""

from collections.abc import Callable
from uuid import UUID

from penstock.core.types import TopicPartition
from penstock.records.validation import ProduceRules, ValidatedBatch
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.manager import ReplicaManager
from penstock.storage.log.log_settings import FlushMode, LogSettings
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.logs import Batch, new_log, sync

SETTINGS = LogSettings(retention_ms=-1)
RULES = ProduceRules(batch_bytes_max=1_000_000)


class ManualTimer:
    """`replication.manager.Timer` that the test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._alarm: tuple[float, Callable[[], None]] | None = None

    def now(self) -> float:
        return self.seconds

    def set_alarm(self, moment: float, action: Callable[[], None]) -> None:
        self._alarm = (moment, action)

    def cancel(self) -> None:
        self._alarm = None

    def advance(self, seconds: float) -> None:
        """Let time pass; alarms ring when they are due, also those that ringing sets."""
        self.seconds += seconds
        while self._alarm is not None and self._alarm[0] <= self.seconds:
            _, action = self._alarm
            self._alarm = None
            action()


class Node:
    """Replicas of partitions whose logs lie on one memory disk."""

    def __init__(self, *, flush_mode: FlushMode = FlushMode.ALWAYS) -> None:
        self.timer = ManualTimer()
        self.appends = 0
        self.replicas = ReplicaManager(self.timer, self._appended)
        self.disk = FaultyDisk(MemoryDisk())
        self.logs, log = new_log(self.disk, SETTINGS, flush_mode=flush_mode)
        self.partition = self._host(log.topic_partition, log.topic_id)

    def _appended(self) -> None:
        self.appends += 1

    def _host(self, name: TopicPartition, topic_id: UUID | None) -> HostedPartition:
        log = self.logs.logs[name]
        assert topic_id is not None
        return self.replicas.host(log, topic_id, 0, RULES)

    def add(self, topic: str, partition: int = 0) -> HostedPartition:
        """One more partition, on the same disk."""
        name, topic_id = TopicPartition(topic, partition), UUID(int=len(self.logs.logs) + 1)
        self.logs.create_log(name, topic_id, SETTINGS)
        return self._host(name, topic_id)

    def append(self, batch: Batch, partition: HostedPartition | None = None) -> int:
        """Append a batch; its last offset."""
        validated = ValidatedBatch(batch.header, batch.buffer, batch.max_timestamp_ms, 0)
        return self.replicas.append(partition or self.partition, validated).last_offset

    def sync(self) -> None:
        """What was appended is on the disk now, and the replicas are told."""
        sync(self.logs)
        self.replicas.on_durable(list(self.logs.logs.values()))
