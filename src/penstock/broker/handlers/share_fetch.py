"""ShareFetch: a member of a share group gets records, and acknowledges earlier ones (KIP-932).

Stored batches are sent as they are, and the acquired ranges name the offsets that belong to the
member. The acknowledgements of the request are begun first; the answer is sent when all of them are
durable or refused, and when there are records or the time is up. A fetch that finds too little is
parked at its share-partitions, which wake it (`node.shares.live_partition`).

Records are acquired in the step that builds the answer: a client that disconnects earlier costs no
delivery. A client above a quota gets a throttle time and no records. A member needs READ on the
group, and READ on each topic each time that the broker reads.
"""

from penstock.broker.answers import Answer
from penstock.broker.context import RequestContext
from penstock.broker.share_sessions.share_session_table import INITIAL_EPOCH, SharePartitionId
from penstock.broker.shares.share_fetching import ShareFetching, refused
from penstock.broker.shares.share_requests import (
    NO_TOPIC_ID,
    RENEW_VERSION,
    acknowledge_all,
    acknowledgements_of,
    check_member,
)
from penstock.coordinator.shares.ports import Refusal
from penstock.core.deferred import Deferred
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse


def handle(request: ShareFetchRequest, context: RequestContext) -> Answer | Deferred[Answer]:
    """Answer when the acknowledgements are settled and there are records, or the time is up."""
    group, member = request.group_id, request.member_id
    refusal = check_member(group, member, context) or _check_renewal(request, context)
    shares = context.services.shares
    if refusal is not None or shares is None or group is None or member is None:
        return refused(refusal or Refusal(ErrorCode.INVALID_REQUEST))
    groups = shares.get()
    acknowledgements = acknowledgements_of(request.topics)
    session = groups.sessions.begin_fetch(
        group,
        member,
        request.share_session_epoch,
        [
            SharePartitionId(topic.topic_id or NO_TOPIC_ID, one.partition_index)
            for topic in request.topics
            for one in topic.partitions
        ],
        [
            SharePartitionId(topic.topic_id or NO_TOPIC_ID, one)
            for topic in request.forgotten_topics_data
            for one in topic.partitions
        ],
        has_acknowledgements=bool(acknowledgements),
    )
    if isinstance(session, ErrorCode):
        return refused(Refusal(session))
    if request.share_session_epoch == INITIAL_EPOCH:
        groups.follow(session, context.client)
    fetching = ShareFetching(request, context, groups, session)
    answer = fetching.start()
    acknowledge_all(request, groups, session, acknowledgements, context, fetching.acknowledged)
    fetching.fetch()
    return answer


def refuse(_: ShareFetchRequest, code: ErrorCode, message: str) -> ShareFetchResponse:
    """Return the answer to a request that failed as a whole."""
    return refused(Refusal(code, message))


def _check_renewal(request: ShareFetchRequest, context: RequestContext) -> Refusal | None:
    """A request with renewals fetches nothing, and must say so."""
    if context.api_version < RENEW_VERSION or not request.is_renew_ack:
        return None
    fields = {
        "maxBytes": request.max_bytes,
        "minBytes": request.min_bytes,
        "maxRecords": request.max_records,
        "maxWaitMs": request.max_wait_ms,
    }
    wrong = [name for name, value in fields.items() if value != 0]
    if not wrong:
        return None
    why = f"{', '.join(wrong)} must be 0 in a request that renews locks"
    return Refusal(ErrorCode.INVALID_REQUEST, why)
