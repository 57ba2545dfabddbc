"""The layout of the SQLite file: its mark, its own tables, and the table of a topic (pure).

    application_id      0x50454E53 ("PENS"): the file belongs to `penstock materialize`
    user_version        the version of this layout
    penstock_topics     topic, topic id, live generation, generation in build
    penstock_positions  the next offset of each partition, by generation
    penstock_gaps       offsets that were deleted from the log before they were read
    penstock_indexes    generated columns
    "TOPIC"             the rows that are served
    "TOPIC@N"           generation N in build; it is renamed when it is complete

Topic names have no `@`, so no topic has the name of a build. SQLite compares names of tables
without regard to case, so two topics whose names differ only in case are rejected.
"""

import re
from collections.abc import Sequence
from typing import Final

from penstock.core.errors import InvalidRequestError
from penstock.materialize.index_columns import IndexColumn

APPLICATION_ID: Final = 0x50454E53
SCHEMA_VERSION: Final = 1

TABLES: Final = (
    """CREATE TABLE penstock_topics (
        topic TEXT PRIMARY KEY, topic_id TEXT, generation INTEGER NOT NULL,
        building INTEGER, building_topic_id TEXT, skipped_records INTEGER NOT NULL DEFAULT 0
    )""",
    """CREATE TABLE penstock_positions (
        topic TEXT NOT NULL, generation INTEGER NOT NULL, "partition" INTEGER NOT NULL,
        next_offset INTEGER NOT NULL, ready_offset INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (topic, generation, "partition")
    )""",
    """CREATE TABLE penstock_gaps (
        topic TEXT NOT NULL, generation INTEGER NOT NULL, "partition" INTEGER NOT NULL,
        from_offset INTEGER NOT NULL, until_offset INTEGER NOT NULL, declared_ms INTEGER NOT NULL
    )""",
    """CREATE TABLE penstock_indexes (
        topic TEXT NOT NULL, name TEXT NOT NULL, path TEXT NOT NULL, PRIMARY KEY (topic, name)
    )""",
)

EXPORT_PATH_NAME: Final = "export.sqlite"
TOPICS_MAX: Final = 64
"""Topics of one file: all are written in one transaction."""

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_RESERVED: Final = ("sqlite_", "penstock_")


def check_topics(topics: Sequence[str]) -> None:
    """Raise `InvalidRequestError` for topics that cannot be tables of one file."""
    if not 0 < len(topics) <= TOPICS_MAX:
        raise InvalidRequestError(f"{len(topics)} topics; give 1 to {TOPICS_MAX}.")
    seen: dict[str, str] = {}
    for topic in topics:
        lower = topic.lower()
        if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise InvalidRequestError(f"{topic!r} is not a valid topic name.")
        if lower.startswith(_RESERVED) or lower == EXPORT_PATH_NAME:
            raise InvalidRequestError(f"{topic!r} is a reserved name and cannot be a table.")
        if lower in seen:
            raise InvalidRequestError(
                f"topics {seen[lower]!r} and {topic!r} cannot be in one file: SQLite compares "
                "names of tables without regard to case.",
                hint="Run two processes, each with its own --name.",
            )
        seen[lower] = topic


def table_name(topic: str, build: int | None = None) -> str:
    """Return the quoted name of a topic's table, or of a generation in build."""
    return f'"{topic}"' if build is None else f'"{topic}@{build}"'


def create_table(table: str) -> str:
    """Return the SQL that creates the table of a topic."""
    return (
        f'CREATE TABLE {table} ("key" TEXT NOT NULL, "partition" INTEGER NOT NULL, '
        '"value" TEXT NOT NULL, "offset" INTEGER NOT NULL, "timestamp" INTEGER NOT NULL, '
        '"headers" TEXT, PRIMARY KEY ("key", "partition"))'
    )


def add_column(topic: str, table: str, generation: int, column: IndexColumn) -> tuple[str, str]:
    """Return the SQL that adds a generated column and its index."""
    generated = f"GENERATED ALWAYS AS ({column.path.expression}) VIRTUAL"
    index = index_name(topic, generation, column.name)
    return (
        f'ALTER TABLE {table} ADD COLUMN "{column.name}" {generated}',
        f'CREATE INDEX {index} ON {table} ("{column.name}")',
    )


def drop_column(topic: str, table: str, generation: int, name: str) -> tuple[str, str]:
    """Return the SQL that removes a generated column and its index."""
    return (
        f"DROP INDEX {index_name(topic, generation, name)}",
        f'ALTER TABLE {table} DROP COLUMN "{name}"',
    )


def index_name(topic: str, generation: int, column: str) -> str:
    """Return the quoted name of an index; an index keeps its name when its table is renamed."""
    return f'"{topic}@{generation}.{column}"'


def upsert(table: str) -> str:
    """Return the SQL that writes a row."""
    return (
        f'INSERT INTO {table} ("key", "partition", "value", "offset", "timestamp", "headers") '  # noqa: S608
        'VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT ("key", "partition") DO UPDATE SET '
        '"value" = excluded."value", "offset" = excluded."offset", '
        '"timestamp" = excluded."timestamp", "headers" = excluded."headers"'
    )


def delete(table: str) -> str:
    """Return the SQL that deletes a row."""
    return f'DELETE FROM {table} WHERE "key" = ? AND "partition" = ?'  # noqa: S608 (checked names)
