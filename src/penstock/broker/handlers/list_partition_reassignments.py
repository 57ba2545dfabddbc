"""ListPartitionReassignments: the partitions whose replicas are moving."""

from collections.abc import Iterable

from penstock.broker.context import RequestContext
from penstock.broker.denials import CLUSTER_DENIED
from penstock.broker.pacing.slices import NextTurn
from penstock.cluster.image import MetadataImage, PartitionImage
from penstock.cluster.moves.reassignment import is_moving
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from penstock.security.acls.values import Operation


async def handle(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """Return the partitions that are moving, of the topics in the request or of all.

    Topics and partitions that do not exist are passed over, as in Kafka.
    """
    turn = NextTurn(context.services.turns, context.services.clock)
    if not context.allows_cluster(Operation.DESCRIBE):
        return await _denied(request, turn)
    image = context.services.metadata.image
    found: list[OngoingTopicReassignment] = []
    for name, indexes in await _asked(request, image, turn):
        await turn.wait_if_due()
        moving: list[OngoingPartitionReassignment] = []
        for index in indexes:
            await turn.wait_if_due()
            state = image.partition(name, index)
            if state is not None and is_moving(state):
                moving.append(_ongoing(index, state))
        if moving:
            found.append(OngoingTopicReassignment(name=name, partitions=tuple(moving)))
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, topics=tuple(found))


async def _asked(
    request: ListPartitionReassignmentsRequest, image: MetadataImage, turn: NextTurn
) -> Iterable[tuple[str, Iterable[int]]]:
    """Return each topic with its partitions; once, however often the request repeats it."""
    if request.topics is None:
        return ((one.name, range(len(one.partitions))) for one in image.topics.values())
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        await turn.wait_if_due()
        indexes = asked.setdefault(topic.name, {})
        for index in topic.partition_indexes:
            await turn.wait_if_due()
            indexes[index] = None
    return asked.items()


def _ongoing(index: int, state: PartitionImage) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=state.replicas,
        adding_replicas=tuple(sorted(state.adding)),
        removing_replicas=tuple(sorted(state.removing)),
    )


async def _denied(
    request: ListPartitionReassignmentsRequest, turn: NextTurn
) -> ListPartitionReassignmentsResponse:
    """As Kafka answers: with the partitions of the request, and nothing about them."""
    topics: list[OngoingTopicReassignment] = []
    for topic in request.topics or ():
        await turn.wait_if_due()
        found: list[OngoingPartitionReassignment] = []
        for index in topic.partition_indexes:
            await turn.wait_if_due()
            found.append(OngoingPartitionReassignment(partition_index=index))
        topics.append(OngoingTopicReassignment(name=topic.name, partitions=tuple(found)))
    return ListPartitionReassignmentsResponse(
        error_code=CLUSTER_DENIED.code,
        error_message=CLUSTER_DENIED.message,
        topics=tuple(topics),
    )
