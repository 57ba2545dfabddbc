"""The topics of a definition with many tables, and the status of each table.

Guarantees: topics are the topics that the source would read now. A table that cannot be read
has its reason instead of a status; the others are read anyway. Nothing is written.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.spark.tables.definition.errors import UnusableError, as_written
from penstock.spark.tables.definition.many_tables import TopicUnfitError, table_of_topic
from penstock.spark.tables.definition.model import PipelineDefinition, TableSettings
from penstock.spark.tables.formats.opening import (
    TableMissingError,
    open_table,
    require_format,
    require_makeable,
)
from penstock.spark.tables.inspection.status import TableStatus, table_status
from penstock.spark.tables.inspection.topics import TopicsLook, TopicsSeen

CHECKED_MAX: Final = 3
"""The number of topics that `check` looks at; each is a whole check."""


@dataclass(frozen=True, slots=True)
class TopicTable:
    """One topic and its table."""

    topic: str
    table: str
    """The table's name; empty if the topic cannot have one."""
    status: TableStatus | None
    """None without a table."""
    lag: int | None
    """Offsets of the topic that are not in the table."""
    problem: str = ""


def topics_of(definition: PipelineDefinition) -> TopicsSeen:
    """Return the topics of the pattern now."""
    look = TopicsLook(definition)
    try:
        return look.seen()
    finally:
        look.close()


def some_topics(definition: PipelineDefinition) -> list[str]:
    """Return a few topics of the pattern, for a check; raise an error if there is none."""
    topics = topics_of(definition).topics
    if not topics:
        raise UnusableError(
            "",
            "source.pattern",
            f"no topic matches {definition.source.pattern}.",
            "Create one, or correct the pattern. List topics with `penstock topic list`.",
        )
    return topics[:CHECKED_MAX]


def many_preflight(definition: PipelineDefinition) -> None:
    """Raise the problems that concern all tables, before Spark is started."""
    try:
        require_format(definition.table)
        for topic in topics_of(definition).topics:
            with suppress(TopicUnfitError):
                _require_catalog(table_of_topic(definition, topic).table)
                break
    except PenstockError as error:
        translated = as_written(error, "")
        if translated is error:
            raise
        raise translated from None


def _require_catalog(settings: TableSettings) -> None:
    try:
        open_table(settings, settings.name, is_read_only=True).close()
    except TableMissingError:
        require_makeable(settings)


def many_status(definition: PipelineDefinition, clock: Clock | None = None) -> list[TopicTable]:
    """Return the status of each topic's table, in the order of the topics."""
    seen = topics_of(definition)
    ends = {one.at: one.end_offset for one in seen.partitions}
    return [_topic_table(definition, topic, ends, clock) for topic in seen.topics]


def _topic_table(
    definition: PipelineDefinition,
    topic: str,
    ends: Mapping[TopicPartition, int],
    clock: Clock | None,
) -> TopicTable:
    try:
        own = table_of_topic(definition, topic)
    except TopicUnfitError as error:
        return TopicTable(topic, "", None, None, error.problem)
    name = own.table.name
    there = sum(end for at, end in ends.items() if at.topic == topic)
    try:
        status = table_status(own, clock=clock, ends=ends)
    except TableMissingError:
        return TopicTable(topic, name, None, there)
    except PenstockError as error:
        return TopicTable(topic, name, None, None, str(error))
    found = [one for one in status.pipelines if one.name == own.pipeline.name]
    return TopicTable(topic, name, status, found[0].lag if found else there)
