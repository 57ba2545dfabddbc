"""Replaces the logs of a topic by prepared ones, so that a crash leaves all old or all new logs.

A prepared log is a directory beside the log, written by `PreparedLog`. The replacement:

    1  <log>.<id>-install/ of each log is written and synced     crash: they are removed
    2  the file log-install-decision names them: this decides    crash: the next start continues
    3  each log is renamed to -delete, and its prepared one gets its name
    4  recovery points, log starts and the cleaner's checkpoint are written
    5  the decision is removed

A sync of the directory follows each step. `finish_installations` repeats 3 to 5 at a start, before
any log is loaded; each of them may be repeated. Logs of one topic may be in several data
directories; the decision is in one of them, so it is one file whatever their number.

While a log is replaced it refuses appends and reads with `LogBusyError`, as during a truncation
(`log_truncation`). After a failure between 2 and 5 the logs stay out of service, and the next start
finishes. It does NOT decide whether the new records fit: `node.refresh` does.
"""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from penstock.core.errors import StorageError
from penstock.core.types import TopicPartition
from penstock.records.batch import BatchHeader
from penstock.storage.disk import data_directory as names
from penstock.storage.disk.checkpoint import replace_file
from penstock.storage.disk.filesystem import FileSystem, write_fully
from penstock.storage.disk.open_files import OpenFiles
from penstock.storage.log.leader_epochs import LeaderEpochs
from penstock.storage.log.log_directory import OwedWork
from penstock.storage.log.log_loader import LEADER_EPOCH_FILE, LoadedLog, load_log
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log.segment import NO_TIMESTAMP, Segment
from penstock.storage.log_truncation import LogCut, reset_log
from penstock.storage.managed_directory import ManagedDirectory, remove_tree

DECISION_FILE: Final = "log-install-decision"
_VERSION: Final = 1


class NewLog(NamedTuple):
    """A prepared log."""

    partition: TopicPartition
    name: str
    """Of its directory, in the data directory of the log."""
    start_offset: int
    verified_offset: int
    """Becomes the recovery point: a start verifies later batches, and their transactions."""
    end_offset: int
    topic_id: UUID
    """A start leaves a log alone that is of another topic with the same name."""


class PreparedLog:
    """Writes a log aside, batch by batch; `finish` makes it durable. Any thread."""

    def __init__(
        self,
        filesystem: FileSystem,
        open_files: OpenFiles,
        home: str,
        partition: TopicPartition,
        unique: str,
        topic_id: UUID,
        index_interval_bytes: int,
    ) -> None:
        self._filesystem = filesystem
        self._open_files = open_files
        self._home = home
        self._partition = partition
        self._topic_id = topic_id
        self._interval_bytes = index_interval_bytes
        self._segment: Segment | None = None
        self._epochs = LeaderEpochs()
        self.name = names.renamed(partition, unique, names.INSTALL_SUFFIX)
        self.directory = f"{home}/{self.name}"
        filesystem.make_directory(self.directory)
        metadata = filesystem.create_file(f"{self.directory}/{names.PARTITION_FILE}")
        write_fully(metadata, names.format_partition_metadata(topic_id), 0)
        metadata.sync()

    def note_epochs(self, epochs: Iterable[tuple[int, int]]) -> None:
        """Add leader epochs with their first offsets, before batches of them are appended."""
        for epoch, start_offset in epochs:
            self._epochs.assign(epoch, start_offset)

    @property
    def segment_bytes(self) -> int:
        """Bytes of the segment that is being written; 0 if there is none."""
        return 0 if self._segment is None else self._segment.size

    def begin_segment(self, base_offset: int) -> None:
        """Seal the segment before, and begin another one."""
        self._seal()
        self._segment = Segment.create(
            self._filesystem, self._open_files, self.directory, base_offset
        )
        # Kept open until it is synced, or an error of the writeback could be lost.
        self._segment.is_dirty = True

    def append(self, batch: memoryview, header: BatchHeader) -> None:
        """Write one verified batch."""
        assert self._segment is not None, "a segment is begun first"
        timestamp_ms = header.max_timestamp_ms if header.record_count else NO_TIMESTAMP
        self._segment.append(
            batch, header.size_bytes, header.last_offset, timestamp_ms, self._interval_bytes
        )
        if header.leader_epoch > self._epochs.latest_epoch:
            self._epochs.assign(header.leader_epoch, header.base_offset)
        if self._segment.wants_index_write:
            self._segment.write_indexes()

    def finish(self, start_offset: int, verified_offset: int, end_offset: int) -> NewLog:
        """Sync everything; a log without batches is empty and begins at its end."""
        if self._segment is None:
            self.begin_segment(end_offset)
        self._seal()
        stored = self._epochs.to_bytes()
        replace_file(self._filesystem, self.directory, LEADER_EPOCH_FILE, stored)
        self._filesystem.sync_directory(self.directory)
        self._filesystem.sync_directory(self._home)
        return NewLog(
            self._partition,
            self.name,
            start_offset,
            verified_offset,
            end_offset,
            self._topic_id,
        )

    def _seal(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            for file in segment.finish():
                file.sync()
            segment.is_dirty = False
            segment.close()

    def discard(self) -> None:
        """Remove the directory; a start would do it too."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None
        with suppress(OSError):
            remove_tree(self._filesystem, self.directory)


class LogInstallation(LogCut):
    """One log that is being replaced."""

    def __init__(self, log: PartitionLog, home: ManagedDirectory, new: NewLog) -> None:
        super().__init__(log, home, new.end_offset)
        self.new = new
        self._loaded: LoadedLog | None = None

    @property
    def _settings(self) -> LogSettings:
        """The settings of the log; the new one has gaps."""
        return replace(self.log.settings, is_compacted=True)

    def move_checkpoints(self) -> None:
        """Set the checkpointed offsets for step 4; owner's thread, once step 2 is done."""
        new = self.new
        self.home.install(new.partition, new.start_offset, new.verified_offset)
        self.home.unsettled.add(self.log)

    def replace_files(self) -> None:
        """Step 3. Any thread."""
        log, home = self.log, self.home
        with log.rebuild_lock:
            for segment in log.segments:
                for place in segment.places():
                    place.leave()
                segment.close()
            home.doomed += _rename(home, self.new)

    def load(self) -> None:
        """Open the new log. Any thread."""
        log, shared = self.log, self.home.shared
        self._loaded = load_log(
            shared.filesystem,
            shared.open_files,
            log.directory,
            self._settings,
            recovery_point=self.new.verified_offset,
            log_start_offset=self.new.start_offset,
            is_clean=False,
        )
        if self._loaded.end_offset != self.new.end_offset:
            raise StorageError(
                f"{log.directory} ends at {self._loaded.end_offset} instead of "
                f"{self.new.end_offset}: {self._loaded.cut}"
            )

    def settle(self) -> None:
        """Serve the new log; owner's thread."""
        log, loaded = self.log, self._loaded
        assert loaded is not None, "the new log is not loaded"
        log.settings = self._settings
        log.epochs = loaded.epochs
        log.producers = loaded.producers
        log.snapshots.begin_anew(log, self.home.shared, loaded.stored_offset)
        log.owed = OwedWork()
        log.log_start_offset = loaded.log_start_offset
        log.durable_offset = log.synced_offset = log.high_watermark = loaded.end_offset
        reset_log(log, loaded.segments, loaded.end_offset)
        self._serve()


def decide(filesystem: FileSystem, directory: str, logs: Sequence[NewLog]) -> None:
    """Step 2. Any thread. A decision that is not carried out must not be replaced."""
    if DECISION_FILE in filesystem.list_directory(directory):
        raise StorageError(
            f"an earlier replacement of logs in {directory} is not finished",
            hint="Restart the broker, which finishes it.",
        )
    document = {
        "version": _VERSION,
        "logs": [
            {
                "topic": one.partition.topic,
                "partition": one.partition.partition,
                "name": one.name,
                "start_offset": one.start_offset,
                "verified_offset": one.verified_offset,
                "end_offset": one.end_offset,
                "topic_id": str(one.topic_id),
            }
            for one in logs
        ],
    }
    replace_file(filesystem, directory, DECISION_FILE, json.dumps(document).encode())


def conclude(filesystem: FileSystem, directory: str) -> None:
    """Step 5. Any thread."""
    with suppress(FileNotFoundError):
        filesystem.remove_file(f"{directory}/{DECISION_FILE}")
    filesystem.sync_directory(directory)


def _rename(home: ManagedDirectory, new: NewLog) -> list[str]:
    """Step 3 for one log, as often as needed; return the path of the old log."""
    filesystem, path = home.shared.filesystem, home.path
    old: list[str] = []
    prepared = f"{path}/{new.name}"
    if filesystem.is_directory(prepared):
        log = f"{path}/{names.log_name(new.partition)}"
        if filesystem.is_directory(log):
            unique = new.name.removesuffix(names.INSTALL_SUFFIX).rpartition(".")[2]
            target = f"{path}/{names.deleted_name(new.partition, unique)}"
            filesystem.rename(log, target)
            filesystem.sync_directory(path)
            old.append(target)
        filesystem.rename(prepared, log)
    filesystem.sync_directory(path)
    return old


def _read_decision(filesystem: FileSystem, directory: str) -> list[NewLog]:
    try:
        data = filesystem.read_file(f"{directory}/{DECISION_FILE}")
    except FileNotFoundError:
        return []
    try:
        document = json.loads(data)
        if document["version"] != _VERSION:
            raise StorageError(f"{directory}/{DECISION_FILE} is of a newer version of Penstock")
        return [
            NewLog(
                TopicPartition(str(one["topic"]), int(one["partition"])),
                str(one["name"]),
                int(one["start_offset"]),
                int(one["verified_offset"]),
                int(one["end_offset"]),
                UUID(one["topic_id"]),
            )
            for one in document["logs"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{directory}/{DECISION_FILE} cannot be read: {error}") from error


def _is_other(home: ManagedDirectory, new: NewLog) -> bool:
    """Whether the topic was deleted after the decision, and another one has its name."""
    path = f"{home.path}/{names.log_name(new.partition)}/{names.PARTITION_FILE}"
    try:
        found = names.parse_partition_metadata(home.shared.filesystem.read_file(path))
    except FileNotFoundError:
        return False
    return found is not None and found != new.topic_id


def finish_installations(homes: Sequence[ManagedDirectory]) -> None:
    """Finish the replacements that a crash interrupted; at a start, before logs are loaded.

    Only the decision counts: prepared logs without one are removed by the start.
    """
    for home in homes:
        filesystem = home.shared.filesystem
        found = _read_decision(filesystem, home.path)
        decided = [new for new in found if not any(_is_other(place, new) for place in homes)]
        for place in homes if decided else ():
            place.read_checkpoints()
            present = set(filesystem.list_directory(place.path))
            for new in decided:
                if present & {new.name, names.log_name(new.partition)}:
                    _rename(place, new)
                    place.install(new.partition, new.start_offset, new.verified_offset)
            place.write_behind()
        if found:
            conclude(filesystem, home.path)


# --- All steps on one thread ---


def install(cuts: Sequence[LogInstallation]) -> None:
    """Replace logs on the owner's thread. Blocks."""
    first = cuts[0].home
    filesystem = first.shared.filesystem
    for cut in cuts:
        cut.begin()
        cut.exclude()
    try:
        decide(filesystem, first.path, [cut.new for cut in cuts])
        for cut in cuts:
            cut.move_checkpoints()
        finish_decided(cuts)
    except OSError as error:
        raise first.shared.fail(error) from error
    for cut in cuts:
        cut.settle()


def finish_decided(cuts: Sequence[LogInstallation]) -> None:
    """Steps 3 to 5, and load the new logs. Any thread."""
    for cut in cuts:
        cut.replace_files()
    for home in {id(cut.home): cut.home for cut in cuts}.values():
        home.write_behind()
    for cut in cuts:
        cut.load()
    conclude(cuts[0].home.shared.filesystem, cuts[0].home.path)
