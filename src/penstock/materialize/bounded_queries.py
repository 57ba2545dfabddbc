"""Queries on read-only connections, with bounds of time, rows, bytes and memory.

Guarantees: a query cannot write, attach a file, change a setting, load an extension or read another
file, by three independent means: the connection is opened read-only, an authorizer allows only
SELECT and its functions, and no database can be attached. A query ends at its deadline: SQLite asks
every few thousand steps. Texts and blobs are bounded, so one function call cannot use much memory;
sorts and recursion spill to temporary files, for at most the time of the query.

Each thread has its own connections. It does NOT write and knows nothing of HTTP.
"""

import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.materialize.safe_functions import FUNCTIONS

STEPS_BETWEEN_CHECKS: Final = 2_000
"""Steps of SQLite's virtual machine between two looks at the clock: tens of microseconds."""
VALUE_BYTES_MAX: Final = 4_194_304
"""The longest text or blob that a query of a user may read or compute."""
SQL_BYTES_MAX: Final = 65_536
PARAMETERS_MAX: Final = 100
CACHE_KIB: Final = 8_192
"""Page cache of a connection; a query spills to temporary files beyond it."""

SqlValue = str | bytes | int | float | None

_LIMITS: Final = {
    sqlite3.SQLITE_LIMIT_LENGTH: VALUE_BYTES_MAX,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: SQL_BYTES_MAX,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 20,
    sqlite3.SQLITE_LIMIT_COLUMN: 200,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 100_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 32,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 64,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: PARAMETERS_MAX,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_ALLOWED: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_DENIED_FUNCTIONS: Final = frozenset(
    {
        *("load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"),
        *("zeroblob", "randomblob", "printf", "format"),
        *("json_patch", "jsonb_patch", "unhex"),
    }
)
"""The second line only costs memory and time. One call of the third compares every part of one
argument with every part of the other, and no deadline is checked meanwhile."""
_TABLE_FUNCTIONS: Final = ("json_each", "json_tree")
_DENIED_FAMILIES: Final = ("geopoly_", "rtree", "fts")
"""Functions of extensions that some builds of SQLite have, with costs of their own."""


class QueryError(PenstockError):
    """SQLite rejected the query."""


class QueryTimeoutError(PenstockError):
    """The query did not end before its deadline."""


@dataclass(frozen=True, slots=True)
class QueryBounds:
    """Limits of one query."""

    seconds_max: float = 5.0
    rows_max: int = 10_000
    bytes_max: int = 16_777_216


class QueryResult(NamedTuple):
    """The rows of a query."""

    columns: list[str]
    rows: list[tuple[SqlValue, ...]]
    is_truncated: bool
    """Whether a bound of rows or bytes ended the query."""


class _Connection:
    """One read-only connection with a deadline."""

    def __init__(self, path: Path, clock: Clock, *, is_guarded: bool) -> None:
        self._clock = clock
        self._deadline = 0.0
        self.connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro",
            uri=True,
            timeout=1.0,
            isolation_level=None,
            check_same_thread=False,
        )
        for pragma in ("query_only = ON", f"cache_size = -{CACHE_KIB}"):
            self.connection.execute(f"PRAGMA {pragma}")
        self.connection.set_progress_handler(self._is_late, STEPS_BETWEEN_CHECKS)
        if is_guarded:
            for limit, value in _LIMITS.items():
                self.connection.setlimit(limit, value)
            for (name, count), function in FUNCTIONS.items():
                self.connection.create_function(name, count, function, deterministic=True)
            for name in _TABLE_FUNCTIONS:
                # Their first use declares a table, which the authorizer would deny.
                self.connection.execute(f"SELECT 1 FROM {name}('[]')").fetchall()  # noqa: S608
            self.connection.set_authorizer(_authorize)

    def _is_late(self) -> int:
        return int(self._clock.monotonic() > self._deadline)

    def run(self, sql: str, parameters: Sequence[SqlValue], bounds: QueryBounds) -> QueryResult:
        self._deadline = self._clock.monotonic() + bounds.seconds_max
        try:
            cursor = self.connection.execute(sql, parameters)
            try:
                return _read(cursor, bounds)
            finally:
                cursor.close()  # ends the snapshot, so that the WAL can be reset
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0)
            if code == sqlite3.SQLITE_INTERRUPT:
                raise QueryTimeoutError(
                    f"the query did not end within {bounds.seconds_max:g} s.",
                    hint="Add a condition on an indexed column, or an index with --index.",
                ) from None
            raise QueryError(f"SQLite rejected the query: {error}.") from None
        except sqlite3.Warning as error:
            raise QueryError(f"SQLite rejected the query: {error}") from None
        except (OverflowError, UnicodeEncodeError, RecursionError) as error:
            raise QueryError(f"a parameter cannot be stored in SQLite: {error}.") from None


class BoundedQueries:
    """The read-only connections of one file."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._of_thread = threading.local()
        self._open: list[sqlite3.Connection] = []
        self._lock = threading.Lock()

    def own(self, sql: str, parameters: Sequence[SqlValue], bounds: QueryBounds) -> QueryResult:
        """Run a query of this program: without the limits for strangers, with its deadline."""
        return self._connection("own", is_guarded=False).run(sql, parameters, bounds)

    def foreign(self, sql: str, parameters: Sequence[SqlValue], bounds: QueryBounds) -> QueryResult:
        """Run a query of a user, one statement."""
        if "\0" in sql:
            raise QueryError("the query has a NUL character.")
        return self._connection("foreign", is_guarded=True).run(sql, parameters, bounds)

    def _connection(self, name: str, *, is_guarded: bool) -> _Connection:
        found: _Connection | None = getattr(self._of_thread, name, None)
        if found is None:
            found = _Connection(self._path, self._clock, is_guarded=is_guarded)
            setattr(self._of_thread, name, found)
            with self._lock:
                self._open.append(found.connection)
        return found

    def close(self) -> None:
        """Close all connections; no query may run."""
        for connection in self._open:
            connection.close()


def _read(cursor: sqlite3.Cursor, bounds: QueryBounds) -> QueryResult:
    if cursor.description is None:
        raise QueryError("the query returns no rows; only SELECT is allowed.")
    columns = [column[0] for column in cursor.description]
    rows: list[tuple[SqlValue, ...]] = []
    size_bytes = 0
    for row in cursor:
        size_bytes += sum(_size(value) for value in row)
        if len(rows) >= bounds.rows_max or (rows and size_bytes > bounds.bytes_max):
            return QueryResult(columns, rows, is_truncated=True)
        rows.append(row)
    return QueryResult(columns, rows, is_truncated=False)


def _size(value: SqlValue) -> int:
    return 16 + (len(value) if isinstance(value, str | bytes) else 0)


def _authorize(
    action: int,
    _first: str | None,
    second: str | None,
    _database: str | None,
    _inner: str | None,
) -> int:
    if action not in _ALLOWED:
        return sqlite3.SQLITE_DENY
    name = (second or "").lower() if action == sqlite3.SQLITE_FUNCTION else ""
    if name in _DENIED_FUNCTIONS or name.startswith(_DENIED_FAMILIES):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK
