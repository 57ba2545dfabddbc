"""`LogSnapshots`: which producer snapshots of one log are taken, missed and stored.

A snapshot belongs to no round of the flusher: clients determine its size, and all of them wait for
a round. It is taken where a segment ends, and at a checkpoint when much was appended since. The
owner's thread copies the table and nothing else; `snapshot_writer` packs and stores it on its own
thread, after the data below its offset is on the disk.

At most one snapshot of a log is taken and not stored. A segment that ends meanwhile misses its own,
and the next checkpoint takes one, so a client that fills segments quickly copies no more tables
than can be stored. Recovery replays from the newest snapshot that can be read, so a missing one
costs time and loses no state, as long as the batches are there: retention deletes no segment above
`stored_offset`.
"""

from contextlib import suppress
from typing import Final, Protocol

from penstock.core.limits import PRODUCER_SNAPSHOT_INTERVAL_BYTES
from penstock.storage.disk.filesystem import FileSystem
from penstock.storage.log.producer_state import ProducerSnapshot, ProducerStates
from penstock.storage.log.segment import segment_name

SNAPSHOT_SUFFIX: Final = ".snapshot"
_PERIODIC_KEPT: Final = 3
"""Kept between two segments. The newest may be past the recovery point after a crash, and so may
the one before it while the checkpoint of recovery points is being replaced."""


class SnapshotLog(Protocol):
    """A log whose producers are stored."""

    directory: str
    end_offset: int
    synced_offset: int
    truncations: int
    producers: ProducerStates
    snapshots: "LogSnapshots"

    def snapshot_if_due(self) -> None:
        """Take a snapshot when one was missed, or when much was appended."""
        ...


class SnapshotQueue(Protocol):
    """The queue of logs that wait for the writer; `LogDirectory` is one."""

    is_sync_first: bool
    snapshots_ready: dict[SnapshotLog, None]
    snapshots_missed: dict[SnapshotLog, None]


class TakenSnapshot:
    """The producers at an offset, until they are on the disk."""

    __slots__ = ("is_begun", "is_periodic", "log", "obsolete", "offset", "producers", "truncations")

    def __init__(self, log: SnapshotLog, producers: ProducerSnapshot, *, is_periodic: bool) -> None:
        self.log = log
        self.producers = producers
        self.offset = log.end_offset
        self.truncations = log.truncations
        self.is_periodic = is_periodic
        """Taken between two segments: newer ones replace it."""
        self.is_begun = False
        """The writer has begun to store it."""
        self.obsolete: list[str] = []
        """Names of snapshots that this one replaces; removed when it is stored."""

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{segment_name(self.offset)}{SNAPSHOT_SUFFIX}"


class LogSnapshots:
    """The snapshots of one log. Owner's thread."""

    __slots__ = (
        "_loaded_offset",
        "_periodic",
        "_segment_bytes",
        "is_missed",
        "stored_offset",
        "taken",
    )

    def __init__(self, stored_offset: int) -> None:
        self.stored_offset = stored_offset
        """Newest snapshot on the disk, or where the first segment begins."""
        self._loaded_offset = stored_offset
        """Snapshot that the start found, which the last stop did not sync; -1 after a newer one."""
        self.taken: TakenSnapshot | None = None
        self.is_missed = False
        """A segment ended, and its snapshot was not taken."""
        self._periodic: list[str] = []
        self._segment_bytes = 0
        """Size of the active segment when the last one was taken or missed."""

    def take_if_due(self, log: SnapshotLog, queue: SnapshotQueue, segment_bytes: int) -> None:
        """Take a snapshot between two segments, when one was missed or much was appended."""
        is_behind = segment_bytes - self._segment_bytes >= PRODUCER_SNAPSHOT_INTERVAL_BYTES
        if (self.is_missed and self.taken is None) or is_behind:
            self.take(log, queue, segment_bytes, is_periodic=True)

    def take(
        self, log: SnapshotLog, queue: SnapshotQueue, segment_bytes: int, *, is_periodic: bool
    ) -> None:
        """Copy the table as it is at the end of the log, unless an older copy is not stored yet."""
        self._segment_bytes = segment_bytes
        if self.taken is not None:
            self.miss(log, queue)
            return
        self.is_missed = False
        queue.snapshots_missed.pop(log, None)
        log.producers.map_end_offset = log.end_offset
        self.taken = TakenSnapshot(log, log.producers.snapshot(), is_periodic=is_periodic)
        self.offer(log, queue)

    def miss(self, log: SnapshotLog, queue: SnapshotQueue) -> None:
        """Let the next checkpoint take a snapshot."""
        self.is_missed = True
        queue.snapshots_missed[log] = None

    def offer(self, log: SnapshotLog, queue: SnapshotQueue) -> None:
        """Queue the taken snapshot for the writer, once the data below it is on the disk."""
        taken = self.taken
        if taken is None or taken.is_begun:
            return
        if taken.offset <= log.synced_offset or not queue.is_sync_first:
            queue.snapshots_ready[log] = None

    def begin(self) -> TakenSnapshot | None:
        """Hand over the taken snapshot."""
        taken = self.taken
        if taken is not None:
            taken.is_begun = True
            names = [*self._periodic, taken.name] if taken.is_periodic else self._periodic
            taken.obsolete = names[:-_PERIODIC_KEPT]
        return taken

    def stored(self, taken: TakenSnapshot) -> None:
        """The snapshot is on the disk under its name."""
        assert taken is self.taken
        self.taken = None
        self.stored_offset = taken.offset
        self._loaded_offset = -1
        if taken.is_periodic:
            self._periodic = [*self._periodic, taken.name][-_PERIODIC_KEPT:]

    def deletable(self, log: SnapshotLog, queue: SnapshotQueue, ends: list[int]) -> int:
        """How many of the segments with these ends have no record above the last snapshot.

        If one has, the next checkpoint takes a snapshot.
        """
        count = sum(end <= self.stored_offset for end in ends)
        if count < len(ends) and self.taken is None:
            self.miss(log, queue)
        return count

    def drop(self, log: SnapshotLog, queue: SnapshotQueue) -> None:
        """The log is deleted: store no more snapshots of it."""
        self.taken = None
        queue.snapshots_ready.pop(log, None)
        queue.snapshots_missed.pop(log, None)

    def begin_anew(self, log: SnapshotLog, queue: SnapshotQueue, stored_offset: int) -> None:
        """After a truncation: drop the taken snapshot, which has truncated batches."""
        self.drop(log, queue)
        self.is_missed = False
        self.stored_offset = self._loaded_offset = stored_offset

    def sync_loaded(self, filesystem: FileSystem, directory: str) -> None:
        """Sync the snapshot that the start found; any thread.

        A clean stop writes snapshots and does not sync them: a torn one is refused by its checksum,
        and the batches are there. Once segments below it are removed, it is the only copy.
        """
        if self._loaded_offset >= 0:
            with suppress(FileNotFoundError):
                filesystem.open_file(
                    f"{directory}/{segment_name(self._loaded_offset)}{SNAPSHOT_SUFFIX}"
                ).sync()
            self._loaded_offset = -1
