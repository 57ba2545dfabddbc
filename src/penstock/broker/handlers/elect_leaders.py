"""ElectLeaders: every partition is led by its preferred replica, so no election is needed.

A partition has one replica here, which leads it as long as the broker runs.
"""

from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.pacing.slices import NextTurn
from penstock.core.limits import TOPIC_NAME_CHARACTERS_MAX
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_ELECTION_TYPES: Final = frozenset({0, 1})
"""Of the preferred replica, and an unclean one."""


async def handle(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """Answer for each partition that its leader is the preferred one, or that it does not exist.

    The answer to a request for all partitions lists only changed ones: none, as in Kafka.
    """
    is_known = request.election_type in _ELECTION_TYPES
    if request.topic_partitions is None:
        topics = context.services.metadata.image.topics if is_known else ()
        return ElectLeadersResponse(
            error_code=ErrorCode.NONE if is_known else ErrorCode.INVALID_REQUEST,
            replica_election_results=tuple(
                ReplicaElectionResult(topic=name, partition_result=()) for name in topics
            ),
        )
    services = context.services
    turn = NextTurn(services.turns, services.clock)
    results: list[ReplicaElectionResult] = []
    for topic in request.topic_partitions:
        found: list[PartitionResult] = []
        for index in topic.partitions:
            await turn.wait_if_due()
            found.append(_result(topic.topic, index, request.election_type, context))
        results.append(ReplicaElectionResult(topic=topic.topic, partition_result=tuple(found)))
    return ElectLeadersResponse(
        error_code=ErrorCode.NONE if is_known else ErrorCode.INVALID_REQUEST,
        replica_election_results=tuple(results),
    )


def _result(topic: str, index: int, election_type: int, context: RequestContext) -> PartitionResult:
    image = context.services.metadata.image
    if election_type not in _ELECTION_TYPES:
        code, message = ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}"
    elif image.topic(topic) is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # Bounded, because it is repeated for each partition.
        message = f"No such topic as {topic[:TOPIC_NAME_CHARACTERS_MAX]}"
    elif image.partition(topic, index) is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        message = f"No such partition as {topic}-{index}"
    else:
        code = ErrorCode.ELECTION_NOT_NEEDED
        message = "Leader election not needed for topic partition."
    return PartitionResult(partition_id=index, error_code=code, error_message=message)
