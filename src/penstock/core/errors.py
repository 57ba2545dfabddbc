"""The exception tree. A domain error names what went wrong, never a wire code.

`broker.error_mapping` turns these into Kafka's error codes, in one table. Two branches matter to a
reader: `PeerError` means whoever sent the bytes was wrong, and the connection pays for it;
everything else under `PenstockError` is an answer that a client can act on. A broken invariant of
ours is none of these: it is an `AssertionError`, and it is a crash.
"""

from typing import Self


class PenstockError(Exception):
    """Base of every error that Penstock raises on purpose.

    `hint` is one sentence for the command line: what to do. It is not part of the message.
    """

    def __init__(self, *words: object, hint: str = "") -> None:
        super().__init__(*words)
        self.hint = hint

    def again(self) -> Self:
        """Return a copy to raise instead of an error that is kept.

        An exception keeps the frames of every raise, with all that they refer to: files that are
        deleted, batches of requests. An error that is kept is therefore never raised itself.
        """
        copied = type(self).__new__(type(self), *self.args)
        copied.__dict__.update(self.__dict__)
        return copied


# --- The peer was wrong: the connection is closed, nobody else notices. ---


class PeerError(PenstockError):
    """The other side broke the protocol; there is no answer, only a closed connection."""


class FrameError(PeerError):
    """A frame's length is impossible or above the bound for its API and state."""

    def __init__(self, *words: object, length: int = 0) -> None:
        super().__init__(*words)
        self.length = length
        """What the first four bytes of the frame say."""


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
    """The records to blame, counted within the batch, each with its fault; none when the batch as a
    whole is wrong."""


class CorruptBatchError(RecordsError):
    """Checksum, length or magic of a batch is wrong: the bytes were damaged."""


class InvalidBatchError(RecordsError):
    """A batch is whole but says something a producer may not say."""


class BatchTooLargeError(RecordsError):
    """A batch exceeds the topic's limit, stored or decompressed."""


class UnsupportedCompressionError(RecordsError):
    """A compression codec that does not exist or that this request version may not use."""


class InvalidTimestampError(RecordsError):
    """A record's timestamp lies outside what the topic accepts."""


# --- Storage ---


class StorageError(PenstockError):
    """The log cannot do what was asked."""


class LogDirectoryOfflineError(StorageError):
    """A write or sync failed; the data directory is not used again until a restart."""


class DiskFullError(StorageError):
    """No space (or no descriptor) for this batch; nothing of it was kept, and the log goes on."""


class QuarantinedLogError(StorageError):
    """Damage was found below the recovery point; the partition is kept as it is and not served."""


class CorruptIndexError(StorageError):
    """An index file is damaged; it will be rebuilt from its segment."""

    def __init__(self, message: str, base_offset: int = -1) -> None:
        super().__init__(message)
        self.base_offset = base_offset
        """Which segment's index it is."""


class OffsetOutOfRangeError(StorageError):
    """The offset asked for is before the first or after the last one of the log."""

    def __init__(self, offset: int, start_offset: int, end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside [{start_offset}, {end_offset}]")
        self.offset = offset
        self.start_offset = start_offset
        self.end_offset = end_offset


class StorageBusyError(StorageError):
    """Too many jobs wait for storage's threads; the client retries."""


class WorkCancelledError(StorageError):
    """The work was given up because its client is gone or the broker stops."""


class DataDirectoryLockedError(StorageError):
    """Another process uses the data directory."""


class StoredRecordError(StorageError):
    """A record of an internal topic cannot be read."""


# --- Producers ---


class ProducerError(PenstockError):
    """An idempotent producer's batch does not follow on from its last one."""


class OutOfOrderSequenceError(ProducerError):
    """A gap in a producer's sequence numbers."""


class InvalidProducerEpochError(ProducerError):
    """The producer's epoch is older than the one that last wrote."""


class InvalidTransactionStateError(ProducerError):
    """A batch or a marker that does not fit the producer's transaction in this partition."""


class FencedTransactionCoordinatorError(ProducerError):
    """A marker of a transaction coordinator that another one has replaced."""


# --- Metadata ---


class MetadataError(PenstockError):
    """Cluster metadata cannot be changed as asked."""


class UnknownTopicOrPartitionError(MetadataError):
    """There is no such topic or partition."""

    def __init__(self, *words: object, topic: str = "", hint: str = "") -> None:
        super().__init__(*words, hint=hint)
        self.topic = topic
        """The topic that was asked for and does not exist; empty where only its partition does."""


class UnknownTopicIdError(MetadataError):
    """There is no topic with this id."""


class TopicExistsError(MetadataError):
    """A topic of this name exists."""


class InvalidTopicNameError(MetadataError):
    """The name breaks Kafka's rules for topic names."""


class InvalidPartitionsError(MetadataError):
    """A number of partitions that cannot be."""


class InvalidReplicationFactorError(MetadataError):
    """A replication factor that this cluster cannot give."""


class InvalidReplicaAssignmentError(MetadataError):
    """A manual replica assignment that cannot be."""


class InvalidRequestError(MetadataError):
    """A request that contradicts itself."""


class PolicyViolationError(MetadataError):
    """A request above a limit that this broker sets."""


class UnsupportedEntityError(MetadataError):
    """A kind of entity that has no quotas."""


class DuplicateBrokerError(MetadataError):
    """Another broker with this id is registered."""


class StoreError(MetadataError):
    """The metadata store failed; nothing is known to have changed."""


class AmbiguousStoreError(StoreError):
    """The metadata store may or may not have applied the change: re-read before deciding."""


# --- Replication ---


class NotLeaderError(PenstockError):
    """This broker does not lead the partition."""


class FencedLeaderEpochError(PenstockError):
    """The caller's leader epoch is older than ours."""


class UnknownLeaderEpochError(PenstockError):
    """The caller's leader epoch is newer than ours."""


class ThrottledError(PenstockError):
    """A quota is used up; the answer says how long to wait."""


class RequestTimedOutError(PenstockError):
    """The records are appended but were not committed within the time the caller gave."""


class TooManyWaitersError(PenstockError):
    """The table of parked requests is full."""


# --- Coordinators ---


class CoordinatorError(PenstockError):
    """A coordinator cannot take a request now."""


class CoordinatorNotAvailableError(CoordinatorError):
    """The internal topic cannot be used; asking again later may help."""


class CoordinatorLoadingError(CoordinatorError):
    """The coordinator reads its log; asking again soon helps."""


class NotCoordinatorError(CoordinatorError):
    """This broker does not coordinate the key, or its coordinator failed."""


# --- Outgoing calls (client side) ---


class ClientError(PenstockError):
    """A call to a broker failed."""


class BrokerUnreachableError(ClientError):
    """No broker took the request: no connection, or none of it was sent. Safe to repeat."""


class AdvertisedAddressError(BrokerUnreachableError):
    """A broker that answers named an address for its clients, and nobody answers there."""

    def __init__(self, message: str, *, hint: str, unreachable: BrokerUnreachableError) -> None:
        super().__init__(message, hint=hint)
        self.unreachable = unreachable
        """The same failure without where the address comes from."""


class AdminUnreachableError(BrokerUnreachableError):
    """Nobody answers at the admin port of a broker."""


class AnswerLostError(ClientError):
    """A request was sent and its answer never came: it may or may not have been carried out."""


class RecordTooLargeError(ClientError):
    """A record that its topic cannot take, whatever it is sent with; nothing of it was sent."""


class BrokerAnswerError(ClientError):
    """The broker answered with an error code."""

    def __init__(self, code: int, name: str, message: str) -> None:
        super().__init__(f"{name} ({code}): {message}" if message else f"{name} ({code})")
        self.code = code
        self.name = name
