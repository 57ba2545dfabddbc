"""`LogDirectory`: a data directory as its logs see it; `FlushJob`: the unsynced data of one log.

It holds the state that all logs of a directory share: the file system, the table of open files, the
list of logs with unsynced data, and the failure. A failure is permanent: after one failed write or
sync no append in the directory is written or acknowledged again, because the kernel may have
dropped the dirty pages and a second sync would wrongly succeed.

It does no scheduling (`flusher`) and knows no partitions (`log_manager`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from penstock.core.errors import DiskFullError, LogDirectoryOfflineError
from penstock.core.limits import UNSYNCED_BYTES_MAX
from penstock.core.types import TopicPartition
from penstock.storage.disk.filesystem import File, FileSystem
from penstock.storage.disk.open_files import OpenFiles
from penstock.storage.log.leader_epochs import LeaderEpochs
from penstock.storage.log.log_settings import FlushMode
from penstock.storage.log.log_snapshots import SnapshotLog
from penstock.storage.log.room import ROOM_STEP_BYTES_MIN
from penstock.storage.log.segment import Segment
from penstock.storage.log.transaction_index import TransactionIndex


class LogMark(NamedTuple):
    """An offset at which a batch begins or the log ends, and its position in the files."""

    offset: int
    segment: Segment
    position: int


class GapNotes(Protocol):
    """The durable note that offsets may be missing in a log; `ManagedDirectory` is one."""

    def note_gaps(self, topic_partition: TopicPartition, log_start_offset: int) -> None:
        """Note in memory that a log has gaps."""
        ...

    def write_cleaned_offsets(self) -> None:
        """Write the notes. Any thread."""
        ...


class FlushJob:
    """The work that must be on the disk before the log's durable offset may reach `mark`.

    The order is fixed: gaps, epochs, data files, then names (`flush_work`).
    """

    __slots__ = (
        "aborting",
        "epochs",
        "files",
        "gaps",
        "is_done",
        "log",
        "mark",
        "segment_files",
        "segments",
        "small_paths",
        "sync_directory",
        "sync_parent",
        "truncations",
    )

    def __init__(
        self,
        log: "Flushable",
        mark: LogMark,
        truncations: int,
        files: list[File],
        segments: list[Segment],
        segment_files: list[File],
    ) -> None:
        self.log = log
        self.mark = mark
        self.truncations = truncations
        """The log's count when the job was created; after a truncation the job moves no offset."""
        self.files = files
        self.segments = segments
        self.segment_files = segment_files
        """Files of `segments`: written and not synced, so they stay open if they are owed again."""
        self.epochs: bytes | None = None
        """Content of the leader-epoch checkpoint, when an epoch is new."""
        self.gaps: GapNotes | None = None
        """Where the first gap of the log must be noted."""
        self.small_paths: Sequence[str] = ()
        """Paths of some of `files`, in case they are owed again."""
        self.aborting: Sequence[TransactionIndex] = ()
        """Indexes whose files are among `files`, in case they are owed again."""
        self.sync_directory = False
        self.sync_parent = False
        self.is_done = False
        """The log was completed before the end of its round."""

    @property
    def is_plain(self) -> bool:
        """Whether the job consists only of syncing `files`, in any order."""
        return not (
            self.sync_directory
            or self.sync_parent
            or self.epochs is not None
            or self.gaps is not None
        )


@dataclass(slots=True)
class OwedWork:
    """The unsynced writes of a log; becomes a `FlushJob`."""

    segments: list[Segment] = field(default_factory=list)
    """Each once; the active one, if it is there, is the last."""
    small_paths: list[str] = field(default_factory=list)
    """Small files of a new log. Paths, because a log without data should hold no descriptor."""
    epochs: bool = False
    """The leader-epoch checkpoint is outdated."""
    directory: bool = False
    """Names in the log's directory are new."""
    parent: bool = False
    """The log's directory itself is new."""
    gaps: GapNotes | None = None
    """Where the first gap of the log must be noted."""
    birth: bool = False
    """The log never had a record; the owed work waits for its first batch."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is owed."""
        return not (
            self.segments
            or self.small_paths
            or self.epochs
            or self.directory
            or self.parent
            or self.gaps
        )

    @property
    def is_birth(self) -> bool:
        """Whether the log has no records yet: its loss loses no data."""
        return self.birth and not self.segments

    def add(self, segment: Segment) -> None:
        """A segment has unsynced data."""
        if not segment.is_dirty:
            segment.is_dirty = True
            self.segments.append(segment)

    def is_active_only(self, active: Segment) -> bool:
        """Whether only the data of the active segment is owed."""
        segments = self.segments
        return (
            len(segments) == 1
            and segments[0] is active
            and not (self.small_paths or self.epochs or self.directory or self.parent or self.gaps)
            and not active.transactions.is_unsynced
        )

    def take(
        self,
        filesystem: FileSystem,
        log: "FlushableLog",
        mark: LogMark,
        truncations: int,
        active: Segment,
        *,
        sealed_only: bool,
    ) -> FlushJob:
        """Turn everything owed into a job; after an `OSError` all of it is still owed."""
        if self.is_active_only(active) and not sealed_only:
            # The usual job: data appended to the active segment.
            data = [active.file()]
            owed, self.segments = self.segments, []
            active.is_dirty = False
            return FlushJob(log, mark, truncations, data, owed, data)
        segments, kept = self.segments, []
        if sealed_only and segments and segments[-1] is active:
            segments, kept = segments[:-1], segments[-1:]
        files = [filesystem.open_file(path) for path in self.small_paths]
        aborting, segment_files = [], []
        for segment in segments:
            files.append(segment.file())
            segment_files.append(files[-1])
            if segment is not active:
                files += [segment.offset_index.finish(), segment.time_index.finish()]
            transactions = segment.transactions
            if transactions.is_unsynced:
                # Its first entry creates the file, whose name must be durable too.
                self.directory |= transactions.is_new
                files.append(transactions.finish())
                aborting.append(transactions)
        # No step after this may fail: files that could not be opened are still owed.
        self.segments = kept
        for transactions in aborting:
            transactions.is_unsynced = transactions.is_new = False
        for segment in segments:
            segment.is_dirty = False
        job = FlushJob(log, mark, truncations, files, segments, segment_files)
        job.epochs = log.epochs.to_bytes() if self.epochs else None
        job.small_paths = self.small_paths
        job.aborting = aborting
        job.gaps, self.gaps = self.gaps, None
        job.sync_directory = self.directory
        job.sync_parent = self.parent
        self.small_paths = []
        self.epochs = self.directory = self.parent = self.birth = False
        return job

    def put_back(self, job: FlushJob, segments: list[Segment]) -> None:
        """A job was not done: owe all of it again, before newer work.

        Segments that the log no longer has are dropped, and so are their files.
        """
        later, self.segments = self.segments, []
        for segment, file in zip(job.segments, job.segment_files, strict=True):
            segment.is_dirty = False
            self.add(segment)
            segment.keep_file(file)
        self.segments += [segment for segment in later if segment not in self.segments]
        self.small_paths = [*job.small_paths, *self.small_paths]
        for transactions in job.aborting:
            transactions.is_unsynced = True
        self.epochs |= job.epochs is not None
        self.gaps = self.gaps or job.gaps
        self.directory |= job.sync_directory
        self.parent |= job.sync_parent
        self.keep_only(segments)

    def keep_only(self, segments: list[Segment]) -> None:
        """Forget the work for removed segments."""
        self.segments = [segment for segment in self.segments if segment in segments]


class Flushable(Protocol):
    """A log, as the flusher sees it."""

    @property
    def directory(self) -> str:
        """Path of the log's own directory."""
        ...

    @property
    def owes_sealed(self) -> bool:
        """Whether a sealed segment or a name waits for its sync."""
        ...

    is_dirty: bool
    is_flushing: bool
    """A job of it is under way; the next one waits for its end."""

    def take_flush_job(self, *, sealed_only: bool) -> FlushJob:
        """Hand over all unsynced work, or of the data only sealed segments."""
        ...

    def flush_done(self, job: FlushJob) -> bool:
        """The job's work is on the disk; whether the durable offset moved."""
        ...

    def flush_undone(self, job: FlushJob) -> None:
        """The job could not be done for lack of room; its work is owed again."""
        ...


class FlushableLog(Flushable, Protocol):
    """A log that can create a job."""

    epochs: LeaderEpochs


class LogDirectory:
    """The state that the logs of one data directory share."""

    __slots__ = (
        "appends_waiting",
        "bytes_waiting",
        "bytes_waiting_max",
        "dirty",
        "failure",
        "filesystem",
        "flush_mode",
        "gaps",
        "held_from",
        "is_sync_first",
        "on_failure",
        "open_files",
        "path",
        "room_append_bytes",
        "snapshots_missed",
        "snapshots_ready",
    )

    def __init__(
        self, path: str, filesystem: FileSystem, open_files: OpenFiles, flush_mode: FlushMode
    ) -> None:
        self.path = path
        self.filesystem = filesystem
        self.open_files = open_files
        self.flush_mode = flush_mode
        self.is_sync_first = flush_mode is FlushMode.ALWAYS
        self.room_append_bytes = ROOM_STEP_BYTES_MIN if self.is_sync_first else 0
        """Appends up to this size get room behind them (`room`), where each is synced soon."""
        self.dirty: list[Flushable] = []
        """Logs with data to sync or to report, each once."""
        self.appends_waiting = 0
        """Appends since the last round of the flusher began."""
        self.bytes_waiting = 0
        """Their size."""
        self.bytes_waiting_max = UNSYNCED_BYTES_MAX
        """The bound, less the bytes in rounds under way; an append above it is refused."""
        self.snapshots_ready: dict[SnapshotLog, None] = {}
        """Logs whose producer snapshot can be stored, in the order in which they came."""
        self.snapshots_missed: dict[SnapshotLog, None] = {}
        """Logs that want a producer snapshot at the next checkpoint."""
        self.gaps: GapNotes | None = None
        """Where a replica's append notes the first gap of a log."""
        self.held_from: Callable[[TopicPartition], int] | None = None
        """The first offset of a log that retention must keep, if something holds records."""
        self.failure: LogDirectoryOfflineError | None = None
        self.on_failure: Callable[[], object] | None = None
        """Called once, by the thread that finds the directory failed."""

    def retained_from(self, at: TopicPartition, start_offset: int, limit: int) -> int:
        """The offset below which retention may delete; at most `limit`."""
        if self.held_from is None:
            return limit
        return min(limit, max(start_offset, self.held_from(at)))

    @property
    def takes_appends(self) -> bool:
        """Whether the directory is in service and its disk keeps up."""
        return self.failure is None and self.bytes_waiting <= self.bytes_waiting_max

    def overload(self) -> DiskFullError:
        """The error of an append while the disk does not keep up; the client retries."""
        return DiskFullError(
            f"more than {UNSYNCED_BYTES_MAX} bytes wait to be synced in {self.path}:"
            " the disk is slower than the producers; try again later"
        )

    def take_missed_snapshots(self) -> None:
        """Take the producer snapshots that logs missed, as far as older ones are stored."""
        for log in list(self.snapshots_missed):
            log.snapshot_if_due()

    def fail(self, cause: BaseException) -> LogDirectoryOfflineError:
        """Take the directory out of service; the first cause stays."""
        if self.failure is None:
            self.failure = LogDirectoryOfflineError(
                f"data directory {self.path} is offline until a restart: {cause}"
            )
            if self.on_failure is not None:
                self.on_failure()
        return self.failure.again()
