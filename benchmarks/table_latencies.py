"""The time when each record became readable in a table, from the table's log, for any writer.

A record is readable when the commit of its file is: a Delta table's log entry, an Iceberg table's
metadata file or, where a SQL catalog points at it, the next change of the catalog's database. Times
are modification times of the file system, so that they do not depend on a contestant's clock. An
entry is written a moment before it gets its name, to the same advantage of all contestants.
"""

import bisect
import dataclasses
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.table import StaticTable

POLL_SECONDS = 0.005
MS = 1e6
"""Nanoseconds in a millisecond."""
Numbers = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Committed:
    """One commit: the time when it became visible, and its files."""

    at_ms: float
    files: tuple[Path, ...]


def delta_commits(table: Path) -> list[Committed]:
    """Return every log entry that added files."""
    found = []
    for entry in sorted((table / "_delta_log").glob("[0-9]*.json")):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        files = [table / unquote(one["add"]["path"]) for one in actions if "add" in one]
        if files:
            found.append(Committed(entry.stat().st_mtime_ns / MS, tuple(files)))
    return found


def iceberg_commits(table: Path, changes_ms: Sequence[float]) -> list[Committed]:
    """Return every snapshot that added files; `changes_ms` are the times of catalog changes.

    A table keeps a hundred metadata files. A snapshot without its first metadata file gets its own
    timestamp: it is from the seconds that are not counted.
    """
    entries: list[tuple[float, Path]] = []
    for found in (table / "metadata").glob("*.metadata.json"):
        with suppress(FileNotFoundError):  # written under another name first
            entries.append((found.stat().st_mtime_ns / MS, found))
    entries.sort()
    seen_ms: dict[int, float] = {}
    newest_entry = None
    for at_ms, entry in entries:
        try:
            snapshot = json.loads(entry.read_text()).get("current-snapshot-id")
        except (json.JSONDecodeError, FileNotFoundError):
            break  # it is being written, so it is not readable yet
        newest_entry = entry
        if snapshot is not None:
            seen_ms.setdefault(snapshot, at_ms)
    if newest_entry is None:
        return []
    newest = StaticTable.from_metadata(str(newest_entry))
    current = newest.current_snapshot()
    files: dict[int, list[Path]] = {}
    for manifest in current.manifests(newest.io) if current else ():
        for one in manifest.fetch_manifest_entry(newest.io):
            path = Path(one.data_file.file_path.removeprefix("file://"))
            files.setdefault(one.snapshot_id or 0, []).append(path)
    return [
        Committed(
            _visible(seen_ms.get(one.snapshot_id, one.timestamp_ms), changes_ms),
            tuple(files[one.snapshot_id]),
        )
        for one in newest.metadata.snapshots
        if one.snapshot_id in files
    ]


def _visible(at_ms: float, changes_ms: Sequence[float]) -> float:
    """Return the time of the catalog's next change; without catalog changes, `at_ms`."""
    if not changes_ms:
        return at_ms
    return changes_ms[min(bisect.bisect_left(changes_ms, at_ms), len(changes_ms) - 1)]


def rows_of(commits: Sequence[Committed]) -> int:
    """Return the number of rows in all files, from their footers."""
    files = [file for commit in commits for file in commit.files]
    return sum(pq.read_metadata(file).num_rows for file in files)


def _timestamps_ms(file: Path) -> Numbers:
    """The timestamps of a file's records, from the struct `_kafka` or from its flat column."""
    with pq.ParquetFile(file) as opened:
        if "_kafka" in opened.schema_arrow.names:
            rows = opened.read(columns=["_kafka.timestamp"])
            column = pc.struct_field(rows["_kafka"], "timestamp")
        else:
            column = opened.read(columns=["_kafka_timestamp"])["_kafka_timestamp"]
    stamps: Numbers = column.to_numpy().astype("datetime64[us]").astype("int64") / 1_000
    return stamps


def latencies_ms(commits: Sequence[Committed], begin_ms: float, end_ms: float) -> Numbers:
    """Return the sorted latencies of the records with timestamps in this range.

    A latency runs from the record's timestamp until the record is readable.
    """
    parts = [np.empty(0)]
    for commit in commits:
        for file in commit.files:
            stamps = _timestamps_ms(file)
            chosen = stamps[(stamps >= begin_ms) & (stamps < end_ms)]
            parts.append(commit.at_ms - chosen)
    return np.sort(np.concatenate(parts))


@contextmanager
def watched(database: str) -> Iterator[list[float]]:
    """Collect the times at which a file changed, in milliseconds, while the block runs."""
    found: list[float] = []
    if not database:
        yield found
        return
    ended = threading.Event()
    place = Path(database)

    def watch() -> None:
        while not ended.wait(POLL_SECONDS):
            changed_ms = place.stat().st_mtime_ns / MS
            if not found or found[-1] != changed_ms:
                found.append(changed_ms)

    watcher = threading.Thread(target=watch, name="watch-catalog")
    watcher.start()
    try:
        yield found
    finally:
        ended.set()
        watcher.join()
