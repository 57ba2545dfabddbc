"""`prepare_log`: writes the log of one partition aside: a snapshot, then the mirror's own tail.

The tail are the batches of the mirror behind the snapshot, copied as they are. So a mirror that was
in step stays in step, and positions of its consumers stay valid. Guarantees: each batch of the
snapshot is verified before it is written, and each batch of the tail continues the offsets. Nothing
of the mirror is changed. It blocks: it runs on a thread.
"""

from collections.abc import Callable
from typing import Final
from uuid import UUID

from penstock.core.errors import WorkCancelledError
from penstock.core.limits import SEGMENT_RELATIVE_OFFSET_MAX
from penstock.edge.refresh.manifest import SnapshotPartition
from penstock.edge.refresh.snapshot_errors import SnapshotError
from penstock.edge.refresh.snapshot_files import verified_batches
from penstock.edge.refresh.snapshot_stores import SnapshotStore
from penstock.records.batch import iterate_headers
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log_installation import NewLog, PreparedLog
from penstock.storage.managed_directory import ManagedDirectory

READ_BYTES: Final = 4_194_304
SEGMENT_BYTES_MAX: Final = 134_217_728

Stop = Callable[[], bool]
"""Whether the work should end early."""


class LogCopy:
    """One partition that is prepared."""

    def __init__(
        self,
        log: PartitionLog,
        home: ManagedDirectory,
        snapshot: SnapshotPartition,
        unique: str,
        topic_id: UUID,
    ) -> None:
        self.log = log
        self._truncations = log.truncations
        self._snapshot = snapshot
        self._base = 0
        """Where the segment that is being written begins."""
        self.end_offset = snapshot.end_offset
        self._prepared = PreparedLog(
            home.shared.filesystem,
            home.shared.open_files,
            home.path,
            log.topic_partition,
            unique,
            topic_id,
            log.settings.index_interval_bytes,
        )

    def copy_snapshot(self, store: SnapshotStore, stop: Stop) -> None:
        """Write the verified batches of the snapshot."""
        prepared, file = self._prepared, None
        prepared.note_epochs(self._snapshot.epochs)
        for batch in verified_batches(store, self._snapshot):
            if stop():
                raise WorkCancelledError("the installation was ended")
            if batch.file is not file:
                file, self._base = batch.file, batch.file.base_offset
                prepared.begin_segment(self._base)
            prepared.append(batch.data, batch.header)

    def copy_tail(self, stop: Stop) -> None:
        """Copy the batches of the mirror behind the end of this copy."""
        log, prepared = self.log, self._prepared
        while self.end_offset < log.end_offset:
            if stop():
                raise WorkCancelledError("the installation was ended")
            found = log.read(
                self.end_offset,
                READ_BYTES,
                offset_limit=log.end_offset,
                at_least_one=True,
                nowait=False,
            )
            if not found.records:
                self.end_offset = max(self.end_offset, found.next_offset)
                return
            for position, header in iterate_headers(found.records):
                if header.base_offset < self.end_offset:
                    raise SnapshotError(
                        f"{log.topic_partition} has a batch across offset {self.end_offset}, the "
                        "end of the snapshot",
                        hint="Build the snapshot again.",
                    )
                is_near = header.last_offset - self._base <= SEGMENT_RELATIVE_OFFSET_MAX
                is_full = prepared.segment_bytes > SEGMENT_BYTES_MAX
                if not prepared.segment_bytes or is_full or not is_near:
                    self._base = self.end_offset if is_near else header.base_offset
                    prepared.begin_segment(self._base)
                prepared.append(found.records[position : position + header.size_bytes], header)
                self.end_offset = header.next_offset

    def check_unchanged(self, served: PartitionLog | None) -> None:
        """Raise `SnapshotError` if the log is another one, or was cut: the tail may be wrong."""
        if served is not self.log or self.log.truncations != self._truncations:
            raise SnapshotError(
                f"{self.log.topic_partition} was cut while its copy was written",
                hint="Try again.",
            )

    def finish(self) -> NewLog:
        """Sync the copy."""
        snapshot = self._snapshot
        return self._prepared.finish(snapshot.start_offset, snapshot.end_offset, self.end_offset)

    def discard(self) -> None:
        """Remove the copy."""
        self._prepared.discard()
