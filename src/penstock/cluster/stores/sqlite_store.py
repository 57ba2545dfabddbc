"""`SqliteMetadataStore`: the metadata store of one host, in one SQLite file.

**Durable before answered.** The file is in WAL mode with synchronous=FULL: a transaction is in the
log file and synced before it is answered, and a power cut leaves either all of it or nothing. The
file belongs to one process at a time; opening it twice is refused. Only its owner can read it.

**Versions.** Each write of a key is a row, and a deletion is a row without a value, so the state
at a revision and the changes since one are plain queries. The last revisions are kept
(`STORE_HISTORY_REVISIONS`); older rows that were overwritten are deleted a few at a time, inside
later transactions, so history is bounded and no transaction pays for all of it. The bytes are in
docs/formats/metadata-store.md.

**Sessions** are in memory: only one process opens the file, so the sessions of the process before
have ended and their keys are deleted at opening. Expired sessions end before the next operation.

**One thread** does all of SQLite's work, in the order of the calls; the event loop never waits for
the disk. An error at the commit is ambiguous: the log may or may not have reached the disk. After
any other error nothing was written.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Final, TypeVar

from penstock.cluster.stores.memory_database import MEMORY_PREFIX
from penstock.cluster.stores.port import (
    NO_SESSION,
    CompactedError,
    Compare,
    CompareTarget,
    Delete,
    DeletePrefix,
    Event,
    EventBatch,
    KeyValue,
    Operation,
    Put,
    SessionLostError,
    Snapshot,
    TransactionResult,
    check_transaction,
    prefix_end,
)
from penstock.cluster.stores.private_file import create_private, restrict_to_owner
from penstock.cluster.stores.watches import WatchHub
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import AmbiguousStoreError, StoreError
from penstock.core.limits import STORE_HISTORY_REVISIONS

Result = TypeVar("Result")

_SCHEMA_VERSION: Final = 1

_SCHEMA: Final = """
BEGIN IMMEDIATE;
CREATE TABLE state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    revision INTEGER NOT NULL,
    compacted_revision INTEGER NOT NULL
);
INSERT INTO state VALUES (1, 0, 0);
CREATE TABLE versions (
    key TEXT NOT NULL,
    mod_revision INTEGER NOT NULL,
    create_revision INTEGER NOT NULL,
    value BLOB,
    session INTEGER NOT NULL,
    PRIMARY KEY (key, mod_revision)
) WITHOUT ROWID;
CREATE INDEX versions_by_revision ON versions (mod_revision);
CREATE INDEX versions_by_session ON versions (session) WHERE session != 0;
PRAGMA user_version = 1;
COMMIT;
"""

_LATEST: Final = """
SELECT key, value, create_revision, mod_revision, session FROM versions
WHERE key = ? AND mod_revision <= ? ORDER BY mod_revision DESC LIMIT 1
"""

# SQLite reads the other columns from the row with the maximum.
_LATEST_OF_PREFIX: Final = """
SELECT key, value, create_revision, max(mod_revision), session FROM versions
WHERE key >= ? AND key < ? AND mod_revision <= ? GROUP BY key ORDER BY key
"""

_SINCE: Final = """
SELECT key, value, create_revision, mod_revision, session FROM versions
WHERE mod_revision >= ? AND key >= ? AND key < ? ORDER BY mod_revision, key
"""

_OVERWRITTEN: Final = """
DELETE FROM versions WHERE (key, mod_revision) IN (
    SELECT older.key, older.mod_revision
    FROM versions AS newer JOIN versions AS older
        ON older.key = newer.key AND older.mod_revision < newer.mod_revision
    WHERE newer.mod_revision > ? AND newer.mod_revision <= ?
)
"""

_DELETED: Final = """
DELETE FROM versions WHERE value IS NULL AND mod_revision > ? AND mod_revision <= ?
"""


class SqliteMetadataStore:
    """The metadata store of one host. Created by `open`; used from one event loop."""

    def __init__(self, database: "_Database", executor: ThreadPoolExecutor) -> None:
        self._database = database
        self._executor = executor
        self._hub = WatchHub(self._history)
        self._closed = False

    @classmethod
    async def open(
        cls,
        path: str | None,
        *,
        clock: Clock | None = None,
        history_revisions: int = STORE_HISTORY_REVISIONS,
    ) -> "SqliteMetadataStore":
        """Open or create the store at `path`; without a path it is in memory only."""
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata-store")
        database = _Database(path or ":memory:", clock or SystemClock(), history_revisions)
        try:
            await asyncio.get_running_loop().run_in_executor(executor, database.open)
        except BaseException:
            executor.shutdown(wait=False)
            raise
        return cls(database, executor)

    async def read(self, key: str, *, revision: int | None = None) -> Snapshot:
        """Return one key, now or at a revision."""
        return await self._run(lambda: self._database.read(key, revision))

    async def read_prefix(self, prefix: str, *, revision: int | None = None) -> Snapshot:
        """Return every key with the prefix, now or at a revision."""
        return await self._run(lambda: self._database.read_prefix(prefix, revision))

    async def transact(
        self,
        compares: Sequence[Compare],
        operations: Sequence[Operation],
        *,
        read_on_failure: Sequence[str] = (),
    ) -> TransactionResult:
        """Apply all operations if all compares hold, else none."""
        check_transaction(compares, operations, read_on_failure)
        return await self._run(
            lambda: self._database.transact(compares, operations, read_on_failure)
        )

    def watch(self, prefix: str, *, from_revision: int) -> AsyncIterator[EventBatch]:
        """Yield changes of keys with the prefix, starting at `from_revision`."""
        return self._hub.watch(prefix, from_revision)

    async def open_session(self, time_to_live_seconds: float) -> int:
        """Begin a session."""
        return await self._run(lambda: self._database.open_session(time_to_live_seconds))

    async def keep_alive(self, session: int) -> None:
        """Restart the session's time to live."""
        await self._run(lambda: self._database.keep_alive(session))

    async def end_session(self, session: int) -> None:
        """End a session and delete its keys."""
        await self._run(lambda: self._database.end_session(session))

    async def close(self) -> None:
        """Close the file; all answered transactions are in it. Can be called twice."""
        self._hub.close()
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._executor, self._database.close)
        self._executor.shutdown(wait=True)

    async def _history(self, prefix: str, from_revision: int) -> Sequence[EventBatch]:
        return await self._run(lambda: self._database.history(prefix, from_revision))

    async def _run(self, work: Callable[[], Result]) -> Result:
        if self._closed:
            raise StoreError("the metadata store is closed")
        loop = asyncio.get_running_loop()

        def run() -> Result:
            try:
                return self._database.run(work)
            except AmbiguousStoreError:
                loop.call_soon_threadsafe(self._hub.lose_track)
                raise
            finally:
                # From the thread, and not after the await: the caller may have been cancelled, and
                # watchers must get the change anyway, and before the caller does.
                batches = self._database.take_batches()
                if batches:
                    loop.call_soon_threadsafe(self._hub.publish, batches)

        return await loop.run_in_executor(self._executor, run)


class _Database:
    """The blocking half: everything here runs on the store's thread."""

    def __init__(self, path: str, clock: Clock, history_revisions: int) -> None:
        self._path = path
        self._clock = clock
        self._history_revisions = history_revisions
        # With steps, one transaction compacts at most a tenth of the history.
        self._compaction_step = max(1, history_revisions // 10)
        self._connection: sqlite3.Connection | None = None
        self._sessions: dict[int, tuple[float, float]] = {}
        self._session_last = 0
        self._batches: list[EventBatch] = []

    def open(self) -> None:
        """Open the file, create its tables if it is new, and end earlier processes' sessions."""
        create_private(self._path)
        try:
            uri = self._path.startswith(MEMORY_PREFIX)
            self._connection = sqlite3.connect(self._path, timeout=0, isolation_level=None, uri=uri)
            self._prepare(self._connection)
            restrict_to_owner(self._path)
        except sqlite3.Error as error:
            self.close()
            if "locked" in str(error):
                message = f"the metadata store {self._path} is in use by another process"
                raise StoreError(message) from error
            raise StoreError(f"cannot open the metadata store {self._path}: {error}") from error
        except StoreError:
            self.close()
            raise

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # Exclusive first: the log then needs no shared-memory file; other processes are locked out.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > _SCHEMA_VERSION:
            raise StoreError(
                f"the metadata store {self._path} has schema {version}; this version reads "
                f"{_SCHEMA_VERSION}: use the newer Penstock that wrote it"
            )
        if version == 0:
            connection.executescript(_SCHEMA)
        rows = connection.execute("SELECT DISTINCT session FROM versions WHERE session != 0")
        dead = [session for (session,) in rows.fetchall()]
        self._session_last = max(dead, default=0)
        for session in dead:
            self._delete_session_keys(session)

    def close(self) -> None:
        """Close the file. Can be called twice."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def run(self, work: Callable[[], Result]) -> Result:
        """Run one operation, after ending the expired sessions."""
        try:
            now = self._clock.monotonic()
            for session in [s for s, (deadline, _) in self._sessions.items() if deadline < now]:
                self.end_session(session)
            return work()
        except sqlite3.Error as error:
            raise StoreError(f"the metadata store failed: {error}") from error

    def take_batches(self) -> list[EventBatch]:
        """Return the changes committed since the last call."""
        batches, self._batches = self._batches, []
        return batches

    def read(self, key: str, revision: int | None) -> Snapshot:
        """Return one key at a revision."""
        wanted = self._readable(revision)
        pair = self._latest(key, wanted)
        return Snapshot(wanted, (pair,) if pair else ())

    def read_prefix(self, prefix: str, revision: int | None) -> Snapshot:
        """Return keys with a prefix at a revision."""
        wanted = self._readable(revision)
        rows = self._sql.execute(_LATEST_OF_PREFIX, (prefix, prefix_end(prefix), wanted))
        return Snapshot(wanted, tuple(KeyValue(*row) for row in rows if row[1] is not None))

    def history(self, prefix: str, from_revision: int) -> Sequence[EventBatch]:
        """Return changes of keys with a prefix since a revision."""
        _, compacted = self._state()
        if from_revision <= compacted:
            raise CompactedError(f"changes up to revision {compacted} are no longer kept")
        rows = self._sql.execute(_SINCE, (from_revision, prefix, prefix_end(prefix))).fetchall()
        return [
            EventBatch(revision, tuple(_event(row) for row in group))
            for revision, group in groupby(rows, key=lambda row: int(row[3]))
        ]

    def transact(
        self,
        compares: Sequence[Compare],
        operations: Sequence[Operation],
        read_on_failure: Sequence[str],
    ) -> TransactionResult:
        """Check the compares and apply the operations, in one transaction of SQLite's."""
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            return self._transact(compares, operations, read_on_failure)
        finally:
            if self._sql.in_transaction:
                self._sql.rollback()

    def _transact(
        self,
        compares: Sequence[Compare],
        operations: Sequence[Operation],
        read_on_failure: Sequence[str],
    ) -> TransactionResult:
        revision, compacted = self._state()
        if not all(self._holds(compare, revision) for compare in compares):
            found = (self._latest(key, revision) for key in read_on_failure)
            return TransactionResult(
                succeeded=False, revision=revision, values=tuple(pair for pair in found if pair)
            )
        events = sorted(self._events(operations, revision))
        if not events:
            return TransactionResult(succeeded=True, revision=revision)
        revision += 1
        self._sql.executemany(
            "INSERT INTO versions (key, value, create_revision, mod_revision, session) "
            "VALUES (?, ?, ?, ?, ?)",
            [event.value or (event.key, None, 0, revision, NO_SESSION) for event in events],
        )
        compacted = self._compact(revision, compacted)
        self._sql.execute(
            "UPDATE state SET revision = ?, compacted_revision = ?", (revision, compacted)
        )
        try:
            self._sql.execute("COMMIT")
        except sqlite3.Error as error:
            is_full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            remedy = ". Make room there; nothing acknowledged is lost" if is_full else ""
            message = f"the metadata store {self._path} failed to commit: {error}{remedy}"
            raise AmbiguousStoreError(message) from error
        self._batches.append(EventBatch(revision, tuple(events)))
        return TransactionResult(succeeded=True, revision=revision, changed=True)

    def open_session(self, time_to_live_seconds: float) -> int:
        """Begin a session."""
        self._session_last += 1
        deadline = self._clock.monotonic() + time_to_live_seconds
        self._sessions[self._session_last] = (deadline, time_to_live_seconds)
        return self._session_last

    def keep_alive(self, session: int) -> None:
        """Move a session's deadline."""
        if session not in self._sessions:
            raise SessionLostError(f"session {session} has ended")
        time_to_live_seconds = self._sessions[session][1]
        deadline = self._clock.monotonic() + time_to_live_seconds
        self._sessions[session] = (deadline, time_to_live_seconds)

    def end_session(self, session: int) -> None:
        """Delete a session and its keys. A session that has ended is not an error."""
        self._delete_session_keys(session)
        self._sessions.pop(session, None)

    def _delete_session_keys(self, session: int) -> None:
        revision, _ = self._state()
        rows = self._sql.execute("SELECT key FROM versions WHERE session = ?", (session,))
        bound = []
        for key in sorted({key for (key,) in rows}):
            pair = self._latest(key, revision)
            if pair is not None and pair.session == session:
                bound.append(Delete(key))
        if bound:
            self.transact((), bound, ())

    def _events(self, operations: Sequence[Operation], revision: int) -> list[Event]:
        """Return the changes of the operations to the state at `revision`, as the next revision."""
        events: list[Event] = []
        for operation in operations:
            if isinstance(operation, DeletePrefix):
                pairs = self.read_prefix(operation.prefix, revision).values
                events.extend(Event(pair.key, None) for pair in pairs)
                continue
            before = self._latest(operation.key, revision)
            if isinstance(operation, Put):
                if operation.session != NO_SESSION and operation.session not in self._sessions:
                    raise SessionLostError(f"session {operation.session} has ended")
                created = before.create_revision if before else revision + 1
                pair = KeyValue(
                    operation.key, operation.value, created, revision + 1, operation.session
                )
                events.append(Event(operation.key, pair))
            elif before is not None:
                events.append(Event(operation.key, None))
        return list(dict.fromkeys(events))

    def _compact(self, revision: int, compacted: int) -> int:
        """Drop rows that only older revisions need; return the new oldest revision."""
        target = revision - self._history_revisions
        if target < compacted + self._compaction_step:
            return compacted
        self._sql.execute(_OVERWRITTEN, (compacted, target))
        self._sql.execute(_DELETED, (compacted, target))
        return target

    def _holds(self, compare: Compare, revision: int) -> bool:
        if compare.target is CompareTarget.NEWEST:
            found = self.read_prefix(compare.key, revision).values
            return all(pair.create_revision <= compare.revision for pair in found)
        return compare.holds(self._latest(compare.key, revision))

    def _latest(self, key: str, revision: int) -> KeyValue | None:
        row = self._sql.execute(_LATEST, (key, revision)).fetchone()
        return None if row is None or row[1] is None else KeyValue(*row)

    def _readable(self, revision: int | None) -> int:
        """Return the revision to read at; raise an error if it cannot be read."""
        current, compacted = self._state()
        wanted = current if revision is None else revision
        if wanted < compacted:
            raise CompactedError(f"revisions before {compacted} are no longer kept")
        if wanted > current:
            raise StoreError(f"revision {wanted} is yet to come; the store is at {current}")
        return wanted

    def _state(self) -> tuple[int, int]:
        revision, compacted = self._sql.execute(
            "SELECT revision, compacted_revision FROM state"
        ).fetchone()
        return revision, compacted

    @property
    def _sql(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection


def _event(row: tuple[str, bytes | None, int, int, int]) -> Event:
    key, value, created, modified, session = row
    if value is None:
        return Event(key, None)
    return Event(key, KeyValue(key, value, created, modified, session))
