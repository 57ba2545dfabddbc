"""A DuckDB database for one task: in memory, one thread, and out of reach of files and networks.

Guarantees: whatever SQL is given to it, it reads only what was registered; a batch is there while
it is asked about, and not longer. Times are UTC's, whatever the machine's zone is. It is used from
one thread.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import duckdb
import pyarrow as pa

_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    # A task has one core; Spark decides how many tasks run beside each other.
    "threads": 1,
    # A batch has 16 MiB of values, and its columns a few times that.
    "memory_limit": "1GiB",
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


def new_database() -> duckdb.DuckDBPyConnection:
    """A database that has nothing and reaches nothing."""
    database = duckdb.connect(":memory:", config=dict(_SETTINGS))
    # Its wheels have the extension that knows zones inside, and would take the machine's.
    with suppress(duckdb.CatalogException):  # without it there is only UTC
        database.execute("SET TimeZone = 'UTC'")
    return database


@contextmanager
def registered(database: duckdb.DuckDBPyConnection, name: str, columns: pa.Table) -> Iterator[None]:
    """The columns as a table of this name, as long as it lasts."""
    database.register(name, columns)
    try:
        yield
    finally:
        database.unregister(name)


def answer_of(database: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    """The answer, in columns of one piece each."""
    found = database.sql(query).to_arrow_table()
    assert found is not None, "every query of ours has an answer"
    return found.combine_chunks()
