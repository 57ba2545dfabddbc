"""DeleteRecords: deletes all records below an offset, permanently, and frees whole segments.

The answer is sent when the new start is on the disk: deleted records stay deleted after a crash.
Apache Kafka answers first and may show the records again after one. It waits for the followers that
are registered too, as long as the request allows (REQUEST_TIMED_OUT). An offset of -1 means the
high watermark. A topic that is only compacted keeps its records (POLICY_VIOLATION), as in Kafka.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of
from penstock.broker.pacing.slices import NextTurn
from penstock.broker.partition_states import hosted_partition
from penstock.core.errors import (
    InvalidTopicNameError,
    OffsetOutOfRangeError,
    PenstockError,
    PolicyViolationError,
)
from penstock.core.limits import PRODUCE_WAIT_MS_MAX
from penstock.core.types import INTERNAL_TOPICS, TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.partition import NO_EPOCH
from penstock.security.acls.values import Operation, ResourceType

HIGH_WATERMARK: Final = -1
NO_LOW_WATERMARK: Final = -1


async def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    """Answer for each partition."""
    # A partition that is named twice gets the last offset, as in Kafka.
    services = context.services
    turn = NextTurn(services.turns, services.clock)
    asked: dict[TopicPartition, int] = {}
    denied: set[str] = set()
    for topic in request.topics:
        if not context.allows(Operation.DELETE, ResourceType.TOPIC, topic.name):
            denied.add(topic.name)
        for one in topic.partitions:
            asked[TopicPartition(topic.name, one.partition_index)] = one.offset
            await turn.wait_if_due()
    results: dict[TopicPartition, DeleteRecordsPartitionResult] = {}
    starts: list[tuple[HostedPartition, int]] = []
    for name, offset in asked.items():
        await turn.wait_if_due()
        if name.topic in denied:
            results[name] = _refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            continue
        try:
            starts.append(_start(name, offset, context))
        except PenstockError as error:
            results[name] = _refused(name, code_of(error))
    before = [partition.log.log_start_offset for partition, _ in starts]
    outcomes = await services.record_deletion.advance_starts(starts)
    late = await _late(_moved(starts, before, outcomes), request.timeout_ms, context)
    turn.restart()
    for (partition, _), outcome in zip(starts, outcomes, strict=True):
        await turn.wait_if_due()
        if partition in late:
            results[partition.name] = _refused(partition.name, late[partition])
        elif outcome is None:
            results[partition.name] = DeleteRecordsPartitionResult(
                partition_index=partition.name.partition,
                low_watermark=partition.log.log_start_offset,
            )
        else:
            results[partition.name] = _refused(partition.name, code_of(outcome))
    return await _response(results, asked, turn)


async def _response(
    results: Mapping[TopicPartition, DeleteRecordsPartitionResult],
    asked: Iterable[TopicPartition],
    turn: NextTurn,
) -> DeleteRecordsResponse:
    """Return the answer, with the topics in the order of the request."""
    by_topic: dict[str, list[DeleteRecordsPartitionResult]] = {}
    for name in asked:
        await turn.wait_if_due()
        by_topic.setdefault(name.topic, []).append(results[name])
    return DeleteRecordsResponse(
        topics=tuple(
            DeleteRecordsTopicResult(name=name_of_topic, partitions=tuple(partitions))
            for name_of_topic, partitions in by_topic.items()
        )
    )


def _moved(
    starts: Sequence[tuple[HostedPartition, int]],
    before: Sequence[int],
    outcomes: Sequence[PenstockError | None],
) -> list[tuple[HostedPartition, int]]:
    """Return the partitions with followers whose log starts were moved, with their offsets."""
    return [
        one
        for one, start, outcome in zip(starts, before, outcomes, strict=True)
        if outcome is None and one[1] > start and one[0].state.in_sync is not None
    ]


async def _late(
    moved: Sequence[tuple[HostedPartition, int]], timeout_ms: int, context: RequestContext
) -> dict[HostedPartition, ErrorCode]:
    """Wait until live followers have the new starts; return the errors of the others."""
    services = context.services
    replicas, metadata = services.replicas, services.metadata
    waits = [replicas.start_waits.begin(partition, offset) for partition, offset in moved]
    errors: dict[HostedPartition, ErrorCode] = {}
    seconds = min(max(0, timeout_ms), PRODUCE_WAIT_MS_MAX) / 1000
    deadline = asyncio.get_running_loop().time() + seconds
    try:
        for wait in waits:
            replicas.answer_soon(wait.partition)
        for wait in waits:
            try:
                async with asyncio.timeout_at(deadline):
                    await replicas.start_waits.reached(wait, lambda: metadata.image.brokers)
            except TimeoutError:
                errors[wait.partition] = ErrorCode.REQUEST_TIMED_OUT
            if not wait.partition.state.is_leader:
                errors[wait.partition] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    finally:
        for wait in waits:
            replicas.start_waits.end(wait)
    return errors


def _start(
    name: TopicPartition, offset: int, context: RequestContext
) -> tuple[HostedPartition, int]:
    """The partition and its new start, or the reason why not."""
    partition = hosted_partition(name, context)
    if name.topic in INTERNAL_TOPICS:
        raise InvalidTopicNameError(f"Cannot delete records of internal topic {name.topic}")
    partition.state.require_leader(NO_EPOCH)
    if not partition.log.settings.deletes_records:
        raise PolicyViolationError(
            f"Records of partition {name} can not be deleted due to the configured policy"
        )
    high_watermark = partition.state.high_watermark
    wanted = high_watermark if offset == HIGH_WATERMARK else offset
    if not 0 <= wanted <= high_watermark:
        raise OffsetOutOfRangeError(wanted, partition.log.log_start_offset, high_watermark)
    return partition, wanted


def _refused(name: TopicPartition, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=name.partition, low_watermark=NO_LOW_WATERMARK, error_code=code
    )
