"""`RowStore`: the writer of the SQLite file: rows and positions in one transaction.

Guarantees:

- After a crash at any moment, rows and positions agree: the rows are those of all records below
  the positions. With WAL and `synchronous=FULL`, a commit is on disk before `apply` returns.
- A generation in build is not served. It replaces the served table in the transaction that applies
  its last records, so a crash leaves the old rows or the new ones, complete.
- A file of another program, or of a newer version, is rejected and not changed. One process writes
  a file: a lock beside it rejects a second one.
- A full disk raises `StoreFullError` and leaves the file at its last commit; the call can be
  repeated.

It is used by one thread at a time. It does NOT serve queries: see `bounded_queries`.
"""

import fcntl
import os
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from penstock.core.errors import PenstockError
from penstock.materialize import table_schema
from penstock.materialize.index_columns import IndexColumn
from penstock.materialize.json_paths import parse_path
from penstock.materialize.row_changes import Changes
from penstock.materialize.topic_decisions import Generation, StoredTopic

BUSY_SECONDS_MAX: Final = 5.0
"""The wait for a lock that another program, such as the `sqlite3` shell, holds."""
LOG_BYTES_KEPT_MAX: Final = 67_108_864
"""The WAL file is truncated to this size after a checkpoint."""
LOG_PAGES_MAX: Final = 8_192
"""Pages of the WAL before a checkpoint, 32 MiB: keys in random order touch most pages, so rare
checkpoints write each page once instead of many times."""
CACHE_KIB: Final = 65_536
"""Page cache of the writer, of which only used pages cost memory."""


class StoreFileError(PenstockError):
    """The file cannot be used: it belongs to another program, is damaged or is locked."""


class StoreFullError(PenstockError):
    """The disk is full, or a quota is reached; nothing was changed."""


class StoreBusyError(PenstockError):
    """Another program holds a lock of the file; nothing was changed."""


class Gap(NamedTuple):
    """Offsets of a partition that were deleted from the log before they were read."""

    topic: str
    partition: int
    from_offset: int
    until_offset: int
    declared_ms: int


@dataclass(slots=True)
class Portion:
    """The changes of one transaction: by topic and generation, and the positions after them."""

    changes: dict[tuple[str, int], dict[int, Changes]] = field(default_factory=dict)
    positions: dict[tuple[str, int], dict[int, int]] = field(default_factory=dict)

    def of(self, topic: str, generation: int, partition: int) -> Changes:
        """Return the changes of a partition, to add records to."""
        by_partition = self.changes.setdefault((topic, generation), {})
        return by_partition.setdefault(partition, Changes(partition))

    def advance(self, topic: str, generation: int, partition: int, next_offset: int) -> None:
        """Set the position after the added records."""
        self.positions.setdefault((topic, generation), {})[partition] = next_offset

    @property
    def size_bytes(self) -> int:
        """Return the estimated memory of the changes."""
        return sum(one.size_bytes for some in self.changes.values() for one in some.values())


class RowStore:
    """One SQLite file."""

    def __init__(self, connection: sqlite3.Connection, lock: int) -> None:
        self._connection = connection
        self._lock = lock

    @classmethod
    def open(cls, path: Path) -> "RowStore":
        """Open or create the file; raise `StoreFileError` if it cannot be used."""
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _locked(path)
        try:
            return cls(_opened(path), lock)
        except BaseException:
            os.close(lock)
            raise

    def close(self) -> None:
        """Close the file and release its lock."""
        self._connection.close()
        os.close(self._lock)

    # --- State ---

    def topics(self) -> dict[str, StoredTopic]:
        """Return all topics of the file."""
        try:
            return self._topics()
        except sqlite3.Error as error:
            raise _explained(error) from error

    def _topics(self) -> dict[str, StoredTopic]:
        found: dict[str, StoredTopic] = {}
        rows = self._connection.execute(
            "SELECT topic, topic_id, generation, building, building_topic_id, skipped_records "
            "FROM penstock_topics"
        )
        for topic, topic_id, number, building, building_id, skipped in rows.fetchall():
            live = self._generation(topic, number, topic_id)
            pending = None if building is None else self._generation(topic, building, building_id)
            found[topic] = StoredTopic(topic, live, pending, skipped)
        return found

    def _generation(self, topic: str, number: int, topic_id: str | None) -> Generation:
        rows = self._connection.execute(
            'SELECT "partition", next_offset, ready_offset FROM penstock_positions '
            "WHERE topic = ? AND generation = ?",
            (topic, number),
        ).fetchall()
        return Generation(
            number,
            None if topic_id is None else uuid.UUID(topic_id),
            {partition: offset for partition, offset, _ in rows},
            {partition: ready for partition, _, ready in rows},
        )

    def gaps(self) -> list[Gap]:
        """Return the gaps of the served rows and of builds."""
        rows = self._connection.execute(
            'SELECT topic, "partition", from_offset, until_offset, declared_ms FROM penstock_gaps'
        )
        return [Gap(*row) for row in rows]

    # --- Topics and generations ---

    def begin_topic(
        self,
        topic: str,
        topic_id: uuid.UUID | None,
        starts: Mapping[int, int],
        columns: Sequence[IndexColumn],
    ) -> None:
        """Create the table of a topic, with its first positions."""
        with self._transaction() as execute:
            execute(table_schema.create_table(table_schema.table_name(topic)))
            execute(
                "INSERT INTO penstock_topics (topic, topic_id, generation) VALUES (?, ?, 1)",
                (topic, _text(topic_id)),
            )
            for column in columns:
                execute(
                    "INSERT INTO penstock_indexes VALUES (?, ?, ?)",
                    (topic, column.name, column.path.text),
                )
                for statement in table_schema.add_column(
                    topic, table_schema.table_name(topic), 1, column
                ):
                    execute(statement)
            self._add_positions(topic, 1, starts, {})

    def begin_generation(
        self,
        topic: str,
        topic_id: uuid.UUID | None,
        starts: Mapping[int, int],
        ready: Mapping[int, int],
    ) -> None:
        """Begin a new generation beside the served rows; an unfinished one is dropped."""
        stored = self.topics()[topic]
        last = stored.written.number
        with self._transaction() as execute:
            if stored.building is not None:
                execute(f"DROP TABLE {table_schema.table_name(topic, stored.building.number)}")
                self._forget(topic, stored.building.number)
            table = table_schema.table_name(topic, last + 1)
            execute(table_schema.create_table(table))
            for column in self.columns(topic):
                for statement in table_schema.add_column(topic, table, last + 1, column):
                    execute(statement)
            execute(
                "UPDATE penstock_topics SET building = ?, building_topic_id = ? WHERE topic = ?",
                (last + 1, _text(topic_id), topic),
            )
            self._add_positions(topic, last + 1, starts, ready)

    def add_partitions(self, topic: str, generation: int, starts: Mapping[int, int]) -> None:
        """Add positions of new partitions."""
        with self._transaction():
            self._add_positions(topic, generation, starts, {})

    def _add_positions(
        self, topic: str, generation: int, starts: Mapping[int, int], ready: Mapping[int, int]
    ) -> None:
        self._connection.executemany(
            "INSERT INTO penstock_positions VALUES (?, ?, ?, ?, ?)",
            [
                (topic, generation, partition, offset, ready.get(partition, 0))
                for partition, offset in starts.items()
            ],
        )

    def _forget(self, topic: str, generation: int) -> None:
        for table in ("penstock_positions", "penstock_gaps"):
            self._connection.execute(
                f"DELETE FROM {table} WHERE topic = ? AND generation = ?",  # noqa: S608
                (topic, generation),
            )

    # --- Generated columns ---

    def columns(self, topic: str) -> list[IndexColumn]:
        """Return the generated columns of a topic."""
        rows = self._connection.execute(
            "SELECT name, path FROM penstock_indexes WHERE topic = ? ORDER BY rowid", (topic,)
        )
        return [IndexColumn(name, parse_path(path)) for name, path in rows.fetchall()]

    def set_columns(self, topic: str, wanted: Sequence[IndexColumn]) -> None:
        """Add and drop generated columns of a topic of the file, so that it has exactly these."""
        stored = self.topics()[topic]
        present = self.columns(topic)
        generations = [(table_schema.table_name(topic), stored.live.number)]
        if stored.building is not None:
            number = stored.building.number
            generations.append((table_schema.table_name(topic, number), number))
        with self._transaction() as execute:
            for column in [one for one in present if one not in wanted]:
                execute(
                    "DELETE FROM penstock_indexes WHERE topic = ? AND name = ?",
                    (topic, column.name),
                )
                for table, number in generations:
                    for statement in table_schema.drop_column(topic, table, number, column.name):
                        execute(statement)
            for column in [one for one in wanted if one not in present]:
                execute(
                    "INSERT INTO penstock_indexes VALUES (?, ?, ?)",
                    (topic, column.name, column.path.text),
                )
                for table, number in generations:
                    for statement in table_schema.add_column(topic, table, number, column):
                        execute(statement)

    # --- Records ---

    def apply(self, portion: Portion) -> list[str]:
        """Write rows and positions in one transaction; return topics whose build was completed."""
        topics = self.topics()
        installed: list[str] = []
        with self._transaction() as execute:
            for (topic, number), by_partition in portion.changes.items():
                stored = topics[topic]
                build = None if number == stored.live.number else number
                table = table_schema.table_name(topic, build)
                for changes in by_partition.values():
                    self._write(table, changes)
                    if changes.skipped:
                        execute(
                            "UPDATE penstock_topics SET skipped_records = skipped_records + ? "
                            "WHERE topic = ?",
                            (changes.skipped, topic),
                        )
            for (topic, number), positions in portion.positions.items():
                self._set_positions(topic, number, positions)
                pending = topics[topic].building
                if pending is not None and pending.number == number:
                    pending.positions.update(positions)
                    if pending.is_ready:
                        self._install(topics[topic], pending)
                        installed.append(topic)
        return installed

    def install_ready(self, topic: str) -> bool:
        """Replace the served rows by a build that is complete without more records."""
        stored = self.topics()[topic]
        if stored.building is None or not stored.building.is_ready:
            return False
        with self._transaction():
            self._install(stored, stored.building)
        return True

    def declare_gap(self, gap: Gap, generation: int) -> None:
        """Record deleted offsets and move the position behind them."""
        with self._transaction() as execute:
            execute(
                "INSERT INTO penstock_gaps VALUES (?, ?, ?, ?, ?, ?)",
                (gap.topic, generation, *gap[1:]),
            )
            self._set_positions(gap.topic, generation, {gap.partition: gap.until_offset})

    def _write(self, table: str, changes: Changes) -> None:
        upserts, deletes = changes.upserts(), changes.deletes()
        if upserts:
            self._connection.executemany(table_schema.upsert(table), upserts)
        if deletes:
            self._connection.executemany(table_schema.delete(table), deletes)

    def _set_positions(self, topic: str, generation: int, positions: Mapping[int, int]) -> None:
        self._connection.executemany(
            "UPDATE penstock_positions SET next_offset = ? "
            'WHERE topic = ? AND generation = ? AND "partition" = ?',
            [(offset, topic, generation, partition) for partition, offset in positions.items()],
        )

    def _install(self, stored: StoredTopic, build: Generation) -> None:
        """Inside a transaction: serve the build in place of the old rows."""
        table = table_schema.table_name(stored.name)
        self._connection.execute(f"DROP TABLE {table}")
        pending = table_schema.table_name(stored.name, build.number)
        self._connection.execute(f"ALTER TABLE {pending} RENAME TO {table}")
        self._connection.execute(
            "UPDATE penstock_topics SET topic_id = building_topic_id, generation = building, "
            "building = NULL, building_topic_id = NULL WHERE topic = ?",
            (stored.name,),
        )
        self._forget(stored.name, stored.live.number)

    @contextmanager
    def _transaction(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        """Run the block in one transaction, with clear errors for a full disk and a lock."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection.execute
            self._connection.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise _explained(error) from error
            raise


def _locked(path: Path) -> int:
    """Return the descriptor of the lock beside the file; closing it releases the lock."""
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StoreFileError(
            f"{path} is in use by another `penstock materialize`.",
            hint="Stop the other process, or choose another --store or --name.",
        ) from None
    return descriptor


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS_MAX, isolation_level=None, check_same_thread=False
    )
    try:
        _check_owner(connection, path)
        for pragma in (
            "journal_mode = WAL",
            "synchronous = FULL",
            f"journal_size_limit = {LOG_BYTES_KEPT_MAX}",
            f"wal_autocheckpoint = {LOG_PAGES_MAX}",
            f"cache_size = -{CACHE_KIB}",
        ):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        _create(connection)
    except sqlite3.Error as error:
        connection.close()
        raise _explained(error, path) from error
    except BaseException:
        connection.close()
        raise
    _sync_folder(path.parent)
    return connection


def _check_owner(connection: sqlite3.Connection, path: Path) -> None:
    """Reject files of other programs and of newer versions, before anything is written."""
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if owner == table_schema.APPLICATION_ID:
        if version > table_schema.SCHEMA_VERSION:
            raise StoreFileError(
                f"{path} has layout {version}; this version of Penstock knows "
                f"{table_schema.SCHEMA_VERSION}.",
                hint="Use the newer version, or choose another --store.",
            )
    elif owner or version or objects:
        raise StoreFileError(
            f"{path} is a SQLite file of another program (application id {owner:#x}).",
            hint="Choose another --store or --name; this file was not changed.",
        )


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    if connection.execute("PRAGMA user_version").fetchone() == (0,):
        for table in table_schema.TABLES:
            connection.execute(table)
        connection.execute(f"PRAGMA application_id = {table_schema.APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {table_schema.SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _explained(error: sqlite3.Error, path: Path | None = None) -> PenstockError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StoreFullError(
            f"the disk of the store is full: {error}.", hint="Free disk space; loading continues."
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusyError(
            f"another program locks the store: {error}.", hint="End its transaction."
        )
    where = "the store" if path is None else str(path)
    return StoreFileError(
        f"{where} cannot be used: {error}.",
        hint="If it is not a file of `penstock materialize`, choose another --store. If it is "
        "damaged, delete it: it is loaded again from the topic.",
    )


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _text(topic_id: uuid.UUID | None) -> str | None:
    return None if topic_id is None else str(topic_id)
