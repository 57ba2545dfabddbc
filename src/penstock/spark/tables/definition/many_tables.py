r"""One definition for many tables: a topic pattern and a table's name with placeholders (pure).

    [source]
    pattern = '^shop\.(?P<area>[a-z]+)\.(?P<entity>.+)$'

    [table]
    name = "{area}.{entity}"

`{topic}` is the topic's name, any other placeholder a named group of the pattern. Signs that a
table's name cannot have (`.` and `-`) become `_`.

Guarantees: a topic has one pipeline of its own, `<pipeline>.<topic>`, so offsets and failures of
two topics are apart, and the names depend on the topic alone. Topics with the same table's name
share that table. A topic whose names are invalid is a `TopicUnfitError`, which concerns that topic
only.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Final

from penstock.spark.option_values import shown
from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.model import PipelineDefinition

TOPIC: Final = "topic"
PIPELINE_CHARACTERS_MAX: Final = 200
"""The limit of a pipeline's name; a longer one ends with a digest of the topic."""
TABLE_CHARACTERS_MAX: Final = 250
"""Catalogs store 255 characters; the name of the table of bad records is longer."""
_DIGEST_CHARACTERS: Final = 12
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_]")
_TABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+")


class TopicUnfitError(DefinitionError):
    """A topic that matches the pattern cannot have a table by this definition."""


def has_many_tables(definition: PipelineDefinition) -> bool:
    """Return whether each topic of the pattern has a table of its own."""
    return is_template(definition.table.name)


def is_template(name: str) -> bool:
    """Return whether a table's name has placeholders."""
    return "{" in name or "}" in name


def problem_of_template(name: str, pattern: str | None) -> tuple[str, str] | None:
    """Return the problem of a template and its remedy; None for a good one."""
    example = "Write pattern = '^shop\\.(?P<entity>.+)$' and name = \"shop.{entity}\"."
    if pattern is None:
        return "only a pattern of topics can have placeholders.", example
    try:
        groups = set(re.compile(pattern).groupindex)
    except re.error:
        return None  # the source reports it
    for one in _PLACEHOLDER.findall(name):
        if one != TOPIC and one not in groups:
            known = ", ".join(f"{{{text}}}" for text in [TOPIC, *sorted(groups)])
            return f"{{{one}}} is not a named group of the pattern (known: {known}).", example
    filled = _PLACEHOLDER.sub("x", name)
    if not _TABLE.fullmatch(filled):
        return f"{shown(name)} cannot be the name of a table.", example
    return None


def table_of_topic(definition: PipelineDefinition, topic: str) -> PipelineDefinition:
    """Return the definition of one topic's pipeline; raise `TopicUnfitError`."""
    assert definition.source.pattern is not None, "the definition was checked"
    found = re.search(definition.source.pattern, topic)
    if found is None:
        raise TopicUnfitError(
            f"topic {topic}",
            "source.pattern",
            f"the topic does not match {definition.source.pattern}.",
            "Name a topic that matches.",
        )
    values = {TOPIC: topic, **found.groupdict()}
    name = _filled(definition.table.name, values)
    if not _TABLE.fullmatch(name) or len(name) > TABLE_CHARACTERS_MAX:
        raise TopicUnfitError(
            f"topic {topic}",
            "table.name",
            f"the topic's table would be {shown(name)}, which cannot be a name.",
            "Change the pattern or the name so that each part begins with a letter, and the name "
            f"has at most {TABLE_CHARACTERS_MAX} characters.",
        )
    path = _filled(definition.table.path, values) if definition.table.path else ""
    return replace(
        definition,
        pipeline=replace(definition.pipeline, name=_pipeline(definition.pipeline.name, topic)),
        source=replace(definition.source, topics=(topic,), pattern=None),
        table=replace(definition.table, name=name, path=path),
    )


def _filled(template: str, values: Mapping[str, str | None]) -> str:
    return _PLACEHOLDER.sub(lambda one: _NOT_IN_NAMES.sub("_", values[one[1]] or ""), template)


def _pipeline(name: str, topic: str) -> str:
    whole = f"{name}.{topic}"
    if len(whole) <= PIPELINE_CHARACTERS_MAX:
        return whole
    digest = sha256(topic.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{whole[: PIPELINE_CHARACTERS_MAX - _DIGEST_CHARACTERS - 1]}-{digest}"
