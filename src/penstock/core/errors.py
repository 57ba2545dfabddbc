"""The exception tree. A domain error names the failure, never a wire code.

`broker.error_mapping` maps these to Kafka's error codes, in one table. Two branches matter:
`PeerError` means that the peer sent wrong bytes, and its connection is closed; every other
`PenstockError` is an answer that a client can act on. A broken invariant of Penstock is neither: it
is an `AssertionError`, and it is a crash.
"""

from typing import Self


class PenstockError(Exception):
    """Base of every error that Penstock raises on purpose.

    `hint` is one sentence for the command line: the remedy. It is not part of the message.
    """

    def __init__(self, *words: object, hint: str = "") -> None:
        super().__init__(*words)
        self.hint = hint

    def again(self) -> Self:
        """Return a copy to raise instead of a stored error.

        An exception keeps the frames of every raise, with all that they refer to: deleted files,
        batches of requests. A stored error is therefore never raised itself.
        """
        copied = type(self).__new__(type(self), *self.args)
        copied.__dict__.update(self.__dict__)
        return copied


# --- Errors of the peer: its connection is closed, no other is affected. ---


class PeerError(PenstockError):
    """The peer broke the protocol; it gets no answer, only a closed connection."""


class FrameError(PeerError):
    """A frame's length is impossible or above the bound for its API and state."""

    def __init__(self, *words: object, length: int = 0) -> None:
        super().__init__(*words)
        self.length = length
        """The length in the first four bytes of the frame."""


class MalformedRequestError(PeerError):
    """The bytes of a request do not follow its schema."""


class MalformedResponseError(PeerError):
    """The bytes of a response do not follow its schema (client side)."""


class UnsupportedApiError(PeerError):
    """An API key or version that this broker does not serve."""

    def __init__(self, api_key: int, api_version: int) -> None:
        super().__init__(f"API key {api_key} version {api_version} is not served here")
        self.api_key = api_key
        self.api_version = api_version


# --- Settings ---


class ConfigError(PenstockError):
    """A setting is wrong; the message names the setting, the value and the remedy."""


class InvalidTopicConfigError(PenstockError):
    """A setting of a topic or a group is unknown, or its value is out of range."""


# --- Record batches ---


class RecordsError(PenstockError):
    """A record batch cannot be accepted."""

    blamed: tuple[tuple[int, str], ...] = ()
    """The faulty records, counted within the batch, each with its fault; empty if the whole batch
    is wrong."""


class CorruptBatchError(RecordsError):
    """Checksum, length or magic of a batch is wrong: the bytes were damaged."""


class InvalidBatchError(RecordsError):
    """A batch is complete but has a field or record that a producer may not send."""


class BatchTooLargeError(RecordsError):
    """A batch exceeds the topic's limit, stored or decompressed."""


class UnsupportedCompressionError(RecordsError):
    """A compression codec that does not exist or that this request version may not use."""


class InvalidTimestampError(RecordsError):
    """A record's timestamp is outside the topic's accepted range."""


# --- Storage ---


class StorageError(PenstockError):
    """An operation on the log failed."""


class LogDirectoryOfflineError(StorageError):
    """A write or sync failed; the data directory is not used again until a restart."""


class DiskFullError(StorageError):
    """No space (or no descriptor) for this batch; none of it was stored; the log stays usable."""


class QuarantinedLogError(StorageError):
    """Damage below the recovery point; the partition is kept unchanged and not served."""


class CorruptIndexError(StorageError):
    """An index file is damaged; it will be rebuilt from its segment."""

    def __init__(self, message: str, base_offset: int = -1) -> None:
        super().__init__(message)
        self.base_offset = base_offset
        """The base offset of the index's segment."""


class LogBusyError(StorageError):
    """The log is being truncated or restarted; the client retries."""


class InvalidReplicaBatchError(StorageError):
    """A leader's batch cannot be appended to a replica; no batch of its chunk was appended."""


class OffsetOutOfRangeError(StorageError):
    """The requested offset is before the first or after the last one of the log."""

    def __init__(self, offset: int, start_offset: int, end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside [{start_offset}, {end_offset}]")
        self.offset = offset
        self.start_offset = start_offset
        self.end_offset = end_offset


class StorageBusyError(StorageError):
    """Too many jobs wait for storage's threads; the client retries."""


class WorkCancelledError(StorageError):
    """The work was cancelled because its client disconnected or the broker stops."""


class DataDirectoryLockedError(StorageError):
    """Another process uses the data directory."""


class StoredRecordError(StorageError):
    """A record of an internal topic cannot be read."""


# --- Producers ---


class ProducerError(PenstockError):
    """An idempotent producer's batch does not continue its last one."""


class OutOfOrderSequenceError(ProducerError):
    """A gap in a producer's sequence numbers."""

    def __init__(self, *words: object, expected_sequence: int = -1) -> None:
        super().__init__(*words)
        self.expected_sequence = expected_sequence
        """The sequence that would be appended; -1 when that is not known."""


class InvalidProducerEpochError(ProducerError):
    """The producer's epoch is older than the epoch of the last write."""


class InvalidTransactionStateError(ProducerError):
    """A batch or a marker that does not fit the producer's transaction in this partition."""


class FencedTransactionCoordinatorError(ProducerError):
    """A marker of a transaction coordinator that another one has replaced."""


# --- Metadata ---


class MetadataError(PenstockError):
    """A change of cluster metadata is rejected."""


class UnknownTopicOrPartitionError(MetadataError):
    """The topic or partition does not exist."""

    def __init__(self, *words: object, topic: str = "", hint: str = "") -> None:
        super().__init__(*words, hint=hint)
        self.topic = topic
        """The missing topic; empty if only the partition is missing."""


class UnknownTopicIdError(MetadataError):
    """There is no topic with this id."""


class TopicExistsError(MetadataError):
    """A topic of this name exists."""


class InvalidTopicNameError(MetadataError):
    """The name breaks Kafka's rules for topic names."""


class InvalidPartitionsError(MetadataError):
    """An impossible number of partitions."""


class InvalidReplicationFactorError(MetadataError):
    """A replication factor that this cluster cannot provide."""


class InvalidReplicaAssignmentError(MetadataError):
    """An impossible manual replica assignment."""


class NoReassignmentError(MetadataError):
    """A reassignment of a partition is cancelled, and none is running."""


class InvalidRequestError(MetadataError):
    """A request that contradicts itself."""


class PolicyViolationError(MetadataError):
    """A request above a limit that this broker sets."""


class UnsupportedEntityError(MetadataError):
    """A kind of entity that has no quotas."""


class UnknownBrokerError(MetadataError):
    """A broker id that the cluster does not know."""


class DuplicateBrokerError(MetadataError):
    """Another broker with this id is registered."""


class StoreError(MetadataError):
    """The metadata store failed; nothing is known to have changed."""


class AmbiguousStoreError(StoreError):
    """The metadata store may or may not have applied the change: re-read before deciding."""


# --- Users ---


class UserError(PenstockError):
    """A change of a user's credential, or a look-up of one, is rejected."""


class UnknownMechanismError(UserError):
    """A SASL mechanism that has no stored credentials."""


class UnacceptableCredentialError(UserError):
    """The name of a user or its number of iterations is out of range."""


class DuplicateUserError(UserError):
    """One request names a user twice."""


class UnknownUserError(UserError):
    """The user has no credential for the mechanism."""


# --- Replication ---


class NotLeaderError(PenstockError):
    """This broker does not lead the partition."""


class NotEnoughReplicasError(PenstockError):
    """Fewer replicas are in sync than `min.insync.replicas`."""


class FencedLeaderEpochError(PenstockError):
    """The caller's leader epoch is older than ours."""


class UnknownLeaderEpochError(PenstockError):
    """The caller's leader epoch is newer than ours."""


class OffsetNotAvailableError(PenstockError):
    """A new leader does not know yet how much of its log is committed (KIP-207)."""


class ThrottledError(PenstockError):
    """A quota is used up; the answer has the time to wait."""


class RequestTimedOutError(PenstockError):
    """The records are appended but were not committed within the caller's timeout."""


class TooManyWaitersError(PenstockError):
    """The table of parked requests is full."""


class ServiceEndedError(PenstockError):
    """Work that lasts as long as the broker has ended before it."""


# --- Coordinators ---


class CoordinatorError(PenstockError):
    """A coordinator cannot handle a request now."""


class CoordinatorNotAvailableError(CoordinatorError):
    """The internal topic cannot be used; a later retry may succeed."""


class CoordinatorLoadingError(CoordinatorError):
    """The coordinator is loading its log; a retry soon succeeds."""


class NotCoordinatorError(CoordinatorError):
    """This broker does not coordinate the key, or its coordinator failed."""


# --- Outgoing calls (client side) ---


class ClientError(PenstockError):
    """A call to a broker failed."""


class BrokerUnreachableError(ClientError):
    """No broker got the request: no connection, or nothing was sent. A retry is safe."""


class AdvertisedAddressError(BrokerUnreachableError):
    """The advertised address of a reachable broker does not answer."""

    def __init__(self, message: str, *, hint: str, unreachable: BrokerUnreachableError) -> None:
        super().__init__(message, hint=hint)
        self.unreachable = unreachable
        """The same failure without the source of the address."""


class AdminUnreachableError(BrokerUnreachableError):
    """The admin port of a broker does not answer."""


class AuthenticationError(ClientError):
    """The login at a broker failed: refused, or the broker could not prove its identity."""


class TlsHandshakeError(ClientError):
    """A TLS connection was refused by a side: certificate, host name or protocol version."""


class AnswerLostError(ClientError):
    """A request was sent and its answer was lost: it may or may not have been carried out."""


class RecordTooLargeError(ClientError):
    """A record is too large for its topic even in its own batch; it was not sent."""


class BrokerAnswerError(ClientError):
    """The broker answered with an error code."""

    def __init__(self, code: int, name: str, message: str) -> None:
        super().__init__(f"{name} ({code}): {message}" if message else f"{name} ({code})")
        self.code = code
        self.name = name
