"""Reads the section `[state]` of a definition: the event time and the watermark (pure).

Guarantees: everything that does not work with a stateful function is rejected by the name of its
key, before anything runs. The type of the event time is checked later, with the columns.
"""

from typing import Final, NamedTuple

from penstock.spark.errors import OptionError
from penstock.spark.option_values import read_boolean
from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.many_tables import is_template
from penstock.spark.tables.definition.model import (
    FUTURE_MAX_MS,
    Action,
    LateRecords,
    PipelineDefinition,
    RunMode,
    SchemaSource,
    StateSettings,
    WriteMode,
)
from penstock.spark.tables.definition.values import Section

DELAY_MS_MAX: Final = 31 * 86_400_000
"""Spark keeps the state of this time. A month is already a table of its own."""
FUTURE_MS_MAX: Final = 366 * 86_400_000
"""Records of planned events may be this far ahead."""


class _Refusal(NamedTuple):
    """A key that excludes state."""

    key: str
    problem: str
    remedy: str


def read_state(top: Section) -> StateSettings | None:
    """Return the settings in the section `[state]`; None without this section."""
    if not top.has("state"):
        return None
    section = top.section("state")
    event_time = section.text("event_time", '"at"')
    if not section.has("delay"):
        section.fail("delay", "it is missing.", 'Write delay = "10 minutes".')
    found = StateSettings(
        event_time=event_time,
        delay_ms=section.duration_ms(
            "delay", 0, lowest=0, highest=DELAY_MS_MAX, example="10 minutes"
        ),
        late=section.choice("late", LateRecords, LateRecords.REJECT),
        future_max_ms=section.duration_ms(
            "future_max",
            FUTURE_MAX_MS,
            lowest=0,
            highest=FUTURE_MS_MAX,
            example="1 day",
        ),
    )
    section.require_nothing_left()
    return found


def require_stateful(definition: PipelineDefinition, where: str) -> None:
    """Raise `DefinitionError` for a key that does not work with a stateful function."""
    if definition.state is None:
        return
    refused = _refused(definition)
    if refused is not None:
        raise DefinitionError(where, *refused)


def require_function(definition: PipelineDefinition, *, has_transform: bool) -> None:
    """Raise `DefinitionError` if a stateful pipeline has no function."""
    if definition.state is not None and not has_transform:
        raise DefinitionError(
            "",
            "state",
            "the pipeline has no function, so nothing keeps state.",
            "Remove [state], or write the pipeline in Python: @pipeline(..., state={...}).",
        )


def _refused(definition: PipelineDefinition) -> _Refusal | None:
    table = definition.table
    if table.mode is WriteMode.UPSERT:
        return _Refusal(
            "table.mode",
            "a stateful function appends final rows, and upsert changes rows.",
            'Write mode = "append".',
        )
    if is_template(table.name + table.path):
        return _Refusal(
            "table.name",
            "a stateful function writes one table.",
            "Write the name without placeholders.",
        )
    if definition.pipeline.mode is RunMode.IN_TASK:
        return _Refusal(
            "pipeline.mode", "a stateful function needs Spark SQL.", 'Write mode = "dataframe".'
        )
    if definition.value.schema_source in {SchemaSource.REGISTRY, SchemaSource.INFERRED}:
        return _Refusal(
            "value.schema",
            "the columns of a stateful function are fixed while it runs, and "
            f"{'those of a registry' if definition.value.schema else 'inferred ones'} are not.",
            "Write the columns or the path of a schema file as value.schema.",
        )
    return _refused_rule(definition) or _refused_option(definition)


def _refused_rule(definition: PipelineDefinition) -> _Refusal | None:
    for number, rule in enumerate(definition.expectations):
        if rule.action is Action.QUARANTINE:
            return _Refusal(
                f"expectations[{number}].action",
                f"'{rule.name}' quarantines, and a row of a stateful function is the result of "
                "many records.",
                'Write action = "drop", "fail" or "warn".',
            )
    return None


def _refused_option(definition: PipelineDefinition) -> _Refusal | None:
    for name, text in definition.source.options:
        if name.lower() != "failondataloss":
            continue
        try:
            fails = read_boolean(name, text)
        except OptionError as error:
            return _Refusal(f"source.options.{name}", error.problem, "Remove it.")
        if not fails:
            return _Refusal(
                f"source.options.{name}",
                "results over records that are missing would be wrong without a sign.",
                "Remove it.",
            )
    return None
