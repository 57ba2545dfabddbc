"""Which answers a node follows, and how its polls are spread."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.edge.registry.documents import REVISION_MAX, TopologyDocument, entity_tag
from penstock.edge.registry.node_roles import Role
from penstock.edge.registry.topology_follower import (
    OLDER_ANSWERS_MAX,
    RefusedAnswer,
    TopologyFollower,
    pause_seconds,
    topology_of,
)

GOOD: dict[str, object] = {
    "registry": "ab" * 16,
    "id": "store",
    "role": "POS",
    "parent": {"id": "root", "addresses": {"kafka": "root.example.com:9092"}},
    "down": ["prices"],
    "up": ["sales.*"],
    "revision": 10,
    "instance": 1,
}


def answer(**changes: object) -> bytes:
    return json.dumps(GOOD | changes).encode()


@pytest.fixture
def follower() -> TopologyFollower:
    found = TopologyFollower("store")
    document = found.judge(answer())
    assert isinstance(document, TopologyDocument)
    assert found.follow(document)
    return found


def test_the_value_for_pipes(follower: TopologyFollower) -> None:
    assert follower.last is not None
    found = topology_of(follower.last)
    assert (found.role, found.parent_address) == (Role.POS, "root.example.com:9092")
    assert (found.down, found.up) == (("prices",), ("sales.*",))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a topology"),
        (b"<html>", "not a topology"),
        (b"[]", "not a topology"),
        (b"null", "not a topology"),
        (b"[" * 100_000, "not a topology"),
        (b"\xff\xfe", "not a topology"),
        (answer(id="other"), "for node other, and this is store"),
        (answer(role="KING"), "role"),
        (answer(role="ROOT"), "gives the ROOT a parent"),
        (answer(revision=9), "has revision 9, and revision 10 is known"),
        (answer(revision="11"), "revision"),
        (answer(revision=10**30), "revision"),
        (answer(revision=2**43 + 1), "revision"),
        (answer(revision=0), "revision"),
        (answer(instance=-1), "instance"),
        (answer(parent={"id": "store", "addresses": {"kafka": "h:1"}}), "its own parent"),
        (answer(parent={"id": "root", "addresses": {}}), "no address for kafka"),
        (answer(parent={"id": "root", "addresses": {"kafka": "no port"}}), "addresses"),
        (answer(parent={"id": "root", "addresses": {"kafka": "h:99999"}}), "not host:port"),
        (answer(parent={"id": "../root", "addresses": {"kafka": "h:1"}}), "parent.id"),
        (answer(down=["a b"]), "down"),
        (answer(down=["x"] * 257), "down"),
        (answer(registry="x"), "registry"),
    ],
)
def test_nonsense_is_refused_and_the_last_answer_stays(
    follower: TopologyFollower, data: bytes, words: str
) -> None:
    before = follower.last
    found = follower.judge(data)
    assert isinstance(found, RefusedAnswer)
    assert words in found.reason
    assert len(found.reason) <= 300
    assert follower.last is before


def test_fields_of_a_newer_registry_are_ignored(follower: TopologyFollower) -> None:
    assert isinstance(follower.judge(answer(new_field=1)), TopologyDocument)


def test_an_answer_without_a_parent_keeps_the_parent(follower: TopologyFollower) -> None:
    found = follower.judge(answer(parent=None, revision=11))
    assert isinstance(found, TopologyDocument)
    assert found.parent is not None
    assert (found.parent.id, found.revision) == ("root", 11)
    promoted = follower.judge(answer(parent=None, role="ROOT", revision=11))
    assert isinstance(promoted, TopologyDocument)
    assert promoted.parent is None


def test_a_new_registry_starts_its_own_revisions(follower: TopologyFollower) -> None:
    assert isinstance(follower.judge(answer(registry="cd" * 16, revision=1)), TopologyDocument)


def test_a_revision_that_no_registry_gave_does_not_cut_the_node_off(
    follower: TopologyFollower,
) -> None:
    far_ahead = follower.judge(answer(revision=REVISION_MAX))
    assert isinstance(far_ahead, TopologyDocument)
    follower.follow(far_ahead)
    for _ in range(OLDER_ANSWERS_MAX):
        assert isinstance(follower.judge(answer(revision=11)), RefusedAnswer)
    found = follower.judge(answer(revision=11))
    assert isinstance(found, TopologyDocument)
    follower.follow(found)
    assert isinstance(follower.judge(answer(revision=10)), RefusedAnswer), "the row begins anew"


def test_older_answers_that_fall_or_are_interrupted_are_not_followed(
    follower: TopologyFollower,
) -> None:
    for _ in range(OLDER_ANSWERS_MAX):
        follower.judge(answer(revision=9))
    assert isinstance(follower.judge(answer(revision=8)), RefusedAnswer), "a copy of a copy"
    for _ in range(OLDER_ANSWERS_MAX - 1):
        follower.judge(answer(revision=8))
    follower.confirm()
    assert isinstance(follower.judge(answer(revision=8)), RefusedAnswer), "the registry answered"


def test_answers_of_one_revision_with_different_content_have_different_tags() -> None:
    first, other, later = (
        TopologyDocument.model_validate_json(answer(**changes))
        for changes in ({}, {"down": ["promo"]}, {"revision": 11})
    )
    assert len({entity_tag(one) for one in (first, other, later)}) == 3
    assert entity_tag(first.model_copy(update={"reason": "x", "instance": 9})) == entity_tag(first)


def test_a_file_of_another_node_is_not_used() -> None:
    document = TopologyDocument.model_validate_json(answer())
    assert TopologyFollower("other", document).last is None


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_or_valid(data: bytes) -> None:
    found = TopologyFollower("store").judge(data)
    assert isinstance(found, RefusedAnswer | TopologyDocument)


@given(st.floats(0, 1), st.floats(0.1, 3_600))
def test_polls_are_spread_by_twenty_percent(fraction: float, interval: float) -> None:
    assert 0.8 * interval <= pause_seconds(interval, fraction) <= 1.2 * interval + 1e-9


def test_a_registry_can_ask_for_a_longer_pause_up_to_an_hour() -> None:
    assert pause_seconds(30, 0.5, 90) == 90
    assert pause_seconds(30, 0.5, 1) == 30
    assert pause_seconds(30, 0.5, 1e9) == 3_600


def test_the_first_poll_of_a_known_node_is_anywhere_in_the_interval(
    follower: TopologyFollower,
) -> None:
    assert follower.first_pause_seconds(30, 0.9) == 27
    assert TopologyFollower("store").first_pause_seconds(30, 0.9) == 0.9
