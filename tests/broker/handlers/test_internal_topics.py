"""The topics of coordinators: created at a client's first request, internal, not writable."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    delete_topics,
    describe_configs,
    find_coordinator,
    metadata,
    offset_commit,
    produce,
)
from penstock.testing import Broker
from tests.broker.handlers import groups
from tests.broker.handlers.asker import Asker, batch_of, fresh_name, produce_request

OFFSETS = "__consumer_offsets"


def test_the_topic_is_made_when_the_first_client_asks() -> None:
    with Broker() as running, Asker(running.port) as asker:
        assert asker.describe(OFFSETS).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert groups.find(asker, "group").error_code == ErrorCode.NONE
        described = asker.describe(OFFSETS)
        assert (described.error_code, described.is_internal) == (ErrorCode.NONE, True)
        assert len(described.partitions) == 50


def test_a_client_that_only_looks_at_it_gets_the_whole_topic() -> None:
    with Broker() as running, Asker(running.port) as asker:
        request = metadata.MetadataRequest(
            topics=(metadata.MetadataRequestTopic(name=OFFSETS),), allow_auto_topic_creation=True
        )
        (found,) = asker.ask(request, 13, metadata.MetadataResponse).topics
        assert (found.error_code, len(found.partitions)) == (ErrorCode.NONE, 50)
        assert groups.find(asker, "group").error_code == ErrorCode.NONE


def test_groups_live_on_when_the_topic_was_deleted_under_their_commits() -> None:
    with Broker() as running, Asker(running.port) as asker, Asker(running.port) as other:
        topic = fresh_name()
        asker.create(topic)
        commits = [(groups.commit_request(f"g{i}", {(topic, 0): i}), 9) for i in range(60)]
        for _ in range(5):
            groups.ready(asker, "any")
            described = asker.describe(OFFSETS)
            request = delete_topics.DeleteTopicsRequest(
                topics=(delete_topics.DeleteTopicState(name=OFFSETS, topic_id=None),),
                timeout_ms=10_000,
            )
            asker.send(request, 6)
            other.send_together(*commits)
            answer = asker.receive(delete_topics.DeleteTopicsResponse)
            assert answer.responses[0].error_code == ErrorCode.NONE
            for _ in commits:
                other.receive(offset_commit.OffsetCommitResponse)
            groups.ready(asker, "any")
            assert asker.describe(OFFSETS).topic_id != described.topic_id
            for i in range(60):
                codes = groups.commit(asker, f"g{i}", {(topic, 0): i})
                assert codes == {(topic, 0): ErrorCode.NONE}


@pytest.fixture
def ready(asker: Asker) -> Asker:
    groups.ready(asker, "any")
    return asker


def test_the_topic_is_internal_and_compacted(ready: Asker) -> None:
    assert ready.describe(OFFSETS).is_internal
    request = describe_configs.DescribeConfigsRequest(
        resources=(
            describe_configs.DescribeConfigsResource(
                resource_type=2,
                resource_name=OFFSETS,
                configuration_keys=("cleanup.policy", "segment.bytes", "compression.type"),
            ),
        ),
    )
    answer = ready.ask(request, 4, describe_configs.DescribeConfigsResponse)
    values = {config.name: config.value for config in answer.results[0].configs}
    assert values == {
        "cleanup.policy": "compact",
        "segment.bytes": "104857600",
        "compression.type": "producer",
    }


@pytest.mark.parametrize("version", [12, 13])
def test_clients_do_not_write_to_it(ready: Asker, version: int) -> None:
    described = ready.describe(OFFSETS)
    topic = described.topic_id if version == 13 else OFFSETS
    assert topic is not None
    request = produce_request(topic, {0: batch_of(b"value")})
    answer = ready.ask(request, version, produce.ProduceResponse)
    (found,) = answer.responses[0].partition_responses
    assert found.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_admin_client_does_not_write_to_it_either(penstock: Asker) -> None:
    """Kafka lets this client id write, so any client could poison the groups of a partition."""
    groups.ready(penstock, "any")
    with Asker(penstock.port, client_id="__admin_client") as asker:
        request = produce_request(OFFSETS, {0: batch_of(b"value")})
        answer = asker.ask(request, 12, produce.ProduceResponse)
    (found,) = answer.responses[0].partition_responses
    assert found.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "internal topic __consumer_offsets" in (found.error_message or "")


def test_a_key_type_that_nobody_knows_is_refused(asker: Asker) -> None:
    request = find_coordinator.FindCoordinatorRequest(key_type=2, coordinator_keys=("x",))
    (found,) = asker.ask(request, 5, find_coordinator.FindCoordinatorResponse).coordinators
    assert found.error_code == ErrorCode.INVALID_REQUEST
    assert (found.node_id, found.host, found.port) == (-1, "", -1)


def test_offsets_of_a_deleted_topic_are_forgotten(ready: Asker) -> None:
    topic, group = fresh_name(), fresh_name("group")
    ready.create(topic)
    groups.commit(ready, group, {(topic, 0): 5})
    ready.delete(topic)
    ready.until(lambda: groups.fetch_offsets(ready, group, None).topics == ())


def test_when_the_topic_is_deleted_its_groups_are_gone() -> None:
    with Broker() as running, Asker(running.port) as asker:
        topic = fresh_name()
        asker.create(topic)
        groups.ready(asker, "group")
        assert groups.commit(asker, "group", {(topic, 0): 5}) == {(topic, 0): ErrorCode.NONE}
        asker.delete(OFFSETS)
        refused = groups.commit(asker, "group", {(topic, 0): 6})
        assert refused == {(topic, 0): ErrorCode.NOT_COORDINATOR}
        assert groups.find(asker, "group").error_code == ErrorCode.NONE
        assert groups.fetch_offsets(asker, "group", None).topics == ()
        assert groups.commit(asker, "group", {(topic, 0): 7}) == {(topic, 0): ErrorCode.NONE}
