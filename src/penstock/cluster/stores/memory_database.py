"""`MemoryDatabase`: a SQLite database in memory that outlives the stores opened on it.

A store in memory ends with its connection. A broker that crashes and restarts in one process needs
its metadata, as a file would keep it. So this class holds one more connection open, and never uses
it. Committed data is available to the next store; `close` deletes all data.

It does not support two stores at once: there is no lock, and the second store would not see the
first's changes.
"""

import secrets
import sqlite3
from typing import Final

MEMORY_PREFIX: Final = "file:penstock-memory-"
"""The prefix of such a database's path; `sqlite_store` opens the path as a URI."""


class MemoryDatabase:
    """A database without a file; a store opens its `path`."""

    def __init__(self) -> None:
        self.path = f"{MEMORY_PREFIX}{secrets.token_hex(8)}?mode=memory&cache=shared"
        # The broker's owner may stop it on another thread.
        self._keeper: sqlite3.Connection | None = sqlite3.connect(
            self.path, uri=True, check_same_thread=False
        )

    def close(self) -> None:
        """Delete everything, once no store is open on it. Can be called twice."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.close()
