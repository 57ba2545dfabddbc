"""OpenLineage events: their content, and a service that is slow, broken or away."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from penstock.core.errors import ConfigError
from penstock.spark.tables.definition.reader import read_definition
from penstock.spark.tables.operation.lineage import (
    QUEUE_MAX,
    Destination,
    LineageEmitter,
    destination_of,
    sender_to,
)
from penstock.spark.tables.operation.lineage_events import Document, LineageJob
from penstock.spark.tables.operation.lineage_run import RUNNING_MS, LineageRuns
from tests.node.security.manual_clock import ManualClock
from tests.oracle.cache import OracleError
from tests.oracle.lineage_client import judged
from tests.spark.operation.run_events import batch

DEFINITION = read_definition(
    {
        "pipeline": {"name": "orders", "bootstrap_servers": "broker:9092", "checkpoint": "/c"},
        "source": {"topics": ["orders"]},
        "table": {
            "format": "delta",
            "name": "shop.orders",
            "catalog": {"warehouse": "s3://lake/warehouse"},
        },
    },
    "test",
)


def runs_of(events: list[Document], clock: ManualClock) -> LineageRuns:
    return LineageRuns(LineageJob(DEFINITION, "team", True, "0.1"), events.append, clock)


def test_a_run_has_a_start_a_state_a_minute_and_one_end() -> None:
    events: list[Document] = []
    clock = ManualClock()
    runs = runs_of(events, clock)
    runs.started((("id", "int64"),))
    for number in range(10):
        runs.batch_done(batch(number * 10, number * 10 + 10))
        clock.advance(RUNNING_MS / 1000 / 5)
    runs.ended()
    runs.ended("too late")
    assert [one["eventType"] for one in events] == ["START", "RUNNING", "RUNNING", "COMPLETE"]
    assert len({one["run"]["runId"] for one in events}) == 1
    last = events[-1]
    assert last["job"] == {**last["job"], "namespace": "team", "name": "orders"}
    (topic,) = last["inputs"]
    assert (topic["namespace"], topic["name"]) == ("kafka://broker:9092", "orders")
    offsets = topic["facets"]["penstock_offsets"]
    assert offsets["partitions"] == [{"partition": 0, "startOffset": 0, "endOffset": 100}]
    rows, rejects = last["outputs"]
    assert (rows["namespace"], rows["name"]) == ("s3://lake/warehouse", "shop.orders")
    assert rows["facets"]["schema"]["fields"][0] == {"name": "id", "type": "int64"}
    statistics = rows["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["fileCount"], statistics["size"]) == (100, 10, 1_000)
    assert rejects["name"] == "shop.orders__dlq"


def test_a_failure_has_its_message_and_a_restart_is_another_run() -> None:
    events: list[Document] = []
    runs = runs_of(events, ManualClock())
    runs.ended("before the first start")
    for _ in range(2):
        runs.started(())
        runs.ended("no broker")
    assert [one["eventType"] for one in events] == ["START", "FAIL"] * 2
    assert events[1]["run"]["facets"]["errorMessage"]["message"] == "no broker"
    assert len({one["run"]["runId"] for one in events}) == 2


def test_destinations_of_definition_and_environment() -> None:
    assert destination_of(None, {}) is None
    assert destination_of("file:///x", {"OPENLINEAGE_DISABLED": "true"}) is None
    found = destination_of(None, {"OPENLINEAGE_URL": "http://m:5000", "OPENLINEAGE_API_KEY": "k"})
    assert found == Destination("http://m:5000/api/v1/lineage", "k", "default")
    environment = {"OPENLINEAGE_URL": "http://m:5000", "OPENLINEAGE_NAMESPACE": "team"}
    assert destination_of("file:///l", environment) == Destination("file:///l", "", "team")
    endpoint = {"OPENLINEAGE_URL": "https://m", "OPENLINEAGE_ENDPOINT": "lineage"}
    assert destination_of(None, endpoint) == Destination("https://m/lineage")
    below = {"OPENLINEAGE_URL": "https://m/base", "OPENLINEAGE_ENDPOINT": "lineage"}
    assert destination_of(None, below) == Destination("https://m/base/lineage")
    with pytest.raises(ConfigError, match="OPENLINEAGE_URL"):
        destination_of(None, {"OPENLINEAGE_URL": "ftp://m"})


class Collector(BaseHTTPRequestHandler):
    """A service that keeps its requests."""

    requests: list[tuple[str, str | None, Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.requests.append((self.path, self.headers["Authorization"], json.loads(body)))
        self.send_response(201)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write no lines."""


@contextmanager
def collector() -> Iterator[tuple[str, list[tuple[str, str | None, Any]]]]:
    requests: list[tuple[str, str | None, Any]] = []
    handler = type("Own", (Collector,), {"requests": requests})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", requests
        server.shutdown()
        thread.join()


def test_a_service_gets_the_events_in_order() -> None:
    with collector() as (url, requests):
        destination = destination_of(None, {"OPENLINEAGE_URL": url, "OPENLINEAGE_API_KEY": "key"})
        assert destination is not None
        emitter = LineageEmitter(sender_to(destination))
        for number in range(20):
            emitter.emit({"number": number})
        emitter.close()
    assert [body for _, _, body in requests] == [{"number": number} for number in range(20)]
    assert {(path, key) for path, key, _ in requests} == {("/api/v1/lineage", "Bearer key")}
    assert emitter.dropped == 0


def test_a_redirect_is_an_error_and_the_key_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as (target, requests):

        def redirects(self: Collector) -> None:
            self.send_response(302)
            self.send_header("Location", target)
            self.end_headers()

        with collector() as (address, _):
            monkeypatch.setattr(Collector, "do_POST", redirects)
            monkeypatch.setattr(Collector, "do_GET", redirects, raising=False)
            with pytest.raises(OSError, match="302"):
                sender_to(Destination(address, "key"))({"eventType": "START"})
        assert requests == []


def test_a_file_gets_a_line_each(tmp_path: Path) -> None:
    path = tmp_path / "with space.jsonl"
    emitter = LineageEmitter(sender_to(Destination(f"file://{tmp_path}/with%20space.jsonl")))
    emitter.emit({"a": 1})
    emitter.emit({"b": "ü"})
    emitter.close()
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"a": 1}, {"b": "ü"}]


def test_a_service_that_is_away_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    def away(_: Document) -> None:
        raise ConnectionRefusedError("refused")

    emitter = LineageEmitter(away)
    for number in range(5):
        emitter.emit({"number": number})
    emitter.close()
    assert emitter.dropped == 5
    (record,) = caplog.records
    assert "ConnectionRefusedError: refused. The pipeline goes on." in record.getMessage()


def test_a_service_that_hangs_delays_nothing_and_the_queue_is_bounded() -> None:
    release, entered = Event(), Event()

    def hanging(_: Document) -> None:
        entered.set()
        release.wait()

    emitter = LineageEmitter(hanging)
    emitter.emit({"number": -1})
    assert entered.wait(10)
    for number in range(QUEUE_MAX + 7):
        emitter.emit({"number": number})
    assert emitter.dropped == 7
    emitter.close(0.01)
    assert emitter.dropped == 7 + QUEUE_MAX
    release.set()


@pytest.mark.interop
def test_the_client_of_openlineage_builds_the_same_events(tmp_path: Path) -> None:
    events: list[Document] = []
    runs = runs_of(events, ManualClock())
    runs.started(())
    runs.batch_done(batch(rejects=2))
    runs.ended()
    runs.started((("id", "int64"),))
    runs.ended("no broker")
    path = tmp_path / "events.jsonl"
    path.write_text("".join(f"{json.dumps(one)}\n" for one in events))
    assert judged(path) == len(events) == 5
    events[1]["outputs"][0]["outputFacets"]["outputStatistics"]["rowCounts"] = 1
    path.write_text(json.dumps(events[1]))
    with pytest.raises(OracleError, match="rowCounts"):
        judged(path)
