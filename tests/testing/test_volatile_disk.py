"""The volatile disk: after a cut it holds the data that was durable on the recording disk."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage.disk.filesystem import FileSystem
from penstock.testing.memory_disk import Inode, MemoryDisk
from penstock.testing.recording_disk import Fate, RecordingDisk
from penstock.testing.volatile_disk import VolatileDisk

NAMES = ("/d/a", "/d/b", "/e/a")
Step = Callable[[FileSystem], object]


def tree(inode: Inode) -> object:
    """The bytes of a file, or the names of a directory with what they lead to."""
    if inode.names is None:
        return bytes(inode.data)
    return {name: tree(child) for name, child in inode.names.items()}


def write(path: str, data: bytes, position: int) -> Step:
    return lambda disk: disk.open_file(path).write_at(data, position)


def rename(source: str, target: str) -> Step:
    return lambda disk: disk.rename(source, target)


paths = st.sampled_from(NAMES)
steps: st.SearchStrategy[Step] = st.one_of(
    paths.map(lambda path: lambda disk: disk.create_file(path)),
    paths.map(lambda path: lambda disk: disk.remove_file(path)),
    paths.map(lambda path: lambda disk: disk.open_file(path).sync()),
    st.builds(write, paths, st.binary(min_size=1, max_size=4), st.integers(0, 6)),
    st.builds(
        lambda path, size: lambda disk: disk.open_file(path).truncate(size),
        paths,
        st.integers(0, 6),
    ),
    st.sampled_from([rename("/d/a", "/d/b"), rename("/d/b", "/d/a")]),
    st.sampled_from(["/", "/d", "/e"]).map(lambda path: lambda disk: disk.sync_directory(path)),
)


def done(disk: FileSystem, step: Step) -> bool:
    """Whether a step was possible: a file that is not there cannot be written."""
    try:
        step(disk)
    except FileNotFoundError:
        return False
    return True


def prepared(disk: MemoryDisk) -> None:
    for path in ("/d", "/e"):
        disk.make_directory(path)
    disk.sync_directory("/")


@given(st.lists(steps, max_size=40))
def test_it_holds_what_was_synced_and_nothing_else(chosen: list[Step]) -> None:
    volatile, recording = VolatileDisk(), RecordingDisk()
    prepared(volatile)
    prepared(recording)
    for step in chosen:
        assert done(volatile, step) == done(recording, step)
    assert tree(volatile.root) == tree(recording.root)
    after = volatile.after_power_cut()
    assert tree(after.root) == tree(recording.after(len(recording.changes), Fate.LOST).root)
    assert tree(after.after_power_cut().root) == tree(after.root), "what survived is durable"


def test_the_old_disk_goes_on_and_the_new_one_does_not_notice() -> None:
    disk = VolatileDisk()
    file = disk.create_file("/a")
    file.write_at(b"kept", 0)
    file.sync()
    disk.sync_directory("/")
    after = disk.after_power_cut()
    file.write_at(b"ghost", 0)
    file.sync()
    assert after.read_file("/a") == b"kept"
    assert disk.read_file("/a") == b"ghost"


@pytest.mark.parametrize("is_durable", [True, False])
def test_what_is_gone_for_good_is_forgotten(is_durable: bool) -> None:
    disk = VolatileDisk()
    file = disk.create_file("/a")
    if is_durable:
        disk.sync_directory("/")
    for number in range(100):
        file.write_at(b"x", number)
    inode = disk.find("/a")
    assert disk.undo_of(inode).replaced == [], "an append replaces nothing"
    disk.remove_file("/a")
    disk.sync_directory("/")
    assert disk.undo_of(inode).size == 100, "a file that nobody can find was still remembered"
