"""`RegistryStore`: the registry's SQLite file.

**One change, one transaction.** WAL mode with synchronous=FULL: a change is on disk before it is
answered, and a kill or a power cut leaves all of it or nothing. The file belongs to one process at
a time; a second one is refused. Only its owner can read it. A file of another program or of a newer
version is refused, not changed.

It is plain blocking code for one thread. It does NOT decide anything: `registry_service` does.
Health, and when a node was seen, are not stored: they are wrong after a restart anyway.
"""

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from penstock.edge.registry.node_entry import NodeEntry, TopicPatterns
from penstock.edge.registry.node_roles import Role
from penstock.edge.registry.registry_errors import RegistryStoreError

APPLICATION_ID: Final = 0x50535247
"""`PSRG` in SQLite's header: the file of a registry."""
_SCHEMA_VERSION: Final = 1
_OWNER_ONLY: Final = 0o600
_SCHEMA: Final = f"""
BEGIN IMMEDIATE;
CREATE TABLE registry (
    one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, revision INTEGER NOT NULL
);
CREATE TABLE nodes (
    id TEXT PRIMARY KEY, identity TEXT NOT NULL, wanted_role TEXT NOT NULL, chosen_role TEXT,
    parent TEXT, pinned_parent TEXT, addresses TEXT NOT NULL, labels TEXT NOT NULL,
    version TEXT NOT NULL, instance INTEGER NOT NULL, boot TEXT NOT NULL,
    used_instance INTEGER NOT NULL, revision INTEGER NOT NULL, answer TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE levels (role TEXT PRIMARY KEY, down TEXT NOT NULL, up TEXT NOT NULL) WITHOUT ROWID;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {_SCHEMA_VERSION};
COMMIT;
"""
_SAVE: Final = "INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Stored:
    """The content of a registry's file."""

    registry_id: str
    revision: int
    entries: tuple[NodeEntry, ...]
    levels: Mapping[Role, TopicPatterns]


class RegistryStore:
    """The file of one registry."""

    def __init__(self, path: str) -> None:
        """Open the file, and create it if there is none; raise `RegistryStoreError`."""
        self._path = path
        with suppress(FileExistsError, OSError):
            # An error is SQLite's to report: it opens the file next.
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
            os.close(os.open(path, flags, _OWNER_ONLY))
        try:
            # The thread of the service uses it after the thread that starts the process.
            self._database = sqlite3.connect(
                path, isolation_level=None, timeout=0.0, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise self._failed("cannot be opened", error) from error
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._database.close()
            raise self._failed("cannot be opened", error) from error
        except RegistryStoreError:
            self._database.close()
            raise

    def load(self, new_id: str) -> Stored:
        """Return the content; `new_id` becomes the registry's id if the file is new."""
        with self._transaction("cannot be read"):
            self._database.execute("INSERT OR IGNORE INTO registry VALUES (1, ?, 0)", (new_id,))
            found = self._database.execute("SELECT id, revision FROM registry").fetchone()
            rows = self._database.execute("SELECT * FROM nodes ORDER BY id").fetchall()
            levels = self._database.execute("SELECT role, down, up FROM levels").fetchall()
        try:
            return Stored(
                found[0],
                found[1],
                tuple(_entry(row) for row in rows),
                {
                    Role(role): TopicPatterns(tuple(json.loads(down)), tuple(json.loads(up)))
                    for role, down, up in levels
                },
            )
        except (ValueError, TypeError) as error:
            raise RegistryStoreError(
                f"{self._path} has a row that is not valid: {error}",
                hint="Restore the file from a backup. Nodes go on with their last topology.",
            ) from error

    def save(self, entry: NodeEntry, revision: int) -> None:
        """Store a node and the revision of the registry."""
        with self._transaction("cannot be written"):
            self._database.execute(_SAVE, _row(entry))
            self._save_revision(revision)

    def delete(self, node_id: str) -> None:
        """Delete a node."""
        with self._transaction("cannot be written"):
            self._database.execute("DELETE FROM nodes WHERE id = ?", (node_id,))

    def save_level(self, role: Role, patterns: TopicPatterns) -> None:
        """Store the topics of a level."""
        with self._transaction("cannot be written"):
            self._database.execute(
                "INSERT OR REPLACE INTO levels VALUES (?, ?, ?)",
                (role.value, json.dumps(patterns.down), json.dumps(patterns.up)),
            )

    def save_revision(self, revision: int) -> None:
        """Store the revision of the registry."""
        with self._transaction("cannot be written"):
            self._save_revision(revision)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _save_revision(self, revision: int) -> None:
        self._database.execute("UPDATE registry SET revision = ?", (revision,))

    def _prepare(self) -> None:
        database = self._database
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        application, version = (
            database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("application_id", "user_version")
        )
        is_new = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if not is_new and (application, version) != (APPLICATION_ID, _SCHEMA_VERSION):
            raise RegistryStoreError(
                f"{self._path} is not a registry of this version (application {application:#x}, "
                f"version {version})",
                hint="Name another directory with --data-dir, or use a newer Penstock.",
            )
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        if is_new:
            database.executescript(_SCHEMA)
        database.execute("BEGIN IMMEDIATE")  # takes the lock of the file until it is closed
        database.execute("COMMIT")

    @contextmanager
    def _transaction(self, problem: str) -> Iterator[None]:
        """Commit the block, or nothing of it; raise `RegistryStoreError`."""
        try:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._database.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise self._failed(problem, error) from error

    def _failed(self, problem: str, error: sqlite3.Error) -> RegistryStoreError:
        is_locked = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
        hint = "Check the directory, its permissions and the free space of its disk."
        if is_locked:
            hint = "Another registry uses it: stop that one, or name another --data-dir."
        return RegistryStoreError(f"{self._path} {problem}: {error}", hint=hint)


def _row(entry: NodeEntry) -> tuple[object, ...]:
    chosen = None if entry.chosen_role is None else entry.chosen_role.value
    return (
        entry.id,
        entry.identity,
        entry.wanted_role.value,
        chosen,
        entry.parent,
        entry.pinned_parent,
        json.dumps(dict(entry.addresses)),
        json.dumps(dict(entry.labels)),
        entry.version,
        entry.instance,
        entry.boot,
        entry.used_instance,
        entry.revision,
        entry.answer,
    )


def _entry(row: tuple[object, ...]) -> NodeEntry:
    (
        node_id, identity, wanted, chosen, parent, pinned, addresses, labels,
        version, instance, boot, used_instance, revision, answer,
    ) = row  # fmt: skip
    assert isinstance(instance, int)
    assert isinstance(used_instance, int)
    assert isinstance(revision, int)
    return NodeEntry(
        id=str(node_id),
        identity=str(identity),
        wanted_role=Role(str(wanted)),
        chosen_role=None if chosen is None else Role(str(chosen)),
        parent=None if parent is None else str(parent),
        pinned_parent=None if pinned is None else str(pinned),
        addresses=json.loads(str(addresses)),
        labels=json.loads(str(labels)),
        version=str(version),
        instance=instance,
        boot=str(boot),
        used_instance=used_instance,
        revision=revision,
        answer=str(answer),
    )
