"""Names of users: only the form that SASLprep returns is accepted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.security.user_names import name_problem


@pytest.mark.parametrize(
    "name",
    ["alice", "ops=team+1@example.org", "a b", "grün", "日本", "שלום", "u" * 255, "ü" * 127, "I"],
)
def test_names_that_are_accepted(name: str) -> None:
    assert name_problem(name) == ""


@pytest.mark.parametrize(
    "name",
    [
        "a\nb",
        "a\x00b",
        "a\x7f",
        "gru\u0308n",
        "\u2168",
        "\u00aa",
        "I\u00adX",
        "a\u00a0b",
        "a\u200bb",
        "\u0627\u0031",
        "\u0627a\u0627",
        "\ue000",
        "\ud800",
        "\ufdd0",
        "\u0221",
        "\u2ff0",
        "\u200e",
        "\ufff9",
    ],
    ids=ascii,
)
def test_names_that_are_not_canonical(name: str) -> None:
    """Control characters, other forms, spaces, mixed directions, private and unassigned ones."""
    assert "SASLprep" in name_problem(name)


def test_the_length_is_counted_in_bytes() -> None:
    assert name_problem("") == "Username must not be empty"
    for name in ("u" * 256, "ü" * 128):
        assert name_problem(name) == "Username must not be longer than 255 bytes"


@given(st.text(st.characters(), max_size=20))
def test_each_text_has_an_answer(name: str) -> None:
    problem = name_problem(name)
    assert isinstance(problem, str)
    if not problem:
        assert name.isprintable()
