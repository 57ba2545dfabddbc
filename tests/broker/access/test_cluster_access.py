"""Permissions on the cluster: one denial for the whole request, and nothing is read or changed.

Each code was seen on Apache Kafka 4.3.1 with the same rules as ACLs. Its messages for some of these
APIs have the text of an internal object; here they are Kafka's text for the code.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.broker.authorized_operations import NOT_ASKED
from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    alter_client_quotas,
    alter_partition_reassignments,
    describe_client_quotas,
    describe_cluster,
    describe_log_dirs,
    describe_quorum,
    elect_leaders,
    list_config_resources,
    list_partition_reassignments,
    update_features,
)
from penstock.security.acls.values import CLUSTER_NAME, Operation, ResourceType
from tests.broker.access.fakes import Rule, RuleSet
from tests.broker.handlers.asker import Asker, fresh_name

NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
MESSAGE = "Cluster authorization failed."
TOPIC = "orders"


def on_cluster(operation: Operation) -> Rule:
    return (operation, ResourceType.CLUSTER, CLUSTER_NAME)


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


LOG_DIRS = describe_log_dirs.DescribeLogDirsRequest(topics=None)
QUORUM = describe_quorum.DescribeQuorumRequest(
    topics=(
        describe_quorum.RequestTopicData(
            topic_name="__cluster_metadata",
            partitions=(describe_quorum.RequestPartitionData(partition_index=0),),
        ),
    )
)
REASSIGNMENTS = list_partition_reassignments.ListPartitionReassignmentsRequest(
    topics=(
        list_partition_reassignments.ListPartitionReassignmentsTopics(
            name=TOPIC, partition_indexes=(0, 1)
        ),
    )
)
REASSIGN = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
    topics=(
        alter_partition_reassignments.ReassignableTopic(
            name=TOPIC,
            partitions=(
                alter_partition_reassignments.ReassignablePartition(
                    partition_index=0, replicas=(1,)
                ),
            ),
        ),
    )
)
ELECT = elect_leaders.ElectLeadersRequest(
    election_type=0,
    topic_partitions=(elect_leaders.TopicPartitions(topic=TOPIC, partitions=(0, 1)),),
)
ELECT_ALL = elect_leaders.ElectLeadersRequest(election_type=0, topic_partitions=None)
ELECT_UNKNOWN = elect_leaders.ElectLeadersRequest(election_type=9, topic_partitions=None)
FEATURES = update_features.UpdateFeaturesRequest(feature_updates=())
LIST = list_config_resources.ListConfigResourcesRequest(resource_types=())
LIST_UNKNOWN = list_config_resources.ListConfigResourcesRequest(resource_types=(99,))
QUOTAS = describe_client_quotas.DescribeClientQuotasRequest(components=(), strict=False)


def quota(user: str) -> alter_client_quotas.AlterClientQuotasRequest:
    entry = alter_client_quotas.RequestEntryData(
        entity=(alter_client_quotas.RequestEntityData(entity_type="user", entity_name=user),),
        ops=(alter_client_quotas.OpData(key="producer_byte_rate", value=1e9, remove=False),),
    )
    return alter_client_quotas.AlterClientQuotasRequest(entries=(entry,), validate_only=False)


ROWS: list[tuple[Message, int, Operation]] = [
    (LOG_DIRS, 5, Operation.DESCRIBE),
    (QUORUM, 2, Operation.DESCRIBE),
    (QUORUM, 0, Operation.DESCRIBE),
    (REASSIGNMENTS, 0, Operation.DESCRIBE),
    (REASSIGN, 1, Operation.ALTER),
    (REASSIGN, 0, Operation.ALTER),
    (ELECT, 2, Operation.ALTER),
    (ELECT, 0, Operation.ALTER),
    (ELECT_ALL, 2, Operation.ALTER),
    (ELECT_UNKNOWN, 2, Operation.ALTER),
    (FEATURES, 2, Operation.ALTER),
    (FEATURES, 0, Operation.ALTER),
    (LIST, 1, Operation.DESCRIBE_CONFIGS),
    (LIST, 0, Operation.DESCRIBE_CONFIGS),
    (LIST_UNKNOWN, 1, Operation.DESCRIBE_CONFIGS),
    (QUOTAS, 1, Operation.DESCRIBE_CONFIGS),
    (quota("nobody"), 1, Operation.ALTER_CONFIGS),
]


@pytest.mark.parametrize(("request_sent", "version", "operation"), ROWS)
def test_one_operation_on_the_cluster_is_needed_and_enough(
    asker: Asker, rules: RuleSet, request_sent: Message, version: int, operation: Operation
) -> None:
    sent: Any = request_sent
    rules.all_but(on_cluster(operation))
    asker.send(request_sent, version)
    assert NO_CLUSTER in set(codes_in(asker.receive(object)))
    assert rules.denials == [on_cluster(operation)]
    assert rules.api_keys == {sent.API_KEY}
    rules.only(on_cluster(operation))
    asker.send(request_sent, version)
    assert NO_CLUSTER not in set(codes_in(asker.receive(object)))
    assert rules.denials == []


def test_what_denied_clients_see(asker: Asker, rules: RuleSet) -> None:
    rules.only()
    log_dirs = asker.ask(LOG_DIRS, 5, describe_log_dirs.DescribeLogDirsResponse)
    assert (log_dirs.error_code, log_dirs.results) == (NO_CLUSTER, ())
    quorum = asker.ask(QUORUM, 2, describe_quorum.DescribeQuorumResponse)
    assert (quorum.error_code, quorum.error_message, quorum.topics) == (NO_CLUSTER, MESSAGE, ())
    listed = asker.ask(LIST, 1, list_config_resources.ListConfigResourcesResponse)
    assert (listed.error_code, listed.config_resources) == (NO_CLUSTER, ())
    quotas = asker.ask(QUOTAS, 1, describe_client_quotas.DescribeClientQuotasResponse)
    assert (quotas.error_code, quotas.error_message, quotas.entries) == (NO_CLUSTER, None, None)
    features = asker.ask(FEATURES, 2, update_features.UpdateFeaturesResponse)
    assert (features.error_code, features.error_message) == (NO_CLUSTER, MESSAGE)


def test_log_directories_before_their_error_code(asker: Asker, rules: RuleSet) -> None:
    rules.only()
    answer = asker.ask(LOG_DIRS, 1, describe_log_dirs.DescribeLogDirsResponse)
    assert answer.results == ()


def test_partitions_of_the_request_are_in_the_answer(asker: Asker, rules: RuleSet) -> None:
    rules.only()
    listed = asker.ask(
        REASSIGNMENTS, 0, list_partition_reassignments.ListPartitionReassignmentsResponse
    )
    (topic,) = listed.topics
    assert (listed.error_code, listed.error_message, topic.name) == (NO_CLUSTER, MESSAGE, TOPIC)
    assert [(one.partition_index, one.replicas) for one in topic.partitions] == [(0, ()), (1, ())]
    moved = asker.ask(
        REASSIGN, 1, alter_partition_reassignments.AlterPartitionReassignmentsResponse
    )
    (partition,) = moved.responses[0].partitions
    assert (moved.error_code, partition.error_code) == (NO_CLUSTER, NO_CLUSTER)
    assert (moved.error_message, partition.error_message) == (MESSAGE, MESSAGE)
    elected = asker.ask(ELECT, 2, elect_leaders.ElectLeadersResponse)
    (election,) = elected.replica_election_results
    assert (elected.error_code, election.topic) == (NO_CLUSTER, TOPIC)
    assert [(one.partition_id, one.error_code) for one in election.partition_result] == [
        (0, NO_CLUSTER),
        (1, NO_CLUSTER),
    ]


def test_a_denied_quota_is_not_set(asker: Asker, rules: RuleSet) -> None:
    user = fresh_name("user")
    rules.all_but(on_cluster(Operation.ALTER_CONFIGS))
    answer = asker.ask(quota(user), 1, alter_client_quotas.AlterClientQuotasResponse)
    (entry,) = answer.entries
    assert (entry.error_code, entry.error_message) == (NO_CLUSTER, MESSAGE)
    assert [(part.entity_type, part.entity_name) for part in entry.entity] == [("user", user)]

    def users() -> set[str | None]:
        found = asker.ask(QUOTAS, 1, describe_client_quotas.DescribeClientQuotasResponse)
        return {one.entity[0].entity_name for one in found.entries or ()}

    assert user not in users()
    rules.all_but()
    asker.ask(quota(user), 1, alter_client_quotas.AlterClientQuotasResponse)
    assert user in users()


# --- DescribeCluster ---


def describe_operations(asker: Asker, *, is_asked: bool = True) -> int:
    request = describe_cluster.DescribeClusterRequest(
        include_cluster_authorized_operations=is_asked
    )
    answer = asker.ask(request, 1, describe_cluster.DescribeClusterResponse)
    assert answer.error_code == ErrorCode.NONE
    assert len(answer.brokers) == 1
    return answer.cluster_authorized_operations


def test_every_client_may_describe_the_cluster(asker: Asker, rules: RuleSet) -> None:
    rules.only()
    assert describe_operations(asker, is_asked=False) == NOT_ASKED
    assert rules.denials == []
    assert describe_operations(asker) == 0


def test_operations_on_the_cluster_need_describe(asker: Asker, rules: RuleSet) -> None:
    rules.only(on_cluster(Operation.ALTER), on_cluster(Operation.DESCRIBE))
    assert describe_operations(asker) == 1 << Operation.ALTER | 1 << Operation.DESCRIBE
    rules.only(on_cluster(Operation.ALTER))
    assert describe_operations(asker) == 0
