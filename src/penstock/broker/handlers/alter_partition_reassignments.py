"""AlterPartitionReassignments: the replicas of partitions move to other brokers, or stop moving.

The answer comes when the moves have begun, or have been cancelled; the records are copied after it.
Any broker carries it out. A broker that is alone is the only valid target, and nothing changes.
"""

from collections.abc import Iterator
from itertools import repeat

from penstock.broker.context import RequestContext
from penstock.broker.denials import CLUSTER_DENIED
from penstock.broker.error_mapping import Outcome, outcome_of
from penstock.broker.pacing.slices import NextTurn
from penstock.cluster.moves.requested_moves import MoveOutcome, ReplicaMove
from penstock.core.errors import NoReassignmentError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from penstock.security.acls.values import Operation


async def handle(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Answer for each partition by itself; a client without ALTER gets one error for all."""
    turn = NextTurn(context.services.turns, context.services.clock)
    if not context.allows_cluster(Operation.ALTER):
        return AlterPartitionReassignmentsResponse(
            error_code=CLUSTER_DENIED.code,
            error_message=CLUSTER_DENIED.message,
            responses=await _answers(request, repeat(CLUSTER_DENIED), turn),
        )
    moves: list[ReplicaMove] = []
    for topic in request.topics:
        await turn.wait_if_due()
        for one in topic.partitions:
            await turn.wait_if_due()
            moves.append(ReplicaMove(topic.name, one.partition_index, one.replicas))
    outcomes = await context.services.topics.move_replicas(
        moves, may_change_factor=request.allow_replication_factor_change
    )
    turn.restart()
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        responses=await _answers(request, map(_shown, outcomes), turn),
    )


def _shown(outcome: MoveOutcome) -> Outcome:
    if isinstance(outcome, NoReassignmentError):
        # Without a message, as in Kafka.
        return Outcome(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
    return outcome_of(outcome)


async def _answers(
    request: AlterPartitionReassignmentsRequest, outcomes: Iterator[Outcome], turn: NextTurn
) -> tuple[ReassignableTopicResponse, ...]:
    """Return the answers in the order of the request."""
    answers: list[ReassignableTopicResponse] = []
    for topic in request.topics:
        await turn.wait_if_due()
        found: list[ReassignablePartitionResponse] = []
        for target in topic.partitions:
            await turn.wait_if_due()
            found.append(_result(target.partition_index, next(outcomes)))
        answers.append(ReassignableTopicResponse(name=topic.name, partitions=tuple(found)))
    return tuple(answers)


def _result(index: int, outcome: Outcome) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=index, error_code=outcome.code, error_message=outcome.message
    )
