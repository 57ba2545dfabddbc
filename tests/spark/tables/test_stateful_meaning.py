"""The fingerprint of a batch's meaning: which changes of definition and function it sees."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from penstock.spark.tables.definition.model import (
    LateRecords,
    PipelineDefinition,
    SourceSettings,
    StateSettings,
)
from penstock.spark.tables.run.stateful.meaning import meaning_of
from penstock.spark.tables.values.value_parsers import plan_parser
from tests.spark.tables.value_world import ValueWorld

SOURCE: Final = """
def totals(rows):
    def inner(row):
        return row in {'a', 'b', 'c'} and row != 'x'
    return rows.where('amount > 1').groupBy('shop').agg(inner)
"""


def compiled(text: str = SOURCE, name: str = "totals") -> Callable[..., Any]:
    found: dict[str, Any] = {}
    exec(compile(text, "file.py", "exec"), found)
    function: Callable[..., Any] = found[name]
    return function


def definition_in(folder: Path) -> PipelineDefinition:
    plain = ValueWorld(folder, "delta", "at timestamp, n int").definition()
    return replace(plain, state=StateSettings("at", 60_000))


@pytest.fixture
def definition(tmp_path: Path) -> PipelineDefinition:
    return definition_in(tmp_path)


def meaning(definition: PipelineDefinition, function: Callable[..., Any]) -> str:
    parser = plan_parser(definition.value, definition.source.topics)
    return meaning_of(definition, parser, function)


def test_the_same_has_the_same_fingerprint(definition: PipelineDefinition) -> None:
    first = meaning(definition, compiled())
    assert len(first) == 16
    assert meaning(definition, compiled("\n\n# moved\n" + SOURCE)) == first
    value = replace(definition.value, reject_share_max=0.9, reject_window_records=1)
    assert meaning(replace(definition, value=value), compiled()) == first


@pytest.mark.parametrize(
    ("old", "new"),
    [("amount > 1", "amount > 2"), ("'c'", "'d'"), ("!= 'x'", "!= 'y'"), ("groupBy", "rollup")],
)
def test_a_changed_function_has_another(definition: PipelineDefinition, old: str, new: str) -> None:
    changed = compiled(SOURCE.replace(old, new))
    assert meaning(definition, changed) != meaning(definition, compiled())


def test_values_given_to_a_function_count(definition: PipelineDefinition) -> None:
    def within(minutes: int) -> Callable[..., Any]:
        return lambda rows: rows.groupBy(minutes)

    def by_default(rows: Any, minutes: int) -> Any:  # noqa: ANN401
        return rows.groupBy(minutes)

    class Called:
        def __call__(self, rows: Any) -> Any:  # noqa: ANN401
            return rows

    for make in (within, lambda minutes: partial(by_default, minutes=minutes)):
        assert meaning(definition, make(1)) == meaning(definition, make(1))
        assert meaning(definition, make(1)) != meaning(definition, make(2))
    assert meaning(definition, Called()) == meaning(definition, Called())


def test_a_function_in_its_own_closure_has_one(definition: PipelineDefinition) -> None:
    def again(rows: Any) -> Any:  # noqa: ANN401
        return again(rows)

    assert meaning(definition, again) == meaning(definition, again)


def test_a_changed_definition_has_another(definition: PipelineDefinition) -> None:
    source: SourceSettings = replace(definition.source, topics=("other",))
    changed = [
        definition,
        replace(definition, source=source),
        replace(definition, state=StateSettings("at", 60_001)),
        replace(definition, state=StateSettings("at", 60_000, LateRecords.DROP)),
        replace(definition, value=replace(definition.value, schema="at timestamp, n bigint")),
    ]
    found = [meaning(one, compiled()) for one in changed]
    assert len(set(found)) == len(changed)
