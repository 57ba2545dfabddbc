"""Carries out the steps of `commit.steps` on a table: the driver's only way to commit.

Guarantees that a batch is in the table once when `commit` returns, despite other committers and
lost responses. It keeps the table's state after its last commit, so that the next one reads nothing
first. It is not a lock: a replaced driver is fenced when it commits.
"""

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from time import sleep
from typing import Any, Final, TypeVar

import pyarrow as pa

from penstock.spark.offsets import StreamOffset
from penstock.spark.tables.commit import stops as commit_stops
from penstock.spark.tables.commit.decisions import (
    Commit,
    Driver,
    Offer,
    Skip,
    TableState,
    Trim,
    decide,
    resume_positions,
)
from penstock.spark.tables.commit.note import BatchRanges
from penstock.spark.tables.commit.owned_tables import OwnedTable
from penstock.spark.tables.commit.steps import (
    Answer,
    Append,
    Committed,
    Load,
    Rule,
    Step,
    Wait,
    commit_offer,
    take_table,
)
from penstock.spark.tables.commit.stops import CommitStoppedError, Stop
from penstock.spark.tables.definition.model import TableSettings
from penstock.spark.tables.files.data_files import FileReceipt, remove_files
from penstock.spark.tables.files.storages import reached
from penstock.spark.tables.files.table_facts import Partition
from penstock.spark.tables.files.upsert import Changes
from penstock.spark.tables.formats.arranging import needed_arrangement
from penstock.spark.tables.formats.port import (
    AnswerLostError,
    Compaction,
    Expiry,
    Table,
    TableMovedError,
)
from penstock.spark.tables.run.changes.key_memory import KeyMemory
from penstock.spark.tables.run.changes.version_changes import as_versions
from penstock.spark.tables.run.changes.whole_rows import as_whole_rows

Result = TypeVar("Result")
ARRANGEMENTS_MAX: Final = 10
"""How often a change of partitions is tried again because the table has changed."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """The files of the tasks."""

    files: tuple[FileReceipt, ...] = ()
    schema: pa.Schema | None = None
    changes: Changes | None = None


class TableCommitter:
    """One driver's ownership of one table."""

    def __init__(
        self,
        table: Table,
        pipeline: str,
        run: str,
        *,
        sleep_s: Callable[[float], None] = sleep,
        owned: OwnedTable | None = None,
    ) -> None:
        """Create the committer; `owned` has what earlier starts of this driver have acquired."""
        self.table = table
        self._pipeline = pipeline
        self._run = run
        self._sleep_s = sleep_s
        self._owned = owned or OwnedTable()
        self._before = self._owned.driver
        self._driver: Driver | None = None
        self._state: TableState | None = None
        self._memory = KeyMemory()

    @property
    def driver(self) -> Driver:
        """The driver, after the table is acquired."""
        assert self._driver is not None, "take the table first"
        return self._driver

    @property
    def state(self) -> TableState:
        """The table's state at the last read."""
        assert self._state is not None, "take the table first"
        return self._state

    def take(self, starting: BatchRanges | None = None) -> StreamOffset | None:
        """Become the owner; return the start of a query without a checkpoint.

        Raises `CommitStoppedError` if this pipeline cannot own the table, or if an earlier start of
        this driver has acquired it, and another driver since.
        """
        steps = take_table(self._pipeline, self._run, starting, self._before)
        taken = self._carry_out(steps, _Batch())
        if isinstance(taken, Stop):
            raise taken.error()
        self._driver, self._state = taken.driver, taken.state
        self._owned.driver = taken.driver
        return resume_positions(taken.state, self._pipeline)

    @property
    def is_owner(self) -> bool:
        """Whether this driver still owns the table, by its state at the last read."""
        note = self.state.notes.get(self._pipeline)
        return note is not None and note.run == self._run

    def fenced(self) -> CommitStoppedError:
        """Return the error for a driver that is no longer the owner."""
        note = self.state.notes.get(self._pipeline)
        epoch, owner = (0, "nobody") if note is None else (note.epoch, note.run)
        return commit_stops.fenced(self._pipeline, self.driver.epoch, epoch, owner).error()

    def resume(self) -> StreamOffset | None:
        """Return the start of a query without a checkpoint."""
        return resume_positions(self.state, self._pipeline)

    def commit(
        self,
        offer: Offer,
        files: Sequence[FileReceipt],
        schema: pa.Schema | None = None,
        *,
        changes: Changes | None = None,
        rule: Rule = decide,
    ) -> Committed | Skip | Trim:
        """Commit the batch to the table exactly once: its files, or its changes as an upsert.

        `Skip`: the table has the batch, and these files are not used. `Trim`: the table has a part,
        and these files are not used; write and offer the rest. `CommitStoppedError`: nothing was
        committed, and the user must act. Files of changes are deleted when the result is known.
        """
        assert offer.driver == self.driver, "an offer of another driver"
        assert changes is None or not files, "a batch is appended, or its changes are"
        batch = _Batch(tuple(files), schema, changes)
        result = self._carry_out(commit_offer(offer, self._state, rule), batch)
        if isinstance(result, Stop):
            raise result.error()
        if changes is not None:
            remove_files(changes.directory, changes.receipts)
        if isinstance(result, Committed):
            self._state = result.state
        return result

    def arrange(self, settings: TableSettings) -> bool:
        """Arrange new files as the definition says; return whether this may have changed the table.

        A lost response is no problem: the table is read again. A replaced driver changes nothing.
        """
        for attempt in range(ARRANGEMENTS_MAX):
            wanted = needed_arrangement(settings, self._pipeline, self.table, self.state)
            if wanted is None:
                return attempt > 0
            try:
                self._state = self.table.arrange(self.state, wanted)
                return True
            except (TableMovedError, AnswerLostError):
                self.reload()
                if not self.is_owner:
                    raise self.fenced() from None
                self._sleep_s(1)
        raise TableMovedError(
            f"the table changed each of the {ARRANGEMENTS_MAX} times that its partitions or its "
            "sort order were changed: another writer commits to it all the time. Stop it, then "
            "start the pipeline again."
        )

    # --- Maintenance: between two batches, by the owner of the table ---

    def reload(self) -> None:
        """Read the table's current state."""
        self._state = self.table.load()

    def compact(self, *, target_bytes: int, partitions: Collection[Partition]) -> Compaction:
        """Merge small files; the next batch is decided from the table's state after it."""
        done = self.table.compact(self.state, target_bytes=target_bytes, partitions=partitions)
        self._state = done.state
        return done

    def expire(self, *, older_than_ms: int, keep_count: int) -> Expiry:
        """Expire old snapshots; the next batch is decided from the table's state after it."""
        done = self.table.expire(older_than_ms=older_than_ms, keep_count=keep_count)
        self._state = done.state
        return done

    def _carry_out(self, steps: Generator[Step, Any, Result], batch: "_Batch") -> Result:
        answer: object = None
        try:
            while True:
                answer = self._do(steps.send(answer), batch)
        except StopIteration as end:
            result: Result = end.value
            return result

    def _do(self, step: Step, batch: "_Batch") -> object:
        match step:
            case Load():
                self._state = self.table.load()
                return self._state
            case Wait(wait_ms):
                self._sleep_s(wait_ms / 1000)
                return None
            case Append(commit):
                try:
                    return Answer(self._append_or_upsert(commit, batch))
                except (TableMovedError, AnswerLostError) as error:
                    return Answer(None, str(error))

    def _append_or_upsert(self, commit: Commit, batch: "_Batch") -> TableState:
        if batch.changes is not None and batch.changes.has_history:
            with as_versions(self.table, batch.changes, batch.schema) as changes:
                return self.table.upsert(commit, changes, batch.schema)
        if batch.changes is not None:
            with reached(batch.changes.directory):
                commit, changes = self._memory.remembering(commit, batch.changes)
            with as_whole_rows(self.table, changes, batch.schema) as changes:
                return self.table.upsert(commit, changes, batch.schema)
        return self.table.append(commit, batch.files, batch.schema)
