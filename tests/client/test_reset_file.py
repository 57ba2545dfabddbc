"""The file of a reset plan: our own files and those of Kafka's tool are read."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.groups.reset_file import read_plan, write_plan
from penstock.core.errors import InvalidRequestError
from penstock.core.types import TopicPartition

NAMES = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=60)
OFFSETS = st.dictionaries(
    st.builds(TopicPartition, NAMES, st.integers(0, 10_000)),
    st.integers(0, 2**63 - 1),
    min_size=1,
)

KAFKA = """orders,0,30
orders,1,0
"a.topic.whose.name.is.long.enough.to.quote",0,12

"""
KAFKA_OF_TWO_GROUPS = """audit,orders,0,30
"the group, ours",orders,0,25
"the group, ours","a.topic.whose.name.is.long.enough.to.quote",0,12
"""
LONG = TopicPartition("a.topic.whose.name.is.long.enough.to.quote", 0)


@given(OFFSETS)
def test_what_is_written_is_read(offsets: dict[TopicPartition, int]) -> None:
    assert read_plan(write_plan(offsets), "any") == offsets


@given(st.text(max_size=200))
def test_any_text_is_a_plan_or_refused(text: str) -> None:
    try:
        offsets = read_plan(text, "any")
    except InvalidRequestError:
        return
    assert all(at.partition >= 0 and offset >= 0 for at, offset in offsets.items())


def test_kafkas_own_export() -> None:
    offsets = {TopicPartition("orders", 0): 30, TopicPartition("orders", 1): 0, LONG: 12}
    assert read_plan(KAFKA, "any") == offsets
    assert write_plan(offsets) == KAFKA.rstrip("\n") + "\n"


def test_of_several_groups_only_ours_is_taken() -> None:
    found = read_plan(KAFKA_OF_TWO_GROUPS, "the group, ours")
    assert found == {TopicPartition("orders", 0): 25, LONG: 12}
    assert read_plan(KAFKA_OF_TWO_GROUPS, "audit") == {TopicPartition("orders", 0): 30}
    with pytest.raises(InvalidRequestError, match="no offsets for group billing"):
        read_plan(KAFKA_OF_TWO_GROUPS, "billing")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no offsets"),
        ("orders,0\n", "line 1 .* 2 fields"),
        ("orders,0,1\norders,x,1\n", "line 2 .* whole numbers"),
        ("orders,0,-1\n", "whole numbers"),
        (",0,1\n", "whole numbers"),
        ("orders,0,1\norders,0,2\n", "line 2 .* twice"),
        ('"orders,0,1\n', "not CSV"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(text: str, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        read_plan(text, "any")
