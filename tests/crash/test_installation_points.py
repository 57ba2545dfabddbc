"""Crash points of an installation: two logs in two data directories are replaced as one.

Each cut, with each fate of unsynced changes, leaves both logs of before or both new ones, never one
of each, and a start calls neither damage. The new logs have gaps, as a snapshot has.
"""

import random
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

import pytest

from penstock.core.errors import PenstockError, StorageError
from penstock.core.types import TopicPartition
from penstock.edge.refresh.snapshot_batches import SnapshotBatches
from penstock.records.batch import checksum_matches, iterate_headers, read_header
from penstock.records.builder import build_batch
from penstock.records.record import Record
from penstock.storage import log_installation
from penstock.storage.disk.filesystem import FileSystem
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log_installation import LogInstallation, NewLog, PreparedLog, install
from penstock.storage.log_manager import LogManager
from penstock.storage.managed_directory import ManagedDirectory
from penstock.testing.recording_disk import Fate, RecordingDisk
from tests.crash.workload import FATES, SETTINGS
from tests.storage.logs import TOPIC_ID, Clock, batch, sync

PLACES = ("/data", "/more")
LOGS = (TopicPartition("prices", 0), TopicPartition("prices", 1), TopicPartition("other", 0))
REFRESHED = LOGS[:2]

State = dict[TopicPartition, tuple[int, int, list[bytes]]]


def opened(disk: FileSystem) -> LogManager:
    manager = LogManager(disk, list(PLACES), Clock(), new_id=lambda: "0123456789abcdef")
    manager.start(lambda _topic: SETTINGS)
    return manager


def contents(log: PartitionLog) -> list[bytes]:
    """Return each batch, read as a consumer reads; gaps are right."""
    batches: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.end_offset:
        limit = log.end_offset
        answer = log.read(offset, 1_200, offset_limit=limit, at_least_one=True, nowait=False)
        assert answer.records, f"nothing at {offset} of {log}"
        for position, header in iterate_headers(answer.records):
            assert checksum_matches(answer.records, position, header), "garbage is served"
            if header.last_offset >= offset:
                batches.append(bytes(answer.records[position : position + header.size_bytes]))
        offset = answer.next_offset
    return batches


def state_of(manager: LogManager) -> State:
    found = {}
    for name, log in manager.logs.items():
        log.validate()
        found[name] = (log.log_start_offset, log.end_offset, contents(log))
    return found


class Moment(NamedTuple):
    """The logs after the given number of changes, when everything is synced."""

    changes: int
    state: State


class Scene:
    """Logs that are appended to and replaced."""

    def __init__(self, seed: int) -> None:
        self.disk = RecordingDisk()
        self.choice = random.Random(seed)
        self.manager = opened(self.disk)
        for name in LOGS:
            self.manager.create_log(name, TOPIC_ID, SETTINGS)
        self.number = 0
        self.moments: list[Moment] = []
        self.append()
        del self.moments[:-1]

    def note(self) -> None:
        self.moments.append(Moment(len(self.disk.changes), state_of(self.manager)))

    def append(self) -> None:
        for log in self.manager.logs.values():
            for _ in range(self.choice.randrange(1, 6)):
                log.append(batch(2, size=self.choice.randrange(20, 400)), leader_epoch=3)
            sync(self.manager)
            self.note()
        if self.choice.random() < 0.5:
            self.manager.checkpoint_recovery_points()

    def prepare(self, name: TopicPartition) -> NewLog:
        """Write a snapshot that ends some offsets behind the log."""
        home, log = self.manager.home_of(name), self.manager.logs[name]
        shared = home.shared
        prepared = PreparedLog(
            shared.filesystem,
            shared.open_files,
            home.path,
            name,
            f"{self.number:032x}",
            TOPIC_ID,
            100,
        )
        start, end = self.choice.randrange(3), log.end_offset + self.choice.randrange(9)
        made = SnapshotBatches(0, 300)
        done = [
            made.add(Record(b"k", b"v" * self.choice.randrange(200), (), offset, offset), 1)
            for offset in range(start + 1, end, self.choice.randrange(1, 4))
        ]
        prepared.note_epochs([(1, start)])
        prepared.begin_segment(start)
        for number, one in enumerate([one for one in done if one] + made.finish(end, 1)):
            if number % 3 == 2:
                prepared.begin_segment(one.base_offset)
            data = memoryview(one.data)
            prepared.append(data, read_header(data))
        verified = end
        for _ in range(self.choice.randrange(3)):
            # Batches behind the snapshot, as a mirror that was in step has them.
            data = memoryview(
                build_batch([Record(b"t", b"w")] * 2, base_offset=end, leader_epoch=2)
            )
            prepared.append(data, read_header(data))
            end += 2
        return prepared.finish(start, verified, end)

    def install(self) -> None:
        self.number += 1
        new = [self.prepare(name) for name in REFRESHED]
        install(
            [
                LogInstallation(
                    self.manager.logs[one.partition], self.manager.home_of(one.partition), one
                )
                for one in new
            ]
        )
        self.note()
        if self.choice.random() < 0.5:
            self.manager.purge_deleted()

    def start_again(self) -> None:
        sync(self.manager)
        self.manager.close()
        self.manager = opened(self.disk)
        self.note()


def recorded(seed: int, rounds: int = 2) -> Scene:
    scene = Scene(seed)
    for _ in range(rounds):
        scene.install()
        if scene.choice.random() < 0.4:
            scene.start_again()
        scene.append()
    return scene


def check(scene: Scene, changes: int, manager: LogManager) -> None:
    problems = [problem for problem in manager.problems if not problem.is_served]
    assert not problems, problems
    assert manager.lost_logs() == []
    found = state_of(manager)
    assert found.keys() == set(LOGS)
    before = [moment for moment in scene.moments if moment.changes <= changes][-1]
    after = next((moment for moment in scene.moments if moment.changes > changes), before)
    sides = [{at: side.state[at] for at in REFRESHED} for side in (before, after)]
    assert _lengthened({at: found[at] for at in REFRESHED}, *sides), (
        f"{ {at: found[at][:2] for at in REFRESHED} } is neither of "
        f"{[{at: one[at][:2] for at in REFRESHED} for one in sides]}"
    )


def _lengthened(found: State, before: State, after: State) -> bool:
    """Whether the logs are those of one side, or of the first with a part of an append."""
    if found in (before, after):
        return True
    is_append = all(after[at][2][: len(before[at][2])] == before[at][2] for at in found)
    return is_append and all(
        found[at][0] == before[at][0]
        and before[at][2] == found[at][2][: len(before[at][2])]
        and found[at][2] == after[at][2][: len(found[at][2])]
        for at in found
    )


def first_bad_cut(scene: Scene, step: int = 1, fates: tuple[Fate, ...] = FATES) -> str:
    for number, changes in enumerate(range(scene.moments[0].changes, len(scene.disk.changes) + 1)):
        for fate in fates:
            if (number + len(fate.value)) % step:
                continue
            left = RecordingDisk(scene.disk.after(changes, fate, number))
            try:
                check(scene, changes, opened(left))
                worse = left.after(len(left.changes) // 2, fate, number)
                check(scene, changes, opened(worse))
            except (AssertionError, PenstockError) as error:
                return f"after {changes} changes, {fate.value}: {error}"
    return ""


def test_an_installed_log_is_served_with_its_gaps_and_epochs() -> None:
    scene = Scene(3)
    scene.install()
    for name in REFRESHED:
        log = scene.manager.logs[name]
        start, end, batches = scene.moments[-1].state[name]
        assert (log.log_start_offset, log.durable_offset) == (start, end)
        assert batches
        assert log.latest_epoch == log.epochs.epoch_at(end - 1) >= 1
        assert log.problem is None
        log.append(batch(2), leader_epoch=3)
        assert log.end_offset == end + 2
    names = {name for place in PLACES for name in scene.disk.list_directory(place)}
    assert log_installation.DECISION_FILE not in names
    scene.manager.purge_deleted()
    names = {name for place in PLACES for name in scene.disk.list_directory(place)}
    assert not [name for name in names if name.endswith(("-delete", "-install"))]


def test_prepared_logs_without_a_decision_are_removed_by_a_start() -> None:
    scene = Scene(4)
    scene.number = 9
    for name in REFRESHED:
        scene.prepare(name)
    again = opened(RecordingDisk(scene.disk.after(len(scene.disk.changes), Fate.KEPT, 1)))
    assert state_of(again) == scene.moments[-1].state
    assert sum(len(home.doomed) for home in again._directories) == 2


def test_a_decision_is_not_replaced_before_it_is_carried_out() -> None:
    scene = Scene(4)
    scene.number = 9
    home = scene.manager.home_of(REFRESHED[0])
    new = scene.prepare(REFRESHED[0])
    log_installation.decide(scene.disk, home.path, [new])
    with pytest.raises(StorageError, match="is not finished") as found:
        log_installation.decide(scene.disk, home.path, [new._replace(end_offset=0)])
    assert found.value.hint


@pytest.mark.parametrize("is_renamed", [False, True])
def test_a_decision_does_not_reach_another_topic_with_the_same_name(is_renamed: bool) -> None:
    scene = Scene(4)
    scene.number = 9
    name = REFRESHED[0]
    home = scene.manager.home_of(name)
    new = scene.prepare(name)
    log_installation.decide(scene.disk, home.path, [new])
    if is_renamed:
        log_installation._rename(home, new)
    # The topic is deleted, and created again with another id.
    manager = scene.manager
    manager.delete_log(name)
    log = manager.create_log(name, UUID(int=7), SETTINGS)
    log.append(batch(2), leader_epoch=0)
    sync(manager)
    manager.close()
    log = opened(scene.disk).logs[name]
    assert (log.topic_id, log.log_start_offset, log.end_offset) == (UUID(int=7), 0, 2)
    assert log_installation.DECISION_FILE not in scene.disk.list_directory(home.path)


def test_a_sample_of_cuts_in_installations() -> None:
    assert first_bad_cut(recorded(2, rounds=1), step=5) == ""


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(10))
def test_every_cut_in_installations(seed: int) -> None:
    assert first_bad_cut(recorded(seed)) == ""


Patch = Callable[[pytest.MonkeyPatch], None]


def no_decision(patch: pytest.MonkeyPatch) -> None:
    """Finish no installation that a crash interrupted."""
    patch.setattr("penstock.storage.log_manager.finish_installations", lambda *_: None)


def no_sync_of_prepared(patch: pytest.MonkeyPatch) -> None:
    """Decide before the new logs are on the disk."""
    patch.setattr(PreparedLog, "_seal", lambda self: setattr(self, "_segment", None))


def no_checkpoints(patch: pytest.MonkeyPatch) -> None:
    """Keep the recovery point and the log start of the log before."""
    original = ManagedDirectory.install

    def installed(self: ManagedDirectory, partition: TopicPartition, start: int, end: int) -> None:
        original(self, partition, start, end)
        self._behind.clear()

    patch.setattr(ManagedDirectory, "install", installed)


def early_conclusion(patch: pytest.MonkeyPatch) -> None:
    """Remove the decision before the logs are renamed."""
    original = log_installation.finish_decided

    def finish(cuts: list[LogInstallation]) -> None:
        log_installation.conclude(cuts[0].home.shared.filesystem, cuts[0].home.path)
        original(cuts)

    patch.setattr(log_installation, "finish_decided", finish)


SEED = 5
"""A workload without a stop in it."""
GUARDS = (no_decision, no_sync_of_prepared, no_checkpoints, early_conclusion)


@pytest.mark.parametrize("remove", GUARDS, ids=lambda remove: remove.__name__)
@pytest.mark.uncompiled
def test_without_the_guard_a_cut_leaves_something_else(
    remove: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = recorded(SEED, rounds=1)
    assert first_bad_cut(scene, fates=(Fate.LOST,)) == ""
    remove(monkeypatch)
    try:
        found = first_bad_cut(recorded(SEED, rounds=1), fates=(Fate.LOST, Fate.SUBSET))
    except PenstockError as error:
        found = f"without a crash: {error}"
    assert found
