"""`--index [TOPIC:][NAME=]PATH`: generated columns of a topic's table, each with an index (pure).

The column is virtual: it needs no room in the row, and its index is used by `WHERE sku = ...`.
Names are unique in a table without regard to case, as in SQLite. It does NOT change tables.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.core.errors import InvalidRequestError
from penstock.materialize.json_paths import JsonPath, parse_path

COLUMNS: Final = ("key", "partition", "value", "offset", "timestamp", "headers")
"""The columns of every table."""
INDEXES_MAX: Final = 16
"""Indexes of one table: each is updated by every write."""

_FORM: Final = re.compile(r"(?:([a-zA-Z0-9._-]+):)?(?:([A-Za-z_][A-Za-z0-9_]{0,62})=)?(\$.*)")


@dataclass(frozen=True, slots=True)
class IndexColumn:
    """A generated column with an index."""

    name: str
    path: JsonPath


@dataclass(frozen=True, slots=True)
class IndexOption:
    """One `--index`; without a topic it is for all of them."""

    topic: str | None
    column: IndexColumn


def parse_index(text: str) -> IndexOption:
    """Return one option, or raise `InvalidRequestError`."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise InvalidRequestError(
            f"{text[:256]!r} is not an index.",
            hint="Write $.sku, code=$.sku or price:code=$.sku (topic, column, JSON path).",
        )
    topic, name, path_text = found.groups()
    path = parse_path(path_text)
    return IndexOption(topic, IndexColumn(name or path.column, path))


def columns_of(topic: str, options: Sequence[IndexOption]) -> tuple[IndexColumn, ...]:
    """Return the generated columns of a topic, checked against each other."""
    chosen = [one.column for one in options if one.topic in (None, topic)]
    if len(chosen) > INDEXES_MAX:
        raise InvalidRequestError(f"{len(chosen)} indexes of {topic}, at most {INDEXES_MAX}.")
    seen = set(COLUMNS)
    for column in chosen:
        if column.name.lower() in seen:
            raise InvalidRequestError(
                f"the table of {topic} has two columns {column.name!r}.",
                hint=f"Name the column: --index other_name={column.path.text}",
            )
        seen.add(column.name.lower())
    return tuple(chosen)
