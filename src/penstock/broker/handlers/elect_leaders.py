"""ElectLeaders: every partition is led by its preferred replica, so no election is needed.

A partition has one replica here, which leads it as long as the broker runs.
"""

from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.denials import CLUSTER_DENIED
from penstock.broker.pacing.slices import NextTurn
from penstock.core.limits import TOPIC_NAME_CHARACTERS_MAX
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from penstock.security.acls.values import Operation

_ELECTION_TYPES: Final = frozenset({0, 1})
"""Of the preferred replica, and an unclean one."""
_CODE_VERSION: Final = 1
"""The first version with a code for the whole request."""


async def handle(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """Answer for each partition that its leader is the preferred one, or that it does not exist.

    The answer to a request for all partitions lists only changed ones: none, as in Kafka.
    """
    is_allowed = context.allows_cluster(Operation.ALTER)
    is_known = request.election_type in _ELECTION_TYPES
    code = ErrorCode.NONE if is_known else ErrorCode.INVALID_REQUEST
    if not is_allowed:
        code = CLUSTER_DENIED.code
    code_of_all = code if context.api_version >= _CODE_VERSION else ErrorCode.NONE
    if request.topic_partitions is None:
        topics = context.services.metadata.image.topics if code is ErrorCode.NONE else ()
        return ElectLeadersResponse(
            error_code=code_of_all,
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
            found.append(
                _result(topic.topic, index, request.election_type, context)
                if is_allowed
                else _denied(index)
            )
        results.append(ReplicaElectionResult(topic=topic.topic, partition_result=tuple(found)))
    return ElectLeadersResponse(error_code=code_of_all, replica_election_results=tuple(results))


def _denied(index: int) -> PartitionResult:
    code, message = CLUSTER_DENIED
    return PartitionResult(partition_id=index, error_code=code, error_message=message)


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
