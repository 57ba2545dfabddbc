"""Whether a store refuses the second of two commits of one version.

A Delta table on an object store needs a conditional put: the entry of a version is stored only if
there is none. A store that ignores the condition answers the same, and two writers at once then
lose a commit, with all its rows. The probe lets two threads commit one version at the same moment
to a small table of its own, below the table's folder, and deletes it again. `deltalake` lists the
log before it writes, so that only commits at the same moment meet the condition.

Guarantees: `require_conditional_commits` raises `TableRefusedError` if a round had two winners. It
is NOT a proof: `ROUNDS` rounds find a store that ignores the condition, but not always one whose
check loses a race now and then.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier
from typing import Final
from uuid import uuid4

from deltalake import CommitProperties, DeltaTable, Field, Schema
from deltalake.exceptions import CommitFailedError
from deltalake.schema import PrimitiveType

from penstock.spark.tables.formats.delta.log import DeltaLog
from penstock.spark.tables.formats.delta.storage import store_options
from penstock.spark.tables.formats.port import TableRefusedError

FOLDER: Final = "_penstock_probe"
"""Readers of Delta skip names with an underscore."""
ROUNDS: Final = 4
"""On a store that ignores the condition, most rounds have two winners."""
WRITERS: Final = 2
_MEETING_SECONDS_MAX: Final = 30.0
_SCHEMA: Final = Schema([Field("probe", PrimitiveType("long"), nullable=True)])
_ONCE: Final = CommitProperties(max_commit_retries=0)


def require_conditional_commits(uri: str, options: Mapping[str, str]) -> None:
    """Raise `TableRefusedError` if the store accepts two commits of one version."""
    place = f"{uri.rstrip('/')}/{FOLDER}/{uuid4().hex}"
    made = DeltaTable.create(place, _SCHEMA, storage_options=store_options(options))
    try:
        with ThreadPoolExecutor(WRITERS) as pool:
            for _ in range(ROUNDS):
                _require_one_winner(pool, uri, place, options)
    finally:
        with suppress(OSError):
            log = DeltaLog(made)
            log.remove(name for _, name in log.listing().names)


def _require_one_winner(
    pool: ThreadPoolExecutor, uri: str, place: str, options: Mapping[str, str]
) -> None:
    tables = [DeltaTable(place, storage_options=store_options(options)) for _ in range(WRITERS)]
    start = Barrier(WRITERS, timeout=_MEETING_SECONDS_MAX)
    if sum(pool.map(lambda one: _has_committed(one, start), tables)) > 1:
        raise TableRefusedError(
            f"the store of {uri} accepts two commits of one version (it ignores If-None-Match): "
            "two writers at once would lose rows. Use a store with conditional writes, such as S3, "
            "or an Iceberg table, whose commits are in its catalog."
        )


def _has_committed(table: DeltaTable, start: Barrier) -> bool:
    start.wait()
    try:
        table.create_write_transaction(
            [], mode="append", schema=table.schema(), commit_properties=_ONCE
        )
    except CommitFailedError:
        return False
    return True
