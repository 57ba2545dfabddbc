"""Runs `penstock` with safeguards of groups and transactions taken out, or known ones of the log.

    unguarded.py CHANGE[,CHANGE...] serve ...

For `test_mutations` alone: a checker that finds nothing in a broken broker proves nothing. The
product's code is changed from outside, in this process, before it starts. `slower-sync`, and
`slow-sync` and `late-answer` of `tests/crash/unguarded.py`, remove nothing; they make the
dangerous moment longer.
"""

import sys
import time
from collections.abc import Callable, Iterable
from uuid import UUID

from penstock.cli.main import run
from penstock.coordinator.driver import ShardDriver
from penstock.coordinator.shard import Outcome
from penstock.coordinator.transactions import decisions
from penstock.core.clock import SystemClock
from penstock.core.deferred import Deferred
from penstock.core.errors import PenstockError
from penstock.core.limits import PRODUCER_EXPIRATION_MS
from penstock.core.types import TopicPartition
from penstock.node.coordination.transaction_effects import TransactionEffects
from penstock.records.batch import BatchHeader, iterate_headers
from penstock.records.validation import ValidatedBatch
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.manager import TransactionEnd
from penstock.storage import group_commit
from penstock.storage.compaction.offset_map import OffsetMap
from penstock.storage.flusher import Flusher, FlushRound
from penstock.storage.log import partition_log
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log.open_transactions import NO_GUARD
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log.producer_entry import ProducerBatch
from penstock.storage.log.producer_state import ProducerStates
from penstock.storage.log.segment import Segment
from penstock.storage.log_manager import LogManager
from penstock.storage.managed_directory import ManagedDirectory
from tests.crash.unguarded import CHANGES as CHANGES_OF_THE_LOG
from tests.crash.unguarded import replace

SLOW_SECONDS = 0.3
"""Some client commits in any such span."""


def no_epoch_check() -> None:
    """Take a producer that was replaced for the one that replaced it."""
    original = ProducerStates.check

    def check(
        self: ProducerStates, header: BatchHeader, guard: int = NO_GUARD
    ) -> ProducerBatch | None:
        entry = self.entries.get(header.producer_id)
        if entry is not None and header.producer_epoch < entry.epoch:
            return None
        return original(self, header, guard)

    replace(ProducerStates, "check", check)
    replace(decisions, "_stranger", lambda *_: None)


def offsets_before_durable() -> None:
    """Answer for a coordinator's records while they are in the page cache only."""

    def leave_at_once(self: ShardDriver, outcome: Outcome) -> None:
        answers = [self._answer_to(reply) for reply in outcome.replies]
        self._leave(answers, outcome, self._life, None)

    replace(ShardDriver, "_leave_when_committed", leave_at_once)


def no_last_stable_offset() -> None:
    """Show records of transactions that are still open."""
    stable = property(lambda partition: partition.state.high_watermark)
    replace(HostedPartition, "last_stable_offset", stable)


def no_abort_marker() -> None:
    """Call a transaction aborted and write it nowhere."""
    original = TransactionEffects._append

    def append(
        self: TransactionEffects, name: TopicPartition, end: TransactionEnd
    ) -> Deferred[PenstockError | None]:
        if end.commits:
            return original(self, name, end)
        answer: Deferred[PenstockError | None] = Deferred()
        answer.set(None)
        return answer

    replace(TransactionEffects, "_append", append)


def expiry_by_timestamps() -> None:
    """Forget producers by the timestamps of their records, which clients set; look all the time."""
    original = ProducerStates.check

    def check(
        self: ProducerStates, header: BatchHeader, guard: int = NO_GUARD
    ) -> ProducerBatch | None:
        entry = self.entries.get(header.producer_id)
        limit_ms = SystemClock().now_ms() - PRODUCER_EXPIRATION_MS
        if entry is not None and entry.last_timestamp_ms <= limit_ms and entry.open_offset < 0:
            del self.entries[header.producer_id]
        return original(self, header, guard)

    replace(ProducerStates, "check", check)


def no_start_checkpoint() -> None:
    """Answer DeleteRecords and store the new start nowhere."""
    replace(ManagedDirectory, "write_log_starts", lambda _self: None)


def eager_compaction() -> None:
    """Take the last value of each key for an older one."""
    original = OffsetMap.latest
    replace(OffsetMap, "latest", lambda self, key: original(self, key) + 1)


def eager_retention() -> None:
    """Delete every sealed segment, whatever the topic keeps."""

    def expired_count(segments: list[Segment], ends: list[int], **words: int) -> int:
        limit = words["offset_limit"]
        return sum(1 for end in ends[: len(segments) - 1] if end <= limit)

    replace(partition_log, "expired_count", expired_count)


def deleted_topics_come_back() -> None:
    """A topic that is created again has the records of the one before."""
    kept: dict[TopicPartition, bytes] = {}
    take_out, create_log = LogManager.take_out, LogManager.create_log

    def remember(
        self: LogManager, partitions: Iterable[TopicPartition], *, keep: bool = False
    ) -> object:
        names = list(partitions)
        for name in names:
            log = self.logs.get(name)
            if log is not None and name.topic.startswith("history") and log.end_offset:
                read = log.read(
                    log.log_start_offset,
                    1 << 30,
                    offset_limit=log.end_offset,
                    at_least_one=True,
                    nowait=False,
                )
                kept[name] = bytes(read.records)
        return take_out(self, names, keep=keep)

    def create(
        self: LogManager, name: TopicPartition, topic_id: UUID, settings: LogSettings
    ) -> PartitionLog:
        log = create_log(self, name, topic_id, settings)
        data = kept.pop(name, b"")
        for position, header in iterate_headers(data):
            buffer = memoryview(bytearray(data[position : position + header.size_bytes]))
            batch = ValidatedBatch(header, buffer, header.max_timestamp_ms, 0)
            log.append(batch, leader_epoch=0)
        return log

    replace(LogManager, "take_out", remember)
    replace(LogManager, "create_log", create)


def slower_sync() -> None:
    """A very slow disk; removes nothing."""
    original = Flusher.execute

    def execute(self: Flusher, flush_round: FlushRound) -> None:
        time.sleep(SLOW_SECONDS)
        original(self, flush_round)

    replace(Flusher, "execute", execute)
    # The changes here do not reach the pool.
    replace(group_commit, "open_sync_pool", lambda _threads_max: None)


CHANGES: dict[str, Callable[[], None]] = {
    **CHANGES_OF_THE_LOG,
    "slower-sync": slower_sync,
    "no-epoch-check": no_epoch_check,
    "offsets-before-durable": offsets_before_durable,
    "no-last-stable-offset": no_last_stable_offset,
    "no-abort-marker": no_abort_marker,
    "expiry-by-timestamps": expiry_by_timestamps,
    "no-start-checkpoint": no_start_checkpoint,
    "eager-compaction": eager_compaction,
    "eager-retention": eager_retention,
    "deleted-topics-come-back": deleted_topics_come_back,
}

if __name__ == "__main__":
    for change in sys.argv[1].split(","):
        CHANGES[change]()
    sys.exit(run(sys.argv[2:]))
