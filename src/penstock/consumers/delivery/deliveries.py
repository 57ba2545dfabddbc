"""Values between a running consumer and its `Work`: calls to start, progress to commit. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from penstock.consumers.consumer_record import ConsumerRecord
from penstock.consumers.delivery.partition_work import Entry
from penstock.core.types import TopicPartition


class Acknowledgement(Enum):
    """The outcome of one record in queue mode, with the number of Kafka's protocol."""

    ACCEPT = 1
    RELEASE = 2
    REJECT = 3


class Settled(NamedTuple):
    """A record with its acknowledgement."""

    at: TopicPartition
    offset: int
    acknowledgement: Acknowledgement


class Progress(NamedTuple):
    """Work that is done since the last progress: positions in fanout, acknowledgements in queue."""

    positions: Mapping[TopicPartition, int]
    settled: Sequence[Settled]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not self.positions and not self.settled


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call of the handler: one record, or a batch of one partition."""

    entries: tuple[Entry, ...]

    @property
    def records(self) -> tuple[ConsumerRecord, ...]:
        """Return the records in the order of their offsets in each lane."""
        return tuple(entry.record for entry in self.entries)

    @property
    def attempt(self) -> int:
        """Return the number of this attempt."""
        return self.entries[0].attempt

    @property
    def is_gone(self) -> bool:
        """Whether the partition was revoked: the result does not count."""
        return self.entries[0].home.is_gone
