"""The reduced texts keep what permissions decide, and the comparison finds each difference."""

import json
from uuid import UUID

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import create_topics, list_groups, metadata
from penstock.security.acls.values import (
    CLUSTER_NAME,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tests.access_matrix import recorded
from tests.access_matrix.grants import (
    ANY_NAME,
    FULL,
    HOST,
    LITERAL,
    NONE,
    ONLY,
    PREFIXED,
    RIGHT,
    WITHOUT,
    WRONG,
    WRONG_HOST,
    Block,
    Cell,
    all_cells,
)
from tests.access_matrix.names import GROUP, OTHER_TOPIC, TOPIC, TOPICS, World
from tests.access_matrix.outcomes import CLOSED, EMPTY, outcome
from tests.access_matrix.recorded import Recorded

TOPIC_ID = UUID(int=7)
WORLD = World({TOPIC: TOPIC_ID})


def topic(name: str | None, **fields: object) -> metadata.MetadataResponseTopic:
    values: dict[str, object] = {
        "error_code": ErrorCode.NONE,
        "name": name,
        "topic_id": None,
        "is_internal": False,
        "partitions": (),
    }
    return metadata.MetadataResponseTopic(**(values | fields))  # type: ignore[arg-type]


def described(*topics: metadata.MetadataResponseTopic) -> str:
    answer = metadata.MetadataResponse(brokers=(), controller_id=1, topics=topics)
    return outcome(answer, WORLD)


def test_entries_are_sorted_and_foreign_names_are_left_out() -> None:
    in_order = described(topic(OTHER_TOPIC), topic(TOPIC))
    assert in_order == described(topic("not-of-the-matrix"), topic(TOPIC), topic(OTHER_TOPIC))
    assert in_order == f"topics[NONE {TOPIC}; NONE {OTHER_TOPIC}] NONE"


def test_ids_are_shown_by_name() -> None:
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    shown = described(topic(None, topic_id=TOPIC_ID, error_code=denied))
    assert shown == f"topics[TOPIC_AUTHORIZATION_FAILED id({TOPIC})] NONE"
    assert "id(?)" in described(topic(None, topic_id=UUID(int=8)))


def test_operations_are_shown_only_if_the_client_asked() -> None:
    bits = 1 << Operation.READ | 1 << Operation.DESCRIBE
    assert "operations(READ DESCRIBE)" in described(topic(TOPIC, topic_authorized_operations=bits))
    assert "operations()" in described(topic(TOPIC, topic_authorized_operations=0))
    assert "operations" not in described(topic(TOPIC))


def test_settings_of_a_new_topic_are_shown_as_present_or_denied() -> None:
    setting = create_topics.CreatableTopicConfigs(
        name="retention.ms", value="1", read_only=False, config_source=5, is_sensitive=False
    )
    created = create_topics.CreatableTopicResult(
        name=TOPIC, error_code=ErrorCode.NONE, error_message=None, configs=(setting,)
    )
    denied = create_topics.CreatableTopicResult(
        name=TOPIC,
        error_code=ErrorCode.NONE,
        error_message=None,
        configs=None,
        topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )
    texts = [
        outcome(create_topics.CreateTopicsResponse(topics=(one,)), WORLD)
        for one in (created, denied)
    ]
    assert texts == [
        f"topics[{TOPIC} NONE some configs]",
        f"topics[{TOPIC} NONE configs:TOPIC_AUTHORIZATION_FAILED]",
    ]


def test_a_closed_connection_and_an_empty_answer_differ() -> None:
    empty = create_topics.CreateTopicsResponse(topics=())
    assert (outcome(None, WORLD), outcome(empty, WORLD)) == (CLOSED, EMPTY)
    listed = list_groups.ListedGroup(group_id=GROUP, protocol_type="consumer")
    answer = list_groups.ListGroupsResponse(error_code=ErrorCode.NONE, groups=(listed,))
    assert outcome(answer, WORLD) == f"NONE groups[{GROUP}]"


# --- Cells ---


def rules(kind: str, pattern: str, host: str) -> set[tuple[str, PatternType, str, str]]:
    """The rules about topics of a cell for DESCRIBE: name, pattern, host, operation."""
    column = () if kind == FULL else (ResourceType.TOPIC, Operation.DESCRIBE)
    return {
        (rule.name, rule.pattern_type, rule.host, f"{rule.permission.name} {rule.operation.name}")
        for rule in Cell(Block(kind, pattern, host), *column).rules()
        if rule.resource_type == ResourceType.TOPIC
    }


def test_rules_of_cells() -> None:
    literal, prefixed = PatternType.LITERAL, PatternType.PREFIXED
    assert Cell(Block(NONE)).rules() == []
    assert rules(ONLY, LITERAL, RIGHT) == {
        (name, literal, HOST, "ALLOW DESCRIBE") for name in TOPICS
    }
    assert rules(ONLY, PREFIXED, WRONG) == {(TOPIC, prefixed, WRONG_HOST, "ALLOW DESCRIBE")}
    assert rules(FULL, ANY_NAME, RIGHT) == {("*", literal, HOST, "ALLOW ALL")}
    assert rules(WITHOUT, PREFIXED, WRONG) == {
        (TOPIC, prefixed, HOST, "ALLOW ALL"),
        (TOPIC, prefixed, WRONG_HOST, "DENY DESCRIBE"),
    }


def test_every_user_has_only_its_own_rules() -> None:
    cells = all_cells()
    assert len({cell.user for cell in cells}) == len(cells)
    for cell in cells:
        assert {rule.principal for rule in cell.rules()} <= {f"User:{cell.user}"}
        for rule in cell.rules():
            if rule.resource_type == ResourceType.CLUSTER:
                assert rule.name == CLUSTER_NAME
            if rule.permission == Permission.DENY:
                assert cell.block.kind == WITHOUT


# --- Recording ---


@pytest.fixture
def outcomes() -> dict[Cell, dict[str, str]]:
    return {cell: {"one": cell.block.kind, "two": "same"} for cell in all_cells()}


def test_a_recording_has_every_outcome(outcomes: dict[Cell, dict[str, str]]) -> None:
    recording = Recorded(json.loads(recorded.text_of(outcomes, "1.2.3")))
    assert recording.kafka_version == "1.2.3"
    assert recording.distinct("one") == [NONE, FULL, ONLY, WITHOUT]
    assert recording.distinct("two") == ["same"]
    assert list(recorded.differences(recording, outcomes)) == []


def test_each_difference_is_found(outcomes: dict[Cell, dict[str, str]]) -> None:
    recording = Recorded(json.loads(recorded.text_of(outcomes, "1.2.3")))
    for cell in all_cells()[::50]:
        changed = {**outcomes, cell: {"one": "another", "two": "same"}}
        (difference,) = recorded.differences(recording, changed)
        assert difference.startswith(f"one | {cell.user}\n")
        assert difference.endswith("found: another")
