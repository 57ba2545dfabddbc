"""The identity of HTTP callers: which paths need one, and what a refusal says."""

from dataclasses import replace

import pytest

from penstock.admin.ports import Caller, Credentials
from penstock.core.errors import BrokerUnreachableError
from tests.admin.fakes import HEALTHY, FakeCheck, FakeView, ask

GOOD = "Basic YWxpY2U6c2VjcmV0"


@pytest.mark.parametrize(
    "path", ["/metrics", "/api/v1/status", "/api/v1/topics", "/api/v1/nothing"]
)
def test_a_caller_without_a_proof_learns_how_to_give_one(path: str) -> None:
    found = ask("GET", path, check=FakeCheck(authorization=GOOD))
    assert found.status == 401
    assert found.headers["www-authenticate"].startswith("Basic realm=")
    assert found.document["title"] == "Authentication required"
    assert "Authorization" in found.document["remedy"]


def test_without_a_header_that_could_help_none_is_named() -> None:
    found = ask("GET", "/metrics", check=FakeCheck(authorization=GOOD, challenge=None))
    assert found.status == 401
    assert "www-authenticate" not in found.headers
    assert "certificate" in found.document["remedy"]


@pytest.mark.parametrize("path", ["/health/live", "/health/ready"])
def test_probes_need_no_identity(path: str) -> None:
    assert ask("GET", path, check=FakeCheck(authorization=GOOD)).status == 200


SICK = FakeView(replace(HEALTHY, is_stopping=True))


@pytest.mark.parametrize(
    ("given", "describes", "is_shown"),
    [(None, True, False), ("Basic wrong", True, False), (GOOD, False, False), (GOOD, True, True)],
)
def test_reasons_are_for_callers_that_may_see_the_state(
    given: str | None, describes: bool, is_shown: bool
) -> None:
    headers = {} if given is None else {"authorization": given}
    check = FakeCheck(authorization=GOOD, describes=describes)
    found = ask("GET", "/health/ready", headers=headers, check=check, view=SICK)
    assert found.status == 503
    assert found.document["ready"] is False
    if is_shown:
        assert [one["code"] for one in found.document["reasons"]] == ["stopping"]
    else:
        assert found.document == {"ready": False, "health": None, "reasons": None}


def test_a_probe_needs_no_broker_that_verifies_identities() -> None:
    """It is asked while the broker starts, and while too many passwords are checked."""
    found = ask("GET", "/health/ready", check=StartingCheck())
    assert (found.status, found.document["reasons"]) == (200, None)
    assert ask("GET", "/metrics", check=StartingCheck()).status == 503


class StartingCheck(FakeCheck):
    async def identify(self, given: Credentials) -> Caller | None:
        raise BrokerUnreachableError("it is starting")


def test_a_caller_with_the_right_proof_is_served() -> None:
    given = {"authorization": GOOD}
    check = FakeCheck(authorization=GOOD)
    assert ask("GET", "/api/v1/status", headers=given, check=check).status == 200


@pytest.mark.parametrize(("path", "api"), [("/metrics", "METRICS"), ("/api/v1/status", "STATUS")])
def test_a_caller_that_may_not_describe_the_cluster_sees_no_state(path: str, api: str) -> None:
    check = FakeCheck(describes=False)
    found = ask("GET", path, check=check)
    assert found.status == 403
    assert "User:caller" in found.document["detail"]
    assert check.asked == [api]


def test_a_denial_for_a_probe_is_normal_and_has_no_name() -> None:
    check = FakeCheck(describes=False)
    assert ask("GET", "/health/ready", check=check).status == 200
    assert check.asked == [""]


def test_credentials_are_not_shown() -> None:
    assert "secret" not in repr(Credentials("127.0.0.1", "Basic secret", b"secret"))
