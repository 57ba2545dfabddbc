"""Finds rules that even Spark cannot evaluate (no IO but the parser's).

A rule is Spark's SQL, and Spark is not started to check one. DuckDB's parser reads most of it. Aim:
a rule that Spark accepts is not rejected. So only certain errors are problems: a text that ends too
early, an unparsable text without Spark's own syntax, a missing column, and a result that cannot be
a boolean. Spark checks all other rules.
"""

import json
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

import pyarrow as pa

from penstock.spark.errors import first_of
from penstock.spark.tables.values.database import new_database

_TEXT: Final = re.compile(r"'(?:[^'\\]|'')*'")
_SPARKS_OWN: Final = re.compile(
    r"""["`\\$!:?\[{@#~^|&]|<=>|->|[0-9][A-Za-z]|[A-Za-z0-9_]'|--|/\*
    |\b(?:rlike|regexp|div|ilike|any|all|some|interval|case|cast|over|distinct|escape|within)\b""",
    re.VERBOSE | re.IGNORECASE,
)
"""Syntax that Spark may accept and another parser does not."""
_TWO_MEANINGS: Final = re.compile(r'["`]')
"""A text in one of both, a name in the other."""
_NAME: Final = re.compile(
    r"(?P<dot>(?<=[A-Za-z0-9_`\])])\.)?\b(?P<name>[A-Za-z_][A-Za-z0-9_]*)\b(?!\s*\()"
)
_ENDING: Final = re.compile(
    r"([<>=+*/%,(.-]|\b(?:and|or|not|between|in|like|is|when|then|else|case))\s*$", re.IGNORECASE
)
_LIKE_COLUMNS: Final = re.compile(r"(?:current_|local|session_).*|user|default", re.IGNORECASE)
"""Functions that are written like columns."""
_ARITHMETIC: Final = frozenset({"+", "-", "*", "/", "%"})
_FUNCTIONS: Final = frozenset({"abs", "coalesce", "length", "lower", "upper"})
"""Functions whose arguments are parsed as in Spark."""
_COLUMNS_SHOWN_MAX: Final = 12

Node = Mapping[str, Any]


def rule_problem(sql: str, columns: pa.Schema | None) -> str | None:
    """Return the reason why this rule cannot be evaluated; None if Spark may accept it.

    Without columns, because a function of the user returns them, only the text is checked.
    """
    bare = _TEXT.sub("''", sql)
    problem = _unfinished(bare)
    if problem is not None or columns is None or _TWO_MEANINGS.search(bare):
        return problem
    expression = _expression(_with_quoted_names(sql, columns))
    if expression is None:
        return None if _SPARKS_OWN.search(bare) else "it cannot be read as a condition"
    return _missing_column(expression, columns) or _no_boolean(expression, columns)


def _unfinished(bare: str) -> str | None:
    if re.search(r"--|/\*", bare):
        return None
    ending = _ENDING.search(bare)
    if ending is not None:
        return f"it ends after '{ending[1]}'"
    depth = 0
    for mark in re.findall(r"[()]", bare):
        depth += 1 if mark == "(" else -1
        if depth < 0:
            return "a ')' has no '('"
    return "a '(' is not closed" if depth else None


def _with_quoted_names(sql: str, columns: pa.Schema) -> str:
    """Return the rule with quoted column names: some are keywords of DuckDB, and not of Spark.

    A name before a parenthesis is a function's.
    """
    there = {name.lower() for name in columns.names}
    pieces = _TEXT.split(sql)
    texts = _TEXT.findall(sql)

    def quoted(found: re.Match[str]) -> str:
        is_field = found["dot"] is not None
        return (
            f'{found["dot"] or ""}"{found["name"]}"'
            if is_field or (found["name"].lower() in there)
            else found[0]
        )

    changed = [_NAME.sub(quoted, piece) for piece in pieces]
    return "".join(
        piece + (texts[number] if number < len(texts) else "")
        for number, piece in enumerate(changed)
    )


def _expression(sql: str) -> Node | None:
    """Return the tree of the one condition; None if this parser does not parse it as one."""
    with new_database() as database:
        query = f"SELECT (\n{sql}\n)"
        found = database.execute("SELECT json_serialize_sql(?)", [query]).fetchall()
    tree: dict[str, Any] = json.loads(found[0][0])
    statements = tree.get("statements", [])
    if tree.get("error") or len(statements) != 1:
        return None
    expressions: list[Node] = statements[0]["node"].get("select_list", [])
    return expressions[0] if len(expressions) == 1 else None


def _missing_column(expression: Node, columns: pa.Schema) -> str | None:
    parts = list(_parts(expression))
    if any(part.get("type") == "LAMBDA" for part in parts):
        return None
    there = {name.lower() for name in columns.names}
    for part in parts:
        if part.get("type") != "COLUMN_REF":
            continue
        name = str(part["column_names"][0])
        if name.lower() in there or _LIKE_COLUMNS.fullmatch(name):
            continue
        close = get_close_matches(name, columns.names, n=1, cutoff=0.6)
        meant = f"did you mean '{close[0]}'? " if close else ""
        shown = first_of(columns.names, _COLUMNS_SHOWN_MAX)
        return f"there is no column '{name}'; {meant}the columns are {shown}"
    return None


def _no_boolean(expression: Node, columns: pa.Schema) -> str | None:
    kind = expression.get("type")
    is_sum = (
        kind == "FUNCTION"
        and expression.get("is_operator")
        and expression.get("function_name") in _ARITHMETIC
    )
    is_literal = kind == "VALUE_CONSTANT" and expression.get("literal", {}).get("kind") in {
        "INTEGER",
        "NUMERIC",
        "STRING",
    }
    is_other_column = False
    if kind == "COLUMN_REF" and len(expression["column_names"]) == 1:
        name = str(expression["column_names"][0]).lower()
        types = [one.type for one in columns if one.name.lower() == name]
        is_other_column = bool(types) and not pa.types.is_boolean(types[0])
    if is_sum or is_literal or is_other_column:
        return "its answer is not true or false"
    return None


def _parts(node: object) -> Iterator[Node]:
    """Return every part of the tree, at any depth.

    Arguments of Spark's own functions are left out: `HOUR` in `timestampdiff(HOUR, a, b)` is not a
    column.
    """
    if isinstance(node, Mapping):
        if "type" in node:
            yield node
        is_function = node.get("type") == "FUNCTION" and not node.get("is_operator")
        if is_function and str(node.get("function_name")).lower() not in _FUNCTIONS:
            return
        for inner in node.values():
            yield from _parts(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from _parts(inner)
