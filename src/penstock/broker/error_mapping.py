"""Domain error to `ErrorCode`, in one table, and to the error message for the client.

An error that is not in the table is UNKNOWN_SERVER_ERROR. A handler raises the error of a whole
request, and the dispatcher maps it; handlers map the outcomes of single topics, partitions and
groups, and the errors of work that they do not await.
"""

from typing import Final, NamedTuple

from penstock.cluster.topic_rules import check_topic_name
from penstock.core import errors
from penstock.core.limits import ERROR_MESSAGE_CHARACTERS_MAX
from penstock.protocol.error_codes import ErrorCode

CODES: Final[dict[type[errors.PenstockError], ErrorCode]] = {
    errors.CorruptBatchError: ErrorCode.CORRUPT_MESSAGE,
    errors.InvalidBatchError: ErrorCode.INVALID_RECORD,
    errors.BatchTooLargeError: ErrorCode.MESSAGE_TOO_LARGE,
    errors.UnsupportedCompressionError: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    errors.InvalidTimestampError: ErrorCode.INVALID_TIMESTAMP,
    errors.LogDirectoryOfflineError: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.DiskFullError: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.QuarantinedLogError: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.StorageError: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.OffsetOutOfRangeError: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.OutOfOrderSequenceError: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.InvalidProducerEpochError: ErrorCode.INVALID_PRODUCER_EPOCH,
    errors.InvalidTransactionStateError: ErrorCode.INVALID_TXN_STATE,
    errors.FencedTransactionCoordinatorError: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    errors.UnknownTopicOrPartitionError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownTopicIdError: ErrorCode.UNKNOWN_TOPIC_ID,
    errors.TopicExistsError: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.InvalidTopicNameError: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.InvalidPartitionsError: ErrorCode.INVALID_PARTITIONS,
    errors.InvalidReplicationFactorError: ErrorCode.INVALID_REPLICATION_FACTOR,
    errors.InvalidReplicaAssignmentError: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    errors.NoReassignmentError: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    errors.InvalidTopicConfigError: ErrorCode.INVALID_CONFIG,
    errors.InvalidRequestError: ErrorCode.INVALID_REQUEST,
    errors.PolicyViolationError: ErrorCode.POLICY_VIOLATION,
    errors.UnknownBrokerError: ErrorCode.BROKER_ID_NOT_REGISTERED,
    errors.UnsupportedEntityError: ErrorCode.UNSUPPORTED_VERSION,
    errors.ThrottledError: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    errors.StoreError: ErrorCode.REQUEST_TIMED_OUT,
    errors.NotLeaderError: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.NotEnoughReplicasError: ErrorCode.NOT_ENOUGH_REPLICAS,
    errors.FencedLeaderEpochError: ErrorCode.FENCED_LEADER_EPOCH,
    errors.UnknownLeaderEpochError: ErrorCode.UNKNOWN_LEADER_EPOCH,
    errors.OffsetNotAvailableError: ErrorCode.OFFSET_NOT_AVAILABLE,
    errors.RequestTimedOutError: ErrorCode.REQUEST_TIMED_OUT,
    errors.TooManyWaitersError: ErrorCode.REQUEST_TIMED_OUT,
    errors.CoordinatorNotAvailableError: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.CoordinatorLoadingError: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    errors.NotCoordinatorError: ErrorCode.NOT_COORDINATOR,
    errors.UnknownMechanismError: ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    errors.UnacceptableCredentialError: ErrorCode.UNACCEPTABLE_CREDENTIAL,
    errors.DuplicateUserError: ErrorCode.DUPLICATE_RESOURCE,
    errors.UnknownUserError: ErrorCode.RESOURCE_NOT_FOUND,
}


def code_of(error: errors.PenstockError) -> ErrorCode:
    """The code of the nearest class of `error` that the table names."""
    for kind in type(error).__mro__:
        code = CODES.get(kind)
        if code is not None:
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR


class Outcome(NamedTuple):
    """The outcome of one item of a request, as its part of the answer has it."""

    code: ErrorCode
    message: str | None


_SUCCESS: Final = Outcome(ErrorCode.NONE, None)


def outcome_of(error: errors.PenstockError | None) -> Outcome:
    """The code and the message of an item that failed, or those of success."""
    return _SUCCESS if error is None else Outcome(code_of(error), message_of(error))


def missing_topic_code(name: str) -> ErrorCode:
    """Return the code for a missing topic: unknown, or invalid when the name is not allowed."""
    try:
        check_topic_name(name)
    except errors.PenstockError as error:
        return code_of(error)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def message_of(error: errors.PenstockError) -> str:
    """The error message for the client, cut to what an answer can hold."""
    return str(error)[:ERROR_MESSAGE_CHARACTERS_MAX]
