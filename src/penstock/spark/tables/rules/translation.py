"""Translates rules from Spark's SQL to DuckDB's, if both agree (no IO but the parser).

Guarantees: for every row, the result of `translated` is that of Spark in ANSI mode and in UTC, and
NULL if Spark cannot evaluate the rule. A test compares both at the extremes of every type. A rule
without this certainty has no translation, and Spark evaluates it.

Supported are columns and fields of structs, numbers, texts, true, false and NULL; comparisons, AND,
OR, NOT, BETWEEN, IN with a list of literals, IS NULL, LIKE with a literal; `+`, `-` and `*`; and
the functions of `FUNCTIONS`. Times and dates are compared with each other, and with texts such as
'2026-01-31' or '2026-01-31 07:00:00', in UTC. Not supported: division (DuckDB has other types for
it), casts, regular expressions, double quotes (a name here, a text in Spark), backslashes (escapes
in Spark), texts in place of numbers, and everything that reads more than the row.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import isfinite
from typing import Any, Final

import duckdb
import pyarrow as pa

from penstock.spark.tables.rules.sql_types import (
    NotTheSameError,
    Typed,
    absolute,
    arithmetic,
    cast,
    common,
    comparison,
    negative,
)

FUNCTIONS: Final = frozenset({"abs", "coalesce", "length", "lower", "upper"})
LOWER, UPPER = "spark_lower", "spark_upper"
"""Functions to add to the database: its own functions map one letter to one letter only."""
TRY: Final = "TRY"
"""DuckDB's own function: NULL for a row whose value cannot be computed."""
_COMPARISONS: Final = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
_LITERAL_DIGITS_MAX: Final = 18
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.([0-9]+))?([eE][+-]?[0-9]+)?")
"""A number in the syntax of both."""
_TEXT: Final = re.compile(r"'(?:[^'\\]|'')*'")
_ODD: Final = re.compile(r"""["`\\$]|[A-Za-z0-9_]'""")
"""Quotes and texts that both parse differently, such as "a", E'a' and $$a$$."""
Node = Mapping[str, Any]


def translated(database: duckdb.DuckDBPyConnection, sql: str, columns: pa.Schema) -> str:
    """Return the rule as an expression of DuckDB's, or raise `NotTheSameError`."""
    if _ODD.search(_TEXT.sub("''", sql)):
        raise NotTheSameError
    parsed = database.execute("SELECT json_serialize_sql(?)", [f"SELECT (\n{sql}\n)"]).fetchall()
    found = _Translation(columns).of(_only_expression(json.loads(parsed[0][0])))
    if found.type != pa.bool_():
        raise NotTheSameError
    answer = f"CAST({found.sql} AS BOOLEAN)"
    return f"{TRY}({answer})" if found.may_fail else answer


class _Translation:
    """The translation of one rule, by the kind of each part."""

    def __init__(self, columns: pa.Schema) -> None:
        self._columns = columns
        self._by_type: dict[str, Callable[[Node], Typed]] = {
            "COLUMN_REF": self._column,
            "VALUE_CONSTANT": _literal,
            "OPERATOR_IS_NULL": self._is_null,
            "OPERATOR_IS_NOT_NULL": self._is_null,
            "OPERATOR_NOT": self._not,
            "OPERATOR_COALESCE": self._coalesce,
            "COMPARE_IN": self._in,
            "COMPARE_NOT_IN": lambda part: _negated(self._in(part)),
            "COMPARE_BETWEEN": self._between,
            "CONJUNCTION_AND": lambda part: reduce(_and, self._backwards(part)),
            "CONJUNCTION_OR": lambda part: reduce(_or, self._backwards(part)),
            "FUNCTION": self._function,
        }

    def of(self, part: Node) -> Typed:
        if part.get("alias"):
            raise NotTheSameError
        if part["type"] in _COMPARISONS:
            operator = _COMPARISONS[part["type"]]
            return comparison(self.of(part["left"]), operator, self.of(part["right"]))
        translate = self._by_type.get(part["type"])
        if translate is None:
            raise NotTheSameError
        return translate(part)

    def _column(self, part: Node) -> Typed:
        """Return a column or a field of structs in it; names have no case, as in Spark."""
        first, *rest = part["column_names"]
        field = _named(list(self._columns), first)
        sql = _quoted(field.name)
        for name in rest:
            if not pa.types.is_struct(field.type):
                raise NotTheSameError
            field = _named(list(field.type), name)
            sql = f"struct_extract({sql}, {_text(field.name)})"
        if pa.types.is_float32(field.type):
            sql = f"CAST({sql} AS DOUBLE)"
        return Typed(sql, field.type)

    def _children(self, part: Node) -> list[Typed]:
        return [self.of(one) for one in part["children"]]

    def _backwards(self, part: Node) -> list[Typed]:
        """Return the operands of AND or OR, the last first: so each is written twice at most."""
        return [_boolean(one) for one in reversed(self._children(part))]

    def _is_null(self, part: Node) -> Typed:
        (value,) = self._children(part)
        negation = "NOT " if part["type"] == "OPERATOR_IS_NOT_NULL" else ""
        return Typed(f"({value.sql} IS {negation}NULL)", pa.bool_(), value.may_fail)

    def _not(self, part: Node) -> Typed:
        (value,) = self._children(part)
        return _negated(_boolean(value))

    def _coalesce(self, part: Node) -> Typed:
        values = self._children(part)
        kind = common([one.type for one in values])
        sql = f"coalesce({', '.join(cast(one, kind) for one in values)})"
        return Typed(sql, kind, any(one.may_fail for one in values))

    def _in(self, part: Node) -> Typed:
        if any(one["type"] != "VALUE_CONSTANT" for one in part["children"][1:]):
            raise NotTheSameError
        value, *among = self._children(part)
        kind = common([value.type, *(one.type for one in among)])
        listed = ", ".join(cast(one, kind) for one in among)
        return Typed(f"({cast(value, kind)} IN ({listed}))", pa.bool_(), value.may_fail)

    def _between(self, part: Node) -> Typed:
        """Return two comparisons, each with its own type, as in Spark."""
        value, lower, upper = (self.of(part[name]) for name in ("input", "lower", "upper"))
        return _and(comparison(value, "<=", upper), comparison(value, ">=", lower))

    def _function(self, part: Node) -> Typed:
        if part.get("distinct") or part.get("filter") is not None or part.get("schema"):
            raise NotTheSameError
        name = part["function_name"].lower()
        if not part["is_operator"] and name not in FUNCTIONS:
            raise NotTheSameError  # before its arguments: some only look like columns
        values = [self.of(one["expression"]) for one in part["arguments"]]
        if part["is_operator"]:
            return _operator(name, values)
        if len(values) != 1:
            raise NotTheSameError
        (value,) = values
        if name == "abs":
            return absolute(value)
        if value.type != pa.string():
            raise NotTheSameError
        if name == "length":
            return Typed(f"CAST(length({value.sql}) AS INTEGER)", pa.int32(), value.may_fail)
        own = LOWER if name == "lower" else UPPER
        return Typed(f"{own}({value.sql})", pa.string(), value.may_fail)


def _operator(name: str, values: Sequence[Typed]) -> Typed:
    if name in {"+", "-", "*"} and len(values) == 2:
        return arithmetic(values[0], name, values[1])
    if name == "-" and len(values) == 1:
        return negative(values[0])
    if name in {"~~", "!~~"}:  # LIKE, in the parser's name
        value, pattern = values
        if value.type != pa.string() or pattern.text is None:
            raise NotTheSameError
        return Typed(f"({value.sql} {name} {pattern.sql})", pa.bool_(), value.may_fail)
    raise NotTheSameError


def _literal(part: Node) -> Typed:
    literal = part.get("literal", {})
    kind, text = literal.get("kind"), literal.get("text", "")
    if kind == "STRING":
        return Typed(_text(text), pa.string(), text=text)
    if kind == "BOOLEAN":
        return Typed(text, pa.bool_())
    if kind == "NULL_LITERAL":
        return Typed("NULL", pa.null())
    if kind in {"INTEGER", "NUMERIC"}:
        return _number(text)
    raise NotTheSameError


def _number(text: str) -> Typed:
    """Return the number with Spark's type, whatever the other operand is."""
    found = _NUMBER.fullmatch(text)
    digits = len(text.removeprefix("-").replace(".", ""))
    if found is None or (found[2] is None and digits > _LITERAL_DIGITS_MAX):
        raise NotTheSameError
    if found[2] is not None:
        if not isfinite(float(text)):
            raise NotTheSameError
        return Typed(f"CAST('{text}' AS DOUBLE)", pa.float64())
    if found[1] is not None:
        scale = len(found[1])
        return Typed(f"CAST('{text}' AS DECIMAL({digits}, {scale}))", pa.decimal128(digits, scale))
    if -(2**31) <= int(text) < 2**31:
        return Typed(f"CAST({text} AS INTEGER)", pa.int32())
    return Typed(f"CAST({text} AS BIGINT)", pa.int64())


def _boolean(value: Typed) -> Typed:
    if value.type not in (pa.bool_(), pa.null()):
        raise NotTheSameError
    return Typed(f"CAST({value.sql} AS BOOLEAN)", pa.bool_(), value.may_fail)


def _negated(value: Typed) -> Typed:
    return Typed(f"(NOT {value.sql})", pa.bool_(), value.may_fail)


def _and(right: Typed, left: Typed) -> Typed:
    sql = f"({left.sql} AND {right.sql})"
    if not right.may_fail:
        return Typed(sql, pa.bool_(), left.may_fail)
    # Spark does not evaluate the right side if the left one decides.
    return Typed(f"(CASE WHEN NOT {left.sql} THEN false ELSE {sql} END)", pa.bool_(), may_fail=True)


def _or(right: Typed, left: Typed) -> Typed:
    sql = f"({left.sql} OR {right.sql})"
    if not right.may_fail:
        return Typed(sql, pa.bool_(), left.may_fail)
    return Typed(f"(CASE WHEN {left.sql} THEN true ELSE {sql} END)", pa.bool_(), may_fail=True)


def _named(fields: Sequence[pa.Field], name: str) -> pa.Field:
    found = [one for one in fields if one.name.lower() == name.lower()]
    if len(found) != 1:
        raise NotTheSameError
    return found[0]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _only_expression(tree: Node) -> Node:
    """Return the expression, if the text is exactly one expression."""
    statements = tree.get("statements", [])
    if tree.get("error") or len(statements) != 1:
        raise NotTheSameError
    node: Node = statements[0]["node"]
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
    if not is_bare:
        raise NotTheSameError
    expression: Node = node["select_list"][0]
    return expression
