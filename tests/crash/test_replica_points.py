"""Crash points of a replica: appends as the leader stored them, truncations, restarts.

An append of a replica keeps the promises of every append. A truncation or a restart leaves the log
of before or the one afterwards, at any cut, and a start calls neither damage.
"""

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest

from penstock.storage import log_truncation
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log.transaction_index import TransactionIndex
from penstock.storage.log_manager import LogManager
from penstock.storage.managed_directory import ManagedDirectory
from penstock.testing.recording_disk import Fate, RecordingDisk
from tests.crash.workload import (
    FATES,
    ORDERS,
    SETTINGS,
    History,
    Recorder,
    check_cut,
    contents,
    cuts,
    first_failure,
    indexed,
    remembered,
    replayed,
)
from tests.crash.workload import aborted as aborted_by_reading
from tests.storage.logs import TOPIC_ID, open_manager, sync
from tests.storage.replicas import batches_of, chunks, leader_log


def record_replica(seed: int, steps: int = 30) -> History:
    """A follower that appends, flushes, and starts again, cleanly or not."""
    choice = random.Random(seed)
    leader = leader_log(choice, steps)
    recorder = Recorder(RecordingDisk())
    recorder.create(ORDERS)
    for chunk in chunks(choice, batches_of(leader)):
        log = recorder.log(ORDERS)
        start = log.end_offset
        log.append_replica(chunk, leader_epoch=leader.latest_epoch)
        log.validate()
        recorder.history.appended[ORDERS, 0] += [
            made for made in batches_of(log) if int.from_bytes(made[:8], "big") >= start
        ]
        if choice.random() < 0.6:
            recorder.flush()
        if choice.random() < 0.2:
            recorder.manager.checkpoint_recovery_points()
        if choice.random() < 0.1:
            recorder.flush()
            recorder.restart(clean=choice.random() < 0.5)
    recorder.flush()
    return recorder.history


def test_a_sample_of_cuts_of_a_replica() -> None:
    history = record_replica(1, steps=20)
    every = list(cuts(history, 1))
    for changes, fate, seed in every[:: max(1, len(every) // 25)]:
        check_cut(history, changes, fate, seed)


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(4))
def test_every_cut_of_a_replica(seed: int) -> None:
    history = record_replica(seed)
    for number, (changes, fate, fate_seed) in enumerate(cuts(history, 1)):
        if number % 3 == seed % 3:
            check_cut(history, changes, fate, fate_seed)


@pytest.mark.uncompiled
def test_without_the_sync_of_aborted_transactions_a_cut_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = TransactionIndex.append

    def append(self: TransactionIndex, entry: object) -> None:
        original(self, entry)  # type: ignore[arg-type]
        self.is_unsynced = False

    monkeypatch.setattr(TransactionIndex, "append", append)
    assert first_failure(record_replica(3), fates=(Fate.LOST,))


# --- Truncations and restarts ---


class Moment(NamedTuple):
    """The log after the given number of changes, when no write is under way."""

    changes: int
    start_offset: int
    durable_offset: int
    batches: list[bytes]
    is_restarted: bool
    """Whether a restart led to it."""

    def __repr__(self) -> str:
        return f"[{self.start_offset}, {self.durable_offset}), {len(self.batches)} batches"


class Cuts:
    """A log that is cut, restarted and appended to, with the states that a crash may leave."""

    def __init__(self, seed: int) -> None:
        self.disk = RecordingDisk()
        self.choice = random.Random(seed)
        self.manager = open_manager(self.disk, SETTINGS)
        self.log = self.manager.create_log(ORDERS, TOPIC_ID, SETTINGS)
        self.moments: list[Moment] = []
        self.epoch = 0
        self.note()

    def note(self, *, is_restarted: bool = False) -> None:
        log = self.log
        log.validate()
        changes, batches = len(self.disk.changes), batches_of(log)
        self.moments.append(
            Moment(changes, log.log_start_offset, log.durable_offset, batches, is_restarted)
        )

    def append(self) -> None:
        """Append what another leader would have here, and sync it."""
        self.epoch += 1
        data = []
        for made in batches_of(leader_log(self.choice, 8)):
            moved = bytearray(made)
            offset = int.from_bytes(made[:8], "big") + self.log.end_offset
            moved[:8] = offset.to_bytes(8, "big")
            moved[12:16] = self.epoch.to_bytes(4, "big")
            data.append(bytes(moved))
        self.log.append_replica(memoryview(b"".join(data)), leader_epoch=self.epoch)
        if self.choice.random() < 0.8:
            sync(self.manager)
        if self.choice.random() < 0.5:
            self.manager.checkpoint_recovery_points()
        self.note()

    def truncate(self) -> None:
        log = self.log
        self.manager.truncate_log(
            ORDERS, self.choice.randrange(log.log_start_offset, log.end_offset + 1)
        )
        self.note()

    def restart(self) -> None:
        log = self.log
        offset = self.choice.choice(
            (0, log.log_start_offset, log.end_offset // 2, log.end_offset, log.end_offset + 1_000)
        )
        self.manager.restart_log(ORDERS, offset)
        assert (log.log_start_offset, log.end_offset, log.durable_offset) == (offset,) * 3
        self.note(is_restarted=True)

    def start_again(self) -> None:
        sync(self.manager)
        self.manager.close()
        self.manager = open_manager(self.disk, SETTINGS)
        self.log = self.manager.logs[ORDERS]
        self.note()


def record_cuts(seed: int, rounds: int = 3) -> Cuts:
    """Appends between truncations, restarts and clean stops."""
    scene = Cuts(seed)
    for _ in range(rounds):
        scene.append()
        step = scene.choice.choice((scene.truncate, scene.restart, scene.truncate))
        step()
        if scene.choice.random() < 0.3:
            scene.start_again()
    scene.append()
    return scene


def check_moment(scene: Cuts, changes: int, manager: LogManager) -> None:
    """The log is one of a moment around the cut, with all that was durable in both."""
    problems = [problem for problem in manager.problems if not problem.is_served]
    assert not problems, problems
    assert manager.lost_logs() == []
    log = manager.get_log(ORDERS)
    before = [moment for moment in scene.moments if moment.changes <= changes]
    after = next((moment for moment in scene.moments if moment.changes > changes), before[-1])
    if log is None:
        assert before[-1].durable_offset == 0
        return
    log.validate()
    sides = [before[-1], after]
    if not after.is_restarted:
        # An append or a truncation in the middle: between the two is right too.
        durable_offset = min(moment.durable_offset for moment in sides)
        sides = [moment._replace(durable_offset=durable_offset) for moment in sides]
    assert any(is_left_of(log, moment) for moment in sides), f"{log} is neither of {sides}"
    if log.segments[0].base_offset == log.log_start_offset:
        assert remembered(log.producers) == remembered(replayed(log))
        assert indexed(log) == aborted_by_reading(log)


def is_left_of(log: PartitionLog, moment: Moment) -> bool:
    """Whether the log is that of a moment, or a part of it with all that was durable."""
    found = contents(log)
    return (
        log.log_start_offset == moment.start_offset
        and found == moment.batches[: len(found)]
        and log.end_offset >= moment.durable_offset
    )


def first_bad_cut(scene: Cuts, step: int = 1, fates: tuple[Fate, ...] = FATES) -> str:
    """The first cut that leaves something else, or nothing."""
    for number, changes in enumerate(range(scene.moments[0].changes, len(scene.disk.changes) + 1)):
        for fate in fates:
            if (number + len(fate.value)) % step:
                continue
            left = RecordingDisk(scene.disk.after(changes, fate, number))
            try:
                check_moment(scene, changes, open_manager(left, SETTINGS))
                inner = len(left.changes) // 2
                worse = left.after(inner, fate, number)
                check_moment(scene, changes, open_manager(worse, SETTINGS))
            except AssertionError as error:
                return f"after {changes} changes, {fate.value}: {error}"
    return ""


def test_a_sample_of_cuts_in_truncations_and_restarts() -> None:
    assert first_bad_cut(record_cuts(2), step=9) == ""


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(12))
def test_every_cut_in_truncations_and_restarts(seed: int) -> None:
    assert first_bad_cut(record_cuts(seed, rounds=5)) == ""


Patch = Callable[[pytest.MonkeyPatch], None]


def no_lowered_point(patch: pytest.MonkeyPatch) -> None:
    """Cut below the checkpointed recovery point."""
    patch.setattr(log_truncation, "write_lowered", lambda _cuts: None)


def no_decision(patch: pytest.MonkeyPatch) -> None:
    """Continue no restart that a crash interrupted."""
    patch.setattr("penstock.storage.log_manager.finish_restart", lambda *_: None)


def no_sync_of_decision(patch: pytest.MonkeyPatch) -> None:
    """Remove records before the file that decides has a durable name."""

    def decide(self: log_truncation.Restart) -> None:
        filesystem = self.home.shared.filesystem
        with patch.context() as inner:
            inner.setattr(type(filesystem), "sync_directory", lambda *_: None)
            original(self)

    original = log_truncation.Restart.decide
    patch.setattr(log_truncation.Restart, "decide", decide)


def no_checkpoints_of_restart(patch: pytest.MonkeyPatch) -> None:
    """Keep the recovery point and the log start of the log before."""
    original = ManagedDirectory.restart

    def restart(self: ManagedDirectory, partition: object, offset: int) -> None:
        original(self, partition, offset)  # type: ignore[arg-type]
        self._behind.clear()

    patch.setattr(ManagedDirectory, "restart", restart)


GUARDS: dict[Patch, tuple[int, Fate]] = {
    no_lowered_point: (0, Fate.LOST),
    no_decision: (1, Fate.LOST),
    no_sync_of_decision: (1, Fate.SUBSET),
    no_checkpoints_of_restart: (1, Fate.LOST),
}
"""Each guard with the workload and the fate that find it soonest."""


@pytest.mark.parametrize("remove", GUARDS, ids=lambda remove: remove.__name__)
@pytest.mark.uncompiled
def test_without_the_guard_a_cut_leaves_something_else(
    remove: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed, fate = GUARDS[remove]
    assert first_bad_cut(record_cuts(seed, rounds=2), fates=(fate,)) == ""
    remove(monkeypatch)
    assert first_bad_cut(record_cuts(seed, rounds=2), fates=(fate,))
