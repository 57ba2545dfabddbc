"""Replaces old segments by one cleaned segment so that a crash leaves the old or the new.

The protocol is Apache Kafka's, with a sync of the directory after each step, because names that are
not synced may become durable in any order:

    1  X.log.cleaned and X's indexes .cleaned are written and synced    crash: they are removed
    2  all of them are renamed to .swap: this decides                   crash: undone or finished
    3  the files of the old segments are removed                        crash: it is finished
    4  X.log.swap is renamed to X.log                                   crash: indexes get names
    5  the indexes are renamed to their names                           crash: the same

A directory sync follows each. A start decides by the names alone: a `.cleaned` of X means that no
swap at X or after it is decided; X.log.swap without it means that its swap is, and the file defines
which old segments are removed: those from X up to the end of its last batch. Indexes that are .swap
without X.log.swap belong to the existing X.log.

`SegmentSwap` does it for a running log, in two halves; between them the log's owner exchanges the
segments in memory (`SegmentSwap.exchange`). `finish_interrupted` does it at a start, also for a
swap that Apache Kafka left.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Protocol

from penstock.core.errors import CorruptBatchError, QuarantinedLogError, RecordsError
from penstock.records.batch import HEADER_BYTES, checksum_matches, read_header
from penstock.storage.disk.filesystem import FileSystem, read_fully
from penstock.storage.log.batch_walk import batch_bytes
from penstock.storage.log.segment import LOG_SUFFIX, SEGMENT_SUFFIXES, Segment, segment_name

CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"


class SwappableLog(Protocol):
    """A log, as a swap sees it."""

    segments: list[Segment]
    active: Segment

    def replace_segments(self, segments: list[Segment]) -> None:
        """Replace the log's segments."""
        ...


class SegmentSwap:
    """One new segment for a run of old ones. Each half may be repeated when it failed."""

    def __init__(
        self, filesystem: FileSystem, directory: str, new: Segment, old: list[Segment]
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self.new = new
        """Written and synced under its early names."""
        self.old = old
        self._is_removed = False
        """Whether step 3 is done: files with the old names are new after it."""

    def decide(self) -> None:
        """Step 2, and the sync of 1: afterwards the new segment is valid. Blocks."""
        self._filesystem.sync_directory(self._directory)
        for place in self.new.places():
            # There is no transaction index when no transaction was aborted.
            with suppress(FileNotFoundError):
                place.rename(SWAP_SUFFIX)
        self._filesystem.sync_directory(self._directory)

    def fits(self, log: SwappableLog) -> bool:
        """Whether the log still has the old segments as they were."""
        segments, old = log.segments, self.old
        if old[0] not in segments:
            return False
        first = segments.index(old[0])
        return segments[first : first + len(old)] == old and old[-1] is not log.active

    def exchange(self, log: SwappableLog) -> None:
        """Put the new segment into the log, between the two halves; on the owner's thread.

        Afterwards no old file is opened by its name. Reads under way continue with their open
        files, or are repeated.
        """
        assert self.fits(log)
        first = log.segments.index(self.old[0])
        log.replace_segments(
            [*log.segments[:first], self.new, *log.segments[first + len(self.old) :]]
        )
        for segment in self.old:
            for place in segment.places():
                place.leave()
            segment.close()

    def finish(self) -> None:
        """Steps 3 to 5. Blocks; not on the loop."""
        data, *indexes = self.new.places()
        if not self._is_removed:
            for segment in self.old:
                is_same_name = segment.base_offset == self.new.base_offset
                _remove_files(
                    self._filesystem,
                    self._directory,
                    segment.base_offset,
                    keep_snapshot=is_same_name,
                )
            self._filesystem.sync_directory(self._directory)
            self._is_removed = True
        data.rename("")
        self._filesystem.sync_directory(self._directory)
        for place in indexes:
            try:
                place.rename("")
            except FileNotFoundError:
                # It was never created. If a truncated log creates it later, then with this name.
                place.begin_early("")
        self._filesystem.sync_directory(self._directory)

    def discard(self) -> None:
        """Remove a new segment that was not decided."""
        self.new.close()
        for place in self.new.places():
            with suppress(FileNotFoundError):
                place.remove()


def _remove_files(
    filesystem: FileSystem, directory: str, base_offset: int, *, keep_snapshot: bool
) -> None:
    """Remove a segment's files. Its snapshot stays for the segment that gets its name."""
    for suffix in SEGMENT_SUFFIXES:
        if not (keep_snapshot and suffix == ".snapshot"):
            with suppress(FileNotFoundError):
                filesystem.remove_file(f"{directory}/{segment_name(base_offset)}{suffix}")


def finish_interrupted(filesystem: FileSystem, directory: str, names: Iterable[str]) -> list[str]:
    """Complete a swap that a crash interrupted; return the names in the directory afterwards."""
    names = set(names)
    cleaned = {name for name in names if name.endswith(CLEANED_SUFFIX)}
    swaps = {name for name in names if name.endswith(SWAP_SUFFIX)}
    if not cleaned and not swaps:
        return list(names)
    first_cleaned = min((_base_offset(name) for name in cleaned), default=None)
    undecided = {
        name for name in swaps if first_cleaned is not None and _base_offset(name) >= first_cleaned
    }
    # The swaps first: without its `.cleaned` a swap would look decided.
    for part in (undecided, cleaned):
        for name in part:
            filesystem.remove_file(f"{directory}/{name}")
        filesystem.sync_directory(directory)
    names -= undecided | cleaned
    swaps -= undecided
    data_names = sorted(name for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX))
    for name in data_names:
        names = _finish_swap(filesystem, directory, name, names)
    for name in swaps - set(data_names):
        final = name.removesuffix(SWAP_SUFFIX)
        filesystem.rename(f"{directory}/{name}", f"{directory}/{final}")
        names = (names - {name}) | {final}
    filesystem.sync_directory(directory)
    return list(names)


def _finish_swap(filesystem: FileSystem, directory: str, name: str, names: set[str]) -> set[str]:
    """Steps 3 and 4 for one data file."""
    base_offset = _base_offset(name)
    end_offset = _end_offset(filesystem, f"{directory}/{name}", base_offset)
    bases = [_base_offset(other) for other in names if other.endswith(LOG_SUFFIX)]
    if not any(base >= max(end_offset, base_offset + 1) for base in bases):
        raise QuarantinedLogError(
            f"{directory}/{name}: an interrupted compaction of the last segment, which is never"
            " compacted; the files are kept as they are, remove the .swap files to serve the others"
        )
    gone = set()
    for other in names:
        stem, dot, suffix = other.partition(".")
        # A snapshot has the state at its offset, which stays valid.
        if not stem.isdigit() or dot + suffix not in SEGMENT_SUFFIXES or suffix == "snapshot":
            continue
        if base_offset <= int(stem) < max(end_offset, base_offset + 1):
            filesystem.remove_file(f"{directory}/{other}")
            gone.add(other)
    filesystem.sync_directory(directory)
    final = name.removesuffix(SWAP_SUFFIX)
    filesystem.rename(f"{directory}/{name}", f"{directory}/{final}")
    filesystem.sync_directory(directory)
    return (names - gone - {name}) | {final}


def _end_offset(filesystem: FileSystem, path: str, base_offset: int) -> int:
    """Offset after the last batch. Any error in a synced file is damage."""
    file = filesystem.open_file(path)
    position, size, end_offset = 0, file.size(), base_offset
    try:
        while position < size:
            if size - position < HEADER_BYTES:
                raise CorruptBatchError(f"half a batch at {position}")
            header = read_header(read_fully(file, HEADER_BYTES, position))
            step = batch_bytes(header.batch_length)
            if position + step > size or header.base_offset < end_offset:
                raise CorruptBatchError(f"no batch at {position}")
            if not checksum_matches(read_fully(file, step, position), 0, header):
                raise CorruptBatchError(f"wrong checksum at {position}")
            end_offset = header.next_offset
            position += step
    except RecordsError as error:
        raise QuarantinedLogError(
            f"{path}: an interrupted compaction whose new segment is damaged: {error}; the old"
            " segments are kept, remove the .swap files to serve them"
        ) from error
    finally:
        file.close()
    return end_offset


def _base_offset(name: str) -> int:
    stem = name.partition(".")[0]
    if not stem.isdigit():
        raise QuarantinedLogError(f"a file named {name}, which no segment has")
    return int(stem)
