"""One suite for every `FileSystem`: the disk, the memory and the fakes around it."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.core.errors import DataDirectoryLockedError
from penstock.storage.disk.filesystem import DiskFileSystem, FileSystem, read_fully, write_fully
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from penstock.testing.recording_disk import Fate, RecordingDisk
from penstock.testing.switched_disk import SwitchedDisk
from penstock.testing.volatile_disk import VolatileDisk

MAKERS: dict[str, Callable[[], FileSystem]] = {
    "disk": DiskFileSystem,
    "memory": MemoryDisk,
    "faulty": lambda: FaultyDisk(MemoryDisk()),
    "faulty on disk": lambda: FaultyDisk(DiskFileSystem()),
    "recording": RecordingDisk,
    "switched": lambda: SwitchedDisk(MemoryDisk()),
    "switched on disk": lambda: SwitchedDisk(DiskFileSystem()),
    "volatile": VolatileDisk,
}


@pytest.fixture(params=list(MAKERS), ids=str)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, str]:
    filesystem = MAKERS[request.param]()
    if "disk" in request.param:
        return filesystem, str(tmp_path)
    filesystem.make_directory("/d")
    return filesystem, "/d"


Place = tuple[FileSystem, str]


def test_what_is_written_is_read(place: Place) -> None:
    filesystem, base = place
    file = filesystem.create_file(f"{base}/a")
    assert file.write_at(b"hello", 0) == 5
    assert file.write_at(memoryview(b"HE"), 0) == 2
    file.sync()
    assert bytes(read_fully(file, 10, 0)) == b"HEllo"
    assert bytes(read_fully(file, 3, 1)) == b"Ell"
    assert file.size() == 5
    assert filesystem.read_file(f"{base}/a") == b"HEllo"
    assert filesystem.file_size(f"{base}/a") == 5


def test_a_gap_reads_as_zeros(place: Place) -> None:
    filesystem, base = place
    file = filesystem.create_file(f"{base}/a")
    file.write_at(b"x", 3)
    assert filesystem.read_file(f"{base}/a") == b"\0\0\0x"


def test_reading_without_waiting_gives_what_is_in_memory(place: Place) -> None:
    filesystem, base = place
    file = filesystem.create_file(f"{base}/a")
    file.write_at(b"hello", 0)
    buffer = bytearray(5)
    assert file.read_into_nowait(buffer, 0) == 5
    assert buffer == b"hello"


@pytest.mark.parametrize("position", [0, 1, 4095, 4096, 70_000])
def test_a_view_is_what_was_written_and_stays_so(place: Place, position: int) -> None:
    filesystem, base = place
    file = filesystem.create_file(f"{base}/a")
    data = bytes(range(256)) * 1_200
    file.write_at(data, 0)
    view = file.view_nowait(position, 200_000)
    file.write_at(b"more", len(data))
    filesystem.remove_file(f"{base}/a")
    file.close()
    assert view == data[position : position + 200_000]


def test_a_view_beyond_the_end_is_refused(place: Place) -> None:
    filesystem, base = place
    file = filesystem.create_file(f"{base}/a")
    file.write_at(b"hello", 0)
    with pytest.raises(BlockingIOError):
        file.view_nowait(0, 6)


def test_truncate_cuts_and_extends(place: Place) -> None:
    filesystem, base = place
    file = filesystem.create_file(f"{base}/a")
    file.write_at(b"hello", 0)
    file.truncate(2)
    assert filesystem.read_file(f"{base}/a") == b"he"
    file.truncate(4)
    assert filesystem.read_file(f"{base}/a") == b"he\0\0"


def test_create_empties_what_was_there(place: Place) -> None:
    filesystem, base = place
    filesystem.create_file(f"{base}/a").write_at(b"old", 0)
    filesystem.create_file(f"{base}/a")
    assert filesystem.read_file(f"{base}/a") == b""


def test_missing_names_are_errors(place: Place) -> None:
    filesystem, base = place
    for call in (filesystem.open_file, filesystem.read_file, filesystem.file_size):
        with pytest.raises(FileNotFoundError):
            call(f"{base}/none")
    with pytest.raises(FileNotFoundError):
        filesystem.remove_file(f"{base}/none")
    with pytest.raises(FileNotFoundError):
        filesystem.create_file(f"{base}/none/a")


def test_rename_replaces(place: Place) -> None:
    filesystem, base = place
    filesystem.create_file(f"{base}/a").write_at(b"new", 0)
    filesystem.create_file(f"{base}/b").write_at(b"old", 0)
    filesystem.rename(f"{base}/a", f"{base}/b")
    filesystem.sync_directory(base)
    assert list(filesystem.list_directory(base)) == ["b"]
    assert filesystem.read_file(f"{base}/b") == b"new"


def test_an_open_file_outlives_its_name(place: Place) -> None:
    filesystem, base = place
    file = filesystem.create_file(f"{base}/a")
    file.write_at(b"kept", 0)
    filesystem.remove_file(f"{base}/a")
    assert bytes(read_fully(file, 4, 0)) == b"kept"
    assert list(filesystem.list_directory(base)) == []


def test_directories(place: Place) -> None:
    filesystem, base = place
    filesystem.make_directory(f"{base}/sub")
    assert filesystem.is_directory(f"{base}/sub")
    with pytest.raises(FileExistsError):
        filesystem.make_directory(f"{base}/sub")
    filesystem.create_file(f"{base}/sub/a").close()
    assert not filesystem.is_directory(f"{base}/sub/a")
    with pytest.raises(OSError, match=r".") as caught:
        filesystem.remove_directory(f"{base}/sub")
    assert caught.value.errno == errno.ENOTEMPTY
    filesystem.rename(f"{base}/sub", f"{base}/moved")
    filesystem.remove_file(f"{base}/moved/a")
    filesystem.remove_directory(f"{base}/moved")
    assert not filesystem.is_directory(f"{base}/moved")


def test_space_is_positive(place: Place) -> None:
    filesystem, base = place
    space = filesystem.space(base)
    assert 0 < space.free_bytes <= space.total_bytes


def test_a_lock_is_held_by_one(place: Place) -> None:
    filesystem, base = place
    lock = filesystem.lock(f"{base}/.lock")
    with pytest.raises(DataDirectoryLockedError):
        filesystem.lock(f"{base}/.lock")
    lock.release()
    filesystem.lock(f"{base}/.lock").release()


def test_closing_twice_is_harmless(place: Place) -> None:
    filesystem, base = place
    file = filesystem.create_file(f"{base}/a")
    file.close()
    file.close()


def test_a_full_disk_writes_short_then_fails() -> None:
    disk = FaultyDisk(MemoryDisk())
    file = disk.create_file("/a")
    disk.bytes_left = 3
    assert file.write_at(b"hello", 0) == 3
    with pytest.raises(OSError, match="full") as caught:
        file.write_at(b"lo", 3)
    assert caught.value.errno == errno.ENOSPC
    assert disk.space("/").free_bytes == 0


def test_write_fully_goes_on_after_short_writes() -> None:
    disk = FaultyDisk(MemoryDisk())
    disk.write_bytes_max = 2
    write_fully(disk.create_file("/a"), b"hello", 0)
    assert disk.read_file("/a") == b"hello"


def test_injected_errors_come_once_and_in_order() -> None:
    disk = FaultyDisk(MemoryDisk())
    disk.fail_next("sync", errno.EIO)
    file = disk.create_file("/a")
    with pytest.raises(OSError, match="EIO"):
        file.sync()
    file.sync()
    assert disk.operations == [("create", "/a"), ("sync", "/a"), ("sync", "/a")]


def recorded() -> RecordingDisk:
    disk = RecordingDisk()
    disk.make_directory("/d")
    disk.sync_directory("/")
    file = disk.create_file("/d/a")
    file.write_at(b"synced", 0)
    file.sync()
    disk.sync_directory("/d")
    file.write_at(b"pending", 6)
    return disk


def test_what_is_synced_survives_and_the_rest_is_lost() -> None:
    disk = recorded()
    count = len(disk.changes)
    assert disk.after(count, Fate.LOST).read_file("/d/a") == b"synced"
    assert disk.after(count, Fate.KEPT).read_file("/d/a") == b"syncedpending"
    torn = disk.after(count, Fate.TORN, seed=1).read_file("/d/a")
    assert b"synced" <= torn < b"syncedpending"


def test_a_synced_file_without_a_synced_name_is_lost() -> None:
    disk = recorded()
    before_names = next(
        number for number, change in enumerate(disk.changes) if change.label == "/d"
    )
    assert list(disk.after(before_names, Fate.LOST).list_directory("/d")) == []


def test_a_rename_without_a_synced_directory_is_undone() -> None:
    disk = recorded()
    temporary = disk.create_file("/d/a.tmp")
    temporary.write_at(b"new", 0)
    temporary.sync()
    disk.rename("/d/a.tmp", "/d/a")
    assert disk.after(len(disk.changes), Fate.LOST).read_file("/d/a") == b"synced"
    disk.sync_directory("/d")
    assert disk.after(len(disk.changes), Fate.LOST).read_file("/d/a") == b"new"


def test_the_same_seed_gives_the_same_disk() -> None:
    disk = recorded()
    count = len(disk.changes)
    first = [disk.after(count, Fate.SUBSET, seed).read_file("/d/a") for seed in range(20)]
    second = [disk.after(count, Fate.SUBSET, seed).read_file("/d/a") for seed in range(20)]
    assert first == second
    assert len(set(first)) > 1


def test_a_recording_begins_with_another_disk() -> None:
    base = recorded().after(100, Fate.KEPT)
    disk = RecordingDisk(base)
    disk.open_file("/d/a").write_at(b"more", 13)
    assert disk.after(1, Fate.LOST).read_file("/d/a") == b"syncedpending"
    assert disk.after(1, Fate.KEPT).read_file("/d/a") == b"syncedpendingmore"


def test_a_linked_file_stays_until_its_last_name_is_gone(place: Place) -> None:
    filesystem, base = place
    filesystem.create_file(f"{base}/a").write_at(b"hello", 0)
    filesystem.make_directory(f"{base}/links")
    filesystem.link_file(f"{base}/a", f"{base}/links/b")
    assert filesystem.link_count(f"{base}/a") == filesystem.link_count(f"{base}/links/b") == 2
    number = filesystem.file_number(f"{base}/a")
    assert filesystem.file_number(f"{base}/links/b") == number
    filesystem.create_file(f"{base}/links/c").close()
    assert filesystem.file_number(f"{base}/links/c") != number
    filesystem.remove_file(f"{base}/links/c")
    filesystem.remove_file(f"{base}/a")
    assert filesystem.link_count(f"{base}/links/b") == 1
    assert filesystem.read_file(f"{base}/links/b") == b"hello"
    filesystem.remove_file(f"{base}/links/b")
    with pytest.raises(FileNotFoundError):
        filesystem.read_file(f"{base}/links/b")


def test_a_linked_file_is_not_the_one_that_replaces_its_name(place: Place) -> None:
    """Compaction renames a new file over the old name."""
    filesystem, base = place
    filesystem.create_file(f"{base}/a").write_at(b"old", 0)
    filesystem.link_file(f"{base}/a", f"{base}/b")
    filesystem.create_file(f"{base}/c").write_at(b"new", 0)
    filesystem.rename(f"{base}/c", f"{base}/a")
    assert (filesystem.read_file(f"{base}/a"), filesystem.read_file(f"{base}/b")) == (
        b"new",
        b"old",
    )
    assert filesystem.link_count(f"{base}/a") == filesystem.link_count(f"{base}/b") == 1


def test_a_link_needs_a_source_and_a_free_name(place: Place) -> None:
    filesystem, base = place
    filesystem.create_file(f"{base}/a")
    filesystem.create_file(f"{base}/b")
    with pytest.raises(FileExistsError):
        filesystem.link_file(f"{base}/a", f"{base}/b")
    with pytest.raises(FileNotFoundError):
        filesystem.link_file(f"{base}/missing", f"{base}/c")


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.KEPT])
def test_a_link_is_durable_with_its_directory(fate: Fate) -> None:
    disk = RecordingDisk()
    disk.make_directory("/d")
    disk.sync_directory("/")
    file = disk.create_file("/a")
    file.write_at(b"x", 0)
    file.sync()
    disk.sync_directory("/")
    disk.link_file("/a", "/d/b")
    unsynced = len(disk.changes)
    disk.sync_directory("/d")
    disk.remove_file("/a")
    disk.sync_directory("/")
    before = disk.after(unsynced, fate)
    assert before.read_file("/a") == b"x"
    assert before.list_directory("/d") == (["b"] if fate is Fate.KEPT else [])
    after = disk.after(len(disk.changes), Fate.LOST)
    assert after.read_file("/d/b") == b"x"
    assert after.link_count("/d/b") == 1


def test_a_link_survives_a_power_cut_after_its_directory_was_synced() -> None:
    disk = VolatileDisk()
    disk.make_directory("/d")
    disk.create_file("/a").write_at(b"x", 0)
    disk.open_file("/a").sync()
    disk.link_file("/a", "/d/b")
    disk.sync_directory("/d")
    disk.sync_directory("/")
    disk.remove_file("/a")
    disk.sync_directory("/")
    after = disk.after_power_cut()
    assert after.read_file("/d/b") == b"x"
    assert (after.link_count("/d/b"), after.list_directory("/")) == (1, ["d"])
