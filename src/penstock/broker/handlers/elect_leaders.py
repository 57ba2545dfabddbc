"""ElectLeaders: the first replica of a partition leads again, or any replica of an offline one.

Without other brokers, the only replica leads as long as the broker runs: no election is needed.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.denials import CLUSTER_DENIED
from penstock.broker.error_mapping import outcome_of
from penstock.broker.pacing.slices import NextTurn
from penstock.cluster.image import MetadataImage
from penstock.cluster.link.election_outcomes import ElectionOutcome
from penstock.core.errors import PenstockError
from penstock.core.limits import TOPIC_NAME_CHARACTERS_MAX
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from penstock.security.acls.values import Operation

_PREFERRED: Final = 0
_UNCLEAN: Final = 1
_ELECTION_TYPES: Final = frozenset({_PREFERRED, _UNCLEAN})
NOT_NEEDED: Final = ElectionOutcome.NOT_NEEDED
_NOT_AVAILABLE: Final = {
    _PREFERRED: (
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        "The preferred leader was not available.",
    ),
    _UNCLEAN: (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        "Eligible topic partition leaders are not available.",
    ),
}
Outcomes = Mapping[tuple[str, int], ElectionOutcome | PenstockError]
_CODE_VERSION: Final = 1
"""The first version with a code for the whole request."""


async def handle(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    """Elect leaders, and return the outcome of each partition.

    The answer to a request for all partitions lists only the ones that need an election, as in
    Kafka.
    """
    is_allowed = context.allows_cluster(Operation.ALTER)
    is_known = request.election_type in _ELECTION_TYPES
    code = ErrorCode.NONE if is_known else ErrorCode.INVALID_REQUEST
    if not is_allowed:
        code = CLUSTER_DENIED.code
    code_of_all = code if context.api_version >= _CODE_VERSION else ErrorCode.NONE
    image = context.services.metadata.image
    asked = [(one.topic, one.partitions) for one in request.topic_partitions or ()]
    if request.topic_partitions is None and code is ErrorCode.NONE:
        asked = [(one.name, tuple(range(len(one.partitions)))) for one in image.topics.values()]
    outcomes: Outcomes = {}
    if code is ErrorCode.NONE:
        outcomes = await _elected(asked, request.election_type, context)
    turn = NextTurn(context.services.turns, context.services.clock)
    results: list[ReplicaElectionResult] = []
    for name, indexes in asked:
        found: list[PartitionResult] = []
        for index in indexes:
            await turn.wait_if_due()
            outcome = outcomes.get((name, index), NOT_NEEDED)
            if request.topic_partitions is None and outcome is NOT_NEEDED:
                continue
            found.append(
                _result(name, index, request.election_type, outcome, image)
                if is_allowed
                else _denied(index)
            )
        results.append(ReplicaElectionResult(topic=name, partition_result=tuple(found)))
    return ElectLeadersResponse(error_code=code_of_all, replica_election_results=tuple(results))


async def _elected(
    asked: Sequence[tuple[str, Sequence[int]]], election_type: int, context: RequestContext
) -> Outcomes:
    """Elect in a cluster; return the outcomes, none without other brokers."""
    elections = context.services.elections
    if elections is None:
        return {}
    places = [(name, index) for name, indexes in asked for index in indexes]
    try:
        return await elections.elect(places, is_unclean=election_type == _UNCLEAN)
    except PenstockError as error:
        return dict.fromkeys(places, error)


def _denied(index: int) -> PartitionResult:
    code, message = CLUSTER_DENIED
    return PartitionResult(partition_id=index, error_code=code, error_message=message)


def _result(
    topic: str,
    index: int,
    election_type: int,
    outcome: ElectionOutcome | PenstockError,
    image: MetadataImage,
) -> PartitionResult:
    if election_type not in _ELECTION_TYPES:
        code, message = ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}"
    elif image.topic(topic) is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # Bounded, because it is repeated for each partition.
        message = f"No such topic as {topic[:TOPIC_NAME_CHARACTERS_MAX]}"
    elif image.partition(topic, index) is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        message = f"No such partition as {topic}-{index}"
    elif isinstance(outcome, PenstockError):
        failed = outcome_of(outcome)
        return PartitionResult(
            partition_id=index, error_code=failed.code, error_message=failed.message
        )
    elif outcome is ElectionOutcome.ELECTED:
        return PartitionResult(partition_id=index, error_code=ErrorCode.NONE, error_message=None)
    elif outcome is ElectionOutcome.NOT_AVAILABLE:
        code, message = _NOT_AVAILABLE[election_type]
    else:
        code = ErrorCode.ELECTION_NOT_NEEDED
        message = "Leader election not needed for topic partition."
    return PartitionResult(partition_id=index, error_code=code, error_message=message)
