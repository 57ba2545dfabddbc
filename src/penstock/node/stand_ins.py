"""`StandIns`: what stands in for a part of the machine while faults are tested.

Each is None for the real thing. They are how `penstock.testing` takes a disk away, keeps metadata
over a crash, or puts a slow line between a broker and its clients; nothing else uses them.
"""

from dataclasses import dataclass

from penstock.broker.server import WrapConnection
from penstock.storage.filesystem import FileSystem


@dataclass(frozen=True, slots=True)
class StandIns:
    """What is not the real thing."""

    filesystem: FileSystem | None = None
    """For the disk of the logs; metadata is not on it."""
    metadata_path: str | None = None
    """For the metadata of a broker in memory: a `MemoryDatabase` that outlives it."""
    wrap_connection: WrapConnection | None = None
    """Between each socket and its connection."""
