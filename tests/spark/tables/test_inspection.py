"""Inspection of a pipeline: with a broker and tables of both formats, without Spark."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.tables.definition.model import (
    Action,
    Expectation,
    PartitionField,
    PipelineDefinition,
    SchemaSource,
    SourceSettings,
    StartingOffsets,
    Transform,
    WriteMode,
)
from penstock.spark.tables.formats.opening import TableMissingError, make_table
from penstock.spark.tables.inspection.bad_records import (
    BadRecordFilter,
    BadRecordMissingError,
    list_bad_records,
    show_bad_record,
)
from penstock.spark.tables.inspection.check import CheckReport, Outcome, check_pipeline
from penstock.spark.tables.inspection.status import table_status
from penstock.spark.tables.run.committer import TableCommitter
from penstock.testing import Broker
from tests.spark.tables.inspection_world import VALUES, World, fill_tables, fill_topic, new_world

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        address = f"{broker.host}:{broker.port}"
        fill_topic(address, VALUES)
        yield address


@pytest.fixture(params=["iceberg", "delta"])
def world(request: pytest.FixtureRequest, bootstrap: str, tmp_path: Path) -> World:
    return new_world(tmp_path, bootstrap, request.param)


def outcomes(report: CheckReport) -> dict[str, Outcome]:
    return {one.name: one.outcome for one in report.checks}


def text_of(report: CheckReport, name: str) -> str:
    return next(one.text for one in report.checks if one.name == name)


def checked(definition: PipelineDefinition, *, has_transform: bool = False) -> CheckReport:
    return check_pipeline(definition, has_transform=has_transform)


def test_a_good_pipeline(world: World) -> None:
    report = checked(world.definition)
    assert report.is_good
    assert set(outcomes(report).values()) == {Outcome.GOOD, Outcome.WARNING}
    assert report.plan is not None
    assert report.plan.mode.value == "in_task"
    sample = report.sample
    assert sample is not None
    assert sample.record_count == len(VALUES)
    assert [row[:2] for row in sample.rows] == [(1, 2.5), (5, 4.0)]
    assert [(one.offset, one.error_class) for one in sample.rejects] == [
        (1, "expectation"),
        (2, "type_mismatch"),
        (3, "malformed"),
    ]
    assert sample.broken == {"positive_amount": 1}
    assert "shop.orders__dlq" in text_of(report, "values")  # three of five: a person should know
    assert outcomes(report)["values"] is Outcome.WARNING
    assert "the first run makes it" in text_of(report, "table")


def test_a_check_makes_no_table_and_no_warehouse(world: World, tmp_path: Path) -> None:
    checked(world.definition)
    assert not (tmp_path / "w").exists()
    assert not (tmp_path / "checkpoint").exists()


def test_a_table_that_is_there(world: World) -> None:
    fill_tables(world)
    assert "the columns fit" in text_of(checked(world.definition), "table")
    other = replace(world.definition.value, schema="id string, amount double")
    report = checked(replace(world.definition, value=other))
    assert outcomes(report)["table"] is Outcome.FAILED
    assert not report.is_good


def test_an_inferred_schema(world: World) -> None:
    value = replace(world.definition.value, schema=None, schema_source=SchemaSource.INFERRED)
    report = checked(replace(world.definition, value=value))
    assert "inferred from the sample: id, amount" in text_of(report, "schema")


def test_all_problems_are_told_at_once(world: World, tmp_path: Path) -> None:
    definition = replace(
        world.definition,
        source=SourceSettings(("nowhere",)),
        value=replace(
            world.definition.value, schema_source=SchemaSource.FILE, schema="/nowhere/x.json"
        ),
    )
    (tmp_path / "w").write_text("a file where a folder should be")
    found = outcomes(checked(definition))
    assert found["broker"] is Outcome.GOOD
    assert found["topics"] is Outcome.FAILED
    assert found["schema"] is Outcome.FAILED
    assert found["values"] is Outcome.SKIPPED
    assert found["warehouse"] is Outcome.FAILED


def test_no_broker(world: World) -> None:
    settings = replace(world.definition.pipeline, bootstrap_servers="127.0.0.1:1")
    found = outcomes(checked(replace(world.definition, pipeline=settings)))
    assert found["broker"] is Outcome.FAILED
    assert found["topics"] is Outcome.SKIPPED
    assert found["permissions"] is Outcome.SKIPPED
    assert found["schema"] is Outcome.GOOD


def test_rules_that_need_spark_are_not_asked(world: World) -> None:
    rule = Expectation("recent", "to_date(_kafka.timestamp) > date'2026-01-01'")
    report = checked(replace(world.definition, expectations=(rule,)))
    assert outcomes(report)["expectations"] is Outcome.SKIPPED
    assert report.plan is not None
    assert report.plan.mode.value == "dataframe"
    assert (
        outcomes(checked(world.definition, has_transform=True))["expectations"] is Outcome.SKIPPED
    )


@pytest.mark.parametrize("sql", ["note IS NULL", "amount > 0 AND note = 'x'"])
def test_a_rule_about_no_column_is_told_with_the_columns(world: World, sql: str) -> None:
    report = checked(replace(world.definition, expectations=(Expectation("late", sql),)))
    assert outcomes(report)["expectations"] is Outcome.FAILED
    told = text_of(report, "expectations")
    assert "key 'expectations[0].sql'" in told
    assert "there is no column 'note'" in told
    assert "id, amount, _kafka" in told


def test_a_rule_may_be_about_a_column_that_only_the_table_has(world: World) -> None:
    fill_tables(world)
    value = replace(world.definition.value, schema="id bigint")
    report = checked(replace(world.definition, value=value))
    assert outcomes(report)["expectations"] is Outcome.SKIPPED


@pytest.mark.parametrize(
    "sql", ["timestampdiff(HOUR, _kafka.timestamp, current_date) > 0", "user = 'a'"]
)
def test_not_all_that_looks_like_a_column_is_one(world: World, sql: str) -> None:
    report = checked(replace(world.definition, expectations=(Expectation("r", sql),)))
    assert outcomes(report)["expectations"] is Outcome.SKIPPED


@pytest.mark.parametrize("sql", ["amount >", "amunt > 0", "amount + 1"])
def test_rules_that_nobody_can_evaluate_fail(world: World, sql: str) -> None:
    report = checked(replace(world.definition, expectations=(Expectation("bad", sql),)))
    assert outcomes(report)["expectations"] is Outcome.FAILED
    assert outcomes(report)["mode"] is Outcome.SKIPPED
    assert "key 'expectations[0].sql'" in text_of(report, "expectations")
    assert not report.is_good


def test_a_rule_that_would_stop_the_pipeline_is_a_warning(world: World) -> None:
    rule = replace(world.definition.expectations[0], action=Action.FAIL)
    report = checked(replace(world.definition, expectations=(rule,)))
    assert outcomes(report)["expectations"] is Outcome.WARNING
    assert "the pipeline stops" in text_of(report, "expectations")


def test_rules_are_not_called_kept_when_there_was_no_record(world: World) -> None:
    source = SourceSettings(pattern="^nothing-.*$")
    report = checked(replace(world.definition, source=source))
    assert outcomes(report)["expectations"] is Outcome.SKIPPED
    assert "broken by" not in text_of(report, "expectations")


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"mode": WriteMode.UPSERT, "key": ("idd",)}, "table.key"),
        ({"mode": WriteMode.UPSERT, "key": ("amount",)}, "table.key"),
        ({"partition_by": (PartitionField(Transform.IDENTITY, "nope"),)}, "table.partition_by"),
        ({"partition_by": (PartitionField(Transform.DAY, "amount"),)}, "table.partition_by"),
    ],
)
def test_columns_that_the_table_has_not(world: World, change: dict[str, Any], key: str) -> None:
    report = checked(replace(world.definition, table=replace(world.definition.table, **change)))
    assert outcomes(report)["table"] is Outcome.FAILED
    assert f"key '{key}'" in text_of(report, "table")


def test_a_checkpoint_that_cannot_be_written(world: World, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = replace(world.definition.pipeline, checkpoint=f"{tmp_path}/file/checkpoint")
    report = checked(replace(world.definition, pipeline=settings))
    assert outcomes(report)["checkpoint"] is Outcome.FAILED
    assert "key 'pipeline.checkpoint'" in text_of(report, "checkpoint")


def test_a_check_makes_no_catalog(world: World, tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    checked(world.definition)
    with pytest.raises(TableMissingError):
        table_status(world.definition)
    assert set(tmp_path.iterdir()) == before


def test_offsets_of_another_pipeline(world: World) -> None:
    fill_tables(world)
    settings = replace(world.definition.pipeline, name="second")
    report = checked(replace(world.definition, pipeline=settings))
    assert outcomes(report)["table"] is Outcome.FAILED
    assert "pipeline 'orders' has committed to this table" in text_of(report, "table")
    source = replace(world.definition.source, starting_offsets=StartingOffsets.LATEST)
    later = replace(world.definition, pipeline=settings, source=source)
    assert "shared with orders" in text_of(checked(later), "table")


def test_what_belongs_to_the_pipeline_does_not_share_its_table(world: World) -> None:
    fill_tables(world)
    table = make_table(world.definition.table, world.definition.table.name, pa.schema([]))
    for name in ("orders.replay", "orders.backfill-0123456789ab"):
        TableCommitter(table, name, "run").take()
    assert "shared" not in text_of(checked(world.definition), "table")


def test_records_of_an_upsert_without_their_key(world: World) -> None:
    table = replace(world.definition.table, mode=WriteMode.UPSERT, key=("id",))
    value = replace(world.definition.value, schema="id bigint, amount double")
    definition = replace(world.definition, table=table, value=value, expectations=())
    sample = checked(definition).sample
    assert sample is not None
    assert (3, "malformed") in [(one.offset, one.error_class) for one in sample.rejects]
    keyed = replace(table, key=("other",))
    other = replace(value, schema="id bigint, amount double, other string")
    sample = checked(replace(definition, table=keyed, value=other)).sample
    assert sample is not None
    assert sample.rows == ()
    assert {one.error_class for one in sample.rejects} >= {"missing_value"}


def test_rows_before_a_function_say_so(world: World) -> None:
    report = checked(world.definition, has_transform=True)
    assert report.sample is not None
    assert report.sample.is_before_function
    assert "can be given to the function" in text_of(report, "values") or "would go" in text_of(
        report, "values"
    )


def test_a_pattern_without_topics_is_a_warning(world: World) -> None:
    source = SourceSettings(pattern="^nothing-.*$")
    report = checked(replace(world.definition, source=source))
    assert outcomes(report)["topics"] is Outcome.WARNING
    assert report.is_good


def test_status(world: World) -> None:
    fill_tables(world, end=4)
    found = table_status(world.definition)
    (pipeline,) = found.pipelines
    assert (pipeline.name, pipeline.epoch, pipeline.rows, pipeline.rejects) == ("orders", 1, 1, 2)
    assert pipeline.sequence == 2  # taking the table is the first
    assert pipeline.last_commit_ms is not None
    assert abs(found.now_ms - pipeline.last_commit_ms) < 60_000
    (partition,) = pipeline.partitions
    assert (partition.held_offset, partition.end_offset, partition.lag) == (4, 5, 1)
    assert pipeline.lag == 1
    assert (found.facts.row_count, found.facts.file_count) == (1, 1)
    assert found.newest_record_ms == 1_700_000_000_000
    assert found.freshness_ms is not None
    assert found.bad_record_count == 2
    assert found.problem == ""


def test_status_without_a_broker(world: World) -> None:
    fill_tables(world)
    settings = replace(world.definition.pipeline, bootstrap_servers="127.0.0.1:1")
    found = table_status(replace(world.definition, pipeline=settings))
    assert found.pipelines[0].lag is None
    assert found.problem


def test_status_without_a_table(world: World) -> None:
    with pytest.raises(TableMissingError, match="penstock table run"):
        table_status(world.definition)


def test_bad_records(world: World) -> None:
    fill_tables(world)
    found = list_bad_records(world.definition, BadRecordFilter(), limit=1)
    assert [one.offset for one in found.records] == [2]
    assert (found.count, found.is_count_whole) == (2, True)
    only = list_bad_records(world.definition, BadRecordFilter(error_class="malformed"), limit=9)
    assert [one.offset for one in only.records] == [3]
    nobody = BadRecordFilter(topic="orders", partition=1)
    assert list_bad_records(world.definition, nobody, limit=9).records == ()
    (whole,) = show_bad_record(world.definition, "orders", 0, 3)
    assert (whole.key, whole.value, whole.headers) == (b"key", b"no JSON", (("h", b"1"),))
    with pytest.raises(BadRecordMissingError, match="dlq list"):
        show_bad_record(world.definition, "orders", 0, 0)
