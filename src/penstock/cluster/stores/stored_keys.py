"""`has_stored_key`: looks for a key in the metadata file of a broker without a change of anything.

It is for checks of settings before a start. A running broker has the file for itself, and its log
may have changes that the file has not: the answer is then None. It does NOT return values.
"""

import sqlite3
from pathlib import Path
from typing import Final
from urllib.parse import quote

from penstock.cluster.stores.port import prefix_end

# SQLite reads the value from the row with the maximum; a deleted key has none.
_LIVE_OF_PREFIX: Final = """
SELECT 1 FROM (
    SELECT value, max(mod_revision) FROM versions WHERE key >= ? AND key < ? GROUP BY key
) WHERE value IS NOT NULL LIMIT 1
"""


def has_stored_key(path: Path, prefix: str) -> bool | None:
    """Whether the file has a key with this prefix; None if that cannot be known. It blocks."""
    log = Path(f"{path}-wal")
    try:
        if not path.exists():
            return False
        if log.exists() and log.stat().st_size > 0:
            return None
        # `immutable`: without it, SQLite would create files beside this one.
        place = f"file:{quote(str(path))}?mode=ro&immutable=1"
        connection = sqlite3.connect(place, uri=True)
        try:
            found = connection.execute(_LIVE_OF_PREFIX, (prefix, prefix_end(prefix))).fetchone()
        finally:
            connection.close()
    except (sqlite3.Error, OSError):
        return None
    return found is not None
