"""Compaction on a recording disk, with the log's content after each step; and the check of a cut.

Everything that is appended is synced before a pass begins. So a cut inside a pass must leave
exactly one of the logs that were there in that pass: the one before it, or one with the first so
many groups swapped. Anything else is a mix of old and new.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from penstock.storage.compaction.cleaner import CleaningJob
from penstock.storage.compaction.log_cleaner import source_of, view_of
from penstock.storage.log.open_transactions import AbortedTransaction
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log_manager import LogManager
from penstock.testing.recording_disk import Fate, RecordingDisk
from tests.crash.workload import FATES
from tests.storage.compacted import (
    COMPACTED,
    Seen,
    all_batches,
    all_records,
    append_marker,
    compacted_log,
    put,
    put_in_transaction,
    seal,
)
from tests.storage.logs import PARTITION, let_go, open_manager

SETTINGS = replace(COMPACTED, segment_bytes=900)


class Content(NamedTuple):
    """The content of a log."""

    batches: list[bytes]
    records: list[Seen]
    segments: list[int]
    aborted: list[AbortedTransaction]


def content(log: PartitionLog) -> Content:
    bases = [segment.base_offset for segment in log.segments]
    aborted = log.aborted_transactions(0, log.end_offset, nowait=False)
    return Content(all_batches(log), all_records(log), bases, aborted)


@dataclass
class Pass:
    """One pass of compaction in the record of the disk."""

    begun: int
    """Changes before it."""
    ended: int = 0
    states: list[tuple[int, Content]] = field(default_factory=list)
    """What the log held, and how many changes there were when that was certain."""

    def allowed(self, changes: int) -> list[Content]:
        """What a cut after so many changes may leave."""
        certain = max(number for number, (since, _) in enumerate(self.states) if since <= changes)
        return [held for _, held in self.states[certain : certain + 2]]


@dataclass
class History:
    disk: RecordingDisk
    passes: list[Pass] = field(default_factory=list)


def record(seed: int = 0) -> History:
    """Appends of all kinds and three passes."""
    choice = random.Random(seed)
    disk = RecordingDisk()
    history = History(disk)
    manager = open_manager(disk, SETTINGS)
    log = compacted_log(manager, SETTINGS)
    sequences = {7: 0, 8: 0}
    for round_number in range(3):
        for _ in range(14):
            key = b"k%d" % choice.randrange(6)
            value = None if choice.random() < 0.2 else b"%d" % log.end_offset * 5
            producer = choice.choice((-1, 7, 8))
            if producer < 0:
                put(log, (key, value), (b"other", b"1"), codec=choice.choice((0, 2)))
                continue
            put_in_transaction(log, producer, sequences[producer], [(key, value)])
            sequences[producer] += 1
            append_marker(log, producer, is_commit=choice.random() < 0.5)
        seal(manager, log)
        manager.checkpoint_recovery_points()
        _clean(history, manager, log, now_ms=10_000 * (1 + round_number))
    return history


def _clean(history: History, manager: LogManager, log: PartitionLog, now_ms: int) -> None:
    """One pass; what the log holds is noted at the begin and after each swap."""
    changes = history.disk.changes
    made = Pass(len(changes), states=[(len(changes), content(log))])
    home = manager.home_of(PARTITION)
    view = view_of(log, home)
    job = CleaningJob(source_of(view, home), view.cleanable(now_ms), now_ms)
    home.cleaned_offsets.setdefault(PARTITION, 0)
    home.write_cleaned_offsets()
    for swap in job.steps():
        if swap is not None:
            swap.decide()
            decided = len(changes)
            swap.exchange(log)
            swap.finish()
            made.states.append((decided, content(log)))
    home.cleaned_offsets[PARTITION] = job.end_offset
    home.write_cleaned_offsets()
    made.ended = len(changes)
    assert len(made.states) > 2, "a pass with several groups"
    history.passes.append(made)


def cuts(history: History, seeds: int = 2) -> Iterator[tuple[Pass, int, Fate, int]]:
    """Every change inside a pass, with every fate."""
    for made in history.passes:
        for changes in range(made.begun, made.ended + 1):
            for fate in FATES:
                for seed in range(seeds if fate in (Fate.SUBSET, Fate.TORN) else 1):
                    yield made, changes, fate, seed


def check_cut(history: History, made: Pass, changes: int, fate: Fate, seed: int) -> int:
    """Old or new, nothing else; again the same; and a cut inside the start is no worse."""
    left = history.disk.after(changes, fate, seed)
    recording = RecordingDisk(left)
    manager = open_manager(recording, SETTINGS)
    first = _held(manager)
    assert first in made.allowed(changes), "neither the old log nor the new one"
    let_go(manager)
    assert _held(open_manager(recording, SETTINGS)) == first, "a second start changes something"
    checked = 2
    inner = random.Random(f"{changes}/{fate.value}/{seed}")
    for _ in range(2):
        count = inner.randrange(len(recording.changes) + 1)
        worse = recording.after(count, inner.choice(FATES), seed)
        assert _held(open_manager(worse, SETTINGS)) == first, "a cut inside the start"
        checked += 1
    return checked


def _held(manager: LogManager) -> Content:
    problems = [problem for problem in manager.problems if not problem.is_served]
    assert not problems, problems
    log = manager.get_log(PARTITION)
    assert log is not None
    return content(log)


def first_failure(history: History, seeds: int = 12) -> str:
    """The first cut that breaks the promise, or nothing: for showing that a guard is needed."""
    for made, changes, fate, seed in cuts(history, seeds):
        if fate is not Fate.SUBSET:
            continue
        left = history.disk.after(changes, fate, seed)
        try:
            assert _held(open_manager(left, SETTINGS)) in made.allowed(changes), "a mix"
        except AssertionError as error:
            return f"cut after {changes} changes, seed {seed}: {error}"
    return ""
