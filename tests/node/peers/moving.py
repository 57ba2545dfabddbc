"""Requests that move replicas, and records to watch them by, for tests of a cluster."""

from functools import partial

from penstock.cluster.configs.described_configs import NO_LAYERS
from penstock.cluster.configs.setting_changes import EditKind, SettingEdit, SettingsChange
from penstock.cluster.image import MetadataImage
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
)
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.records.builder import BatchBuilder
from penstock.records.record import Record
from tests.node.peers.three_brokers import ThreeBrokers, until

TOPIC = "orders"


async def move(
    brokers: ThreeBrokers,
    targets: dict[int, tuple[int, ...] | None],
    *,
    topic: str = TOPIC,
    at: int | None = None,
    may_change_factor: bool = True,
) -> list[tuple[ErrorCode, str | None]]:
    """Move partitions of a topic; return the outcome of each."""
    request = AlterPartitionReassignmentsRequest(
        topics=(
            ReassignableTopic(
                name=topic,
                partitions=tuple(
                    ReassignablePartition(partition_index=index, replicas=target)
                    for index, target in targets.items()
                ),
            ),
        ),
        allow_replication_factor_change=may_change_factor,
    )
    broker_id = next(iter(brokers.servers)) if at is None else at
    answer = await brokers.ask(broker_id, request, AlterPartitionReassignmentsResponse, 1)
    assert answer.error_code is ErrorCode.NONE
    (found,) = answer.responses
    assert [one.partition_index for one in found.partitions] == [*targets]
    return [(one.error_code, one.error_message) for one in found.partitions]


async def moving(brokers: ThreeBrokers, at: int) -> dict[str, list[OngoingPartitionReassignment]]:
    """Return the partitions that are moving, as a broker lists them."""
    request = ListPartitionReassignmentsRequest(topics=None)
    answer = await brokers.ask(at, request, ListPartitionReassignmentsResponse)
    return {topic.name: [*topic.partitions] for topic in answer.topics}


async def moved(
    brokers: ThreeBrokers, index: int, target: tuple[int, ...], topic: str = TOPIC
) -> None:
    """Wait until a partition has exactly these replicas, all in sync."""

    def is_there() -> bool:
        state = brokers.topic(topic).partitions[index]
        is_settled = not state.adding and not state.removing
        return is_settled and state.replicas == target and set(state.isr) == set(target)

    await until(is_there)


async def produce(
    brokers: ThreeBrokers, value: bytes, index: int = 0, *, topic: str = TOPIC
) -> int:
    """Produce a record with acks=all, as a client that tries again; return its offset."""
    builder = BatchBuilder()
    builder.append(Record(None, value, (), 0))
    data = PartitionProduceData(index=index, records=builder.build())
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5_000,
        topic_data=(TopicProduceData(name=topic, partition_data=(data,)),),
    )
    while True:
        leader = brokers.leader(topic, index)
        if leader in brokers.servers:
            answer = await brokers.ask(leader, request, ProduceResponse, 12)
            result = answer.responses[0].partition_responses[0]
            if result.error_code is ErrorCode.NONE:
                return result.base_offset
            assert result.error_code in RETRIED, result
        await brokers.next_turn()


RETRIED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS)


def has_log(brokers: ThreeBrokers, broker_id: int, index: int = 0, topic: str = TOPIC) -> bool:
    """Whether a broker serves a partition."""
    return brokers.served(broker_id).replicas.find(topic, index) is not None


async def hold_back(brokers: ThreeBrokers) -> None:
    """Let no new replica of the topic copy anything."""
    metadata = brokers.metadata
    edit = SettingEdit("leader.replication.throttled.replicas", EditKind.SET, "*")
    await metadata.change_settings(SettingsChange(TOPIC, (edit,)))
    edit = SettingEdit("leader.replication.throttled.rate", EditKind.SET, "0")
    await metadata.change_broker_settings(SettingsChange("", (edit,)), lambda _: NO_LAYERS)
    for broker_id in brokers.servers:
        image = partial(image_of, brokers, broker_id)
        await until(lambda image=image: image().revision >= metadata.image.revision)  # type: ignore[misc]


def image_of(brokers: ThreeBrokers, broker_id: int) -> MetadataImage:
    """Return the metadata as a broker knows it."""
    return brokers.served(broker_id).metadata.image


async def let_go(brokers: ThreeBrokers, side: str = "leader") -> None:
    """Let new replicas copy again."""
    edit = SettingEdit(f"{side}.replication.throttled.rate", EditKind.DELETE, "")
    change = SettingsChange("", (edit,))
    await brokers.metadata.change_broker_settings(change, lambda _: NO_LAYERS)
