"""The port between a running consumer and a broker, with few methods, so that a fake is small.

A transport delivers records to `DeliveryEvents` and takes progress back. All methods of both are
called on the event loop of the consumer; a transport with a thread of its own crosses over by
itself. A transport decides nothing about records: that is `delivery`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from penstock.consumers.consumer_record import ConsumerRecord
from penstock.consumers.delivery.dead_letters import OutgoingRecord
from penstock.consumers.delivery.deliveries import Progress
from penstock.core.types import TopicPartition


class DeliveryEvents(Protocol):
    """The consumer's side of a transport."""

    def received(self, records: Sequence[ConsumerRecord]) -> None:
        """Accept records; call `pause` before it returns if partitions must be paused now."""
        ...

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Note partitions that belong to this member from now."""
        ...

    async def revoked(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Finish running calls in bounded time; return the positions to commit."""
        ...

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Note partitions that another member may have already: nothing is committed."""
        ...

    def commit_failed(self, positions: Mapping[TopicPartition, int], reason: str) -> None:
        """Note positions that the broker did not accept."""
        ...

    def broken(self, error: Exception) -> None:
        """Stop the consumer: the transport cannot continue."""
        ...


class Transport(Protocol):
    """Delivers the records of one consumer."""

    async def open(self, events: DeliveryEvents) -> None:
        """Connect and begin to deliver; raise `ConsumerError` if that is impossible."""
        ...

    def pause(self, partitions: frozenset[TopicPartition]) -> None:
        """Deliver nothing from these partitions, and again from all others."""
        ...

    def commit(self, progress: Progress) -> None:
        """Send progress to the broker, without waiting; failures go to `commit_failed`."""
        ...

    async def write(self, record: OutgoingRecord) -> None:
        """Write a record; return when the broker has acknowledged it, else raise."""
        ...

    async def close(self, progress: Progress) -> None:
        """Commit the last progress, wait for the answer, and leave the group."""
        ...
