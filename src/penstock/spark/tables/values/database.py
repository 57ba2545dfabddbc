"""A DuckDB database for one task: in memory, one thread, no access to files and networks.

Guarantees: any SQL reads only registered tables; a batch is registered only while it is queried.
Times are in UTC, whatever the machine's zone is. One thread uses it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import duckdb
import pyarrow as pa

_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    # A task has one core; Spark decides the number of parallel tasks.
    "threads": 1,
    # A batch has 16 MiB of values, and its columns a few times that size.
    "memory_limit": "1GiB",
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


def new_database() -> duckdb.DuckDBPyConnection:
    """Return an empty database without access to files or networks."""
    database = duckdb.connect(":memory:", config=dict(_SETTINGS))
    # DuckDB's wheels contain the extension for time zones, which would use the machine's zone.
    with suppress(duckdb.CatalogException):  # without it, only UTC is available
        database.execute("SET TimeZone = 'UTC'")
    return database


@contextmanager
def registered(database: duckdb.DuckDBPyConnection, name: str, columns: pa.Table) -> Iterator[None]:
    """Register the columns as a table of this name, for the block."""
    database.register(name, columns)
    try:
        yield
    finally:
        database.unregister(name)


def answer_of(database: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    """Return the result, in columns of one chunk each."""
    found = database.sql(query).to_arrow_table()
    assert found is not None, "every query of ours has an answer"
    return found.combine_chunks()
