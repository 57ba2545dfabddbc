"""The files of a Delta table in its storage: entries of the log, and all others.

Names are as the storage spells them, below the table's folder; the log spells them as URIs, and
`stored_name` converts them. `delta.maintenance` decides.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from penstock.spark.tables.files.orphans import StoredFile

COMMITTED_AT_KEY: Final = "penstock.committed-at-ms"
"""The key of the commit time in our log entries: the clock of the pipeline decides the age."""
LOG_FOLDER: Final = "_delta_log"
RESTORE: Final = "RESTORE"
"""The name of that operation."""
ENTRIES_AT_ONCE: Final = 200
"""The number of entries read in one step backwards; each step opens the table, which reads a
checkpoint."""
_NO_NUMBER: Final = "invalid value: integer `-1`"
"""The error of `deltalake` for an entry without a version before it."""
_LOG_NAME: Final = re.compile(
    r"(?P<version>\d{20})\.(?P<kind>json|crc|checkpoint\..*|checkpoint|\d{20}\.compacted\.json)"
)


@dataclass(frozen=True, slots=True)
class LogListing:
    """The files in the log's folder, by version."""

    entries: tuple[int, ...]
    """Versions with an entry, in order."""
    checkpoints: tuple[int, ...]
    """Versions with a checkpoint, in order."""
    names: tuple[tuple[int, str], ...]
    """All files of a version, the oldest first."""

    @property
    def oldest(self) -> int:
        """The first readable version: it has a checkpoint, or nothing before it."""
        starts = [*self.checkpoints[:1], *(one for one in self.entries[:1] if one == 0)]
        return min(starts, default=0)


@dataclass(frozen=True, slots=True)
class EntryFiles:
    """One entry of the log."""

    committed_at_ms: int
    """The commit time: for our entries by the clock of the pipeline."""
    written_at_ms: int
    """The time by the machine's clock, as `deltalake` writes it."""
    added: tuple[str, ...]
    removed: tuple[str, ...]
    operation: str = ""
    """The writer's name for the operation."""


class EntryStamp(NamedTuple):
    """The identity of an entry, without reading it."""

    size_bytes: int
    written_at_ns: int
    """The time by the storage's clock."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version before another one."""

    number: int
    has_same_files: bool
    """Whether its files are the same as those of that other version."""
    written_at_ms: int = 0
    is_restore: bool = False


def history_of(table: DeltaTable, limit: int | None = None) -> list[dict[str, Any]]:
    """Return the commit information of the newest log entries, with versions; the newest first.

    The result is that of `deltalake`. But `deltalake` cannot read the entries that Spark writes for
    CONVERT TO DELTA and CLONE, with -1 as the read version: then this module reads the entries.
    """
    try:
        return table.history(limit)
    except DeltaError as error:
        if _NO_NUMBER not in str(error):
            raise
    log = DeltaLog(table)
    newest_first = log.listing().entries[::-1]
    return [{**log.information(one), "version": one} for one in newest_first[:limit]]


def stored_name(path: str) -> str:
    """Return the storage name of a path in the log."""
    return unquote(path)


def live_names(table: DeltaTable) -> set[str]:
    """Return the files of the version that was read."""
    paths = pa.table(table.get_add_actions(flatten=False))["path"].to_pylist()
    return {stored_name(one) for one in paths}


class DeltaLog:
    """Access to a table's folder with the credentials of the table's handle."""

    def __init__(self, table: DeltaTable) -> None:
        self._storage = fs.PyFileSystem(DeltaStorageHandler.from_table(table._table))

    def listing(self) -> LogListing:
        """Return the files of the log's folder."""
        selector = fs.FileSelector(LOG_FOLDER, allow_not_found=True)
        found = []
        for info in self._storage.get_file_info(selector):
            name = _LOG_NAME.fullmatch(info.base_name)
            if name is not None:
                found.append((int(name["version"]), name["kind"], info.path))
        found.sort()
        return LogListing(
            tuple(version for version, kind, _ in found if kind == "json"),
            tuple(sorted({one[0] for one in found if one[1].startswith("checkpoint")})),
            tuple((version, path) for version, _, path in found),
        )

    def entry(self, version: int) -> EntryFiles:
        """Return the files of this version's entry."""
        actions = self._actions(version)
        information = _information(actions)
        written_at_ms = int(information.get("timestamp") or 0)
        return EntryFiles(
            committed_at_ms=int(information.get(COMMITTED_AT_KEY) or written_at_ms),
            written_at_ms=written_at_ms,
            added=tuple(stored_name(one["add"]["path"]) for one in actions if "add" in one),
            removed=tuple(stored_name(one["remove"]["path"]) for one in actions if "remove" in one),
            operation=str(information.get("operation") or ""),
        )

    def information(self, version: int) -> dict[str, Any]:
        """Return the commit information of this version's entry."""
        return _information(self._actions(version))

    def _actions(self, version: int) -> list[dict[str, Any]]:
        with self._storage.open_input_stream(f"{LOG_FOLDER}/{version:020d}.json") as stream:
            return [json.loads(line) for line in stream.read().splitlines() if line.strip()]

    def stamp(self, version: int) -> EntryStamp | None:
        """Return size and time of the entry of this version; None if it is missing."""
        info = self._storage.get_file_info(f"{LOG_FOLDER}/{version:020d}.json")
        is_file = info.type == fs.FileType.File
        return EntryStamp(int(info.size), int(info.mtime_ns)) if is_file else None

    def data_files(self) -> list[StoredFile]:
        """Return all Parquet files of rows; names that begin with `_` or `.` are not for rows."""
        found = self._storage.get_file_info(fs.FileSelector("", recursive=True))
        # The table of a namespace may be inside the folder of a table with that name.
        others = tuple(
            info.path.removesuffix(LOG_FOLDER)
            for info in found
            if info.type == fs.FileType.Directory and info.path.endswith(f"/{LOG_FOLDER}")
        )
        return [
            StoredFile(info.path, info.mtime_ns // 1_000_000)
            for info in found
            if info.type == fs.FileType.File
            and _is_data(info.path)
            and not info.path.startswith(others)
        ]

    def remove(self, names: Iterable[str]) -> int:
        """Delete these files, in this order; missing ones do not count."""
        count = 0
        for name in names:
            with suppress(FileNotFoundError):
                self._storage.delete_file(name)
                count += 1
        return count


def versions_before(version: int, open_version: Callable[[int], DeltaTable]) -> Iterator[Version]:
    """Return the earlier versions in the log, the newest first; they are read step by step."""
    table = open_version(version)
    log, files = DeltaLog(table), live_names(table)
    listing = log.listing()
    entries = set(listing.entries)
    end = version
    while end > listing.oldest:
        start = max(listing.oldest, end - ENTRIES_AT_ONCE)
        differing = files ^ live_names(open_version(start))
        found = [_version(start, differing, log.entry(start) if start in entries else None)]
        for number in range(start + 1, end):
            entry = log.entry(number)
            come = set(entry.added)
            gone = set(entry.removed) - come
            differing -= (come & files) | (gone - files)
            differing |= (come - files) | (gone & files)
            found.append(_version(number, differing, entry))
        yield from reversed(found)
        end = start


def _version(number: int, differing: set[str], entry: EntryFiles | None) -> Version:
    if entry is None:  # only its checkpoint is left
        return Version(number, not differing)
    return Version(number, not differing, entry.written_at_ms, entry.operation == RESTORE)


def _information(actions: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return next((one["commitInfo"] for one in actions if "commitInfo" in one), {})


def _is_data(path: str) -> bool:
    """Return whether it is data; partition folders may begin with `_`, and have a `=`."""
    *folders, name = path.split("/")
    is_hidden = any(one[:1] in ("_", ".") and "=" not in one for one in folders)
    return not is_hidden and name[:1] not in ("_", ".") and name.endswith(".parquet")
