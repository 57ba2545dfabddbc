"""Reads the state of a cluster over Kafka's protocol: from any broker, and sizes from each.

Works with each Kafka cluster. A broker that does not answer counts as down, at once: whether it
restarts or is lost, nothing may depend on it now. Sizes that a broker does not report to this
client are unknown, not an error.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from penstock.client import calls
from penstock.client.cluster import Cluster
from penstock.client.log_sizes import CANNOT_TELL
from penstock.client.operation.cluster_state import (
    BrokerFacts,
    BrokerMode,
    ClusterState,
    PartitionFacts,
)
from penstock.client.reassignment_calls import OngoingReassignment, list_reassignments
from penstock.client.transport.addresses import Address
from penstock.client.transport.call import Call, raise_error
from penstock.client.transport.pool import Started
from penstock.core.errors import AnswerLostError, BrokerAnswerError, BrokerUnreachableError
from penstock.core.setting_text import is_true
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import describe_log_dirs
from penstock.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

DRAIN_SETTING: Final = "penstock.broker.drain"
"""The setting of a broker that is asked to lead nothing."""
MIN_IN_SYNC_SETTING: Final = "min.insync.replicas"
TOPICS_PER_REQUEST: Final = 500
"""Topics in one request for settings: the size of a request is bounded."""
NOTHING_MOVES: Final = OngoingReassignment((), (), ())

Result = TypeVar("Result")


class Disk(NamedTuple):
    """The disk of a broker, with its replicas."""

    total_bytes: int | None
    free_bytes: int | None
    sizes: dict[TopicPartition, int]


def read_state(cluster: Cluster, *, wants_minimums: bool = True) -> ClusterState:
    """Return the state of all brokers and partitions.

    Without `wants_minimums` the setting min.insync.replicas is not read, and is 1.
    """
    cluster.brokers()
    moving = cluster.repeat(
        lambda: cluster.anywhere(list_reassignments(cluster.timeout_ms)), repeatable=True
    )
    answer = cluster.repeat(lambda: cluster.anywhere(calls.describe_brokers(None)), repeatable=True)
    minimums = _minimums(cluster, answer.topics) if wants_minimums else {}
    addresses = {one.node_id: Address(one.host, one.port) for one in answer.brokers}
    disks = _of_each(cluster, addresses, lambda _broker_id: describe_disk(), _UNKNOWN_DISK)
    drained = _of_each(cluster, addresses, _describe_drain, unknown=False)
    sizes = {one: disk.sizes for one, disk in disks.items()}
    partitions = tuple(_partitions(answer.topics, minimums, moving, sizes))
    return ClusterState(
        cluster_id=answer.cluster_id or "",
        controller_id=answer.controller_id,
        brokers=_brokers(answer, disks, drained, partitions),
        partitions=partitions,
        replica_bytes=sizes,
    )


def read_disks(cluster: Cluster, broker_ids: Collection[int]) -> dict[int, Disk]:
    """Return the disks of these brokers; a broker that is not reached is absent."""
    addresses = {one: at for one, at in cluster.brokers().items() if one in broker_ids}
    return _of_each(cluster, addresses, lambda _broker_id: describe_disk(), _UNKNOWN_DISK)


def describe_disk() -> Call[Disk]:
    """Return the disk of the broker that is asked, with the sizes of all its replicas."""
    request = describe_log_dirs.DescribeLogDirsRequest(topics=None)

    def read(answer: describe_log_dirs.DescribeLogDirsResponse) -> Disk:
        raise_error(answer.error_code, None, "sizes of logs")
        usable = [one for one in answer.results if one.error_code == ErrorCode.NONE]
        is_known = bool(usable) and all(one.total_bytes >= 0 for one in usable)
        return Disk(
            sum(one.total_bytes for one in usable) if is_known else None,
            sum(one.usable_bytes for one in usable) if is_known else None,
            {
                TopicPartition(topic.name, part.partition_index): part.partition_size
                for directory in usable
                for topic in directory.topics
                for part in topic.partitions
                if not part.is_future_key
            },
        )

    return Call(request, describe_log_dirs.DescribeLogDirsResponse, read)


_UNKNOWN_DISK: Final = Disk(None, None, {})


def _describe_drain(broker_id: int) -> Call[bool]:
    """Return whether the broker that is asked is drained; another Kafka's broker never is."""
    name = str(broker_id)
    described = calls.describe_settings(calls.BROKER_RESOURCE, [name], [DRAIN_SETTING])

    def read(answer: object) -> bool:
        result = described.read(answer)[name]
        raise_error(result.error_code, result.error_message, f"settings of broker {name}")
        return any(one.name == DRAIN_SETTING and is_true(one.value) for one in result.configs)

    return Call(described.request, described.answer_type, read)


def _of_each(
    cluster: Cluster,
    addresses: Mapping[int, Address],
    call: Callable[[int], Call[Result]],
    unknown: Result,
) -> dict[int, Result]:
    """Return the answers by broker; `unknown` from a broker that may not answer this client.

    A broker that is not reached is absent.
    """
    started: dict[int, Started[Result]] = {}
    found: dict[int, Result] = {}
    for broker_id, address in addresses.items():
        try:
            started[broker_id] = cluster.start(address, call(broker_id))
        except (BrokerUnreachableError, AnswerLostError):
            continue
    try:
        while started:
            broker_id = next(iter(started))
            try:
                found[broker_id] = started.pop(broker_id).result()
            except (BrokerUnreachableError, AnswerLostError):
                continue
            except BrokerAnswerError as error:
                if error.code not in CANNOT_TELL:
                    raise
                found[broker_id] = unknown
    finally:
        for one in started.values():
            one.forget()
    return found


def _minimums(cluster: Cluster, topics: Iterable[MetadataResponseTopic]) -> dict[str, int]:
    """Return min.insync.replicas by topic; a topic that was deleted meanwhile is absent."""
    names = [one.name for one in topics if one.name]
    found: dict[str, int] = {}
    for start in range(0, len(names), TOPICS_PER_REQUEST):
        found |= _minimums_of(cluster, names[start : start + TOPICS_PER_REQUEST])
    return found


def _minimums_of(cluster: Cluster, names: Sequence[str]) -> dict[str, int]:
    call = calls.describe_settings(calls.TOPIC_RESOURCE, names, [MIN_IN_SYNC_SETTING])
    results = cluster.repeat(lambda: cluster.anywhere(call), repeatable=True)
    found: dict[str, int] = {}
    for name, result in results.items():
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        raise_error(result.error_code, result.error_message, f"settings of topic {name}")
        for config in result.configs:
            if config.name == MIN_IN_SYNC_SETTING and config.value is not None:
                found[name] = int(config.value)
    return found


def _partitions(
    topics: Iterable[MetadataResponseTopic],
    minimums: Mapping[str, int],
    moving: Mapping[TopicPartition, OngoingReassignment],
    sizes: Mapping[int, Mapping[TopicPartition, int]],
) -> Iterable[PartitionFacts]:
    for topic in sorted(topics, key=lambda one: one.name or ""):
        name = topic.name or ""
        for part in sorted(topic.partitions, key=lambda one: one.partition_index):
            at = TopicPartition(name, part.partition_index)
            yield _partition(at, part, minimums.get(name, 1), moving.get(at, NOTHING_MOVES), sizes)


def _partition(
    at: TopicPartition,
    part: MetadataResponsePartition,
    minimum: int,
    moving: OngoingReassignment,
    sizes: Mapping[int, Mapping[TopicPartition, int]],
) -> PartitionFacts:
    size = max((sizes[one].get(at, 0) for one in part.replica_nodes if one in sizes), default=0)
    return PartitionFacts(
        at=at,
        replicas=tuple(part.replica_nodes),
        in_sync=tuple(part.isr_nodes),
        leader=part.leader_id,
        min_in_sync=minimum,
        size_bytes=size,
        # The end of a move may have come between the two answers.
        adding=tuple(one for one in moving.adding if one in part.replica_nodes),
        removing=tuple(one for one in moving.removing if one in part.replica_nodes),
    )


def _brokers(
    answer: MetadataResponse,
    disks: Mapping[int, Disk],
    drained: Mapping[int, bool],
    partitions: Iterable[PartitionFacts],
) -> dict[int, BrokerFacts]:
    found: dict[int, BrokerFacts] = {}
    for one in answer.brokers:
        disk = disks.get(one.node_id, _UNKNOWN_DISK)
        mode = BrokerMode.DRAINED if drained.get(one.node_id) else BrokerMode.RUNNING
        found[one.node_id] = BrokerFacts(
            id=one.node_id,
            mode=mode if one.node_id in drained else BrokerMode.DOWN,
            address=str(Address(one.host, one.port)),
            rack=one.rack,
            disk_bytes=disk.total_bytes,
            free_bytes=disk.free_bytes,
        )
    for broker_id in {one for facts in partitions for one in facts.replicas} - found.keys():
        found[broker_id] = BrokerFacts(id=broker_id, mode=BrokerMode.DOWN)
    return dict(sorted(found.items()))
