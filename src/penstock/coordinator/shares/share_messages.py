"""The five requests of share state for one share-partition, and their answers, as plain values.

A request of the protocol may name many share-partitions, each with its own coordinator. A shard
gets them one by one, as requests with one topic and one partition; its answers have one result. The
functions here build and read such messages. They decide nothing, and do NOT know who asks.
"""

from typing import Final, TypeAlias
from uuid import UUID

from penstock.coordinator.shares.ports import (
    Refusal,
    ShareChange,
    ShareKey,
    ShareState,
    ShareSummary,
    StateBatch,
)
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    delete_share_group_state as delete,
)
from penstock.protocol.messages import (
    initialize_share_group_state as initialize,
)
from penstock.protocol.messages import (
    read_share_group_state as read,
)
from penstock.protocol.messages import (
    read_share_group_state_summary as summary,
)
from penstock.protocol.messages import (
    write_share_group_state as write,
)

StateRequest: TypeAlias = (
    initialize.InitializeShareGroupStateRequest
    | read.ReadShareGroupStateRequest
    | write.WriteShareGroupStateRequest
    | delete.DeleteShareGroupStateRequest
    | summary.ReadShareGroupStateSummaryRequest
)
ChangeResponse: TypeAlias = (
    initialize.InitializeShareGroupStateResponse
    | write.WriteShareGroupStateResponse
    | delete.DeleteShareGroupStateResponse
)
StateResponse: TypeAlias = (
    ChangeResponse | read.ReadShareGroupStateResponse | summary.ReadShareGroupStateSummaryResponse
)

NO_TOPIC: Final = UUID(int=0)
_DONE: Final = Refusal(ErrorCode.NONE)
_NO_STATE: Final = ShareState(0, 0, ())
_NO_SUMMARY: Final = ShareSummary(0, 0, 0, -1)


def key_of(request: StateRequest) -> ShareKey:
    """The share-partition of a request for one."""
    (topic,) = request.topics
    (partition,) = topic.partitions
    return ShareKey(request.group_id, topic.topic_id or NO_TOPIC, partition.partition)


def refused(request: StateRequest, refusal: Refusal) -> StateResponse:
    """The answer to a request for one share-partition that failed."""
    key = key_of(request)
    match request:
        case initialize.InitializeShareGroupStateRequest():
            return initialized(key, refusal)
        case read.ReadShareGroupStateRequest():
            return found(key, refusal)
        case write.WriteShareGroupStateRequest():
            return written(key, refusal)
        case delete.DeleteShareGroupStateRequest():
            return deleted(key, refusal)
        case summary.ReadShareGroupStateSummaryRequest():
            return summed_up(key, refusal)


# --- Initialize ---


def initialize_request(
    key: ShareKey, state_epoch: int, start_offset: int
) -> initialize.InitializeShareGroupStateRequest:
    """Create the state of one share-partition, or reset it."""
    one = initialize.PartitionData(
        partition=key.partition, state_epoch=state_epoch, start_offset=start_offset
    )
    topic = initialize.InitializeStateData(topic_id=key.topic_id, partitions=(one,))
    return initialize.InitializeShareGroupStateRequest(group_id=key.group_id, topics=(topic,))


def initialized(
    key: ShareKey, refusal: Refusal | None
) -> initialize.InitializeShareGroupStateResponse:
    """The answer to Initialize."""
    code, message = refusal or _DONE
    one = initialize.PartitionResult(
        partition=key.partition, error_code=code, error_message=message
    )
    result = initialize.InitializeStateResult(topic_id=key.topic_id, partitions=(one,))
    return initialize.InitializeShareGroupStateResponse(results=(result,))


# --- Read ---


def read_request(key: ShareKey, leader_epoch: int) -> read.ReadShareGroupStateRequest:
    """Read the state of one share-partition."""
    one = read.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
    topic = read.ReadStateData(topic_id=key.topic_id, partitions=(one,))
    return read.ReadShareGroupStateRequest(group_id=key.group_id, topics=(topic,))


def found(key: ShareKey, state: ShareState | Refusal) -> read.ReadShareGroupStateResponse:
    """The answer to Read."""
    code, message = state if isinstance(state, Refusal) else _DONE
    shown = _NO_STATE if isinstance(state, Refusal) else state
    one = read.PartitionResult(
        partition=key.partition,
        error_code=code,
        error_message=message,
        state_epoch=shown.state_epoch,
        start_offset=shown.start_offset,
        state_batches=tuple(
            read.StateBatch(
                first_offset=first,
                last_offset=last,
                delivery_state=state,
                delivery_count=count,
            )
            for first, last, state, count in shown.batches
        ),
    )
    result = read.ReadStateResult(topic_id=key.topic_id, partitions=(one,))
    return read.ReadShareGroupStateResponse(results=(result,))


def state_of(response: read.ReadShareGroupStateResponse) -> ShareState | Refusal:
    """The state in an answer about one share-partition."""
    ((one,),) = (result.partitions for result in response.results)
    if one.error_code is not ErrorCode.NONE:
        return Refusal(one.error_code, one.error_message)
    batches = tuple(
        StateBatch(
            batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count
        )
        for batch in one.state_batches
    )
    return ShareState(one.state_epoch, one.start_offset, batches)


# --- Write ---


def write_request(key: ShareKey, change: ShareChange) -> write.WriteShareGroupStateRequest:
    """Change the state of one share-partition."""
    one = write.PartitionData(
        partition=key.partition,
        state_epoch=change.state_epoch,
        leader_epoch=change.leader_epoch,
        start_offset=change.start_offset,
        delivery_complete_count=change.delivery_complete_count,
        state_batches=tuple(
            write.StateBatch(
                first_offset=first,
                last_offset=last,
                delivery_state=state,
                delivery_count=count,
            )
            for first, last, state, count in change.batches
        ),
    )
    topic = write.WriteStateData(topic_id=key.topic_id, partitions=(one,))
    return write.WriteShareGroupStateRequest(group_id=key.group_id, topics=(topic,))


def change_of(request: write.WriteShareGroupStateRequest) -> ShareChange:
    """The change in a request for one share-partition."""
    ((one,),) = (topic.partitions for topic in request.topics)
    batches = tuple(
        StateBatch(
            batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count
        )
        for batch in one.state_batches
    )
    return ShareChange(
        one.state_epoch, one.leader_epoch, one.start_offset, batches, one.delivery_complete_count
    )


def written(key: ShareKey, refusal: Refusal | None) -> write.WriteShareGroupStateResponse:
    """The answer to Write."""
    code, message = refusal or _DONE
    one = write.PartitionResult(partition=key.partition, error_code=code, error_message=message)
    result = write.WriteStateResult(topic_id=key.topic_id, partitions=(one,))
    return write.WriteShareGroupStateResponse(results=(result,))


# --- Delete ---


def delete_request(key: ShareKey) -> delete.DeleteShareGroupStateRequest:
    """Delete the state of one share-partition."""
    topic = delete.DeleteStateData(
        topic_id=key.topic_id, partitions=(delete.PartitionData(partition=key.partition),)
    )
    return delete.DeleteShareGroupStateRequest(group_id=key.group_id, topics=(topic,))


def deleted(key: ShareKey, refusal: Refusal | None) -> delete.DeleteShareGroupStateResponse:
    """The answer to Delete."""
    code, message = refusal or _DONE
    one = delete.PartitionResult(partition=key.partition, error_code=code, error_message=message)
    result = delete.DeleteStateResult(topic_id=key.topic_id, partitions=(one,))
    return delete.DeleteShareGroupStateResponse(results=(result,))


# --- Summary ---


def summary_request(key: ShareKey, leader_epoch: int) -> summary.ReadShareGroupStateSummaryRequest:
    """Read the summary of the state of one share-partition."""
    one = summary.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
    topic = summary.ReadStateSummaryData(topic_id=key.topic_id, partitions=(one,))
    return summary.ReadShareGroupStateSummaryRequest(group_id=key.group_id, topics=(topic,))


def summed_up(
    key: ShareKey, state: ShareSummary | Refusal
) -> summary.ReadShareGroupStateSummaryResponse:
    """The answer to ReadSummary."""
    code, message = state if isinstance(state, Refusal) else _DONE
    shown = _NO_SUMMARY if isinstance(state, Refusal) else state
    one = summary.PartitionResult(
        partition=key.partition, error_code=code, error_message=message, **shown._asdict()
    )
    result = summary.ReadStateSummaryResult(topic_id=key.topic_id, partitions=(one,))
    return summary.ReadShareGroupStateSummaryResponse(results=(result,))


def summary_of(response: summary.ReadShareGroupStateSummaryResponse) -> ShareSummary | Refusal:
    """The summary in an answer about one share-partition."""
    ((one,),) = (result.partitions for result in response.results)
    if one.error_code is not ErrorCode.NONE:
        return Refusal(one.error_code, one.error_message)
    return ShareSummary(
        one.state_epoch, one.leader_epoch, one.start_offset, one.delivery_complete_count
    )


def refusal_of(response: ChangeResponse) -> Refusal | None:
    """The error in an answer about one share-partition; None: it succeeded."""
    (result,) = response.results
    (one,) = result.partitions
    if one.error_code is ErrorCode.NONE:
        return None
    return Refusal(one.error_code, one.error_message)
