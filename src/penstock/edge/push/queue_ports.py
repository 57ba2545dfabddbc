"""Ports of queue subscriptions: the share group as one member sees it. `node` fills them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from penstock.edge.push.reactions import OpenedTopic, Settled
from penstock.edge.push.record_runs import LogRead
from penstock.protocol.push.payloads import Refusal


class Share(NamedTuple):
    """Offsets that a member acquired."""

    first: int
    last: int
    delivery_count: int


class AcquiredRead(NamedTuple):
    """Stored batches, and the offsets in them that the member acquired."""

    read: LogRead
    shares: Sequence[Share]


Fetched = Callable[[Sequence[AcquiredRead] | Refusal], None]
"""Gets acquired records, an empty list if the time is up, or the reason why there are none."""


Stored = Callable[[Sequence[Settled], bool], None]
"""Gets acknowledgements, and whether the share group stored them."""


class QueueMember(Protocol):
    """One member of a share group. Every callback is called on the event loop."""

    @property
    def topic(self) -> OpenedTopic:
        """The topic that it reads."""
        ...

    def fetch(self, records_max: int, bytes_max: int, done: Fetched) -> None:
        """Acquire records as soon as there are some; one call at a time."""
        ...

    def acknowledge(self, settled: Sequence[Settled], done: Stored) -> None:
        """Acknowledge records; `done` gets each of them once, stored or refused."""
        ...

    def skip(self, partition: int, first: int, last: int) -> None:
        """Acknowledge offsets that the log has no records for."""
        ...

    def leave(self) -> None:
        """Leave the group; records in flight are released."""
        ...
