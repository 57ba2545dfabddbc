"""CreateTopics: each topic is created or rejected on its own, with Kafka's codes."""

from collections.abc import Mapping

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.broker.handlers.asker import Asker, batch_of, fresh_name

TOPIC_SOURCE, DEFAULT_SOURCE = 1, 5


def topic(
    name: str,
    *,
    partitions: int = 1,
    replicas: int = 1,
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = (),
    configs: Mapping[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assignments
        ),
        configs=tuple(
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ),
    )


def assigned(*assignments: tuple[int, tuple[int, ...]]) -> CreatableTopic:
    return topic(fresh_name(), partitions=-1, replicas=-1, assignments=assignments)


def create(
    asker: Asker, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=topics, validate_only=validate_only, timeout_ms=10_000)
    return list(asker.ask(request, version, CreateTopicsResponse).topics)


REFUSED = [
    (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic("ü"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
    (topic(fresh_name(), partitions=0), ErrorCode.INVALID_PARTITIONS),
    (topic(fresh_name(), partitions=-2), ErrorCode.INVALID_PARTITIONS),
    (topic(fresh_name(), replicas=0), ErrorCode.INVALID_REPLICATION_FACTOR),
    (topic(fresh_name(), replicas=-2), ErrorCode.INVALID_REPLICATION_FACTOR),
    (topic(fresh_name(), replicas=2), ErrorCode.INVALID_REPLICATION_FACTOR),
    (topic(fresh_name(), partitions=0, replicas=0), ErrorCode.INVALID_REPLICATION_FACTOR),
    (topic(fresh_name(), assignments=((0, (1,)),)), ErrorCode.INVALID_REQUEST),
    (topic(fresh_name(), replicas=-1, assignments=((0, (1,)),)), ErrorCode.INVALID_REQUEST),
    (assigned((0, ())), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (assigned((0, (9,))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (assigned((0, (1, 1))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (assigned((0, (1,)), (0, (1,))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (assigned((0, (1,)), (2, (1,))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (assigned((1, (1,))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    (topic(fresh_name(), configs={"retention.mss": "1"}), ErrorCode.INVALID_CONFIG),
    (topic(fresh_name(), configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
    (topic(fresh_name(), configs={"retention.ms": "-2"}), ErrorCode.INVALID_CONFIG),
    (topic(fresh_name(), configs={"cleanup.policy": "burn"}), ErrorCode.INVALID_CONFIG),
    (topic(fresh_name(), configs={"cleanup.policy": "compact,"}), ErrorCode.INVALID_CONFIG),
    (
        topic(fresh_name(), configs={"min.compaction.lag.ms": "8", "max.compaction.lag.ms": "7"}),
        ErrorCode.INVALID_CONFIG,
    ),
    (topic(fresh_name(), configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
]


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(("wrong", "code"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused(
    asker: Asker, wrong: CreatableTopic, code: ErrorCode, validate_only: bool
) -> None:
    (result,) = create(asker, wrong, validate_only=validate_only)
    assert result.error_code == code, result
    assert result.name == wrong.name
    assert result.error_message
    assert (result.num_partitions, result.replication_factor) == (-1, -1)
    assert result.topic_id is None


@pytest.mark.parametrize("validate_only", [False, True])
def test_a_name_that_is_taken(asker: Asker, validate_only: bool) -> None:
    name = fresh_name()
    asker.create(name)
    (result,) = create(asker, topic(name), validate_only=validate_only)
    assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_names_that_would_share_their_metrics(asker: Asker) -> None:
    name = fresh_name("a.b")
    asker.create(name)
    (result,) = create(asker, topic(name.replace(".", "_")))
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_others_of_a_request_are_made(asker: Asker) -> None:
    names = [fresh_name(), fresh_name()]
    results = create(asker, topic(names[0]), topic("!"), topic(names[1], partitions=2))
    codes = {result.name: result.error_code for result in results}
    assert codes == {
        names[0]: ErrorCode.NONE,
        "!": ErrorCode.INVALID_TOPIC_EXCEPTION,
        names[1]: ErrorCode.NONE,
    }
    for name in names:
        asker.until_described(name, ErrorCode.NONE)


def test_a_name_twice_in_a_request_is_refused_once(asker: Asker) -> None:
    name, other = fresh_name(), fresh_name()
    results = create(asker, topic(name), topic(other), topic(name, partitions=2))
    assert {result.name: result.error_code for result in results} == {
        name: ErrorCode.INVALID_REQUEST,
        other: ErrorCode.NONE,
    }
    assert len(results) == 2
    assert asker.describe(name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_validating_makes_nothing(asker: Asker) -> None:
    name = fresh_name()
    (result,) = create(asker, topic(name, partitions=3), validate_only=True)
    assert result.error_code == ErrorCode.NONE
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    assert result.configs
    assert asker.describe(name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_defaults_and_assignments(asker: Asker) -> None:
    default, placed = fresh_name(), assigned((1, (1,)), (0, (1,)))
    results = {
        result.name: result
        for result in create(asker, topic(default, partitions=-1, replicas=-1), placed)
    }
    for name, count in ((default, 1), (placed.name, 2)):
        assert results[name].error_code == ErrorCode.NONE
        assert (results[name].num_partitions, results[name].replication_factor) == (count, 1)
        assert results[name].topic_id is not None


def test_the_answer_has_every_setting(asker: Asker) -> None:
    name = fresh_name()
    wanted = {"retention.ms": "1234567", "compression.type": "zstd"}
    (result,) = create(asker, topic(name, configs=wanted))
    assert result.configs is not None
    found = {config.name: config for config in result.configs}
    assert {"cleanup.policy", "segment.bytes", "min.insync.replicas"} <= found.keys()
    for config in found.values():
        assert not config.read_only
        assert not config.is_sensitive
        if config.name in wanted:
            assert (config.value, config.config_source) == (wanted[config.name], TOPIC_SOURCE)
    assert found["segment.bytes"].value == "1073741824"
    assert found["segment.bytes"].config_source == DEFAULT_SOURCE


def test_a_topic_is_served_when_the_answer_leaves(penstock: Asker) -> None:
    name = fresh_name()
    create(penstock, topic(name, partitions=50))
    assert penstock.produce(name, batch_of(b"x"), partition=49).base_offset == 0
