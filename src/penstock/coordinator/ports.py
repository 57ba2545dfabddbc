"""The ports of coordinators: a log, a timer, tasks, effects, and the times of groups.

Coordinators reach the log through these ports only; `node` fills them. A `Journal` reads and writes
typed records, so batches, checksums and segments are NOT known here.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import NamedTuple, Protocol

from penstock.coordinator.shard import Producer, StoredRecord
from penstock.core.errors import PenstockError


class OffsetRecord(NamedTuple):
    """A record and its offset."""

    offset: int
    record: StoredRecord


class LoadedBatch(NamedTuple):
    """The contents of one batch of the log."""

    records: Sequence[OffsetRecord]
    producer: Producer | None = None
    """The producer whose transaction the records belong to, or whose transaction ended."""
    commits: bool | None = None
    """Set for the end of a transaction: whether it was committed. Such a batch has no records."""


class Journal(Protocol):
    """One partition of an internal topic. All but `read` neither wait nor block."""

    @property
    def start_offset(self) -> int:
        """Offset of the first record."""
        ...

    @property
    def end_offset(self) -> int:
        """Offset behind the last record, durable or not."""
        ...

    @property
    def committed_offset(self) -> int:
        """All records before it are committed: no crash loses them."""
        ...

    def append(
        self, records: Sequence[StoredRecord], producer: Producer | None, now_ms: int
    ) -> int:
        """Append one batch, whole or not at all; return the offset of its first record."""
        ...

    def when_committed(
        self, end_offset: int, on_done: Callable[[PenstockError | None], None]
    ) -> None:
        """Call back once, when all records before `end_offset` are committed or never will be."""
        ...

    def when_late(self, end_offset: int, on_late: Callable[[PenstockError], None]) -> None:
        """Call back if they are not committed within the time that a reply may take.

        They may still be committed later. It calls back at most once, and never for a log with one
        replica, whose disk decides alone.
        """
        ...

    async def read(self, offset: int) -> tuple[Sequence[LoadedBatch], int]:
        """Some batches starting at `offset`, and the offset behind them.

        A short piece of work at a time, so that other work gets a turn in between. Records that
        cannot be decoded are left out and noted as by `note_skipped`.
        """
        ...

    def note_skipped(self, offset: int, error: Exception) -> None:
        """Count and log that the record at `offset` cannot be used; the load goes on without it."""
        ...


class ConsumerTimes(NamedTuple):
    """The times of one group of KIP-848, or of one share group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


class GroupTimes(Protocol):
    """The times of each group. An operator may change them at any moment: ask when one is needed.

    It decides nothing and does not wait.
    """

    def of(self, group_id: str) -> ConsumerTimes:
        """The times of this consumer group now, whether it exists or not."""
        ...

    def of_share(self, group_id: str) -> ConsumerTimes:
        """The times of this share group now, whether it exists or not."""
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
        """Run the coroutine."""
        ...


class Effects(Protocol):
    """Carries out the effects of shards."""

    async def perform(self, effect: object) -> object:
        """Carry an effect out and return its result; raises `PenstockError` when it failed."""
        ...
