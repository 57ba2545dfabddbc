"""A workload on a recording disk, with its acknowledgements in order; and the check of any cut.

The workload has everything that writes: rolls, two leader epochs, idempotent producers,
transactions that commit and that abort, snapshots, retention, a second partition, deletion and
creation under the same name, a clean stop, a new start and more appends. After each flush it
records the number of changes on the disk and the acknowledged records by then: a cut after that
number of changes must leave all of them.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.core.errors import CorruptBatchError
from penstock.core.types import TopicPartition
from penstock.records.batch import checksum_matches, iterate_headers
from penstock.records.control import read_marker
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log.open_transactions import AbortedTransaction
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log.producer_state import ProducerStates
from penstock.storage.log_manager import LogManager
from penstock.testing.recording_disk import Fate, RecordingDisk
from tests.storage.logs import TOPIC_ID, batch, let_go, open_manager, producer_batch
from tests.storage.transactions import append_verified, end, transactional_batch

ORDERS = TopicPartition("orders", 0)
EVENTS = TopicPartition("events", 3)
SETTINGS = LogSettings(
    segment_bytes=1_500, index_interval_bytes=300, retention_ms=-1, retention_bytes=4_000
)
FATES = (Fate.LOST, Fate.SUBSET, Fate.TORN, Fate.KEPT)


class Acknowledged(NamedTuple):
    """After so many changes, this partition was acknowledged up to here, if it still existed."""

    changes: int
    partition: TopicPartition
    life: int
    """Which creation of the partition."""
    end_offset: int


@dataclass
class History:
    """The events, by number of changes on the disk."""

    disk: RecordingDisk
    acknowledged: list[Acknowledged] = field(default_factory=list)
    appended: dict[tuple[TopicPartition, int], list[bytes]] = field(default_factory=dict)
    """The bytes of every batch, in order of offsets, by partition and life."""
    starts: list[Acknowledged] = field(default_factory=list)
    """Log starts, noted before the deletion could begin."""
    deleted: list[tuple[int, TopicPartition, int]] = field(default_factory=list)
    """From so many changes on, this life may be gone."""

    def owed(self, changes: int) -> dict[TopicPartition, tuple[int, int]]:
        """Life and end offset that a cut after `changes` must still have."""
        owed: dict[TopicPartition, tuple[int, int]] = {}
        for entry in self.acknowledged:
            if entry.changes <= changes:
                owed[entry.partition] = (entry.life, entry.end_offset)
        for since, partition, life in self.deleted:
            if since <= changes and owed.get(partition, (-1, 0))[0] == life:
                del owed[partition]
        return owed


class Recorder:
    """Runs the workload and records its promises."""

    def __init__(self, disk: RecordingDisk) -> None:
        self.history = History(disk)
        self.disk = disk
        self.lives: dict[TopicPartition, int] = {}
        self.sequences: dict[tuple[TopicPartition, int], int] = {}
        self.manager = open_manager(disk, SETTINGS)

    def create(self, partition: TopicPartition) -> None:
        self.lives[partition] = self.lives.get(partition, -1) + 1
        self.history.appended[partition, self.lives[partition]] = []
        self.manager.create_log(partition, TOPIC_ID, SETTINGS)

    def log(self, partition: TopicPartition) -> PartitionLog:
        log = self.manager.get_log(partition)
        assert log is not None
        return log

    def append(self, partition: TopicPartition, epoch: int, producer: int = -1) -> None:
        log = self.log(partition)
        if producer >= 0:
            sequence = self.sequences.get((partition, producer), 0)
            self.sequences[partition, producer] = sequence + 2
            made = producer_batch(sequence, 2, producer_id=producer)
        else:
            size = 30 if log.end_offset % 2 else 330
            made = batch(1 + log.end_offset % 3, size=size, timestamp_ms=1_000 + log.end_offset)
        log.append(made, leader_epoch=epoch)
        log.validate()
        self.history.appended[partition, self.lives[partition]].append(bytes(made.buffer))

    def write_transaction(self, partition: TopicPartition, epoch: int, producer: int) -> None:
        """One batch more of a producer's transaction."""
        log = self.log(partition)
        sequence = self.sequences.get((partition, producer), 0)
        self.sequences[partition, producer] = sequence + 2
        made = transactional_batch(producer, sequence, 2)
        append_verified(log, made, epoch)
        log.validate()
        self.history.appended[partition, self.lives[partition]].append(bytes(made.buffer))

    def end_transaction(
        self, partition: TopicPartition, epoch: int, producer: int, *, commits: bool
    ) -> None:
        """The marker; its bytes are read back, for it is made inside."""
        log = self.log(partition)
        offset = end(log, producer, commits=commits, leader_epoch=epoch).base_offset
        log.validate()
        found = log.read(
            offset, 1_000, offset_limit=log.end_offset, at_least_one=True, nowait=False
        )
        self.history.appended[partition, self.lives[partition]].append(bytes(found.records))

    def flush(self) -> None:
        for flusher in self.manager.flushers:
            flusher.sync_now()
        self.note()
        if len(self.history.acknowledged) % 4:
            # Sometimes a snapshot is still not stored when the next round comes.
            for flusher in self.manager.flushers:
                flusher.snapshots.write_ready()

    def note(self) -> None:
        for partition, log in self.manager.logs.items():
            self.history.acknowledged.append(
                Acknowledged(
                    len(self.disk.changes), partition, self.lives[partition], log.durable_offset
                )
            )

    def retain(self) -> None:
        begun = len(self.disk.changes)
        self.manager.run_retention(0)
        for partition, log in self.manager.logs.items():
            self.history.starts.append(
                Acknowledged(begun, partition, self.lives[partition], log.log_start_offset)
            )

    def delete(self, partition: TopicPartition) -> None:
        self.history.deleted.append((len(self.disk.changes), partition, self.lives[partition]))
        self.manager.delete_log(partition)
        for key in [key for key in self.sequences if key[0] == partition]:
            del self.sequences[key]
        self.manager.purge_deleted()

    def restart(self, *, clean: bool) -> None:
        if clean:
            self.manager.close()
            self.note()
        else:
            let_go(self.manager)
        self.manager = open_manager(self.disk, SETTINGS)
        self.note()


def record(seed: int = 0, *, steps: int = 12) -> History:
    """The workload, with a little chance in it."""
    choice = random.Random(seed)
    recorder = Recorder(RecordingDisk())
    recorder.create(ORDERS)
    recorder.create(EVENTS)
    for step in range(steps):
        epoch = 1 if step < steps // 2 else 4
        for _ in range(choice.randrange(1, 4)):
            recorder.append(ORDERS, epoch, producer=choice.choice((-1, 7, 8)))
        if choice.random() < 0.5:
            recorder.append(EVENTS, 0, producer=9)
        recorder.write_transaction(ORDERS, epoch, producer=20 + step % 2)
        if choice.random() < 0.7:
            commits = choice.random() < 0.4
            recorder.end_transaction(ORDERS, epoch, producer=20 + step % 2, commits=commits)
        recorder.flush()
        if step % 4 == 3:
            recorder.append(ORDERS, epoch)
            recorder.manager.checkpoint_recovery_points()
    recorder.retain()
    recorder.flush()
    recorder.delete(EVENTS)
    recorder.create(EVENTS)
    recorder.append(EVENTS, 0, producer=9)
    recorder.flush()
    recorder.restart(clean=True)
    for _ in range(3):
        recorder.append(ORDERS, 5, producer=7)
        recorder.append(EVENTS, 0)
        recorder.flush()
    recorder.append(ORDERS, 5)
    recorder.restart(clean=False)
    recorder.append(ORDERS, 6, producer=8)
    recorder.flush()
    recorder.retain()
    recorder.manager.close()
    recorder.note()
    return recorder.history


def contents(log: PartitionLog) -> list[bytes]:
    """Every batch from the first segment on, read as a consumer reads."""
    batches = []
    offset = log.log_start_offset
    while offset < log.end_offset:
        answer = log.read(
            offset, 1_200, offset_limit=log.end_offset, at_least_one=True, nowait=False
        )
        assert answer.records, f"nothing at {offset} of {log}"
        for position, header in iterate_headers(answer.records):
            assert checksum_matches(answer.records, position, header), "garbage is served"
            if header.last_offset >= offset:
                assert header.base_offset <= offset, "a gap"
                data = answer.records[position : position + header.size_bytes]
                batches.append(bytes(data))
                offset = header.next_offset
    return batches


def replayed(log: PartitionLog) -> ProducerStates:
    """Producer state by reading every batch."""
    return _replayed(log)[0]


def aborted(log: PartitionLog) -> list[AbortedTransaction]:
    """What belongs into the transaction indexes, by reading every batch."""
    return _replayed(log)[1]


def _replayed(log: PartitionLog) -> tuple[ProducerStates, list[AbortedTransaction]]:
    states, found = ProducerStates(), []
    for segment in log.segments:
        for position, header in segment.headers():
            batch = segment.read(position, header.size_bytes, nowait=False)
            entry = states.replay(header, read_marker(batch) if header.is_control else None)
            if entry is not None:
                found.append(entry)
    return states, found


def indexed(log: PartitionLog) -> list[AbortedTransaction]:
    """What is in the transaction indexes."""
    return [entry for segment in log.segments for entry in segment.transactions.entries()]


def remembered(states: ProducerStates) -> dict[int, tuple[int, ...]]:
    """Epoch, open transaction and all batches by producer.

    Without timestamps: a snapshot has the marker's in the place of the last batch's.
    """
    return {
        producer_id: (
            entry.epoch,
            entry.coordinator_epoch,
            entry.open_offset,
            *(value for batch in entry.batches for value in batch[:4]),
        )
        for producer_id, entry in states.entries.items()
    }


State = dict[TopicPartition, tuple[int, int, list[bytes]]]


def recovered_state(manager: LogManager) -> State:
    """What a manager serves, for comparing two recoveries."""
    return {
        partition: (log.log_start_offset, log.end_offset, contents(log))
        for partition, log in sorted(manager.logs.items())
    }


def check_promises(history: History, changes: int, manager: LogManager) -> None:
    """Everything acknowledged is there; everything there was appended; producers are right."""
    problems = [problem for problem in manager.problems if not problem.is_served]
    assert not problems, problems
    for partition, (life, end_offset) in history.owed(changes).items():
        log = manager.get_log(partition)
        assert log is not None, f"{partition} is gone"
        assert log.end_offset >= end_offset, f"{partition} lost {log.end_offset}..{end_offset}"
        starts = [
            entry.end_offset
            for entry in history.starts
            if entry.partition == partition and entry.life == life and entry.changes <= changes
        ]
        assert log.log_start_offset <= max(starts, default=0), "deleted more than retention did"
    for partition, log in manager.logs.items():
        log.validate()
        found = contents(log)
        lives = [batches for (name, _), batches in history.appended.items() if name == partition]
        assert any(_is_run(found, batches) for batches in lives), f"garbage in {partition}"
        if log.segments[0].base_offset == 0:
            assert remembered(log.producers) == remembered(replayed(log))
            assert indexed(log) == aborted(log), "the transaction index is wrong"


def _is_run(found: list[bytes], batches: list[bytes]) -> bool:
    """Whether `found` is a stretch of what was appended."""
    if not found:
        return True
    return any(
        batches[start : start + len(found)] == found
        for start in range(len(batches) - len(found) + 1)
        if batches[start] == found[0]
    )


def check_cut(history: History, changes: int, fate: Fate, seed: int) -> int:
    """Recover from one cut: promises kept, again the same, and a cut inside recovery is no worse.

    Gives the number of recoveries that were checked.
    """
    left = history.disk.after(changes, fate, seed)
    recording = RecordingDisk(left)
    manager = open_manager(recording, SETTINGS)
    check_promises(history, changes, manager)
    first = recovered_state(manager)
    let_go(manager)
    again = open_manager(recording, SETTINGS)
    assert recovered_state(again) == first, "recovering twice is not recovering once"
    checked = 2
    inner = random.Random(f"{changes}/{seed}")
    for _ in range(2):
        count = inner.randrange(len(recording.changes) + 1)
        worse = recording.after(count, inner.choice(FATES), seed)
        inside = open_manager(worse, SETTINGS)
        check_promises(history, changes, inside)
        checked += 1
    return checked


def cuts(
    history: History, seeds: int, fates: tuple[Fate, ...] = FATES
) -> Iterator[tuple[int, Fate, int]]:
    """Every prefix with every fate; those with chance in them for several seeds."""
    for changes in range(len(history.disk.changes) + 1):
        for fate in fates:
            for seed in range(seeds if fate in (Fate.SUBSET, Fate.TORN) else 1):
                yield changes, fate, seed


def first_failure(
    history: History, seeds: int = 1, step: int = 1, fates: tuple[Fate, ...] = FATES
) -> str:
    """The first cut that breaks a promise, or nothing: for showing that a guard is needed."""
    for number, (changes, fate, seed) in enumerate(cuts(history, seeds, fates)):
        if number % step:
            continue
        try:
            check_cut(history, changes, fate, seed)
        except (AssertionError, CorruptBatchError) as error:
            return f"cut after {changes} changes, {fate.value}, seed {seed}: {error}"
    return ""
