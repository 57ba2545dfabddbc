"""Requests that a page could make a browser send are rejected."""

import pytest

from penstock.admin.browser_safety import allowed_names, objection

TOPICS = "/api/v1/topics"


def status(method: str, path: str, names: str | None = None, **headers: str) -> int | None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    refusal = objection(method, path, named, allowed_names(names, "127.0.0.1"))
    return None if refusal is None else refusal.problem.status


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:8080", "localhost:8080", "[::1]:8080", "10.1.2.3", "a.localhost"],
)
def test_addresses_and_localhost_are_known(host: str) -> None:
    assert status("GET", TOPICS, host=host) is None


@pytest.mark.parametrize("host", ["", "evil.example", "evil.example:8080", "[::1", "127.0.0.1.nip"])
def test_another_name_is_refused(host: str) -> None:
    assert status("GET", TOPICS, host=host) == 421


def test_no_host_is_refused() -> None:
    assert status("GET", TOPICS) == 421


def test_a_name_that_was_allowed() -> None:
    assert status("GET", TOPICS, "broker.internal, other", host="broker.internal:8080") is None
    assert status("GET", TOPICS, "*", host="whatever") is None


@pytest.mark.parametrize("path", ["/health/live", "/health/ready", "/metrics"])
def test_probes_and_scrapes_come_by_any_name(path: str) -> None:
    assert status("GET", path, host="penstock-0.penstock.svc") is None


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE", "PUT"])
def test_a_change_from_another_site_is_refused(method: str) -> None:
    host = "localhost:8080"
    assert status(method, TOPICS, host=host, sec_fetch_site="cross-site") == 403
    assert status(method, TOPICS, host=host, sec_fetch_site="same-site") == 403
    assert status(method, TOPICS, host=host, origin="http://evil.example") == 403
    assert status(method, TOPICS, host=host, origin="null") == 403
    assert status(method, TOPICS, host=host, origin="http://localhost:3000") == 403


def test_programs_and_pages_of_this_host_may_change() -> None:
    host = "localhost:8080"
    assert status("POST", TOPICS, host=host) is None
    assert status("POST", TOPICS, host=host, origin="http://localhost:8080") is None
    assert status("POST", TOPICS, host=host, sec_fetch_site="same-origin") is None
    assert status("GET", TOPICS, host=host, sec_fetch_site="cross-site") is None
