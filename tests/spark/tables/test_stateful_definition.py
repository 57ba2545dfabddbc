"""The section `state`: its keys, and everything that does not work with a stateful function."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.core.types import TopicPartition
from penstock.spark.pipelines import expect_or_quarantine, pipeline
from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.model import LateRecords, PipelineDefinition, StateSettings
from penstock.spark.tables.definition.reader import read_definition
from penstock.spark.tables.definition.state_section import require_function
from penstock.spark.tables.inspection.check import check_pipeline
from penstock.spark.tables.operation.skipping import skip_offsets, to_offset
from penstock.spark.tables.operation.skips import SkipRefusedError
from penstock.spark.tables.rules.required_columns import require_event_time
from penstock.spark.tables.run import backfill, replay

STATE = {"event_time": "at", "delay": "10 minutes"}
DOCUMENT: dict[str, Any] = {
    "pipeline": {
        "name": "totals",
        "bootstrap_servers": "127.0.0.1:9",
        "checkpoint": "/nowhere/checkpoint",
    },
    "source": {"topics": ["sales"]},
    "table": {
        "format": "delta",
        "name": "shop.totals",
        "catalog": {"warehouse": "/nowhere/warehouse"},
    },
    "value": {"format": "json", "schema": "at timestamp, amount bigint"},
    "state": STATE,
}


def read(**sections: Any) -> PipelineDefinition:  # noqa: ANN401 - sections of a definition
    document = dict(DOCUMENT)
    for name, section in sections.items():
        is_part = isinstance(section, dict) and name not in {"value", "state"}
        is_part = is_part and "pattern" not in section
        document[name] = {**document[name], **section} if is_part else section
    return read_definition(document, "test")


def test_the_section_is_read() -> None:
    assert read().state == StateSettings("at", 600_000, LateRecords.REJECT)
    found = read(state={**STATE, "delay": "0 s", "late": "drop", "future_max": "1 hour"}).state
    assert found == StateSettings("at", 0, LateRecords.DROP, 3_600_000)
    assert StateSettings("at", 0).future_max_ms == 86_400_000
    plain = {name: section for name, section in DOCUMENT.items() if name != "state"}
    assert read_definition(plain, "test").state is None


@pytest.mark.parametrize(
    ("sections", "named"),
    [
        ({"state": {"delay": "1 s"}}, "state.event_time.*it is missing"),
        ({"state": {"event_time": "at"}}, 'state.delay.*it is missing. Write delay = "10 minutes"'),
        ({"state": {**STATE, "delay": "32 days"}}, r"state.delay.*32 days"),
        ({"state": {**STATE, "future_max": "367 days"}}, r"state.future_max.*367 days.*Set 0 ms"),
        ({"state": {**STATE, "future_max": "never"}}, r"state.future_max.*'never' is no time"),
        ({"state": {**STATE, "late": "ignore"}}, "state.late.*Set one of reject, drop"),
        ({"state": {**STATE, "function": "m:f"}}, "state.function.*there is no such key"),
        ({"table": {"mode": "upsert", "key": ["at"]}}, 'table.mode.*Write mode = "append"'),
        ({"pipeline": {"mode": "in_task"}}, 'pipeline.mode.*Write mode = "dataframe"'),
        ({"value": {"format": "json"}}, "value.schema.*inferred ones.*Write the columns"),
        (
            {"value": {"format": "json", "schema": "http://registry:8081"}},
            "value.schema.*those of a registry are not",
        ),
        (
            {"expectations": [{"name": "big", "sql": "amount > 1", "action": "quarantine"}]},
            r"expectations\[0\].action.*'big' quarantines.*Write action = \"drop\"",
        ),
        (
            {"source": {"options": {"failOnDataLoss": "false"}}},
            "source.options.failOnDataLoss.*Remove it",
        ),
        (
            {"source": {"options": {"FAILONDATALOSS": " False "}}},
            "source.options.FAILONDATALOSS.*wrong without a sign",
        ),
        (
            {"source": {"options": {"failOnDataLoss": "no"}}},
            "source.options.failOnDataLoss.*neither true nor false.*Remove it",
        ),
        (
            {
                "source": {"pattern": "shop.*"},
                "table": {"name": "shop.{topic}"},
            },
            "table.name.*one table",
        ),
    ],
)
def test_a_key_that_excludes_state_is_named(sections: dict[str, Any], named: str) -> None:
    with pytest.raises(DefinitionError, match=named):
        read(**sections)


def test_a_file_without_a_function_keeps_no_state() -> None:
    with pytest.raises(DefinitionError, match=r"state.*the pipeline has no function.*@pipeline"):
        require_function(read(), has_transform=False)
    require_function(read(), has_transform=True)
    report = check_pipeline(read(), has_transform=False)
    assert "the pipeline has no function" in {one.name: one.text for one in report.checks}["schema"]
    assert not report.is_good


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (pa.timestamp("us"), "is timestamp"),
        (pa.int64(), "is int64, and not a timestamp"),
        (None, "there is no column 'at': other"),
    ],
)
def test_the_event_time_is_a_point_in_time(kind: pa.DataType | None, problem: str) -> None:
    state = StateSettings("at", 0)
    name = "other" if kind is None else "at"
    columns = pa.schema([pa.field(name, kind or pa.int64())])
    with pytest.raises(DefinitionError, match=f"state.event_time.*{problem}.*_kafka_timestamp"):
        require_event_time(state, columns)
    require_event_time(state, pa.schema([pa.field("at", pa.timestamp("us", tz="UTC"))]))


def test_the_column_of_reports_is_reserved() -> None:
    columns = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("_Penstock_report", pa.int64())])
    with pytest.raises(DefinitionError, match=r"value.schema.*'_Penstock_report'.*Rename it"):
        require_event_time(StateSettings("at", 0), columns)
    schema = "at timestamp, _penstock_report binary"
    report = check_pipeline(read(value={"format": "json", "schema": schema}), has_transform=True)
    assert "'_penstock_report'" in {one.name: one.text for one in report.checks}["schema"]
    assert not report.is_good


def test_check_names_a_wrong_event_time() -> None:
    wrong = read(state={**STATE, "event_time": "amount"})
    report = check_pipeline(wrong, has_transform=True)
    assert (
        "is int64, and not a timestamp" in {one.name: one.text for one in report.checks}["schema"]
    )


def test_commands_that_pass_by_the_state_are_refused() -> None:
    with pytest.raises(backfill.BackfillRefusedError, match=r"section `state`.*new table"):
        backfill.require_possible(read(), "earliest", "latest")
    with pytest.raises(replay.ReplayRefusedError, match=r"section `state`.*to the topic instead"):
        replay.require_possible(read())
    at = TopicPartition("sales", 0)
    with pytest.raises(SkipRefusedError, match=r"section `state`.*with the state"):
        skip_offsets(read(), to_offset(at, 5), confirm=lambda _plan: None)


def test_a_decorated_function_may_have_state(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "name": "totals",
        "bootstrap_servers": "127.0.0.1:9",
        "checkpoint": str(tmp_path),
        **{name: DOCUMENT[name] for name in ("source", "table", "value", "state")},
    }
    made = pipeline(**given)(lambda rows: rows)
    assert made.definition.state == StateSettings("at", 600_000)
    with pytest.raises(DefinitionError, match=r"expectations\[0\].action"):
        pipeline(**given)(expect_or_quarantine("big", "amount > 1")(lambda rows: rows))
