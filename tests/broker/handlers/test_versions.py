"""Every version of every API that ApiVersions names is answered, in bytes that decode.

Two requests for each: one that succeeds, one that is refused as far as the API can refuse, because
answers fill other fields then. The requests are written for all versions at once; fields that a
version does not have are left out by the functions below. New rows of the table of handlers are
found here by themselves: without requests for them this file fails.
"""

import dataclasses
from collections.abc import Callable, Iterator
from uuid import UUID

import pytest

from penstock.broker.handlers import HANDLERS
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    api_versions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_topic_partitions,
    init_producer_id,
    metadata,
    offset_for_leader_epoch,
)
from tests.broker.handlers.asker import (
    Asker,
    batch_of,
    fetch_request,
    fresh_name,
    list_offsets_request,
    produce_request,
)

NOBODY = UUID("00000000-0000-4000-8000-000000000001")
VERSIONS = [
    (ApiKey(key), version)
    for key, handler in sorted(HANDLERS.items())
    for version in range(handler.versions.lowest, handler.versions.highest + 1)
]


@dataclasses.dataclass(frozen=True)
class Target:
    """A topic that exists, with one partition."""

    name: str
    id: UUID


Builder = Callable[[int, Target], Message]


def produce_good(version: int, topic: Target) -> Message:
    return produce_request(topic.id if version >= 13 else topic.name, {0: batch_of(b"value")})


def produce_bad(version: int, topic: Target) -> Message:
    broken = bytearray(batch_of(b"value"))
    broken[-1] ^= 1
    records: dict[int, bytes | None] = {0: bytes(broken), 1: batch_of(b"a"), 2: None}
    return produce_request(topic.id if version >= 13 else topic.name, records)


def fetch_good(version: int, topic: Target) -> Message:
    return fetch_request(
        {topic.id: {0: 0}} if version >= 13 else {topic.name: {0: 0}},
        session_epoch=0 if version >= 7 else -1,
    )


def fetch_bad(version: int, topic: Target) -> Message:
    offsets = {0: 999, 7: 0}
    if version >= 13:
        return fetch_request({topic.id: offsets, NOBODY: {0: 0}})
    return fetch_request({topic.name: offsets, "nobody": {0: 0}})


def list_offsets_good(version: int, topic: Target) -> Message:
    return list_offsets_request(topic.name, {0: -1})


def list_offsets_bad(version: int, topic: Target) -> Message:
    return list_offsets_request(topic.name, {0: -99, 7: -1})


def metadata_good(version: int, topic: Target) -> Message:
    return metadata.MetadataRequest(
        topics=(metadata.MetadataRequestTopic(name=topic.name),),
        include_topic_authorized_operations=version >= 8,
        include_cluster_authorized_operations=8 <= version <= 10,
    )


def metadata_bad(version: int, topic: Target) -> Message:
    # Before version 4 a client cannot say that nothing shall be created.
    topics = [metadata.MetadataRequestTopic(name=name) for name in ("!", fresh_name())]
    if version >= 12:
        topics.append(metadata.MetadataRequestTopic(name=None, topic_id=NOBODY))
    return metadata.MetadataRequest(topics=tuple(topics), allow_auto_topic_creation=version < 4)


def api_versions_good(version: int, topic: Target) -> Message:
    has_names = version >= 3
    return api_versions.ApiVersionsRequest(
        client_software_name="asker" if has_names else "",
        client_software_version="1" if has_names else "",
    )


def api_versions_bad(version: int, topic: Target) -> Message:
    return api_versions.ApiVersionsRequest(client_software_name="-" if version >= 3 else "")


def create_topic(name: str, config: str) -> create_topics.CreatableTopic:
    return create_topics.CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        assignments=(),
        configs=(create_topics.CreatableTopicConfig(name=config, value="100000"),),
    )


def create_topics_good(version: int, topic: Target) -> Message:
    return create_topics.CreateTopicsRequest(topics=(create_topic(fresh_name(), "retention.ms"),))


def create_topics_bad(version: int, topic: Target) -> Message:
    return create_topics.CreateTopicsRequest(
        topics=(
            create_topic(topic.name, "retention.ms"),
            create_topic("!", "retention.ms"),
            create_topic(fresh_name(), "retention.mss"),
        )
    )


def delete_topics_of(version: int, names: list[str]) -> Message:
    if version >= 6:
        states = (delete_topics.DeleteTopicState(name=name, topic_id=None) for name in names)
        return delete_topics.DeleteTopicsRequest(topics=tuple(states), timeout_ms=1_000)
    return delete_topics.DeleteTopicsRequest(topic_names=tuple(names), timeout_ms=1_000)


def delete_topics_good(version: int, topic: Target) -> Message:
    return delete_topics_of(version, [topic.name])


def delete_topics_bad(version: int, topic: Target) -> Message:
    return delete_topics_of(version, ["nobody", "!"])


def init_producer_id_good(version: int, topic: Target) -> Message:
    return init_producer_id.InitProducerIdRequest(transaction_timeout_ms=1_000)


def init_producer_id_bad(version: int, topic: Target) -> Message:
    return init_producer_id.InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1_000)


def epochs_of(version: int, topic: str, epoch: int) -> Message:
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        replica_id=-1 if version >= 3 else -2,
        topics=(
            offset_for_leader_epoch.OffsetForLeaderTopic(
                topic=topic,
                partitions=(
                    offset_for_leader_epoch.OffsetForLeaderPartition(
                        partition=0, current_leader_epoch=epoch, leader_epoch=0
                    ),
                ),
            ),
        ),
    )


def epochs_good(version: int, topic: Target) -> Message:
    return epochs_of(version, topic.name, -1)


def epochs_bad(version: int, topic: Target) -> Message:
    return epochs_of(version, topic.name, 99)


def describe_configs_of(version: int, resource_type: int, name: str) -> Message:
    return describe_configs.DescribeConfigsRequest(
        resources=(
            describe_configs.DescribeConfigsResource(
                resource_type=resource_type, resource_name=name, configuration_keys=None
            ),
        ),
        include_synonyms=True,
        include_documentation=version >= 3,
    )


def describe_configs_good(version: int, topic: Target) -> Message:
    return describe_configs_of(version, 2, topic.name)


def describe_configs_bad(version: int, topic: Target) -> Message:
    return describe_configs_of(version, 4, "x")


def describe_cluster_good(version: int, topic: Target) -> Message:
    return describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True)


def describe_cluster_bad(version: int, topic: Target) -> Message:
    # Version 0 has no endpoint type and so nothing to refuse; it is asked as above.
    return describe_cluster.DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=1 if version == 0 else 2
    )


def describe_topic_partitions_of(name: str) -> Message:
    return describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=(describe_topic_partitions.TopicRequest(name=name),)
    )


def describe_topic_partitions_good(version: int, topic: Target) -> Message:
    return describe_topic_partitions_of(topic.name)


def describe_topic_partitions_bad(version: int, topic: Target) -> Message:
    return describe_topic_partitions_of("nobody")


REQUESTS: dict[ApiKey, tuple[Builder, Builder]] = {
    ApiKey.PRODUCE: (produce_good, produce_bad),
    ApiKey.FETCH: (fetch_good, fetch_bad),
    ApiKey.LIST_OFFSETS: (list_offsets_good, list_offsets_bad),
    ApiKey.METADATA: (metadata_good, metadata_bad),
    ApiKey.API_VERSIONS: (api_versions_good, api_versions_bad),
    ApiKey.CREATE_TOPICS: (create_topics_good, create_topics_bad),
    ApiKey.DELETE_TOPICS: (delete_topics_good, delete_topics_bad),
    ApiKey.INIT_PRODUCER_ID: (init_producer_id_good, init_producer_id_bad),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (epochs_good, epochs_bad),
    ApiKey.DESCRIBE_CONFIGS: (describe_configs_good, describe_configs_bad),
    ApiKey.DESCRIBE_CLUSTER: (describe_cluster_good, describe_cluster_bad),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        describe_topic_partitions_good,
        describe_topic_partitions_bad,
    ),
}


def codes_in(value: object) -> Iterator[ErrorCode]:
    """Every error code in an answer, wherever it is."""
    if isinstance(value, ErrorCode):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from codes_in(item)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from codes_in(getattr(value, field.name))


def name_of(row: object) -> str:
    return row.name if isinstance(row, ApiKey) else f"v{row}"


@pytest.fixture
def target(asker: Asker) -> Target:
    name = fresh_name("versions")
    return Target(name, asker.create(name))


@pytest.mark.parametrize(("key", "version"), VERSIONS, ids=name_of)
def test_a_request_that_succeeds(asker: Asker, target: Target, key: ApiKey, version: int) -> None:
    good, _ = REQUESTS[key]
    asker.send(good(version, target), version)
    answer = asker.receive(object)
    assert set(codes_in(answer)) <= {ErrorCode.NONE}, answer


@pytest.mark.parametrize(("key", "version"), VERSIONS, ids=name_of)
def test_a_request_that_is_refused(asker: Asker, target: Target, key: ApiKey, version: int) -> None:
    _, bad = REQUESTS[key]
    asker.send(bad(version, target), version)
    answer = asker.receive(object)
    can_refuse = not (key is ApiKey.API_VERSIONS and version < 3) and not (
        key is ApiKey.DESCRIBE_CLUSTER and version == 0
    )
    assert any(codes_in(answer)) == can_refuse, answer
