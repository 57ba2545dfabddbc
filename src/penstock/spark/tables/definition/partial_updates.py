"""Checks `table.partial_updates` against the rest of a definition (pure).

A change then carries some columns of its row and keeps the others, see `files.partial_rows`.

Guarantees: a combination that cannot be right, or that is not built, is rejected by the name of its
key before anything runs. A function and the constraints of a table are not in the definition: they
are rejected by `require_whole_in_task`, when the mode of the pipeline is chosen.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.model import (
    Expectation,
    PipelineDefinition,
    RunMode,
    SchemaSource,
    UnknownFields,
    ValueFormat,
    WriteMode,
)

KEY: Final = "table.partial_updates"
_SOURCES: Final = frozenset({SchemaSource.DDL, SchemaSource.FILE})
_STRICT: Final = frozenset({UnknownFields.RESCUE, UnknownFields.REJECT})


class _Refusal(NamedTuple):
    """A key that excludes partial updates."""

    key: str
    problem: str
    remedy: str


def with_partial_updates(definition: PipelineDefinition, where: str) -> PipelineDefinition:
    """Return the definition, with its values as partial changes if the table takes them.

    Raise `DefinitionError` if it cannot.
    """
    if not definition.table.partial_updates:
        return definition
    refused = _refused(definition)
    if refused is not None:
        raise DefinitionError(where, *refused)
    changes = replace(definition.value.changes, is_partial=True)
    return replace(definition, value=replace(definition.value, changes=changes))


def require_whole_in_task(
    definition: PipelineDefinition,
    *,
    has_transform: bool,
    constraints: Sequence[Expectation],
) -> None:
    """Raise `DefinitionError` if a function or a constraint would see a part of a row."""
    if not definition.table.partial_updates:
        return
    where = f"pipeline {definition.pipeline.name}"
    if has_transform:
        raise DefinitionError(
            where,
            KEY,
            "a function gets whole rows, and a partial change is none.",
            "Remove the function, or the key.",
        )
    if constraints:
        raise DefinitionError(
            where,
            KEY,
            f"the table has the constraint '{constraints[0].name}', which a partial change cannot "
            "be checked against.",
            "Remove the constraint from the table, or the key from the definition.",
        )


def _refused(definition: PipelineDefinition) -> _Refusal | None:
    table, value = definition.table, definition.value
    if table.mode is not WriteMode.UPSERT:
        return _Refusal(KEY, "append adds rows.", 'Remove it, or write mode = "upsert".')
    if table.history:
        return _Refusal(
            KEY, "the versions of a history are whole rows.", "Remove it, or history = true."
        )
    if value.format is not ValueFormat.JSON or value.schema_source not in _SOURCES:
        return _Refusal(
            KEY,
            "only in JSON values an absent field differs from one that is null, and their columns "
            "must be known without a registry.",
            'Write format = "json" and schema = "id bigint, name string" in [value].',
        )
    if value.unknown_fields in _STRICT:
        return _Refusal(
            "value.unknown_fields",
            "it cannot be set together with table.partial_updates.",
            "Remove it.",
        )
    if definition.expectations:
        return _Refusal(
            "expectations",
            "a rule is about a whole row, and with table.partial_updates a record is a part of "
            "one.",
            "Remove the rules, or table.partial_updates.",
        )
    if definition.pipeline.mode is RunMode.DATAFRAME:
        return _Refusal(
            "pipeline.mode",
            "rows do not pass through Spark SQL with table.partial_updates.",
            'Write mode = "auto".',
        )
    return None
