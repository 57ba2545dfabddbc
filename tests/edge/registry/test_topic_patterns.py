"""Patterns of topics: what is one, how labels enter them, and what they match."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.edge.registry.topic_patterns import expanded, matches, pattern_problem


@pytest.mark.parametrize("pattern", ["prices", "promo.*", "sales.{id}", "{region}-*", "a_b.c-d"])
def test_patterns(pattern: str) -> None:
    assert pattern_problem(pattern) is None


@pytest.mark.parametrize(
    "pattern", ["", "a b", "a/b", "{", "{}", "{a b}", "[a-z]", "a?", "é", "a\n", "*****", "x" * 250]
)
def test_texts_that_are_not_patterns(pattern: str) -> None:
    assert pattern_problem(pattern)


def test_labels_and_the_id_enter_a_pattern() -> None:
    found = expanded(("sales.{id}", "promo.{region}", "{shop}"), "s1", {"region": "north"})
    assert found == ("sales.s1", "promo.north")


@pytest.mark.parametrize("value", ["*", "a b", "", "a/b", "x" * 250])
def test_a_label_cannot_widen_a_pattern(value: str) -> None:
    assert expanded(("promo.{region}",), "s1", {"region": value}) == ()


def test_the_id_is_not_a_label() -> None:
    assert expanded(("{id}",), "s1", {"id": "other"}) == ("s1",)


@given(
    st.from_regex(r"[a-z.*]{1,12}", fullmatch=True), st.from_regex(r"[a-z.]{0,12}", fullmatch=True)
)
def test_matching_is_that_of_the_plain_definition(pattern: str, topic: str) -> None:
    assert matches(pattern, topic) == _matches(pattern, topic)


def _matches(pattern: str, topic: str) -> bool:
    if not pattern:
        return not topic
    if pattern[0] == "*":
        return any(_matches(pattern[1:], topic[skip:]) for skip in range(len(topic) + 1))
    return topic[:1] == pattern[0] and _matches(pattern[1:], topic[1:])
