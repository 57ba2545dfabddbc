"""Requests of administrators, coordinators and transactions that name thousands of things.

Each is legal, and most of them name topics, groups or ids that do not exist: a request is as
expensive as its client makes it. `wide_requests` lists them by name, so that a long pause can be
traced to one API.
"""

from collections.abc import Callable, Iterator
from typing import Final

from penstock.protocol.codec import Message
from penstock.protocol.messages import (
    add_partitions_to_txn,
    alter_client_quotas,
    consumer_group_describe,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_transactions,
    elect_leaders,
    find_coordinator,
    incremental_alter_configs,
    list_groups,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    txn_offset_commit,
    write_txn_markers,
)
from tests.bad_input.wire import Peer, well_formed
from tests.hostile.attacks import create_topic
from tests.hostile.group_attacks import GroupAttack

TOPIC: Final = "wide-admin"
PARTITIONS: Final = 5_000
TOPIC_RESOURCE, GROUP_RESOURCE, BROKER_RESOURCE = 2, 32, 4
SET: Final = 0
ANSWER_SECONDS_MAX: Final = 120.0


def _ids(count: int) -> tuple[str, ...]:
    return tuple(f"nothing-{number}" for number in range(count))


def group_requests(size: Callable[[int], int]) -> Iterator[tuple[str, Message, int]]:
    """Requests to coordinators: name, message, version."""
    ids = _ids(size(60_000))
    indexes = tuple(range(size(60_000)))
    yield "DescribeGroups", describe_groups.DescribeGroupsRequest(groups=ids), 4
    yield "DeleteGroups", delete_groups.DeleteGroupsRequest(groups_names=ids), 1
    yield (
        "ConsumerGroupDescribe",
        consumer_group_describe.ConsumerGroupDescribeRequest(
            group_ids=ids, include_authorized_operations=False
        ),
        0,
    )
    yield (
        "FindCoordinator",
        find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=ids),
        4,
    )
    yield (
        "DescribeTransactions",
        describe_transactions.DescribeTransactionsRequest(transactional_ids=ids),
        0,
    )
    yield "ListGroups", list_groups.ListGroupsRequest(), 4
    one = offset_fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=indexes[:100])
    groups = tuple(
        offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=(one,)) for group in ids[:1_000]
    )
    yield "OffsetFetch of groups", offset_fetch.OffsetFetchRequest(groups=groups), 8
    every = offset_fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=indexes)
    group = offset_fetch.OffsetFetchRequestGroup(group_id="wide", topics=(every,))
    yield "OffsetFetch of partitions", offset_fetch.OffsetFetchRequest(groups=(group,)), 8
    commits = tuple(
        offset_commit.OffsetCommitRequestTopic(
            name=topic,
            partitions=(
                offset_commit.OffsetCommitRequestPartition(
                    partition_index=0, committed_offset=1, committed_metadata=None
                ),
            ),
        )
        for topic in _ids(size(9_000))
    )
    yield (
        "OffsetCommit to topics",
        offset_commit.OffsetCommitRequest(group_id="wide", member_id="", topics=commits),
        5,
    )
    gone = tuple(
        offset_delete.OffsetDeleteRequestPartition(partition_index=index) for index in indexes
    )
    topic = offset_delete.OffsetDeleteRequestTopic(name=TOPIC, partitions=gone)
    yield (
        "OffsetDelete",
        offset_delete.OffsetDeleteRequest(group_id="wide", topics=(topic,)),
        0,
    )


def transaction_requests(size: Callable[[int], int]) -> Iterator[tuple[str, Message, int]]:
    """Requests of producers with transactions: name, message, version."""
    added = add_partitions_to_txn.AddPartitionsToTxnTopic(
        name=TOPIC, partitions=tuple(range(size(60_000)))
    )
    yield (
        "AddPartitionsToTxn",
        add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="wide",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=(added,),
        ),
        3,
    )
    repeated = add_partitions_to_txn.AddPartitionsToTxnTopic(
        name=TOPIC, partitions=(0,) * size(60_000)
    )
    yield (
        "AddPartitionsToTxn, repeated",
        add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="wide",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=(repeated,),
        ),
        1,
    )
    transactions = tuple(
        add_partitions_to_txn.AddPartitionsToTxnTransaction(
            transactional_id=f"wide-{number}",
            producer_id=1,
            producer_epoch=0,
            verify_only=True,
            topics=(),
        )
        for number in range(size(20_000))
    )
    yield (
        "AddPartitionsToTxn, many",
        add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=transactions),
        4,
    )
    offsets = tuple(
        txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=1)
        for index in range(size(10_000))
    )
    topic = txn_offset_commit.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=offsets)
    yield (
        "TxnOffsetCommit",
        txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id="wide",
            group_id="wide",
            producer_id=1,
            producer_epoch=0,
            topics=(topic,),
        ),
        3,
    )
    ended = write_txn_markers.WritableTxnMarkerTopic(
        name=TOPIC, partition_indexes=tuple(range(size(20_000)))
    )
    marker = write_txn_markers.WritableTxnMarker(
        producer_id=1,
        producer_epoch=0,
        transaction_result=False,
        topics=(ended,),
        coordinator_epoch=0,
    )
    yield "WriteTxnMarkers", write_txn_markers.WriteTxnMarkersRequest(markers=(marker,)), 1
    asked = describe_producers.TopicRequest(
        name=TOPIC, partition_indexes=tuple(range(size(60_000)))
    )
    yield "DescribeProducers", describe_producers.DescribeProducersRequest(topics=(asked,)), 0


def partition_requests(size: Callable[[int], int]) -> Iterator[tuple[str, Message, int]]:
    """Requests about partitions: name, message, version."""
    count = size(60_000)
    deleted = tuple(
        delete_records.DeleteRecordsPartition(partition_index=index, offset=0)
        for index in range(count)
    )
    topic = delete_records.DeleteRecordsTopic(name=TOPIC, partitions=deleted)
    yield (
        "DeleteRecords",
        delete_records.DeleteRecordsRequest(topics=(topic,), timeout_ms=1_000),
        1,
    )
    epochs = tuple(
        offset_for_leader_epoch.OffsetForLeaderPartition(
            partition=index, current_leader_epoch=-1, leader_epoch=0
        )
        for index in range(count)
    )
    asked = offset_for_leader_epoch.OffsetForLeaderTopic(topic=TOPIC, partitions=epochs)
    yield (
        "OffsetForLeaderEpoch",
        offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=-1, topics=(asked,)),
        3,
    )
    elected = elect_leaders.TopicPartitions(topic=TOPIC, partitions=tuple(range(count)))
    yield (
        "ElectLeaders",
        elect_leaders.ElectLeadersRequest(topic_partitions=(elected,), timeout_ms=1_000),
        1,
    )
    yield "DescribeLogDirs", describe_log_dirs.DescribeLogDirsRequest(topics=None), 2
    yield "Metadata of all", metadata.MetadataRequest(topics=None), 5


def topic_requests(size: Callable[[int], int]) -> Iterator[tuple[str, Message, int]]:
    """Requests that change topics or settings, or say that they would: name, message, version."""
    names = _ids(size(10_000))
    new = tuple(
        create_topics.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
        )
        for name in names
    )
    yield (
        "CreateTopics, validate only",
        create_topics.CreateTopicsRequest(topics=new, timeout_ms=1_000, validate_only=True),
        5,
    )
    more = tuple(create_partitions.CreatePartitionsTopic(name=name, count=2) for name in names)
    yield (
        "CreatePartitions",
        create_partitions.CreatePartitionsRequest(
            topics=more, timeout_ms=1_000, validate_only=True
        ),
        1,
    )
    yield (
        "DeleteTopics",
        delete_topics.DeleteTopicsRequest(topic_names=names, timeout_ms=1_000),
        4,
    )
    for kind, text in ((TOPIC_RESOURCE, "topics"), (GROUP_RESOURCE, "groups")):
        resources = tuple(
            describe_configs.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=None
            )
            for name in names
        )
        yield (
            f"DescribeConfigs of {text}",
            describe_configs.DescribeConfigsRequest(resources=resources, include_synonyms=True),
            3,
        )
        change = incremental_alter_configs.AlterableConfig(
            name="consumer.session.timeout.ms", config_operation=SET, value="46000"
        )
        changes = tuple(
            incremental_alter_configs.AlterConfigsResource(
                resource_type=kind, resource_name=name, configs=(change,)
            )
            for name in names
        )
        yield (
            f"IncrementalAlterConfigs of {text}",
            incremental_alter_configs.IncrementalAlterConfigsRequest(
                resources=changes, validate_only=True
            ),
            0,
        )
    limit = alter_client_quotas.OpData(key="producer_byte_rate", value=1e9, remove=False)
    entries = tuple(
        alter_client_quotas.RequestEntryData(
            entity=(alter_client_quotas.RequestEntityData(entity_type="user", entity_name=name),),
            ops=(limit,),
        )
        for name in names
    )
    yield (
        "AlterClientQuotas",
        alter_client_quotas.AlterClientQuotasRequest(entries=entries, validate_only=True),
        0,
    )


def wide_requests(size: Callable[[int], int]) -> Iterator[tuple[str, bytes]]:
    """Every request by its name, as bytes."""
    for kinds in (group_requests, transaction_requests, partition_requests, topic_requests):
        for name, message, version in kinds(size):
            yield name, well_formed(message, version)


class WideAdmin(GroupAttack):
    """One request of each API that names thousands of things, and a large topic that is new."""

    name = "wide-admin"

    def prepare(self) -> None:
        super().prepare()
        create_topic(self.port, TOPIC, self.size(PARTITIONS))
        self._requests = dict(wide_requests(self.size))

    def strike(self) -> None:
        for request in self._requests.values():
            with Peer(self.port) as peer:
                peer.socket.settimeout(ANSWER_SECONDS_MAX)
                self.exchange(peer, request)
        (new,) = self.group_names(1)
        create_topic(self.port, new, self.size(1_000))
        gone = delete_topics.DeleteTopicsRequest(topic_names=(new,), timeout_ms=1_000)
        with Peer(self.port) as peer:
            self.exchange(peer, well_formed(gone, 4))
