"""Rules evaluated inside a task, over Arrow, by DuckDB; and which rules that is possible for.

Guarantees: a rule that `is_in_task` accepts means the same to DuckDB and to Spark with ANSI mode,
which is Spark's default; a test asks both. Everything else needs DataFrame mode: Spark evaluates
it, and `is_in_task` says so before anything runs.

Accepted are columns and fields of structs, numbers, texts, true, false and NULL; comparisons,
AND, OR, NOT, BETWEEN, IN with a list, IS NULL, LIKE; `+`, `-` and `*`; and the functions of
`FUNCTIONS`. Not accepted: division (by zero it is NULL here and an error in Spark), casts, dates,
regular expressions, double quotes (a name here, a text in Spark), backslashes (escapes in Spark),
and everything that reads more than the row.

The database is in memory, has one thread, and reads neither files nor the network.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import duckdb
import pyarrow as pa

from penstock.spark.errors import SparkQueryError
from penstock.spark.tables.database import answer_of, new_database, registered
from penstock.spark.tables.definition import Expectation
from penstock.spark.tables.expectations import Outcome, outcome_of

FUNCTIONS: Final = frozenset({"abs", "coalesce", "length", "lower", "upper"})
_OPERATORS: Final = frozenset({"+", "-", "*", "~~", "!~~"})
"""`~~` is LIKE in the tree of the parser."""
_TYPES: Final = frozenset(
    {
        "OPERATOR_IS_NULL",
        "OPERATOR_IS_NOT_NULL",
        "OPERATOR_NOT",
        "OPERATOR_COALESCE",
        "COMPARE_IN",
        "COMPARE_NOT_IN",
        "COMPARE_EQUAL",
        "COMPARE_NOTEQUAL",
        "COMPARE_LESSTHAN",
        "COMPARE_GREATERTHAN",
        "COMPARE_LESSTHANOREQUALTO",
        "COMPARE_GREATERTHANOREQUALTO",
        "COMPARE_BETWEEN",
        "CONJUNCTION_AND",
        "CONJUNCTION_OR",
        "COLUMN_REF",
        "VALUE_CONSTANT",
        "FUNCTION",
    }
)
_LITERALS: Final = frozenset({"INTEGER", "NUMERIC", "STRING", "BOOLEAN", "NULL_LITERAL"})
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
"""As both write it."""
_TEXT: Final = re.compile(r"'(?:[^'\\]|'')*'")
_ODD: Final = re.compile(r"""["`\\$]|[A-Za-z0-9_]'""")
"""Quotes and texts that both read differently, such as "a", E'a' and $$a$$."""
_PARTS: Final = ("children", "left", "right", "input", "lower", "upper")
"""Where an expression has other expressions."""


class ExpectationSqlError(SparkQueryError):
    """A rule cannot be evaluated over the columns of the table."""


def is_in_task(sql: str, schema: pa.Schema) -> bool:
    """Whether this rule can be evaluated in a task over these columns, as Spark would."""
    if _ODD.search(_TEXT.sub("''", sql)):
        return False
    with new_database() as database:
        parsed = database.execute("SELECT json_serialize_sql(?)", [_query(sql)]).fetchall()
        expression = _only_expression(json.loads(parsed[0][0]))
        if expression is None or not _is_known(expression):
            return False
        try:
            # Whether the columns are there, and whether the answer is a boolean.
            kinds = _evaluated(database, [sql], schema.empty_table()).schema.types
        except duckdb.Error:
            return False
    return bool(pa.types.is_boolean(kinds[0]))


class ExpectationEvaluator:
    """Asks the rules of one pipeline about batches of rows; belongs to one task."""

    def __init__(self, expectations: Sequence[Expectation]) -> None:
        self._expectations = tuple(expectations)
        # Opening one takes longer than a small batch.
        self._database = new_database() if self._expectations else None

    def evaluate(self, rows: pa.RecordBatch) -> Outcome:
        """What the rules say of these rows."""
        if self._database is None:
            return Outcome({}, None)
        rules = [rule.sql for rule in self._expectations]
        try:
            answers = _evaluated(self._database, rules, pa.Table.from_batches([rows]))
        except duckdb.Error as error:
            raise ExpectationSqlError(
                f"the expectations {', '.join(rule.name for rule in self._expectations)} cannot be "
                f"evaluated: {error}. Correct the rule, or set pipeline.mode to dataframe."
            ) from error
        return outcome_of(self._expectations, [one.combine_chunks() for one in answers.columns])


def _evaluated(
    database: duckdb.DuckDBPyConnection, rules: Sequence[str], rows: pa.Table
) -> pa.Table:
    columns = ", ".join(f"(\n{sql}\n) AS rule_{number}" for number, sql in enumerate(rules))
    query = f"SELECT {columns} FROM rows"  # noqa: S608 - only what is_in_task accepts
    with registered(database, "rows", rows):
        return answer_of(database, query)


def _query(sql: str) -> str:
    return f"SELECT (\n{sql}\n)"


def _only_expression(tree: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The one expression, if the text is one and nothing else was smuggled around it."""
    statements = tree.get("statements", [])
    if tree.get("error") or len(statements) != 1:
        return None
    node = statements[0]["node"]
    is_bare = (
        node["type"] == "SELECT_NODE"
        and node["from_table"]["type"] == "EMPTY"
        and node["where_clause"] is None
        and node["having"] is None
        and node["qualify"] is None
        and not node["group_expressions"]
        and not node["modifiers"]
        and not node["cte_map"]["map"]
        and len(node["select_list"]) == 1
    )
    return node["select_list"][0] if is_bare else None


def _is_known(expression: Mapping[str, Any]) -> bool:
    """Whether every part of it is one of those that mean the same to both."""
    waiting: list[Mapping[str, Any]] = [expression]
    while waiting:
        part = waiting.pop()
        if part["type"] not in _TYPES or part.get("alias"):
            return False
        if part["type"] == "FUNCTION" and not _is_known_function(part):
            return False
        if part["type"] == "VALUE_CONSTANT" and not _is_known_literal(part):
            return False
        for name in _PARTS:
            inner = part.get(name)
            waiting += inner if isinstance(inner, list) else [inner] if inner is not None else []
        waiting += [one["expression"] for one in part.get("arguments", [])]
    return True


def _is_known_literal(constant: Mapping[str, Any]) -> bool:
    literal = constant.get("literal", {})
    is_number = literal.get("kind") in {"INTEGER", "NUMERIC"}
    if is_number and not _NUMBER.fullmatch(literal["text"]):
        return False
    return literal.get("kind") in _LITERALS


def _is_known_function(part: Mapping[str, Any]) -> bool:
    name = part["function_name"].lower()
    is_plain = not part.get("distinct") and part.get("filter") is None and not part.get("schema")
    return is_plain and (name in FUNCTIONS or (name in _OPERATORS and part["is_operator"]))
