"""The memory disk under the name that tests know; it lives with the port it implements."""

from penstock.storage.disk.memory_disk import Inode, MemoryDisk, MemoryFile

__all__ = ["Inode", "MemoryDisk", "MemoryFile"]
