"""Opens the directory of one partition and loads the state of the log from its files.

After a clean stop no segment is scanned: it reads names and sizes of the segments, the last index
entry, the few batches behind it, the small files. Otherwise `recovery` verifies the data past the
recovery point. Files of interrupted operations (`.deleted`, `.cleaned`, `.tmp`) are removed; an
interrupted compaction that was decided (`.swap`) is finished (`segment_swap`).

Producer state comes from the newest snapshot that can be read and is not ahead of the log, and from
replaying the batches behind it.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.core.errors import (
    CorruptBatchError,
    CorruptIndexError,
    QuarantinedLogError,
    StorageError,
)
from penstock.records.control import read_marker
from penstock.storage.disk.data_directory import PARTITION_FILE
from penstock.storage.disk.filesystem import FileSystem
from penstock.storage.disk.open_files import OpenFiles
from penstock.storage.log.index import OFFSET_ENTRY
from penstock.storage.log.leader_epochs import LeaderEpochs
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log.log_snapshots import SNAPSHOT_SUFFIX
from penstock.storage.log.producer_state import ProducerStates
from penstock.storage.log.recovery import rebuild_indexes, recover_segments
from penstock.storage.log.room import find_room
from penstock.storage.log.segment import LOG_SUFFIX, Segment, segment_name
from penstock.storage.log.segment_swap import finish_interrupted
from penstock.storage.log.transaction_index import TRANSACTION_SUFFIX

LEADER_EPOCH_FILE: Final = "leader-epoch-checkpoint"
_LEFT_OVER: Final = (".deleted", ".tmp")
_SNAPSHOTS_KEPT: Final = 2


@dataclass(slots=True)
class LoadedLog:
    """A partition's state as loaded from its files."""

    directory: str
    segments: list[Segment]
    log_start_offset: int
    end_offset: int
    producers: ProducerStates
    stored_offset: int
    """Newest producer snapshot that could be read, or where the first segment begins."""
    epochs: LeaderEpochs
    is_new: bool = False
    """No part of it is durable yet, not even the name of its directory."""
    is_bare: bool = False
    """It was found without records, and maybe no name in its directory was ever synced."""
    is_changed: bool = False
    """The state in memory differs from the files."""
    are_epochs_changed: bool = False
    """The leader epochs differ from their file."""
    unsynced: list[str] = field(default_factory=list)
    """Paths of small files to sync with the log's first batch."""
    cut: str = ""
    """Why a torn tail was cut, or nothing."""
    notes: list[str] = field(default_factory=list)


def create_log(filesystem: FileSystem, open_files: OpenFiles, directory: str) -> LoadedLog:
    """An empty log in an empty directory that exists."""
    segment = Segment.create(filesystem, open_files, directory, 0)
    return LoadedLog(
        directory,
        [segment],
        0,
        0,
        ProducerStates(),
        0,
        LeaderEpochs(),
        is_new=True,
        is_changed=True,
    )


def load_log(
    filesystem: FileSystem,
    open_files: OpenFiles,
    directory: str,
    settings: LogSettings,
    *,
    recovery_point: int,
    log_start_offset: int,
    is_clean: bool,
) -> LoadedLog:
    """Open a log; `QuarantinedLogError` when durable data is damaged or missing."""
    names = _remove_left_overs(filesystem, directory)
    segments = _open_segments(filesystem, open_files, directory, names, log_start_offset)
    epochs, stored_epochs, epochs_note = _load_epochs(filesystem, directory, names)
    is_changed = not segments
    if not segments:
        if recovery_point > log_start_offset:
            raise QuarantinedLogError(
                f"{directory}: no segment, but everything below {recovery_point} was durable"
            )
        segments = [Segment.create(filesystem, open_files, directory, log_start_offset)]
    cut, rebuild_from = "", None
    if is_clean:
        end_offset = _clean_end(directory, segments[-1], settings, recovery_point)
    else:
        segments, end_offset, cut, has_markers = recover_segments(
            filesystem,
            directory,
            segments,
            epochs,
            recovery_point=recovery_point,
            interval_bytes=settings.index_interval_bytes,
            allow_gaps=settings.is_compacted,
            is_adopted=settings.is_adopted,
        )
        rebuild_from = recovery_point if has_markers else None
        is_changed = True
        if end_offset < log_start_offset:
            cut = f"{cut}; it begins anew at {log_start_offset}, its start".removeprefix("; ")
            end_offset = log_start_offset
            segments = _begin_anew(filesystem, open_files, directory, segments, end_offset)
    start_offset = max(segments[0].base_offset, min(log_start_offset, end_offset))
    is_changed |= epochs.truncate_end(end_offset)
    is_changed |= epochs.truncate_start(start_offset)
    producers, stored_offset = load_producers(
        filesystem,
        directory,
        segments,
        end_offset,
        drop_later=not is_clean,
        names=names,
        rebuild_from=rebuild_from,
    )
    _sync_transactions(filesystem, directory, segments)
    # A clean stop syncs no file of a log without records: its first batch does.
    is_bare = end_offset == 0 and recovery_point == 0
    return LoadedLog(
        directory,
        segments,
        start_offset,
        end_offset,
        producers,
        stored_offset,
        epochs,
        is_bare=is_bare,
        is_changed=is_changed,
        are_epochs_changed=epochs.to_bytes() != stored_epochs,
        unsynced=[f"{directory}/{PARTITION_FILE}"] if is_bare and PARTITION_FILE in names else [],
        cut=cut,
        notes=[epochs_note] if epochs_note else [],
    )


def _begin_anew(
    filesystem: FileSystem,
    open_files: OpenFiles,
    directory: str,
    segments: list[Segment],
    offset: int,
) -> list[Segment]:
    """The only segment of a log whose start was synced when earlier data was not.

    That happens where appends count before they are synced. Offsets below the start are not used
    again, as in Kafka: the next start would hide records written there.
    """
    for segment in reversed(segments):
        segment.remove()
    created = Segment.create(filesystem, open_files, directory, offset)
    filesystem.sync_directory(directory)
    return [created]


def _remove_left_overs(filesystem: FileSystem, directory: str) -> list[str]:
    """Names in the directory, without left-overs of interrupted operations, which are removed."""
    names = []
    for name in filesystem.list_directory(directory):
        if name.endswith(_LEFT_OVER):
            filesystem.remove_file(f"{directory}/{name}")
        else:
            names.append(name)
    return finish_interrupted(filesystem, directory, names)


def _open_segments(
    filesystem: FileSystem,
    open_files: OpenFiles,
    directory: str,
    names: list[str],
    log_start_offset: int,
) -> list[Segment]:
    """The segments, without segments that lie wholly below the log's start."""
    bases = sorted(
        int(name.removesuffix(LOG_SUFFIX))
        for name in names
        if name.endswith(LOG_SUFFIX) and name.removesuffix(LOG_SUFFIX).isdigit()
    )
    _remove_orphans(filesystem, directory, names, bases)
    listed = set(names)
    segments = []
    for number, base_offset in enumerate(bases):
        path = f"{directory}/{segment_name(base_offset)}{LOG_SUFFIX}"
        size = filesystem.file_size(path)
        segment = Segment(filesystem, open_files, directory, base_offset, size)
        if segment_name(base_offset) + TRANSACTION_SUFFIX not in listed:
            segment.transactions.begin_empty()
        if number + 1 < len(bases) and bases[number + 1] <= log_start_offset:
            segment.remove()
        else:
            segments.append(segment)
    return segments


def _remove_orphans(
    filesystem: FileSystem, directory: str, names: list[str], bases: list[int]
) -> None:
    """Remove indexes without a data file: a segment of their name may be created again."""
    known = {segment_name(base_offset) for base_offset in bases}
    for name in names:
        stem, _, suffix = name.partition(".")
        if suffix in ("index", "timeindex", "txnindex") and stem not in known:
            filesystem.remove_file(f"{directory}/{name}")


def _load_epochs(
    filesystem: FileSystem, directory: str, names: list[str]
) -> tuple[LeaderEpochs, bytes, str]:
    """The leader epochs, the content of their file, and a note when it was unusable."""
    if LEADER_EPOCH_FILE not in names:
        return LeaderEpochs(), LeaderEpochs().to_bytes(), ""
    data = filesystem.read_file(f"{directory}/{LEADER_EPOCH_FILE}")
    try:
        return LeaderEpochs.from_bytes(data), data, ""
    except StorageError as error:
        note = f"{directory}: {error}; known epochs begin with what was scanned"
        return LeaderEpochs(), data, note


def _clean_end(directory: str, active: Segment, settings: LogSettings, recovery_point: int) -> int:
    """End offset after a clean stop: walk over the batches behind the last index entry."""
    try:
        end_offset = _walk_tail(active)
    except (CorruptIndexError, CorruptBatchError, QuarantinedLogError):
        # A small index is not synced by a clean stop: after a power cut it may be an older one.
        rebuild_indexes(active, settings.index_interval_bytes)
        end_offset = _walk_tail(active)
    if end_offset < recovery_point:
        raise QuarantinedLogError(
            f"{directory}: the log ends at {end_offset}, but everything below {recovery_point}"
            " was durable"
        )
    return end_offset


def _walk_tail(active: Segment) -> int:
    """Offset after the last batch; also fills in the fields that appends to the segment need."""
    start = 0
    last = active.offset_index.last()
    if last is not None:
        start = OFFSET_ENTRY.unpack(last)[1]
        if start >= active.size:
            raise CorruptIndexError("index points behind the end")
    end_offset = active.base_offset
    position = start
    try:
        for at, header in active.headers(start):
            if at == start and last is not None:
                is_right = header.last_offset == active.base_offset + OFFSET_ENTRY.unpack(last)[0]
                if not is_right:
                    raise CorruptIndexError("index names a batch that is not there")
            end_offset = header.next_offset
            position = at + header.size_bytes
    except CorruptBatchError:
        if not find_room(active, position):
            raise
    if position != active.size and not find_room(active, position):
        raise QuarantinedLogError(
            f"{active.directory}: segment {active.base_offset} ends in half a batch after a"
            " clean stop"
        )
    active.load_first_time()
    active.load_times()
    active.bytes_since_index = active.size - start
    return end_offset


class LoadedProducers(NamedTuple):
    """Producer state, and the offset of the snapshot that it comes from."""

    states: ProducerStates
    stored_offset: int


def load_producers(
    filesystem: FileSystem,
    directory: str,
    segments: list[Segment],
    end_offset: int,
    *,
    drop_later: bool,
    names: list[str] | None = None,
    rebuild_from: int | None = None,
) -> LoadedProducers:
    """Producer state at `end_offset`; snapshots that are not needed any more are removed.

    The removal of a snapshot past the end is durable: the log may grow past it with other batches.

    With `rebuild_from`, aborted transactions whose markers are there or later go into the indexes,
    so the replay begins with a snapshot that is not past it.
    """
    if names is None:
        names = list(filesystem.list_directory(directory))
    offsets = sorted(
        (
            int(name.removesuffix(SNAPSHOT_SUFFIX))
            for name in names
            if name.endswith(SNAPSHOT_SUFFIX) and name.removesuffix(SNAPSHOT_SUFFIX).isdigit()
        ),
        reverse=True,
    )
    states = None
    stored_offset = segments[0].base_offset
    kept = 0
    is_cut = False
    bases = {segment.base_offset for segment in segments}
    for offset in offsets:
        path = f"{directory}/{segment_name(offset)}{SNAPSHOT_SUFFIX}"
        if offset > end_offset:
            if drop_later:
                _remove_if_there(filesystem, path)
                is_cut = True
            continue
        if states is None and (rebuild_from is None or offset <= rebuild_from):
            states = _read_snapshot(filesystem, path, offset)
            if states is None:
                _remove_if_there(filesystem, path)
                continue
            stored_offset = max(offset, stored_offset)
        kept += 1
        if kept > _SNAPSHOTS_KEPT and offset not in bases:
            _remove_if_there(filesystem, path)
    if states is None:
        states = ProducerStates()
        states.map_end_offset = segments[0].base_offset
    if is_cut:
        filesystem.sync_directory(directory)
    _replay(states, segments, end_offset, rebuild_from)
    return LoadedProducers(states, stored_offset)


def _sync_transactions(filesystem: FileSystem, directory: str, segments: list[Segment]) -> None:
    """Sync the changes of recovery to transaction indexes: the log is served as synced."""
    changed = [entry.transactions for entry in segments if entry.transactions.is_unsynced]
    for transactions in changed:
        transactions.finish().sync()
        transactions.is_unsynced = transactions.is_new = False
    if changed:
        filesystem.sync_directory(directory)


def _remove_if_there(filesystem: FileSystem, path: str) -> None:
    """Remove a snapshot, which may have been removed with its segment."""
    with suppress(FileNotFoundError):
        filesystem.remove_file(path)


def _read_snapshot(filesystem: FileSystem, path: str, offset: int) -> ProducerStates | None:
    try:
        return ProducerStates.from_bytes(filesystem.read_file(path), offset)
    except (StorageError, FileNotFoundError):
        return None


def _replay(
    states: ProducerStates, segments: list[Segment], end_offset: int, rebuild_from: int | None
) -> None:
    """Replay the batches behind a snapshot up to the end of the log."""
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if following <= states.map_end_offset or segment.size == 0:
            continue
        start = 0
        if states.map_end_offset > segment.base_offset:
            try:
                start = segment.find(states.map_end_offset, nowait=False)
            except CorruptIndexError:
                start = 0
        for position, header in segment.headers(start):
            if header.base_offset < states.map_end_offset:
                continue
            marker = None
            if header.is_control:
                marker = read_marker(segment.read(position, header.size_bytes, nowait=False))
            aborted = states.replay(header, marker)
            if (
                aborted is not None
                and rebuild_from is not None
                and aborted.last_offset >= rebuild_from
            ):
                segment.transactions.append(aborted)
    states.map_end_offset = end_offset
