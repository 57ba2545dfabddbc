"""The memory disk's room: counted as files change, so a sample may run beside any of them."""

from penstock.storage.disk.memory_disk import Inode, MemoryDisk


class Watched(dict[str, Inode]):
    """Names that must not be walked over."""

    def values(self) -> object:  # type: ignore[override]
        raise AssertionError("a walk would meet changes of another thread")


def used(disk: MemoryDisk) -> int:
    space = disk.space("/")
    return space.total_bytes - space.free_bytes


def test_room_is_counted_without_a_walk() -> None:
    disk = MemoryDisk()
    disk.root.names = Watched()
    file = disk.create_file("/a")
    file.write_at(b"12345", 3)
    assert used(disk) == 8
    file.truncate(2)
    assert used(disk) == 2
    file.truncate(4)
    disk.create_file("/b").write_at(b"123", 0)
    assert used(disk) == 7
    disk.rename("/b", "/a")
    assert used(disk) == 3
    file.write_at(b"nobody sees this", 0)
    assert used(disk) == 3
    disk.create_file("/a")
    assert used(disk) == 0
    disk.open_file("/a").write_at(b"1", 0)
    disk.remove_file("/a")
    assert used(disk) == 0


def test_a_given_tree_counts() -> None:
    first = MemoryDisk()
    first.make_directory("/d")
    first.create_file("/d/a").write_at(b"1234", 0)
    disk = MemoryDisk(first.root)
    assert used(disk) == 4
    disk.remove_file("/d/a")
    assert used(disk) == 0
