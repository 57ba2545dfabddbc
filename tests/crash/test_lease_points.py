"""Leases at every crash point: a whole lease or none, and nothing that stays for ever.

Two guards are removed to see the checks bite: the order of links and name, and the removal of
unfinished directories.
"""

import pytest

from penstock.storage.disk.memory_disk import MemoryDisk
from penstock.storage.leases.lease_files import LeaseFiles
from penstock.storage.leases.lease_rules import LeaseNote, note_bytes
from penstock.testing.recording_disk import RecordingDisk
from tests.crash.workload import FATES
from tests.storage.leases.leasing import Scene, run
from tests.storage.logs import headers


def record() -> tuple[RecordingDisk, int, int]:
    """The disk, and after how many changes the lease was granted and released."""
    disk = RecordingDisk()
    scene = Scene(disk, batches=40)
    lease = scene.grant(seconds=1_000)
    granted = len(disk.changes)
    assert run(scene.book.release(lease.note.lease_id))
    disk.sync_directory("/data/leases") if disk.is_directory("/data/leases") else None
    return disk, granted, len(disk.changes)


def found(disk: MemoryDisk) -> tuple[list[int], bool]:
    """The batches of each lease after a start, and whether other remains are left later."""
    scene = Scene(disk, is_new=False)
    counts = []
    for note in scene.book.notes():
        path = f"/data/leases/{note.lease_id}"
        names = [name for name in disk.list_directory(path) if name.endswith(".log")]
        counts.append(sum(len(headers(disk.read_file(f"{path}/{name}"))) for name in names))
        assert len(names) == note.segment_count
    scene.clock.seconds += 2_000
    run(scene.book.keep())
    return counts, disk.is_directory("/data/leases")


@pytest.mark.parametrize("fate", FATES)
def test_a_crash_leaves_a_whole_lease_or_none(fate: object) -> None:
    disk, granted, last = record()
    first = next(number for number, change in enumerate(disk.changes) if "leases" in change.label)
    expected = None
    for count in range(first, last + 1):
        after = disk.after(count, fate, seed=count)  # type: ignore[arg-type]
        counts, has_remains = found(after)
        assert not has_remains, f"links are left for ever after {count} changes"
        assert len(counts) <= 1
        for batches in counts:
            expected = batches if expected is None else expected
            assert batches == expected > 0
        if count == granted:
            assert len(counts) == 1, "a granted lease is on the disk"


def test_a_name_before_its_links_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the order, a crash serves a lease with missing segments."""

    def name_first(self: LeaseFiles, note: LeaseNote, links: list[tuple[str, str]]) -> None:
        filesystem, path = self._filesystem, f"{self.path}/{note.lease_id}"
        filesystem.make_directory(self.path)
        filesystem.make_directory(path)
        filesystem.create_file(f"{path}/lease.json").write_at(note_bytes(note), 0)
        for source, name in links:
            filesystem.link_file(source, f"{path}/{name}")

    monkeypatch.setattr(LeaseFiles, "create", name_first)
    with pytest.raises(AssertionError):
        test_a_crash_leaves_a_whole_lease_or_none(FATES[-1])


def test_unfinished_directories_that_stay_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaseFiles, "clean", lambda _self: None)
    with pytest.raises(AssertionError):
        test_a_crash_leaves_a_whole_lease_or_none(FATES[-1])
