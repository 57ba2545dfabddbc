"""`DownPipe`: the phases of one mirrored partition. Pure.

    CONNECTING   the parent has not answered yet
    CHECKING     topic id, leader epochs and the last batch are compared with the parent's
    COPYING      batches are fetched from the end of the own log
    TRUNCATING   records that the parent does not have are removed, or the log begins anew, or a
                 snapshot replaces it
    WAITING      until a pause is over: the parent does not answer, or refuses
    GAP          the parent deleted records before they were copied, and `on_gap` is "stop"
    STOPPED      an operator must decide: the topic was recreated, or is not a mirror

    CONNECTING ─ connected ─► CHECKING ─ checked, compared ─► COPYING ─ answered ─► COPYING
        ▲                      ▲  │  ▲                          │ diverged, out of range
     connected                 │  │  └──────────────────────────┘
        │                      │  ├─ parent is shorter, or differs ─► TRUNCATING ─ cut ─► CHECKING
     WAITING ◄─ lost           │  ├─ parent begins later ─► GAP; TRUNCATING with "skip", "refresh"
                               │  └─ other topic id ─► STOPPED
                               └─ connected

Guarantees:

- The position is the end of the own log. There is no other record of progress, so a crash at any
  step repeats nothing and loses nothing.
- Nothing is fetched before the histories were compared: after `lost`, a cut, and each answer that
  contradicts the log, the next phase is CHECKING.
- An answer counts only for the request under way (`generation`).
- Each cut lowers the end of the log, so checks end. If the parent contradicts a log twice that its
  check found equal, the pipe waits, as it does without an answer.
- A gap and a cut are counted; neither happens silently.
- If the parent's log begins exactly where the own one ends, no record is left to compare. The own
  records stay, because the parent may have deleted them on purpose; `unproven_end` reports them.

It does no IO: `edge.pipes.pipe_runner` carries out the returned actions.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from penstock.protocol.error_codes import ErrorCode

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1


class Phase(Enum):
    """The phase of a mirrored partition."""

    CONNECTING = "connecting"
    CHECKING = "checking"
    COPYING = "copying"
    TRUNCATING = "truncating"
    WAITING = "waiting"
    GAP = "gap"
    STOPPED = "stopped"


class OnGap(Enum):
    """What a pipe does when the parent has deleted records that it did not copy."""

    SKIP = "skip"
    STOP = "stop"
    REFRESH = "refresh"


class EpochEnd(NamedTuple):
    """The largest epoch at or below the one asked for, and the offset after its last record."""

    epoch: int
    end_offset: int


class OwnLog(NamedTuple):
    """The ends of the own log."""

    start_offset: int
    end_offset: int
    latest_epoch: int

    @property
    def is_empty(self) -> bool:
        """Whether it has no records."""
        return self.start_offset >= self.end_offset


class ParentLog(NamedTuple):
    """The parent's log of the same partition."""

    topic_id: UUID | None
    start_offset: int
    end_offset: int
    epoch_end: EpochEnd
    """Where the own latest epoch ends there; the end offset is -1 if it is unknown."""


class Problem(NamedTuple):
    """A state that needs attention, and what to do."""

    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Compare:
    """Compare batches with the parent's, and call `compared` with the common end."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Fetch from the end of the log."""


class Cut(NamedTuple):
    """Remove all records starting at the offset, then call `cut`."""

    offset: int


class Restart(NamedTuple):
    """Remove all records and begin anew at the offset, then call `cut`."""

    offset: int


class Refresh(NamedTuple):
    """Replace the topic by a snapshot that ends at the offset or later, then call `cut`."""

    offset: int


@dataclass(frozen=True, slots=True)
class Append:
    """Append the records of the answer."""


@dataclass(frozen=True, slots=True)
class Check:
    """Compare with the parent again before the next fetch."""


class LookAgain(NamedTuple):
    """Ask the parent for its topics and leaders again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Rest:
    """Do nothing until an operator or the next connection changes the phase."""


Action = Compare | Copy | Cut | Restart | Refresh | Append | Check | LookAgain | Rest

_REFUSED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
    }
)


class DownPipe:
    """One mirrored partition."""

    __slots__ = (
        "_contradicted_end",
        "_on_gap",
        "_parent_start",
        "_topic_id",
        "cut_records",
        "gap_records",
        "gaps",
        "generation",
        "high_watermark",
        "is_verifying",
        "phase",
        "problem",
        "unproven_end",
    )

    def __init__(self, topic_id: UUID, on_gap: OnGap, *, is_verifying: bool) -> None:
        """`is_verifying`: compare the last batch; compaction may have rewritten it otherwise."""
        self._topic_id = topic_id
        self._on_gap = on_gap
        self.is_verifying = is_verifying
        self._parent_start = 0
        self._contradicted_end = NO_OFFSET
        """The end of the own log at the last answer that contradicted it."""
        self.phase = Phase.CONNECTING
        self.generation = 0
        """Counts everything that makes an answer under way worthless."""
        self.problem: Problem | None = None
        self.high_watermark = NO_OFFSET
        """The parent's, from its last answer."""
        self.gaps = self.gap_records = self.cut_records = 0
        """Skipped gaps with their offsets, and removed offsets, since the start."""
        self.unproven_end = 0
        """Below this offset the parent had deleted all records before they could be compared."""

    def connected(self) -> Action:
        """The parent answers; compare before anything is copied."""
        if self.phase is Phase.STOPPED:
            return Rest()
        self._begin(Phase.CHECKING)
        return Check()

    def checked(self, parent: ParentLog, own: OwnLog, shared: EpochEnd) -> Action:
        """Compare the histories; `shared` is the own end of the epoch in the parent's answer."""
        if self.phase is not Phase.CHECKING:
            return Rest()
        if parent.topic_id != self._topic_id:
            return self.stop(
                Problem(
                    "topic was recreated: the parent has another topic of this name",
                    "delete the mirror (`penstock topic delete`); the pipe then copies the new "
                    "topic from its start",
                )
            )
        self._parent_start = parent.start_offset
        self.high_watermark = parent.end_offset
        if parent.start_offset > own.end_offset:
            return self._gap(parent, own)
        common = _common_end(parent, own, shared)
        if common < own.end_offset:
            return self._cut_at(common, own)
        if parent.end_offset < own.end_offset:
            # A new leader's high watermark follows its log: the records are not readable yet.
            self.lost()
            return LookAgain(f"the high watermark is {parent.end_offset}, below {own.end_offset}")
        # Without a common epoch only the batches show whether the histories are the same.
        is_unknown = parent.epoch_end.end_offset == NO_OFFSET
        has_common = not own.is_empty and own.end_offset > parent.start_offset
        if has_common and (self.is_verifying or is_unknown):
            return Compare()
        if not own.is_empty and own.end_offset <= parent.start_offset:
            self.unproven_end = own.end_offset
        return self._copy()

    def compared(self, common: int, own: OwnLog) -> Action:
        """All batches below `common` are the parent's."""
        if self.phase is not Phase.CHECKING:
            return Rest()
        if common < own.end_offset:
            return self._cut_at(common, own)
        return self._copy()

    def _gap(self, parent: ParentLog, own: OwnLog) -> Action:
        if own.end_offset == 0:
            # Nothing was copied yet, so nothing is missing: the copy begins where the parent's does
            return self._restart(parent.start_offset)
        missing = parent.start_offset - own.end_offset
        if self._on_gap is OnGap.REFRESH:
            self._begin(Phase.TRUNCATING)
            return Refresh(parent.start_offset)
        if self._on_gap is OnGap.STOP:
            self._begin(Phase.GAP)
            self.problem = Problem(
                f"gap: the parent deleted {missing} offsets before they were copied "
                f"({own.end_offset} to {parent.start_offset - 1})",
                'set on_gap = "skip" to go on without them, or delete the mirror to copy again',
            )
            return Rest()
        self.gaps += 1
        self.gap_records += missing
        return self._restart(parent.start_offset)

    def _cut_at(self, offset: int, own: OwnLog) -> Action:
        if offset <= own.start_offset or offset < self._parent_start:
            self.cut_records += own.end_offset - own.start_offset
            return self._restart(self._parent_start)
        self.cut_records += own.end_offset - offset
        self._begin(Phase.TRUNCATING)
        return Cut(offset)

    def _restart(self, offset: int) -> Action:
        self._begin(Phase.TRUNCATING)
        return Restart(offset)

    def _copy(self) -> Action:
        self._begin(Phase.COPYING)
        return Copy()

    def cut(self) -> Action:
        """The cut is on the disk; compare again."""
        assert self.phase is Phase.TRUNCATING, self.phase
        self._begin(Phase.CHECKING)
        return Check()

    def cut_failed(self, problem: Problem) -> None:
        """The cut failed; the log is as it was, or offline."""
        assert self.phase is Phase.TRUNCATING, self.phase
        self.lost(problem)

    def sent(self) -> int:
        """A fetch from the end of the log is sent; return the generation of its answer."""
        assert self.phase is Phase.COPYING, self.phase
        self.generation += 1
        return self.generation

    def answered(
        self,
        generation: int,
        code: ErrorCode,
        own: OwnLog,
        *,
        high_watermark: int,
        start_offset: int,
        has_diverged: bool,
    ) -> Action:
        """Return the action for the answer of a fetch."""
        if self.phase is not Phase.COPYING or generation != self.generation:
            return Rest()
        if code is ErrorCode.NONE and not has_diverged and start_offset <= own.end_offset:
            self._contradicted_end = NO_OFFSET
            self.high_watermark = high_watermark
            return Append()
        is_repeated = own.end_offset == self._contradicted_end
        if code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE) and not is_repeated:
            self._contradicted_end = own.end_offset
            self._begin(Phase.CHECKING)
            return Check()
        problem = None
        if code in _REFUSED:
            problem = refused(code.name)
        self.lost(problem)
        return LookAgain(code.name)

    def lost(self, problem: Problem | None = None) -> None:
        """The parent does not answer, or refuses: wait for the next connection."""
        if self.phase in (Phase.GAP, Phase.STOPPED):
            return
        self._begin(Phase.WAITING)
        self.problem = problem

    def stop(self, problem: Problem) -> Action:
        """Copy no more, until an operator decides."""
        self._begin(Phase.STOPPED)
        self.problem = problem
        return Rest()

    def _begin(self, phase: Phase) -> None:
        self.phase = phase
        self.generation += 1
        self.problem = None

    def validate(self) -> None:
        """Assert the invariants."""
        assert (self.phase in (Phase.GAP, Phase.STOPPED)) <= (self.problem is not None)
        assert self.phase is not Phase.COPYING or self.problem is None


def refused(code: str) -> Problem:
    """Return the problem of a parent that denies access."""
    return Problem(
        f"the parent refuses: {code}",
        "allow READ and DESCRIBE on the topics to the pipe's user at the parent",
    )


def asked_epoch(own: OwnLog, parent_epoch: int) -> int:
    """Return the epoch to ask the parent about: an older parent does not know a newer one."""
    return min(own.latest_epoch, parent_epoch)


def _common_end(parent: ParentLog, own: OwnLog, shared: EpochEnd) -> int:
    """Return the offset up to which the histories agree, by their leader epochs (KIP-101)."""
    if parent.epoch_end.end_offset == NO_OFFSET:
        # The parent has no records of any epoch: only its end can be compared.
        return min(parent.end_offset, own.end_offset)
    if own.is_empty or own.latest_epoch == NO_EPOCH:
        return min(parent.end_offset, own.end_offset)
    common = min(parent.epoch_end.end_offset, own.end_offset)
    if shared.end_offset == NO_OFFSET:
        return min(common, own.start_offset)
    return min(common, shared.end_offset)
