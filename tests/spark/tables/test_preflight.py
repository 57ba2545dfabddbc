"""Known problems are reported before Spark is started, and soon: with a broker, no Spark."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

import pytest

from penstock.core.errors import BrokerUnreachableError, PenstockError
from penstock.spark import pipeline_runs
from penstock.spark.pipeline_files import LoadedPipeline
from penstock.spark.pipeline_runs import RunChoice, SessionChoice, run_pipeline
from penstock.spark.tables.definition.model import (
    Expectation,
    PartitionField,
    PipelineDefinition,
    RunMode,
    SchemaSource,
    SourceSettings,
    Transform,
    WriteMode,
)
from penstock.spark.tables.formats.opening import FormatMissingError, open_table
from penstock.spark.tables.formats.port import TableRefusedError
from penstock.spark.tables.inspection.check import check_pipeline
from penstock.spark.tables.inspection.preflight import preflight
from penstock.spark.tables.rules.planner import Plan
from penstock.spark.tables.run.events import NoObserver
from penstock.testing import Broker
from tests.spark.tables.foreign_delta import (
    PLAIN,
    append_entry,
    create_foreign,
    metadata_action,
    protocol_of,
)
from tests.spark.tables.inspection_world import VALUES, World, fill_tables, fill_topic, new_world

pytestmark = pytest.mark.slow

SECONDS_MAX = 20
"""A person waits so long; a machine that does much else besides is slow."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        address = f"{broker.host}:{broker.port}"
        fill_topic(address, VALUES)
        yield address


@pytest.fixture(params=["iceberg", "delta"])
def world(request: pytest.FixtureRequest, bootstrap: str, tmp_path: Path) -> World:
    return new_world(tmp_path, bootstrap, request.param)


def refusal(definition: PipelineDefinition, *, has_transform: bool = False) -> str:
    with pytest.raises(PenstockError) as caught:
        preflight(definition, has_transform=has_transform)
    return str(caught.value)


def with_table(world: World, **changes: Any) -> PipelineDefinition:  # noqa: ANN401
    return replace(world.definition, table=replace(world.definition.table, **changes))


def test_a_good_pipeline_passes_and_leaves_nothing(world: World, tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    preflight(world.definition, has_transform=False)
    preflight(world.definition, has_transform=True)
    assert set(tmp_path.iterdir()) == before
    fill_tables(world)
    preflight(world.definition, has_transform=False)


def test_a_broker_that_is_down_is_told_soon(world: World) -> None:
    settings = replace(world.definition.pipeline, bootstrap_servers="127.0.0.1:1")
    begun = monotonic()
    with pytest.raises(BrokerUnreachableError):
        preflight(replace(world.definition, pipeline=settings), has_transform=False)
    assert monotonic() - begun < SECONDS_MAX


def test_a_topic_that_is_not_there(world: World) -> None:
    text = refusal(replace(world.definition, source=SourceSettings(("odrers",))))
    assert text.startswith("key 'source.topics': there is no topic 'odrers'. Did you mean 'orders'")


def test_a_schema_that_cannot_be_read(world: World) -> None:
    file = replace(
        world.definition.value, schema_source=SchemaSource.FILE, schema="/nowhere/x.json"
    )
    assert "/nowhere/x.json" in refusal(replace(world.definition, value=file))
    inferred = replace(world.definition.value, schema_source=SchemaSource.INFERRED, schema=None)
    definition = replace(world.definition, value=inferred)
    preflight(definition, has_transform=False)
    assert "key 'value.schema'" in refusal(definition, has_transform=True)


def test_columns_and_rules(world: World) -> None:
    assert "key 'table.key'" in refusal(with_table(world, mode=WriteMode.UPSERT, key=("idd",)))
    nowhere = (PartitionField(Transform.IDENTITY, "nope"),)
    assert "key 'table.partition_by'" in refusal(with_table(world, partition_by=nowhere))
    rule = (Expectation("bad", "amunt > 0"),)
    assert "key 'expectations[0].sql'" in refusal(replace(world.definition, expectations=rule))
    # A function may make the column.
    preflight(replace(world.definition, expectations=rule), has_transform=True)


def test_a_table_with_other_columns(world: World) -> None:
    fill_tables(world)
    value = replace(world.definition.value, schema="id string, amount double")
    text = refusal(replace(world.definition, value=value, expectations=()))
    assert text.startswith("table 'shop.orders': ")
    assert text.endswith("Correct value.schema, or name another table.")


def test_a_format_that_is_not_installed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name=name)

    monkeypatch.setattr("penstock.spark.tables.formats.opening.import_module", missing)
    with pytest.raises(FormatMissingError, match="pip install"):
        preflight(world.definition, has_transform=False)


def test_spark_is_not_started_for_a_pipeline_that_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_runs, "open_session", lambda *_, **__: pytest.fail("started"))
    definition = replace(world.definition, source=SourceSettings(("odrers",)))
    with pytest.raises(PenstockError, match="odrers"):
        run_pipeline(
            LoadedPipeline(definition),
            SessionChoice(),
            RunChoice(once=True),
            listener=Unheard(),
            stop=Event(),
        )


class Unheard(NoObserver):
    """A listener of a run that ignores everything."""

    def starting(self) -> None: ...

    def started(self, mode: Plan) -> None: ...

    def restarts(self, line: str) -> None: ...

    def broker_seen(self, lags: Mapping[str, int]) -> None: ...

    def broker_away(self, problem: str) -> None: ...


def test_a_delta_table_that_cannot_be_written_is_refused_by_name(
    bootstrap: str, tmp_path: Path
) -> None:
    """By `check` and at the start of a run alike, and nothing is written; `status` reads it."""
    world = new_world(tmp_path, bootstrap, "delta")
    folder = tmp_path / "w" / "shop" / "orders"
    create_foreign(folder, protocol_of("rowTracking", "domainMetadata"), fields=PLAIN)
    for has_transform in (False, True):
        text = refusal(world.definition, has_transform=has_transform)
        assert "cannot be written (domainMetadata, rowTracking)" in text
    report = check_pipeline(world.definition, has_transform=False)
    (told,) = [one.text for one in report.checks if one.name == "table"]
    assert "cannot be written (domainMetadata, rowTracking)" in told
    assert [one.name for one in (folder / "_delta_log").iterdir()] == [f"{0:020d}.json"]
    with pytest.raises(TableRefusedError):
        open_table(world.definition.table, "shop.orders")
    open_table(world.definition.table, "shop.orders", is_read_only=True).close()


def test_a_check_asks_the_constraints_of_the_table(bootstrap: str, tmp_path: Path) -> None:
    world = new_world(tmp_path, bootstrap, "delta")
    folder = tmp_path / "w" / "shop" / "orders"
    properties = {"delta.constraints.small": "amount < 3"}
    create_foreign(folder, protocol_of(writer=3), fields=PLAIN, properties=properties)
    report = check_pipeline(world.definition, has_transform=False)
    assert report.sample is not None
    broken = [(one.offset, one.message) for one in report.sample.rejects if "CHECK" in one.message]
    assert broken == [(4, "CHECK small: amount < 3")]
    assert report.plan is not None
    assert report.plan.mode is RunMode.IN_TASK
    properties = {"delta.constraints.half": "amount / 2 < 3"}
    append_entry(folder, 1, metadata_action(PLAIN, properties))
    plan = check_pipeline(world.definition, has_transform=False).plan
    assert plan is not None
    assert plan.mode is RunMode.DATAFRAME
    assert "the table's constraint 'CHECK half'" in plan.reasons[0]
