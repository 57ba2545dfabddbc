"""The calls of a group's members as values: heartbeat and commit (pure)."""

import uuid
from typing import NamedTuple

from penstock.client.groups.group_calls import OFFSET_COMMIT_VERSION_MAX
from penstock.client.transport.call import Call, raise_error
from penstock.protocol.messages import offset_commit
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
REBALANCE_TIMEOUT_MS = 60_000


class Beat(NamedTuple):
    """The answer of a coordinator to a heartbeat."""

    epoch: int
    topic_id: uuid.UUID | None
    partitions: frozenset[int] | None
    """None: unchanged."""


def heartbeat(
    group_id: str,
    member_id: str,
    epoch: int,
    *,
    topic: str | None = None,
    owned: tuple[uuid.UUID | None, frozenset[int]] | None = None,
) -> Call[Beat]:
    """Heartbeat of a member; with `topic` it joins, with `owned` it confirms its partitions."""
    parts: tuple[RequestTopicPartitions, ...] | None = () if topic is not None else None
    if owned is not None:
        held = tuple(sorted(owned[1]))
        parts = (RequestTopicPartitions(topic_id=owned[0], partitions=held),) if held else ()
    request = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if topic is not None else -1,
        subscribed_topic_names=None if topic is None else (topic,),
        topic_partitions=parts,
    )

    def read(answer: ConsumerGroupHeartbeatResponse) -> Beat:
        raise_error(answer.error_code, answer.error_message, f"a member of {group_id}")
        if answer.assignment is None:
            return Beat(answer.member_epoch, None, None)
        topics = answer.assignment.topic_partitions
        return Beat(
            answer.member_epoch,
            topics[0].topic_id if topics else None,
            frozenset(partition for one in topics for partition in one.partitions),
        )

    return Call(request, ConsumerGroupHeartbeatResponse, read)


def commit(
    group_id: str, member_id: str, epoch: int, topic: str, partition: int, offset: int
) -> Call[None]:
    """Commit one offset as a member."""
    request = offset_commit.OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=(
            offset_commit.OffsetCommitRequestTopic(
                name=topic,
                partitions=(
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_metadata="",
                    ),
                ),
            ),
        ),
    )

    def read(answer: offset_commit.OffsetCommitResponse) -> None:
        for one in answer.topics:
            for part in one.partitions:
                raise_error(part.error_code, None, f"{group_id}: {one.name}-{part.partition_index}")

    return Call(request, offset_commit.OffsetCommitResponse, read, OFFSET_COMMIT_VERSION_MAX)
