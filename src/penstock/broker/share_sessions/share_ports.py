"""The ports of share groups: share-partitions and sessions as handlers use them.

`node.shares` implements them. Nothing in this module decides anything.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from penstock.broker.share_sessions.share_session_table import (
    SharePartitionId,
    ShareSession,
    ShareSessions,
)
from penstock.cluster.configs.group_configs import DeliverySettings
from penstock.coordinator.shares.delivery.acknowledgement import Acknowledged
from penstock.coordinator.shares.delivery.acquisition import Acquired, FetchedBatch
from penstock.coordinator.shares.ports import Refusal
from penstock.core.cancellation import Cancellation
from penstock.core.deferred import Deferred
from penstock.replication.hosted_partition import HostedPartition


class Wish(NamedTuple):
    """The records that a member wants of a partition."""

    member: str
    records_max: int
    batch_size: int
    is_exact: bool
    """Record-limit mode: never more than `records_max`."""


class ParkedFetch(Protocol):
    """A fetch that waits for records."""

    @property
    def member(self) -> str:
        """The member that fetches."""
        ...

    def wake(self) -> None:
        """Read again: records may be there."""
        ...

    def hurry(self) -> None:
        """Answer with the records available."""
        ...


class LiveSharePartition(Protocol):
    """One share-partition that this broker leads. No call waits or blocks."""

    @property
    def hosted(self) -> HostedPartition:
        """The partition, in the role in which this broker leads it."""
        ...

    @property
    def is_loading(self) -> bool:
        """Whether the durable state is not here yet."""
        ...

    @property
    def problem(self) -> Refusal | None:
        """Why it delivers nothing, once it is loaded."""
        ...

    def when_loaded(self, listener: Callable[[], None]) -> None:
        """Call the listener once when it is not loading any more; now if it is not."""
        ...

    def next_offset(self) -> int | None:
        """Return where to read next; None while no record can be acquired."""
        ...

    def acquire(
        self, wish: Wish, fetch_offset: int, batches: Iterable[FetchedBatch]
    ) -> Sequence[Acquired]:
        """Give records to a member. The batches were read at `fetch_offset`."""
        ...

    def skip_gap(self, first: int, last: int) -> None:
        """Note that the log has no records at these offsets."""
        ...

    def acknowledge(self, member: str, batches: Sequence[Acknowledged]) -> Deferred[Refusal | None]:
        """Acknowledge records; the result is set when it is durable, or refused."""
        ...

    def park(self, fetch: ParkedFetch) -> None:
        """Wake the fetch once, when records may be there for it, unless `unpark` is first."""
        ...

    def unpark(self, fetch: ParkedFetch) -> None:
        """Forget a fetch; does nothing if it is not parked."""
        ...


class ShareGroups(Protocol):
    """All share-partitions and share sessions of this broker."""

    @property
    def sessions(self) -> ShareSessions:
        """The share sessions."""
        ...

    def settings_of(self, group: str) -> DeliverySettings:
        """Return the settings in force of a group."""
        ...

    def find(self, group: str, partition: SharePartitionId) -> LiveSharePartition | None:
        """Return a share-partition that was opened and is led here."""
        ...

    def open(
        self, group: str, partition: SharePartitionId, hosted: HostedPartition
    ) -> LiveSharePartition:
        """Return a share-partition; it is loaded if it is new."""
        ...

    def follow(self, session: ShareSession, client: Cancellation | None) -> None:
        """Close a new session when its client disconnects."""
        ...

    def close(self, session: ShareSession) -> None:
        """End a session, and release the records of its member."""
        ...


class Shares(Protocol):
    """Share groups that cost nothing before the first member."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Share groups whose dead letters cannot be written, with the reasons."""
        ...

    def get(self) -> ShareGroups:
        """Return the share groups of this broker."""
        ...
