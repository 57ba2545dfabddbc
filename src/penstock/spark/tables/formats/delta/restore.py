"""Finds the version that a `RESTORE` by time of a Delta table restored (pure).

The log entry of a `RESTORE` by number has the version. A `RESTORE` by time has only the time:

- `deltalake` writes `{"datetime": "<milliseconds>"}`;
- Spark writes `{"version": null, "timestamp": "2026-11-16 18:17:55.494367"}`, without a zone.

The writer used the times of the log's files, which change when the table is copied. So the table's
files identify the version, which is exact for every writer: it is an older version with the same
files as after the `RESTORE`. A file is never written twice, so almost always there is one such
version, and a few after it that changed no file. The newest of them counts, because their commits
have no rows. If another writer deleted exactly the files added since, or there were more
`RESTORE`s, there are several such versions, and the time decides. If the time cannot decide, an
error is raised.

The log is read backwards, from the `RESTORE` until that version is found; and further only while
the time allows an older one.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from penstock.spark.tables.commit.note import read_note
from penstock.spark.tables.formats.delta.history import NOTE_KEY, HistoryError, LogEntry, TimeSpan
from penstock.spark.tables.formats.delta.log import RESTORE, Version

_EAST_MAX: Final = timedelta(hours=14)
_WEST_MAX: Final = timedelta(hours=12)


# --- Reading the log ---


def log_entry(entry: Mapping[str, Any]) -> LogEntry:
    """Return the parsed entry of the history of `deltalake`."""
    version: int = entry["version"]
    text = entry.get(NOTE_KEY)
    note = None if text is None else read_note(text)
    if entry.get("operation") != RESTORE:
        return LogEntry(version, note)
    parameters = entry.get("operationParameters") or {}
    number = str(parameters.get("version")).strip('"')
    if number.isdecimal() and int(number) < version:
        return LogEntry(version, note, int(number))
    return LogEntry(version, note, restored_to=time_span(parameters))


def time_span(parameters: Mapping[str, Any]) -> TimeSpan:
    """Return the time in the parameters of a RESTORE; any time if none is readable."""
    since_1970 = str(parameters.get("datetime")).strip('"')
    if since_1970.isdecimal():
        return TimeSpan(int(since_1970), int(since_1970), f"{since_1970} ms since 1970")
    text = str(parameters.get("timestamp")).strip('"')
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return TimeSpan(-math.inf, math.inf, "a time that its entry does not contain")
    if moment.tzinfo is not None:
        return TimeSpan(moment.timestamp() * 1_000, moment.timestamp() * 1_000, text)
    moment = moment.replace(tzinfo=UTC)
    return TimeSpan(
        (moment - _EAST_MAX).timestamp() * 1_000,
        (moment + _WEST_MAX).timestamp() * 1_000,
        f"{text}, without its zone",
    )


# --- Deciding ---


def choose(versions: Iterator[Version], time: TimeSpan) -> Sequence[int]:
    """Return the restored version, or several if it is uncertain; the newest first.

    `versions` are those before the RESTORE, the newest first; they are read only as far as needed.
    """
    same: list[Version] = []
    for one in versions:
        if one.has_same_files:
            same.append(one)
        if same and one.written_at_ms <= time.earliest_ms:
            break  # it existed at that time, so no earlier one was restored
    # Clocks differ a little: if all are too late, all of them are possible.
    possible = [one for one in same if one.written_at_ms <= time.latest_ms] or same
    if all(_is_alike(newer, older) for newer, older in pairwise(possible)):
        possible = possible[:1]
    return [one.number for one in possible]


def _is_alike(newer: Version, older: Version) -> bool:
    """Return whether the newer version certainly has the rows of the older one."""
    return newer.number == older.number + 1 or newer.is_restore


def find_version(restore: LogEntry, versions: Iterator[Version]) -> int:
    """Return the version that this RESTORE restored; raise if it is uncertain.

    `versions` are those before it, the newest first.
    """
    assert restore.restored_to is not None, "the log says the version of all others"
    time = restore.restored_to
    found = choose(versions, time)
    if len(found) == 1:
        return found[0]
    what = f"version {restore.version} of the table is a RESTORE to a time ({time.text}), and "
    if found:
        numbers = " or ".join(str(one) for one in reversed(found))
        what += f"that may have been version {numbers}, which have the same files"
    else:
        what += "no older version in the log consists of the files that it left"
    raise HistoryError(
        f"{what}. So the topic offsets that the table holds are unknown. Restore it once more, by "
        "number: RESTORE TABLE ... TO VERSION AS OF the intended version (DESCRIBE HISTORY lists "
        "them). If that version is gone, name another table."
    )
