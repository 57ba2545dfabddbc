"""The memory disk under its name for tests; its code is beside the port that it implements."""

from penstock.storage.disk.memory_disk import Inode, MemoryDisk, MemoryFile

__all__ = ["Inode", "MemoryDisk", "MemoryFile"]
