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
    alter_client_quotas,
    alter_partition_reassignments,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    init_producer_id,
    list_config_resources,
    list_partition_reassignments,
    metadata,
    offset_for_leader_epoch,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from tests.broker.handlers import configs
from tests.broker.handlers.asker import (
    Asker,
    batch_of,
    fetch_request,
    fresh_name,
    list_offsets_request,
    produce_request,
)
from tests.broker.handlers.quotas import set_quotas

NOBODY = UUID("00000000-0000-4000-8000-000000000001")
GROUP_KEYS = frozenset(
    {
        ApiKey.FIND_COORDINATOR,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_DELETE,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.DELETE_GROUPS,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.STREAMS_GROUP_DESCRIBE,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    }
)
"""Requests that need others before them: see `test_group_versions`, and `test_share_groups` for the
ones of share groups. Of streams groups
there is none that could be described: see `test_streams_group_describe`."""
TRANSACTION_KEYS = frozenset(
    {
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
    }
)
"""The same: see `test_transaction_versions`."""
SHARE_STATE_KEYS = frozenset(
    {
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    }
)
"""The same: see `test_share_state`."""
SECURITY_KEYS = frozenset(
    {
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    }
)
"""Access rules need a broker with an authorizer: see `test_acl_apis` and `test_scram_apis`. Logins
need a listener that expects them: see `test_logins`."""
VERSIONS = [
    (ApiKey(key), version)
    for key, handler in sorted(HANDLERS.items())
    if key not in GROUP_KEYS | TRANSACTION_KEYS | SHARE_STATE_KEYS | SECURITY_KEYS
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


def markers_of(version: int, topic: str) -> Message:
    return write_txn_markers.WriteTxnMarkersRequest(
        markers=(
            write_txn_markers.WritableTxnMarker(
                producer_id=1_000_000,
                producer_epoch=version,
                transaction_result=True,
                topics=(
                    write_txn_markers.WritableTxnMarkerTopic(name=topic, partition_indexes=(0,)),
                ),
                coordinator_epoch=0,
                transaction_version=2 if version >= 2 else 0,
            ),
        )
    )


def markers_good(version: int, topic: Target) -> Message:
    return markers_of(version, topic.name)


def markers_bad(version: int, topic: Target) -> Message:
    return markers_of(version, "nobody")


def describe_producers_of(*partitions: tuple[str, int]) -> Message:
    return describe_producers.DescribeProducersRequest(
        topics=tuple(
            describe_producers.TopicRequest(name=name, partition_indexes=(index,))
            for name, index in partitions
        )
    )


def describe_producers_good(version: int, topic: Target) -> Message:
    return describe_producers_of((topic.name, 0))


def describe_producers_bad(version: int, topic: Target) -> Message:
    return describe_producers_of((topic.name, 7), ("nobody", 0), ("!", 0))


def delete_records_of(topic: str, offset: int) -> Message:
    return delete_records.DeleteRecordsRequest(
        topics=(
            delete_records.DeleteRecordsTopic(
                name=topic,
                partitions=(
                    delete_records.DeleteRecordsPartition(partition_index=0, offset=offset),
                ),
            ),
        ),
        timeout_ms=1_000,
    )


def delete_records_good(version: int, topic: Target) -> Message:
    return delete_records_of(topic.name, -1)


def delete_records_bad(version: int, topic: Target) -> Message:
    return delete_records_of(topic.name, 99)


def create_partitions_of(*topics: tuple[str, int]) -> Message:
    return create_partitions.CreatePartitionsRequest(
        topics=tuple(
            create_partitions.CreatePartitionsTopic(name=name, count=count)
            for name, count in topics
        ),
        timeout_ms=1_000,
        validate_only=False,
    )


def create_partitions_good(version: int, topic: Target) -> Message:
    return create_partitions_of((topic.name, 2))


def create_partitions_bad(version: int, topic: Target) -> Message:
    return create_partitions_of((topic.name, 1), ("nobody", 2))


def alter_configs_good(version: int, topic: Target) -> Message:
    return configs.alter_request((configs.TOPIC, topic.name, (("retention.ms", "5"),)))


def alter_configs_bad(version: int, topic: Target) -> Message:
    return configs.alter_request((configs.TOPIC, topic.name, (("retention.mss", "5"),)))


def increment_good(version: int, topic: Target) -> Message:
    edits = (("retention.ms", configs.SET, "5"), ("segment.ms", configs.DELETE, None))
    return configs.increment_request((configs.TOPIC, topic.name, edits))


def increment_bad(version: int, topic: Target) -> Message:
    edits = (("retention.ms", configs.APPEND, "5"),)
    return configs.increment_request((configs.TOPIC, topic.name, edits))


def list_config_resources_good(version: int, topic: Target) -> Message:
    return list_config_resources.ListConfigResourcesRequest()


def list_config_resources_bad(version: int, topic: Target) -> Message:
    types = (3,) if version >= 1 else ()
    return list_config_resources.ListConfigResourcesRequest(resource_types=types)


def describe_log_dirs_of(version: int, topic: Target) -> Message:
    asked = describe_log_dirs.DescribableLogDirTopic(topic=topic.name, partitions=(0, 7))
    return describe_log_dirs.DescribeLogDirsRequest(topics=(asked,))


def describe_quorum_of(topic: str) -> Message:
    partition = describe_quorum.RequestPartitionData(partition_index=0)
    asked = describe_quorum.RequestTopicData(topic_name=topic, partitions=(partition,))
    return describe_quorum.DescribeQuorumRequest(topics=(asked,))


def describe_quorum_good(version: int, topic: Target) -> Message:
    return describe_quorum_of("__cluster_metadata")


def describe_quorum_bad(version: int, topic: Target) -> Message:
    return describe_quorum_of(topic.name)


def elect_leaders_good(version: int, topic: Target) -> Message:
    return elect_leaders.ElectLeadersRequest(topic_partitions=None)


def elect_leaders_bad(version: int, topic: Target) -> Message:
    asked = elect_leaders.TopicPartitions(topic=topic.name, partitions=(0, 7))
    return elect_leaders.ElectLeadersRequest(topic_partitions=(asked,))


def list_reassignments_of(version: int, topic: Target) -> Message:
    asked = list_partition_reassignments.ListPartitionReassignmentsTopics(
        name=topic.name, partition_indexes=(0, 7)
    )
    return list_partition_reassignments.ListPartitionReassignmentsRequest(topics=(asked,))


def reassign_to(topic: str, broker: int) -> Message:
    partition = alter_partition_reassignments.ReassignablePartition(
        partition_index=0, replicas=(broker,)
    )
    asked = alter_partition_reassignments.ReassignableTopic(name=topic, partitions=(partition,))
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=(asked,))


def reassign_good(version: int, topic: Target) -> Message:
    return reassign_to(topic.name, 1)


def reassign_bad(version: int, topic: Target) -> Message:
    return reassign_to(topic.name, 9)


def update_features_to(level: int) -> Message:
    update = update_features.FeatureUpdateKey(
        feature="transaction.version", max_version_level=level
    )
    return update_features.UpdateFeaturesRequest(feature_updates=(update,))


def update_features_good(version: int, topic: Target) -> Message:
    return update_features_to(2)


def update_features_bad(version: int, topic: Target) -> Message:
    return update_features_to(3)


def unregister_unknown(version: int, topic: Target) -> Message:
    return unregister_broker.UnregisterBrokerRequest(broker_id=99)


def describe_quotas_good(version: int, target: Target) -> Message:
    return describe_client_quotas.DescribeClientQuotasRequest(components=(), strict=False)


def describe_quotas_bad(version: int, target: Target) -> Message:
    part = describe_client_quotas.ComponentData(entity_type="user", match_type=9)
    return describe_client_quotas.DescribeClientQuotasRequest(components=(part,), strict=False)


def alter_quotas_to(value: float) -> Message:
    entry = alter_client_quotas.RequestEntryData(
        entity=(alter_client_quotas.RequestEntityData(entity_type="user", entity_name="u"),),
        ops=(alter_client_quotas.OpData(key="producer_byte_rate", value=value, remove=False),),
    )
    return alter_client_quotas.AlterClientQuotasRequest(entries=(entry,), validate_only=True)


def alter_quotas_good(version: int, target: Target) -> Message:
    return alter_quotas_to(1.0)


def alter_quotas_bad(version: int, target: Target) -> Message:
    return alter_quotas_to(-1.0)


REQUESTS: dict[ApiKey, tuple[Builder, Builder]] = {
    ApiKey.CREATE_PARTITIONS: (create_partitions_good, create_partitions_bad),
    ApiKey.ALTER_CONFIGS: (alter_configs_good, alter_configs_bad),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (increment_good, increment_bad),
    ApiKey.LIST_CONFIG_RESOURCES: (list_config_resources_good, list_config_resources_bad),
    ApiKey.DESCRIBE_LOG_DIRS: (describe_log_dirs_of, describe_log_dirs_of),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (describe_quotas_good, describe_quotas_bad),
    ApiKey.ALTER_CLIENT_QUOTAS: (alter_quotas_good, alter_quotas_bad),
    ApiKey.DESCRIBE_QUORUM: (describe_quorum_good, describe_quorum_bad),
    ApiKey.ELECT_LEADERS: (elect_leaders_good, elect_leaders_bad),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (list_reassignments_of, list_reassignments_of),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (reassign_good, reassign_bad),
    ApiKey.UPDATE_FEATURES: (update_features_good, update_features_bad),
    ApiKey.UNREGISTER_BROKER: (unregister_unknown, unregister_unknown),
    ApiKey.DELETE_RECORDS: (delete_records_good, delete_records_bad),
    ApiKey.WRITE_TXN_MARKERS: (markers_good, markers_bad),
    ApiKey.DESCRIBE_PRODUCERS: (describe_producers_good, describe_producers_bad),
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


NEVER = 100
REFUSES_SINCE: dict[ApiKey, int] = {
    ApiKey.API_VERSIONS: 3,
    ApiKey.DESCRIBE_CLUSTER: 1,
    ApiKey.LIST_CONFIG_RESOURCES: 1,
    ApiKey.DESCRIBE_LOG_DIRS: NEVER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: NEVER,
}
"""From which version on a request can be refused; the others from their first."""


NO_PLACE = -1


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


GOOD_CODES = {ApiKey.UNREGISTER_BROKER: ErrorCode.BROKER_ID_NOT_REGISTERED}
"""A broker that is alone has no other broker to forget."""


@pytest.mark.parametrize(("key", "version"), VERSIONS, ids=name_of)
def test_a_request_that_succeeds(asker: Asker, target: Target, key: ApiKey, version: int) -> None:
    good, _ = REQUESTS[key]
    asker.send(good(version, target), version)
    answer = asker.receive(object)
    assert set(codes_in(answer)) <= {GOOD_CODES.get(key, ErrorCode.NONE)}, answer


@pytest.mark.parametrize(("key", "version"), VERSIONS, ids=name_of)
def test_a_request_that_is_refused(asker: Asker, target: Target, key: ApiKey, version: int) -> None:
    _, bad = REQUESTS[key]
    asker.send(bad(version, target), version)
    answer = asker.receive(object)
    can_refuse = version >= REFUSES_SINCE.get(key, 0)
    assert any(codes_in(answer)) == can_refuse, answer


def of(key: ApiKey) -> list[int]:
    """The versions of an API."""
    return [version for known, version in VERSIONS if known == key]


def test_every_answer_says_how_long_to_wait(penstock: Asker) -> None:
    """In the lowest and the highest version; each on a connection of its own."""
    slow = fresh_name("slow")
    name = fresh_name("versions")
    target = Target(name, penstock.create(name))
    set_quotas(penstock, {"client-id": slow}, request_percentage=1e-6)
    told: dict[ApiKey, int] = {}
    ends = [row for row in VERSIONS if row[1] in (min(of(row[0])), max(of(row[0])))]
    for key, version in ends:
        with Asker(penstock.port, client_id=slow) as asker:
            asker.send(REQUESTS[key][0](version, target), version)
            told[key] = getattr(asker.receive(object), "throttle_time_ms", NO_PLACE)
    no_place = {ApiKey.WRITE_TXN_MARKERS, ApiKey.DESCRIBE_QUORUM}
    assert {key for key, wait_ms in told.items() if wait_ms == NO_PLACE} == no_place
    assert {wait_ms for key, wait_ms in told.items() if key not in no_place} == {1_000}
