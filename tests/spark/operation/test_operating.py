"""Everything beside a pipeline, together: pages, parts that fail, and no part that is not named."""

import json
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from penstock.core.types import TopicPartition
from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.definition.reader import read_definition
from penstock.spark.tables.operation.failures import Failure
from penstock.spark.tables.operation.operating import Operation
from penstock.spark.tables.operation.pipeline_restarts import Restart
from tests.spark.operation.run_events import AT, batch, maintained


def definition(**pipeline: object) -> PipelineDefinition:
    document = {
        "pipeline": {
            "name": "orders",
            "bootstrap_servers": "127.0.0.1:1",
            "checkpoint": "/c",
            **pipeline,
        },
        "source": {"topics": ["orders"]},
        "table": {"format": "delta", "name": "shop.orders", "catalog": {"warehouse": "/w"}},
    }
    return read_definition(document, "test")


def operation(found: PipelineDefinition, **more: object) -> Operation:
    return Operation(found, once=False, environment={}, **more)  # type: ignore[arg-type]


def test_without_a_key_there_is_no_thread_and_no_port() -> None:
    before = threading.active_count()
    with operation(definition()) as opened:
        opened.batch_done(batch())
        assert opened.server is None
        assert threading.active_count() == before


def test_the_pages_of_a_run() -> None:
    with operation(definition(), metrics=("127.0.0.1", 0)) as opened:
        assert opened.server is not None
        address = f"http://127.0.0.1:{opened.server.port}"
        opened.state.started(None, is_continuous=True)
        opened.places_seen({AT: (3, 5)})
        opened.batch_done(batch(3, 5))
        opened.maintenance_done(maintained("shop.orders"))
        with urllib.request.urlopen(f"{address}/metrics", timeout=30) as page:
            text = page.read().decode()
        assert 'penstock_pipeline_records_total{pipeline="orders"} 2.0' in text
        with urllib.request.urlopen(f"{address}/health/ready", timeout=30) as page:
            assert json.load(page) == {"ready": True, "phase": "running", "reasons": []}
        opened.failed(Failure("spark", "gone"))
        opened.waits(Restart(1_000, 1))
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{address}/health/ready", timeout=30)
        with refused.value as answer:
            assert answer.code == 503


def test_a_defect_of_a_part_is_logged_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    path = tmp_path / "lineage.jsonl"
    with operation(definition(lineage=f"file://{path}")) as opened:

        def broken(_: object) -> None:
            raise ZeroDivisionError

        opened.state.batch_done = broken  # type: ignore[method-assign, assignment]
        assert opened._runs is not None
        opened._runs.started(())
        opened.batch_done(batch())
    (record,) = caplog.records
    assert "which goes on" in record.getMessage()
    kinds = [json.loads(line)["eventType"] for line in path.read_text().splitlines()]
    assert kinds == ["START", "RUNNING", "COMPLETE"]


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("metrics_port", 70_000, "out of range"),
        ("metrics_host", "0.0.0.0", "metrics_port is not set"),
        ("lineage", "ftp://x/y", "not a file or an address"),
        ("lineage", "http://user:secret@host", "not a file or an address"),
        ("publish_group", "g\n", "cannot be the name of a group"),
        ("small_batches", "no", "Write true or false"),
    ],
)
def test_wrong_keys_are_refused(key: str, value: object, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        definition(**{key: value})


def test_lags_of_new_partitions_count_from_their_first_offset() -> None:
    with operation(definition()) as opened:
        opened.places_seen({TopicPartition("orders", 7): (0, 4)})
        assert opened.state.topic_lags()["orders"][0] == 4
