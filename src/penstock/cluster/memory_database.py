"""`MemoryDatabase`: a SQLite database in memory that outlives the stores that are opened on it.

A store in memory ends with its connection. A broker that is to crash and come back in one process
needs its metadata kept meanwhile, as a file would keep it: this holds one more connection open, and
never uses it. What was committed is there for the next store; `close` forgets all.

Not for two stores at once: nothing locks, and the second one would not hear of the first's changes.
"""

import secrets
import sqlite3
from typing import Final

MEMORY_PREFIX: Final = "file:penstock-memory-"
"""How the path of such a database begins; `sqlite_store` opens it as the URI that it is."""


class MemoryDatabase:
    """A database without a file; `path` is what a store opens."""

    def __init__(self) -> None:
        self.path = f"{MEMORY_PREFIX}{secrets.token_hex(8)}?mode=memory&cache=shared"
        # Whoever owns the broker may stop it on another thread.
        self._keeper: sqlite3.Connection | None = sqlite3.connect(
            self.path, uri=True, check_same_thread=False
        )

    def close(self) -> None:
        """Forget everything, once no store is open on it. Can be called twice."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.close()
