"""`StandIns`: replacements for parts of the machine, in tests of faults and in a worker.

None means the real part. `penstock.testing` uses them to remove a disk, keep metadata over a crash,
or put a slow line between a broker and its clients. A worker of `penstock serve --workers` has the
parts of its supervisor.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.broker.connections.server import WrapConnection
from penstock.cluster.features.levels import SUPPORTED, Ranges
from penstock.cluster.stores.port import MetadataStore
from penstock.core.clock import Clock
from penstock.storage.disk.filesystem import FileSystem

if TYPE_CHECKING:
    from penstock.node.workers.worker_parts import WorkerParts


@dataclass(frozen=True, slots=True)
class StandIns:
    """The replaced parts."""

    filesystem: FileSystem | None = None
    """Replaces the disk of the logs; metadata is not on it."""
    metadata_path: str | None = None
    """Replaces the metadata of a broker in memory: a `MemoryDatabase` that outlives it."""
    wrap_connection: WrapConnection | None = None
    """Inserted between each socket and its connection."""
    clock: Clock | None = None
    """Replaces the clock of the machine."""
    metadata_store: MetadataStore | None = None
    """Replaces the metadata store; its owner closes it."""
    features: Ranges = SUPPORTED
    """Replaces the levels of features that this version supports."""
    worker: "WorkerParts | None" = None
    """The parts of the supervisor; its metadata store is `metadata_store` too."""
