"""DescribeProducers: the producer states of a partition, and where their transactions began.

Operators use it to find a transaction that holds the last stable offset back. A partition is in the
answer once. An answer describes at most `PRODUCERS_DESCRIBED_MAX` producers; the partitions that do
not fit are refused, with a message that says so.
"""

from penstock.broker.context import RequestContext
from penstock.broker.denials import TOPIC_DENIED
from penstock.broker.error_mapping import Outcome, code_of, message_of, missing_topic_code
from penstock.broker.pacing.slices import SLICE_ITEMS, NextTurn
from penstock.broker.partition_states import hosted_partition
from penstock.core.errors import PenstockError
from penstock.core.limits import PRODUCERS_DESCRIBED_MAX
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from penstock.security.acls.values import Operation, ResourceType
from penstock.storage.log.producer_entry import ProducerEntry


async def handle(
    request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """Answer for each partition."""
    services = context.services
    topics: list[TopicResponse] = []
    turn = NextTurn(services.turns, services.clock)
    room = PRODUCERS_DESCRIBED_MAX
    described: set[TopicPartition] = set()
    for topic in request.topics:
        found: list[PartitionResponse] = []
        refusal = _refusal(topic.name, context)
        for index in topic.partition_indexes:
            await turn.wait_if_due()
            name = TopicPartition(topic.name, index)
            if name in described:
                continue
            described.add(name)
            if refusal is not None:
                found.append(_refused(name, *refusal))
                continue
            answer = await _partition(name, context, turn, room)
            room -= len(answer.active_producers)
            found.append(answer)
        topics.append(TopicResponse(name=topic.name, partitions=tuple(found)))
    return DescribeProducersResponse(topics=tuple(topics))


def _refusal(topic: str, context: RequestContext) -> Outcome | None:
    """The error for each partition of a topic, in Kafka's order: name, permission, existence."""
    exists = context.services.metadata.image.topic(topic) is not None
    code = ErrorCode.NONE if exists else missing_topic_code(topic)
    is_valid = code is not ErrorCode.INVALID_TOPIC_EXCEPTION
    if is_valid and not context.allows(Operation.READ, ResourceType.TOPIC, topic):
        return TOPIC_DENIED
    return None if exists else Outcome(code, f"there is no topic {topic}")


async def _partition(
    name: TopicPartition, context: RequestContext, turn: NextTurn, room: int
) -> PartitionResponse:
    try:
        partition = hosted_partition(name, context)
        partition.require_readable()
    except PenstockError as error:
        return _refused(name, code_of(error), message_of(error))
    # A copy: producers are added and removed between two slices.
    entries = tuple(partition.log.producers.entries.items())
    if len(entries) > room:
        return _refused(name, ErrorCode.INVALID_REQUEST, _too_many(len(entries), room))
    producers: list[ProducerState] = []
    for start in range(0, len(entries), SLICE_ITEMS):
        await turn.wait_if_due()
        few = entries[start : start + SLICE_ITEMS]
        producers += [_producer(producer_id, entry) for producer_id, entry in few]
    return PartitionResponse(
        partition_index=name.partition,
        error_code=ErrorCode.NONE,
        active_producers=tuple(producers),
    )


def _too_many(count: int, room: int) -> str:
    return (
        f"the partition has {count:,} producers, and this answer has room for {room:,} of "
        f"{PRODUCERS_DESCRIBED_MAX:,}; ask for fewer partitions in one request"
    )


def _refused(name: TopicPartition, code: ErrorCode, message: str | None) -> PartitionResponse:
    return PartitionResponse(
        partition_index=name.partition, error_code=code, error_message=message, active_producers=()
    )


def _producer(producer_id: int, entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.batches[-1].last_sequence if entry.batches else -1,
        last_timestamp=entry.last_timestamp_ms,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.open_offset,
    )
