"""Builds the answer to a ShareFetch from acquired records, errors and acknowledgements. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.broker.context import RequestContext
from penstock.broker.share_sessions.share_session_table import SharePartitionId
from penstock.broker.shares.share_requests import LEADER_CHANGED, Leader, by_topic, leader_of
from penstock.coordinator.shares.delivery.acquisition import Acquired
from penstock.coordinator.shares.ports import Refusal
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)

_NO_LEADER = LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
_SUCCESS = Refusal(ErrorCode.NONE)


class FetchedRow(NamedTuple):
    """The records of one partition in an answer."""

    records: memoryview
    acquired: Sequence[Acquired]


def refused(refusal: Refusal) -> ShareFetchResponse:
    """Return the answer to a request that failed as a whole."""
    return ShareFetchResponse(
        error_code=refusal.error_code,
        error_message=refusal.message,
        acquisition_lock_timeout_ms=0,
        responses=(),
        node_endpoints=(),
    )


def share_fetch_answer(
    rows: Mapping[SharePartitionId, FetchedRow],
    errors: Mapping[SharePartitionId, Refusal],
    acknowledged: Mapping[SharePartitionId, Refusal | None],
    context: RequestContext,
    *,
    ready: Sequence[SharePartitionId] = (),
    lock_ms: int,
    throttle_ms: int,
) -> ShareFetchResponse:
    """Return the answer with all partitions that have records, an error or an acknowledgement.

    The `ready` ones are named without any of these.
    """
    leaders: dict[int, Leader] = {}
    data = []
    for partition in dict.fromkeys((*rows, *errors, *acknowledged, *ready)):
        error = errors.get(partition) or _SUCCESS
        refusal = acknowledged.get(partition) or _SUCCESS
        current = _NO_LEADER
        if error.error_code in LEADER_CHANGED or refusal.error_code in LEADER_CHANGED:
            leader = leader_of(partition, context)
            current = LeaderIdAndEpoch(leader_id=leader.broker_id, leader_epoch=leader.epoch)
            if leader.port >= 0:
                leaders[leader.broker_id] = leader
        row = rows.get(partition)
        one = PartitionData(
            partition_index=partition.partition,
            error_code=error.error_code,
            error_message=error.message,
            acknowledge_error_code=refusal.error_code,
            acknowledge_error_message=refusal.message,
            current_leader=current,
            records=b"" if row is None else row.records,
            acquired_records=() if row is None else _acquired(row.acquired),
        )
        data.append((partition, one))
    return ShareFetchResponse(
        throttle_time_ms=throttle_ms,
        acquisition_lock_timeout_ms=lock_ms,
        responses=tuple(
            ShareFetchableTopicResponse(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in by_topic(data).items()
        ),
        node_endpoints=tuple(
            NodeEndpoint(node_id=one.broker_id, host=one.host, port=one.port, rack=one.rack)
            for one in leaders.values()
        ),
    )


def _acquired(ranges: Sequence[Acquired]) -> tuple[AcquiredRecords, ...]:
    return tuple(
        AcquiredRecords(
            first_offset=one.first, last_offset=one.last, delivery_count=one.delivery_count
        )
        for one in ranges
    )
