"""ShareAcknowledge: a member of a share group acknowledges records without a fetch (KIP-932).

Each partition is answered when its acknowledgements are durable, or with the reason why they are
refused. The epoch -1 closes the session afterwards, which releases the other records of the member.
"""

from penstock.broker.answers import Answer
from penstock.broker.context import RequestContext
from penstock.broker.share_sessions.share_session_table import FINAL_EPOCH
from penstock.broker.shares.share_requests import (
    LEADER_CHANGED,
    AcknowledgeRound,
    Leader,
    acknowledge_all,
    acknowledgements_of,
    by_topic,
    check_member,
    leader_of,
)
from penstock.coordinator.shares.ports import Refusal
from penstock.core.deferred import Deferred
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)


def handle(request: ShareAcknowledgeRequest, context: RequestContext) -> Answer | Deferred[Answer]:
    """Answer when all acknowledgements are durable or refused."""
    group, member = request.group_id, request.member_id
    refusal = check_member(group, member, context)
    shares = context.services.shares
    if refusal is not None or shares is None or group is None or member is None:
        return _refused(refusal or Refusal(ErrorCode.INVALID_REQUEST))
    groups = shares.get()
    session = groups.sessions.begin_acknowledge(group, member, request.share_session_epoch)
    if isinstance(session, ErrorCode):
        return _refused(Refusal(session))
    answer: Deferred[Answer] = Deferred()

    def done(work: AcknowledgeRound) -> None:
        if request.share_session_epoch == FINAL_EPOCH:
            groups.close(session)
        lock_ms = groups.settings_of(group).lock_duration_ms
        answer.set(_answer(work, lock_ms, context))

    acknowledgements = acknowledgements_of(request.topics)
    acknowledge_all(request, groups, session, acknowledgements, context, done)
    return answer


def refuse(_: ShareAcknowledgeRequest, code: ErrorCode, message: str) -> ShareAcknowledgeResponse:
    """Return the answer to a request that failed as a whole."""
    return _refused(Refusal(code, message))


def _refused(refusal: Refusal) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(
        error_code=refusal.error_code,
        error_message=refusal.message,
        responses=(),
        node_endpoints=(),
    )


def _answer(
    work: AcknowledgeRound, lock_ms: int, context: RequestContext
) -> ShareAcknowledgeResponse:
    leaders: dict[int, Leader] = {}
    rows = []
    for partition, refusal in work.results.items():
        current = LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
        if refusal is not None and refusal.error_code in LEADER_CHANGED:
            leader = leader_of(partition, context)
            current = LeaderIdAndEpoch(leader_id=leader.broker_id, leader_epoch=leader.epoch)
            if leader.port >= 0:
                leaders[leader.broker_id] = leader
        data = PartitionData(
            partition_index=partition.partition,
            error_code=ErrorCode.NONE if refusal is None else refusal.error_code,
            error_message=None if refusal is None else refusal.message,
            current_leader=current,
        )
        rows.append((partition, data))
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_ms,
        responses=tuple(
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in by_topic(rows).items()
        ),
        node_endpoints=tuple(
            NodeEndpoint(node_id=one.broker_id, host=one.host, port=one.port, rack=one.rack)
            for one in leaders.values()
        ),
    )
