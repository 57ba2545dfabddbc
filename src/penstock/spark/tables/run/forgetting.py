"""Makes a table forget a pipeline: its entry is free again, and its rows do not change.

Guarantees: a commit here is conditional like every other one, and is decided again if the table has
changed. A running driver of the pipeline stops at its next commit. A finished backfill is forgotten
only after its pipeline has its offsets (`absorb`), so that they are not written a second time. A
crash in between leaves both, and the next backfill with the same arguments completes the step. It
needs no Spark session.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from penstock.spark.errors import SparkQueryError
from penstock.spark.tables.commit.decisions import Commit, TableState, absorb, forget
from penstock.spark.tables.commit.note import NoteKind
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.definition.values import did_you_mean
from penstock.spark.tables.formats.opening import TableMissingError, open_table
from penstock.spark.tables.formats.port import AnswerLostError, Table, TableMovedError

ATTEMPTS_MAX: Final = 20
"""Others may commit in between: each attempt is a reload and one commit."""


class UnknownPipelineError(SparkQueryError):
    """The table has no pipeline of this name."""


class ForgetConflictError(SparkQueryError):
    """Every attempt conflicted with another commit."""


def forget_pipeline(definition: PipelineDefinition, name: str) -> tuple[str, ...]:
    """Make both tables of a definition forget a pipeline or backfill; return their names.

    The table of bad records is last: after a crash in between, no pipeline holds the rows. In the
    opposite order the pipeline would continue.
    """
    settings = definition.table
    done = []
    for table_name in (settings.name, settings.dlq_name):
        with suppress(TableMissingError):
            table = open_table(settings, table_name)
            try:
                if name in table.load().live:
                    _forget(table, name)
                    done.append(table_name)
                elif table_name == settings.name:
                    _require_known(table, table_name, name)
            finally:
                table.close()
    return tuple(done)


def absorb_backfill(rows: Table, rejects: Table, pipeline: str, backfill: str) -> bool:
    """Add a finished backfill to its pipeline, if it ends at the pipeline's beginning."""
    state = rows.load()
    if absorb(state, pipeline, backfill) is None:
        return False
    _commit(rows, lambda now: absorb(now, pipeline, backfill))
    _forget(rows, backfill)
    _forget(rejects, backfill)
    return True


def _forget(table: Table, name: str) -> None:
    _commit(table, lambda now: forget(now, name) if name in now.live else None)


def _commit(table: Table, decide: Callable[[TableState], Commit | None]) -> None:
    """Commit the decision from the newest state, until it is stored or no longer needed."""
    last = ""
    tried: Commit | None = None
    for _ in range(ATTEMPTS_MAX):
        state = table.load()
        if tried is not None and state.notes.get(tried.note.pipeline) == tried.note:
            return  # the response had been lost
        tried = decide(state)
        if tried is None:
            return
        try:
            table.append(tried, ())
        except (TableMovedError, AnswerLostError) as error:
            last = str(error)
            continue
        return
    raise ForgetConflictError(
        f"the table could not be changed in {ATTEMPTS_MAX} attempts; the last one: {last[:300]}. "
        "Other writers commit to it all the time: stop them, then try again."
    )


def _require_known(table: Table, table_name: str, name: str) -> None:
    state = table.load()
    note = state.notes.get(name)
    if note is not None and note.kind is NoteKind.FORGET:
        return
    known = sorted(state.live)
    meant = did_you_mean(name, known)
    raise UnknownPipelineError(
        f"table '{table_name}' records no pipeline '{name}'. {meant}It records "
        f"{', '.join(known)[:500] or 'none'}: `penstock table status` shows them."
    )
