"""`StandIns`: replacements for parts of the machine in tests of faults.

None means the real part. `penstock.testing` uses them to remove a disk, keep metadata over a crash,
or put a slow line between a broker and its clients; nothing else uses them.
"""

from dataclasses import dataclass

from penstock.broker.connections.server import WrapConnection
from penstock.storage.disk.filesystem import FileSystem


@dataclass(frozen=True, slots=True)
class StandIns:
    """The replaced parts."""

    filesystem: FileSystem | None = None
    """For the disk of the logs; metadata is not on it."""
    metadata_path: str | None = None
    """For the metadata of a broker in memory: a `MemoryDatabase` that outlives it."""
    wrap_connection: WrapConnection | None = None
    """Between each socket and its connection."""
