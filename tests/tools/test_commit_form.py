"""The form of commit messages: which subjects pass, and which do not."""

import pytest

from tools.check_commits import Commit, check


def problems(subject: str, body: str = "Because.", *, changes_source: bool = True) -> list[str]:
    return list(check(Commit("0123456789", subject, body, changes_source)))


@pytest.mark.parametrize(
    "subject",
    [
        "broker: keep the connection of a client that waits",
        "cluster, node: process one change at a time",
        "spark/tables: show one address for an unreachable broker",
    ],
)
def test_good_subjects(subject: str) -> None:
    assert problems(subject) == []


@pytest.mark.parametrize(
    "subject",
    [
        "Broker: keep the connection",
        "keep the connection",
        "broker: keeps the connection",
        "broker: kept-alive connections closed.",
        "broker: closing the connection",
        "docs: what upserts bring are changes",
        f"broker: keep {'x' * 72}",
    ],
)
def test_bad_subjects(subject: str) -> None:
    assert len(problems(subject)) == 1


def test_a_change_of_the_source_needs_a_reason() -> None:
    (problem,) = problems("broker: keep the connection", "\n")
    assert "no body says why" in problem
    assert problems("docs: keep the page", "", changes_source=False) == []
