"""The application without a broker: probes, status, problems, bounds."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest

from penstock.admin import app
from penstock.admin.app import BODY_BYTES_MAX
from penstock.admin.desk import Desk
from penstock.admin.health import Facts
from penstock.core.errors import AnswerLostError, BrokerAnswerError, BrokerUnreachableError
from tests.admin.fakes import HEALTHY, Answered, FakeCheck, FakeDoor, FakeView, ask, no_cluster

PROBLEM = "application/problem+json"


def assert_problem(found: Answered, status: int, words: str) -> None:
    assert found.status == status, found.text
    assert found.headers["content-type"] == PROBLEM
    assert found.document["status"] == status
    assert words in found.document["detail"]


def test_alive_whatever_else_is_the_case() -> None:
    view = FakeView(replace(HEALTHY, is_started=False, is_stopping=True))
    found = ask("GET", "/health/live", view=view)
    assert (found.status, found.document) == (200, {"alive": True})


def test_ready_and_not_ready() -> None:
    found = ask("GET", "/health/ready")
    assert found.status == 200
    assert found.document == {"ready": True, "health": "Healthy", "reasons": []}
    found = ask("GET", "/health/ready", view=FakeView(replace(HEALTHY, is_stopping=True)))
    assert found.status == 503
    assert [reason["code"] for reason in found.document["reasons"]] == ["stopping"]


def test_status() -> None:
    found = ask("GET", "/api/v1/status")
    assert found.document == {
        "health": "Healthy",
        "ready": True,
        "reasons": [],
        "node_id": 1,
        "cluster_id": "cluster",
        "version": "1.2.3",
        "address": "127.0.0.1:9092",
        "started_at_ms": 1_700_000_000_000,
        "uptime_seconds": 12.5,
        "limits": [
            {
                "name": "connections",
                "current": 3,
                "limit": 100,
                "unit": "connections",
                "refused": 0,
            }
        ],
        "workers": [],
    }


def test_metrics_page() -> None:
    view = FakeView()
    view.metrics.counter("things_total", "Things.").value = 7
    found = ask("GET", "/metrics", view=view)
    assert found.status == 200
    assert found.headers["content-type"].startswith("text/plain")
    assert "things_total 7.0" in found.text


def test_answers_are_not_kept_and_not_guessed_at() -> None:
    headers = ask("GET", "/health/live").headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["date"].endswith("GMT")
    assert not any(name.startswith("access-control") for name in headers)


def test_unknown_path_and_method() -> None:
    assert_problem(ask("GET", "/api/v1/nothing"), 404, "/api/v1/nothing")
    assert_problem(ask("GET", "/api/v1/topics/"), 404, "/api/v1/topics/")
    found = ask("PUT", "/api/v1/topics")
    assert_problem(found, 405, "PUT")
    assert set(found.headers["allow"].replace(" ", "").split(",")) == {"GET", "HEAD", "POST"}


def test_nothing_changes_by_get() -> None:
    for operation in app.OPERATIONS:
        looks = operation.name.startswith(("list", "describe"))
        assert looks == (operation.method == "GET"), operation.name


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/api/v1/topics?limit=0", "query: limit"),
        ("/api/v1/topics?limit=1001", "query: limit"),
        ("/api/v1/topics?limit=many", "query: limit"),
        ("/api/v1/topics?limit=01", "query: limit"),
        ("/api/v1/topics?internal=yes", "query: internal"),
        ("/api/v1/topics?limit=1&limit=2", "given twice"),
        ("/api/v1/topics?colour=red", "query: colour"),
        ("/api/v1/topics?after=%ff", "UTF-8"),
        ("/api/v1/topics/a%20b", "path: topic"),
        ("/api/v1/brokers/one/settings", "path: broker"),
        ("/api/v1/status?x=1", "query: x"),
    ],
)
def test_parameters_that_are_wrong(path: str, words: str) -> None:
    assert_problem(ask("GET", path), 400, words)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({}, "name"),
        ({"name": "a", "partitions": "3"}, "partitions"),
        ({"name": "a", "partitions": 0}, "partitions"),
        ({"name": "a b"}, "name"),
        ({"name": "a", "colour": 1}, "colour"),
        ({"name": "a", "settings": {"x": 1}}, "settings.x"),
        ([], "body"),
    ],
)
def test_bodies_that_are_wrong(document: object, words: str) -> None:
    assert_problem(ask("POST", "/api/v1/topics", document=document), 400, words)


def test_all_that_is_wrong_is_told_at_once() -> None:
    found = ask("POST", "/api/v1/topics", document={"name": "", "partitions": 0})
    assert [one["where"] for one in found.document["fields"]] == ["body: name", "body: partitions"]


def test_a_body_is_json_and_bounded() -> None:
    found = ask("POST", "/api/v1/topics", content=b"name=a")
    assert_problem(found, 415, "application/json")
    kind = {"content-type": "application/json"}
    assert_problem(ask("POST", "/api/v1/topics", content=b"{", headers=kind), 400, "body")
    large = b'{"name": "' + b"a" * BODY_BYTES_MAX + b'"}'
    assert_problem(ask("POST", "/api/v1/topics", content=large, headers=kind), 413, "larger")


def test_another_host_and_another_site() -> None:
    assert_problem(ask("GET", "/api/v1/topics", host="evil.example"), 421, "evil.example")
    found = ask("DELETE", "/api/v1/topics/a", headers={"origin": "http://evil.example"})
    assert_problem(found, 403, "another site")


@pytest.mark.parametrize(
    ("error", "status", "kafka_error"),
    [
        (BrokerUnreachableError("nobody"), 503, None),
        (AnswerLostError("nobody"), 504, None),
        (_ := BrokerAnswerError(36, "TOPIC_ALREADY_EXISTS", "nobody"), 409, _.name),
        (_ := BrokerAnswerError(40, "INVALID_CONFIG", "nobody"), 422, _.name),
        (_ := BrokerAnswerError(14, "COORDINATOR_LOAD_IN_PROGRESS", "nobody"), 503, _.name),
        (_ := BrokerAnswerError(89, "THROTTLING_QUOTA_EXCEEDED", "nobody"), 429, _.name),
        (_ := BrokerAnswerError(-1, "UNKNOWN_SERVER_ERROR", "nobody"), 500, _.name),
    ],
)
def test_errors_of_the_broker(error: Exception, status: int, kafka_error: str | None) -> None:
    def fail() -> None:
        raise error

    found = ask("GET", "/api/v1/topics", make_cluster=fail)  # type: ignore[arg-type]
    assert_problem(found, status, "nobody")
    assert found.document.get("kafka_error") == kafka_error
    assert ("retry-after" in found.headers) == (status in (429, 503))


def test_a_defect_says_nothing_of_the_inside() -> None:
    found = ask("GET", "/api/v1/topics")
    assert_problem(found, 500, "defect")
    assert "nobody is asked" not in found.text


def test_a_request_that_changes_nothing_and_takes_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(app, "REQUEST_SECONDS_MAX", 0.0)
    found = ask("GET", "/metrics")
    assert_problem(found, 503, "took longer")
    assert found.document["remedy"] == "Nothing was changed: repeat it."


def test_a_body_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow_body() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    monkeypatch.setattr(app, "REQUEST_SECONDS_MAX", 0.05)
    kind = {"content-type": "application/json"}
    found = ask("POST", "/api/v1/topics", content=slow_body(), headers=kind)
    assert_problem(found, 408, "did not come")
    assert found.document["remedy"].startswith("Nothing was done")


def test_a_timeout_of_the_application_is_a_defect_that_is_told() -> None:
    class Failing(FakeView):
        def facts(self) -> Facts:
            raise TimeoutError

    async def run() -> None:
        desk = Desk(FakeDoor(no_cluster))
        guarded = app.make_app(Failing(), desk, FakeCheck(), allowed_names=frozenset())
        transport = httpx.ASGITransport(guarded)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            with pytest.raises(TimeoutError):
                await client.get("/health/ready")
        desk.stop()

    asyncio.run(run())
    assert_problem(ask("GET", "/health/ready", view=Failing()), 500, "defect")
