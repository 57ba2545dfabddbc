"""What coordinators need of others: a log, a timer, tasks, who carries effects out, who sets times.

Coordinators reach the log through these ports only; `node` fills them. A `Journal` speaks in typed
records, so batches, checksums and segments are NOT known here.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import NamedTuple, Protocol

from penstock.coordinator.shard import Producer, StoredRecord
from penstock.core.errors import PenstockError


class OffsetRecord(NamedTuple):
    """A record and where it is."""

    offset: int
    record: StoredRecord


class LoadedBatch(NamedTuple):
    """What one batch of the log holds."""

    records: Sequence[OffsetRecord]
    producer: Producer | None = None
    """Whose transaction the records belong to, or whose transaction ended."""
    commits: bool | None = None
    """Set for the end of a transaction: whether it was committed. Such a batch has no records."""


class Journal(Protocol):
    """One partition of an internal topic. All but `read` neither wait nor block."""

    @property
    def start_offset(self) -> int:
        """Of the first record."""
        ...

    @property
    def end_offset(self) -> int:
        """Behind the last record, durable or not."""
        ...

    @property
    def committed_offset(self) -> int:
        """Everything before it is committed: no crash takes it back."""
        ...

    def append(
        self, records: Sequence[StoredRecord], producer: Producer | None, now_ms: int
    ) -> int:
        """Append one batch, whole or not at all; the offset of its first record."""
        ...

    def when_committed(
        self, end_offset: int, on_done: Callable[[PenstockError | None], None]
    ) -> None:
        """Call once, when everything before `end_offset` is committed or never will be."""
        ...

    async def read(self, offset: int) -> tuple[Sequence[LoadedBatch], int]:
        """Some batches from `offset` on, and the offset behind them.

        A short piece of work at a time, so that others get a turn in between. Records that cannot
        be decoded are left out and noted as by `note_skipped`.
        """
        ...

    def note_skipped(self, offset: int, error: Exception) -> None:
        """Count and log that the record at `offset` cannot be used; the load goes on without it."""
        ...


class ConsumerTimes(NamedTuple):
    """What one group of KIP-848 follows."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


class GroupTimes(Protocol):
    """The times of each group. An operator may change them at any moment: ask when one is needed.

    It decides nothing and does not wait.
    """

    def of(self, group_id: str) -> ConsumerTimes:
        """What this group follows now, whether it exists or not."""
        ...


class Alarm(Protocol):
    """One timer on the loop's clock."""

    def now(self) -> float:
        """The loop's monotonic time in seconds."""
        ...

    def set_alarm(self, moment: float, action: Callable[[], None]) -> None:
        """Call `action` at `moment`, instead of at the moment set before."""
        ...


class Tasks(Protocol):
    """Starts coroutines whose tasks are awaited."""

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        """Run it."""
        ...


class Effects(Protocol):
    """Does what a shard wants done outside of it."""

    async def perform(self, effect: object) -> object:
        """Carry an effect out; its result. A `PenstockError` is raised when it failed."""
        ...
