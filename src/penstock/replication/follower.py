"""`Follower`: the phases of one replica that copies its leader's log. Pure.

    WAITING     until a pause is over: the leader does not answer, or does not know its role yet
    FETCHING    its end offset is synced; the next fetch asks for the records behind it
    SYNCING     records were appended, and their sync is under way
    CUTTING     the end of the log, or all of it, is being removed

Guarantees:

- The offset of a fetch is the end of the synced log: it is the report on which the leader counts.
- An answer counts only for the request that it answers. A cut, an append, each new request and the
  end of the role begin another generation; the answer of an older one is dropped. Without this rule
  a late answer could cut a log that has been mended since, or be appended to a leader's log.
- A log is cut where the histories part, never below the high watermark, unless the leader may have
  been elected uncleanly (`partition_roles.lacks_committed`).

`decide` reads an answer and returns the action; `replication.fetcher` carries it out.
"""

from enum import Enum
from typing import Final, NamedTuple

from penstock.core.errors import PenstockError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.fetch import PartitionData
from penstock.replication.partition import NO_EPOCH
from penstock.storage.log.leader_epochs import EpochEnd

PAUSE_SECONDS_MIN: Final = 0.05
PAUSE_SECONDS_MAX: Final = 1.0


class CommittedCutError(PenstockError):
    """A leader asks a follower to remove committed records."""


class Phase(Enum):
    """The phase of a follower."""

    WAITING = "waiting"
    FETCHING = "fetching"
    SYNCING = "syncing"
    CUTTING = "cutting"


class Append(NamedTuple):
    """Append the records of the answer, then take over the leader's offsets."""

    records: memoryview | bytes
    high_watermark: int
    log_start_offset: int


class Cut(NamedTuple):
    """Remove all records starting at the offset."""

    offset: int


class Restart(NamedTuple):
    """Remove all records, and begin anew at the offset."""

    offset: int


class Pause(NamedTuple):
    """Fetch again later."""

    reason: str


Action = Append | Cut | Restart | Pause


class LogEnd(NamedTuple):
    """The offsets of the follower's log."""

    start_offset: int
    end_offset: int
    high_watermark: int


class Follower:
    """One replica that copies its leader's log in one leader epoch."""

    __slots__ = (
        "generation",
        "has_caught_up",
        "pause_seconds",
        "phase",
        "wakes_at",
    )

    def __init__(self) -> None:
        self.phase = Phase.FETCHING
        self.generation = 0
        """Counts everything that makes an answer under way worthless."""
        self.pause_seconds = PAUSE_SECONDS_MIN
        self.wakes_at = 0.0
        """The end of the pause, while it waits."""
        self.has_caught_up = False
        """Whether it has had everything that the leader had at a fetch."""

    def send(self) -> int:
        """A request with the end of the log is sent; return the generation of its answer."""
        assert self.phase is Phase.FETCHING, "only synced offsets are reported"
        self.generation += 1
        return self.generation

    def is_awaited(self, generation: int) -> bool:
        """Return whether an answer is that of the request under way."""
        return self.phase is Phase.FETCHING and generation == self.generation

    def appended(self, *, is_synced: bool) -> None:
        """Records were appended; the next request waits for their sync."""
        self._begin(Phase.FETCHING if is_synced else Phase.SYNCING)
        self.pause_seconds = PAUSE_SECONDS_MIN

    def synced(self) -> bool:
        """The log is synced up to its end; return whether the follower fetches again now."""
        if self.phase is not Phase.SYNCING:
            return False
        self._begin(Phase.FETCHING)
        return True

    def cutting(self) -> None:
        """The end of the log is being removed."""
        self._begin(Phase.CUTTING)

    def cut_done(self) -> None:
        """The cut is on the disk."""
        assert self.phase is Phase.CUTTING
        self._begin(Phase.FETCHING)

    def pause(self, now: float) -> float:
        """Wait; return until when. Each further pause is longer."""
        self._begin(Phase.WAITING)
        self.wakes_at = now + self.pause_seconds
        self.pause_seconds = min(PAUSE_SECONDS_MAX, 2 * self.pause_seconds)
        return self.wakes_at

    def wake(self, now: float) -> bool:
        """Fetch again if the pause is over; return whether it is."""
        if self.phase is not Phase.WAITING or now < self.wakes_at:
            return False
        self._begin(Phase.FETCHING)
        return True

    def end(self) -> None:
        """Copy no more: the answer of the request under way is dropped."""
        self.generation += 1

    def _begin(self, phase: Phase) -> None:
        self.phase = phase
        self.generation += 1


def decide(
    answer: PartitionData, log: LogEnd, shared: EpochEnd, *, is_recovering: bool
) -> Action | None:
    """Return the action for an answer; None if it has nothing new.

    `shared` is the follower's own end of the diverging epoch in the answer. Raises
    `CommittedCutError` if committed records would be removed and the leader is not recovering.
    """
    if answer.error_code != ErrorCode.NONE:
        return Pause(ErrorCode(answer.error_code).name)
    if answer.diverging_epoch.epoch >= 0 or answer.diverging_epoch.end_offset >= 0:
        return _cut(answer, log, shared, is_recovering=is_recovering)
    if answer.log_start_offset > log.end_offset:
        return Restart(answer.log_start_offset)
    records = answer.records or b""
    return Append(memoryview(records), answer.high_watermark, answer.log_start_offset)


def _cut(answer: PartitionData, log: LogEnd, shared: EpochEnd, *, is_recovering: bool) -> Action:
    """Return the cut that makes the two histories one (KIP-279)."""
    epoch, end_offset = answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset
    offset = min(end_offset, log.end_offset)
    if epoch > NO_EPOCH:
        if shared.epoch < 0:
            offset = min(offset, log.start_offset)
        elif shared.epoch == epoch:
            offset = min(offset, shared.end_offset)
        else:
            # The leader has no record of this epoch: ask about the epoch before it.
            offset = min(log.end_offset, shared.end_offset)
    if offset < log.high_watermark and not is_recovering:
        raise CommittedCutError(
            f"the leader asks to cut at {offset}, below the high watermark {log.high_watermark}"
        )
    if offset < log.start_offset or (offset == log.start_offset and epoch == NO_EPOCH):
        return Restart(max(0, answer.log_start_offset))
    if offset >= log.end_offset:
        return Pause("the leader reports a divergence behind the end of the log")
    return Cut(offset)
