"""The records of `__transaction_state`, as Apache Kafka 4.3 defines them.

The transaction coordinator, NOT this file, knows the meaning of a record.
"""

from typing import Annotated, ClassVar

from penstock.protocol.message import message
from penstock.protocol.stored.fields import Int8, Int16, Int32, Int64, Tag


@message()
class TransactionLogKey:
    """The transactional id."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = None

    transactional_id: str


@message()
class TransactionLogValuePartitionsSchema:
    """Partitions of one topic."""

    topic: str
    partition_ids: tuple[Int32, ...]


@message()
class TransactionLogValue:
    """The state of a transactional id."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 1)
    FLEXIBLE_SINCE: ClassVar[int | None] = 1

    producer_id: Int64
    previous_producer_id: Annotated[Int64, Tag(0, first_version=1)] = -1
    """The producer id of the last committed transaction."""
    next_producer_id: Annotated[Int64, Tag(1, first_version=1)] = -1
    """The newest producer id that was sent to the producer."""
    producer_epoch: Int16
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: tuple[TransactionLogValuePartitionsSchema, ...] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Annotated[Int16, Tag(2, first_version=1)] = 0
    next_producer_epoch: Annotated[Int16, Tag(3, first_version=1)] = -1
    """The newest epoch that was sent to the producer."""
