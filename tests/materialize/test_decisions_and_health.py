"""Decisions about topics, and health from facts: every row of both tables."""

import uuid

import pytest

from penstock.client.cluster_view import PartitionDescription, TopicDescription
from penstock.materialize.store_health import (
    CONTACT_SECONDS_MAX,
    GapFact,
    Health,
    ServiceFacts,
    TopicFacts,
    Trouble,
    document,
    overall,
)
from penstock.materialize.topic_decisions import (
    REBUILD,
    STOP,
    Action,
    Generation,
    StoredTopic,
    TopicState,
    decide,
)

FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)


def found(topic_id: uuid.UUID | None, partitions: int = 1) -> TopicDescription:
    parts = {number: PartitionDescription(0, 0) for number in range(partitions)}
    return TopicDescription("price", topic_id, is_internal=False, partitions=parts)


def generation(number: int, topic_id: uuid.UUID | None, partitions: int = 1) -> Generation:
    return Generation(number, topic_id, dict.fromkeys(range(partitions), 0), {})


LIVE = StoredTopic("price", generation(1, FIRST))
BUILDING = StoredTopic("price", generation(1, FIRST), generation(2, SECOND))


@pytest.mark.parametrize(
    ("stored", "described", "on_recreate", "wants_refresh", "action", "state"),
    [
        (None, None, STOP, False, Action.WAIT, TopicState.MISSING),
        (LIVE, None, REBUILD, True, Action.WAIT, TopicState.MISSING),
        (None, found(FIRST), STOP, False, Action.BEGIN, None),
        (LIVE, found(FIRST), STOP, False, Action.FOLLOW, None),
        (LIVE, found(FIRST), STOP, True, Action.BUILD, None),
        (LIVE, found(SECOND), STOP, False, Action.WAIT, TopicState.RECREATED),
        (LIVE, found(SECOND), STOP, True, Action.WAIT, TopicState.RECREATED),
        (LIVE, found(SECOND), REBUILD, False, Action.BUILD, None),
        (BUILDING, found(SECOND), STOP, False, Action.FOLLOW, None),
        (BUILDING, found(FIRST), STOP, False, Action.BUILD, None),
        (BUILDING, found(uuid.UUID(int=3)), STOP, False, Action.WAIT, TopicState.RECREATED),
        (BUILDING, found(uuid.UUID(int=3)), REBUILD, False, Action.BUILD, None),
        (LIVE, found(None), STOP, False, Action.FOLLOW, None),
        (
            StoredTopic("price", generation(1, None, 4)),
            found(None, 2),
            STOP,
            False,
            Action.WAIT,
            TopicState.RECREATED,
        ),
    ],
)
def test_decisions(
    stored: StoredTopic | None,
    described: TopicDescription | None,
    on_recreate: str,
    wants_refresh: bool,
    action: Action,
    state: TopicState | None,
) -> None:
    decision = decide(
        "price", stored, described, on_recreate=on_recreate, wants_refresh=wants_refresh
    )
    assert decision.action is action
    if state is not None:
        assert decision.state is state
        assert decision.reason
        assert decision.remedy


def test_a_build_is_ready_when_all_partitions_are() -> None:
    build = Generation(2, FIRST, {0: 5, 1: 3}, {0: 5, 1: 4})
    assert not build.is_ready
    build.positions[1] = 4
    assert build.is_ready


FOLLOWING = TopicFacts(TopicState.FOLLOWING, {0: 5}, {0: 7}, 1)
GAP = TopicFacts(TopicState.FOLLOWING, {0: 5}, {0: 5}, 1, [GapFact(0, 1, 3, 99)])
TROUBLE = Trouble("reason", "remedy")


@pytest.mark.parametrize(
    ("facts", "health"),
    [
        (ServiceFacts({"a": FOLLOWING}), Health.HEALTHY),
        (ServiceFacts({"a": FOLLOWING, "b": GAP}), Health.DEGRADED),
        (ServiceFacts({"a": TopicFacts(TopicState.LOADING)}), Health.DEGRADED),
        (ServiceFacts({"a": TopicFacts(TopicState.REFRESHING)}), Health.DEGRADED),
        *[
            (ServiceFacts({"a": FOLLOWING, "b": TopicFacts(TopicState[name])}), Health.UNHEALTHY)
            for name in ("MISSING", "RECREATED", "DIVERGED", "DENIED", "CORRUPT")
        ],
        (ServiceFacts({"a": FOLLOWING}, store=TROUBLE), Health.UNHEALTHY),
        (ServiceFacts({"a": FOLLOWING}, 1.0, 999.0, unreachable=TROUBLE), Health.DEGRADED),
        (
            ServiceFacts({"a": FOLLOWING}, CONTACT_SECONDS_MAX + 1, 999.0, unreachable=TROUBLE),
            Health.UNHEALTHY,
        ),
        (ServiceFacts({"a": FOLLOWING}, None, 999.0, unreachable=TROUBLE), Health.UNHEALTHY),
    ],
)
def test_health(facts: ServiceFacts, health: Health) -> None:
    assert overall(facts) is health


def test_the_document_names_reasons_and_gaps() -> None:
    shown = document(ServiceFacts({"a": GAP, "b": FOLLOWING}, 1.0, 2.0, TROUBLE, TROUBLE))
    assert shown["status"] == "UNHEALTHY"
    assert shown["broker"] == shown["store"] == {"reason": "reason", "remedy": "remedy"}
    assert shown["topics"]["a"]["gaps"] == [
        {"partition": 0, "from": 1, "until": 3, "declared_ms": 99}
    ]
    assert "--refresh" in shown["topics"]["a"]["remedy"]
    assert shown["topics"]["b"]["lag_records"] == 2
