"""Evaluates rules inside a task, over Arrow, by DuckDB; and decides whether it can.

Guarantees: a rule that `is_in_task` accepts has the same result here as in Spark, see
`rules.translation`: DuckDB evaluates a translation, not the rule. A rule that cannot be
evaluated for a row, by an overflow, is NULL for this row. All other rules need DataFrame mode:
Spark evaluates them, and `is_in_task` returns false before anything runs.

The database is in memory, has one thread, and reads neither files nor the network.
"""

from collections.abc import Callable, Sequence

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from duckdb.func import ARROW

from penstock.spark.errors import SparkQueryError
from penstock.spark.tables.definition.model import Expectation
from penstock.spark.tables.rules.expectations import Outcome, outcome_of
from penstock.spark.tables.rules.sql_types import NotTheSameError
from penstock.spark.tables.rules.translation import (
    FUNCTIONS,
    LOWER,
    TRY,
    UPPER,
    translated,
)
from penstock.spark.tables.values.database import answer_of, new_database, registered

__all__ = ["FUNCTIONS", "ExpectationEvaluator", "ExpectationSqlError", "is_in_task"]


class ExpectationSqlError(SparkQueryError):
    """A rule cannot be evaluated over the columns of the table."""


def is_in_task(sql: str, schema: pa.Schema) -> bool:
    """Return whether a task can evaluate this rule over these columns, as Spark would."""
    with new_database() as database:
        try:
            _prepare(database, [sql])
            _evaluated(database, [translated(database, sql, schema)], schema.empty_table())
        except (NotTheSameError, duckdb.Error):
            return False
    return True


class ExpectationEvaluator:
    """Evaluates the rules of one pipeline over batches of rows; belongs to one task."""

    def __init__(self, expectations: Sequence[Expectation]) -> None:
        self._expectations = tuple(expectations)
        # Opening a database needs more time than a small batch.
        self._database = new_database() if self._expectations else None
        if self._database is not None:
            _prepare(self._database, [rule.sql for rule in self._expectations])
        self._columns: pa.Schema | None = None
        self._rules: list[str] = []

    def evaluate(self, rows: pa.RecordBatch) -> Outcome:
        """Return the outcome of the rules for these rows."""
        if self._database is None:
            return Outcome({}, None)
        if self._columns is None or not self._columns.equals(rows.schema):
            self._rules = self._translated(self._database, rows.schema)
            self._columns = rows.schema
        try:
            answers = _evaluated(self._database, self._rules, pa.Table.from_batches([rows]))
        except duckdb.Error as error:
            names = ", ".join(rule.name for rule in self._expectations)
            raise _refused(names, str(error)) from error
        return outcome_of(self._expectations, [one.combine_chunks() for one in answers.columns])

    def _translated(self, database: duckdb.DuckDBPyConnection, columns: pa.Schema) -> list[str]:
        """Return the translated rules for these columns; a table may have got new columns."""
        found = []
        for rule in self._expectations:
            try:
                found.append(translated(database, rule.sql, columns))
            except (NotTheSameError, duckdb.Error):
                names = ", ".join(columns.names)[:500]
                reason = f"only Spark can evaluate {rule.sql!r} over the columns {names}"
                raise _refused(rule.name, reason) from None
        if any(TRY in one for one in found):
            # The first would change `a + 1 < 0` to `a < -1`, which never overflows; the second
            # moves the common part of two rules out of both, where nothing catches its errors.
            off = "expression_rewriter,common_subexpressions"
            database.execute(f"SET disabled_optimizers = '{off}'")
        return found


def _refused(names: str, reason: str) -> ExpectationSqlError:
    return ExpectationSqlError(
        f"the expectations {names} cannot be evaluated: {reason}. Correct the rule, or set "
        "pipeline.mode to dataframe."
    )


def _prepare(database: duckdb.DuckDBPyConnection, rules: Sequence[str]) -> None:
    """Create the functions that the translations of these rules need; once."""
    changes = {
        "lower": (LOWER, str.lower, pc.ascii_lower),
        "upper": (UPPER, str.upper, pc.ascii_upper),
    }
    for word, (name, change, quick) in changes.items():
        if any(word in one.lower() for one in rules):
            changed = _letters(change, quick)
            database.create_function(name, changed, ["VARCHAR"], "VARCHAR", type=ARROW)


def _letters(
    change: Callable[[str], str], quick: Callable[[pa.ChunkedArray], pa.ChunkedArray]
) -> Callable[[pa.ChunkedArray], pa.ChunkedArray]:
    """Return capital or small letters by Unicode, where one may become two: ß is SS."""

    def changed(texts: pa.ChunkedArray) -> pa.ChunkedArray:
        if pc.all(pc.string_is_ascii(texts), min_count=0).as_py():
            return quick(texts)
        return pa.chunked_array([[change(one) for one in texts.to_pylist()]], pa.string())

    return changed


def _evaluated(
    database: duckdb.DuckDBPyConnection, rules: Sequence[str], rows: pa.Table
) -> pa.Table:
    columns = ", ".join(f"{sql} AS rule_{number}" for number, sql in enumerate(rules))
    query = f"SELECT {columns} FROM rows"  # noqa: S608 - only translated rules
    with registered(database, "rows", rows):
        return answer_of(database, query)
