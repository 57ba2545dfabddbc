"""The constraints of a Delta table, as expectations (pure).

Guarantees: a row that breaks a constraint is never written. Delta, Spark and `deltalake` accept a
row only if the rule is true, so NULL breaks it, unlike an expectation of a pipeline.

| in the table | rule |
| --- | --- |
| property `delta.constraints.<name>` | `CHECK <name>` |
| `delta.invariants` of a column | `INVARIANT <column>` |
| a column of type `varchar(n)`, which is a string to Delta | `VARCHAR <column>` |

NOT NULL needs no rule: it is part of the table's schema (`TaskPlan.required`).
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.spark.tables.definition.model import Action, Expectation
from penstock.spark.tables.formats.delta.protocol import (
    LENGTHS_KEY,
    VARCHAR,
    DeltaProtocol,
    fields_within,
)

_CHECK: Final = "delta.constraints."
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def constraints_of(protocol: DeltaProtocol) -> tuple[Expectation, ...]:
    """Return the rules, in an order that does not depend on the order in the log."""
    checks = [
        _rule(f"CHECK {name.removeprefix(_CHECK)}", sql)
        for name, sql in sorted(protocol.properties.items())
        if name.startswith(_CHECK)
    ]
    return (*checks, *_of_columns(protocol))


def constraints_key(protocol: DeltaProtocol) -> str:
    """Return a text that changes with the rules, NOT NULL included; empty without rules.

    Files contain it, so that a commit detects rows that were judged by other rules than the
    table's.
    """
    rules = [[one.name, one.sql] for one in constraints_of(protocol)]
    required = [one["name"] for one in protocol.fields if not one["nullable"]]
    if not rules and not required:
        return ""
    text = json.dumps([rules, required])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _of_columns(protocol: DeltaProtocol) -> Iterator[Expectation]:
    for path, field in fields_within(protocol.fields):
        metadata: Mapping[str, Any] = field.get("metadata") or {}
        if "delta.invariants" in metadata:
            yield _rule(f"INVARIANT {path}", _expression(str(metadata["delta.invariants"])))
        declared = VARCHAR.fullmatch(str(metadata.get(LENGTHS_KEY, "")))
        if declared is not None and path == field["name"]:
            name = path if _PLAIN.fullmatch(path) else "`" + path.replace("`", "``") + "`"
            rule = f"{name} IS NULL OR length({name}) <= {declared['length']}"
            yield _rule(f"VARCHAR {path}", rule)


def _expression(text: str) -> str:
    """Return the condition of an invariant; without one the text, which cannot be evaluated."""
    try:
        return str(json.loads(text)["expression"]["expression"])
    except (ValueError, KeyError, TypeError):
        return text


def _rule(name: str, sql: str) -> Expectation:
    return Expectation(name, sql, Action.QUARANTINE, is_constraint=True)
