"""Evaluates rules by Spark SQL, for the rows of a DataFrame.

Guarantees: a rule is evaluated with Spark's own defaults, ANSI mode, and in UTC, whatever the
settings of the user's session; that session is not changed, so its other queries are not affected.
A rule that cannot be evaluated for a row, by an overflow, a division by zero or a cast, is NULL for
this row and is evaluated for all others.

This module does not evaluate the user's function: the user's session defines its columns, and its
settings apply.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import col, expr, lit
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.model import Expectation
from penstock.spark.tables.formats.port import TableRefusedError

_RULE: Final = "_penstock_rule_"
_MEANING: Final = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}
"""The settings that change the meaning of a rule. Spark applies them when it parses the text, not
when it evaluates it."""

_FALSE: Final = b"false"
_TRUE: Final = b"true"


def answer_name(number: int) -> str:
    """Return the name of the column with the results of this rule."""
    return f"{_RULE}{number}"


def in_own_session(frame: DataFrame) -> DataFrame:
    """Return the same rows in our own session, with all settings, views and functions of theirs.

    Spark does this for each of its streams; Python has no API for it.
    """
    theirs = frame.sparkSession
    session = theirs._jsparkSession.cloneSession()
    assert theirs._jvm is not None, "`preparing` refuses a session of Spark Connect"
    datasets = theirs._jvm.org.apache.spark.sql.classic.Dataset
    moved = datasets.ofRows(session, frame._jdf.queryExecution().analyzed())
    return DataFrame(moved, SparkSession(theirs.sparkContext, session))


def asked(
    frame: DataFrame,
    kept: Sequence[Column],
    rules: Sequence[Expectation],
    table: pa.Schema | None = None,
) -> DataFrame:
    """Return these columns, and the results of the rules: false for a row that breaks one.

    `frame` is in a session of ours. Constraints are evaluated for rows in the schema `table`.
    """
    answers = {n: expr(condition(rule)).alias(answer_name(n)) for n, rule in enumerate(rules)}
    constraints = [n for n, rule in enumerate(rules) if rule.is_constraint]
    with settings(frame.sparkSession, _MEANING):
        if not constraints or table is None:
            return frame.select(*kept, *answers.values())
        others = [answer for n, answer in answers.items() if n not in constraints]
        typed = _as_in_table(frame.select("*", *others), table)
        answered = [col(answer_name(n)) for n in answers if n not in constraints]
        return typed.select(*kept, *answered, *(answers[n] for n in constraints))


def _as_in_table(frame: DataFrame, table: pa.Schema) -> DataFrame:
    """Return the rows with the table's types, and NULL in columns that they lack."""
    held = {one.name: one.dataType for one in frame.schema}
    for field in from_arrow_schema(table):
        if field.name not in held:
            frame = frame.withColumn(field.name, lit(None).cast(field.dataType))
        elif held[field.name] != field.dataType:
            frame = frame.withColumn(field.name, col(f"`{field.name}`").cast(field.dataType))
    return frame


def condition(rule: Expectation) -> str:
    """Return the rule as Spark SQL: true for rows that pass it and false for the others."""
    # `try_to_binary` is NULL for any error inside of it, for which Spark has no simpler function.
    # AND rejects values that are not booleans. The rule is on separate lines: a comment at its end
    # must not hide the bracket.
    tried = f"try_to_binary(CAST(((\n{rule.sql}\n) AND true) AS STRING), 'utf-8')"
    # Keep the rule below a condition that is unknown at planning: otherwise Spark moves the common
    # part of two rules out of both, and evaluates it where nothing catches its errors.
    shielded = f"CASE WHEN spark_partition_id() >= 0 THEN {tried} END"
    if rule.is_constraint:
        return f"coalesce({shielded} = X'{_TRUE.hex()}', false)"
    return f"coalesce({shielded} <> X'{_FALSE.hex()}', true)"


def require_rules(
    frame: DataFrame,
    rules: Sequence[Expectation],
    pipeline: str,
    table: pa.Schema | None = None,
) -> None:
    """Raise `DefinitionError` if Spark rejects a rule over these columns."""
    own = in_own_session(frame) if rules else frame
    for rule in rules:
        try:
            asked(own, [col("*")], [rule], table)
        except AnalysisException as error:
            if rule.is_constraint:
                raise TableRefusedError(
                    f"the table has the constraint '{rule.name}', and Spark does not understand "
                    f"{rule.sql!r}: {_first_line(error)}. Correct the constraint, or name another "
                    "table."
                ) from None
            raise DefinitionError(
                f"pipeline {pipeline}",
                f"expectations.{rule.name}",
                f"Spark does not understand {rule.sql!r}: {_first_line(error)}.",
                f"Correct the rule. The columns are {', '.join(own.columns)[:500]}.",
            ) from None


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Apply these settings for the block, in a session of ours."""
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is not None:
                spark.conf.set(name, old)


def _first_line(error: AnalysisException) -> str:
    lines = [one.strip() for one in str(error).splitlines() if one.strip()]
    return lines[0].rstrip(".;")[:500] if lines else "no reason is given"
