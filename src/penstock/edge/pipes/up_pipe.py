"""`UpPartition`: the phases of one partition whose records are sent to a parent. Pure.

    CONNECTING   the parent has not answered yet
    CHECKING     the position of the site at the parent is compared with the own log
    COPYING      committed records are sent from the position
    WAITING      until a pause is over: the parent does not answer, or refuses
    GAP          records were deleted here before they were sent, and `on_gap` is "stop"
    STOPPED      an operator must decide: the parent has records that this log does not have

    CONNECTING ─ resumed ─► CHECKING ─ compared ─► COPYING ─ committed ─► COPYING
        ▲                      │ log begins later ─► GAP, or with "skip" COPYING
     resumed                   │ log is shorter, or differs ─► STOPPED
     WAITING ◄─ lost           └ first contact, or a new topic of the same name ─► COPYING

Guarantees:

- The position is the committed offset of the group `pipe.<site>` at the parent. It is committed in
  the transaction of the records, so a crash at any step repeats nothing and loses nothing.
- The position carries a `SentMark`: the topic id here, and the last batch that was sent. A log that
  does not have this batch is not the log that was sent: a copied or restored disk is found before
  a record is skipped.
- `held_from` never exceeds the position: retention keeps all records that were not sent.
- A gap is counted; it does not happen silently.

It does no IO: `edge.pipes.up_runner` carries out the returned actions.
"""

from typing import Final, NamedTuple, Self
from uuid import UUID

from penstock.edge.pipes.common_end import BatchMark
from penstock.edge.pipes.down_pipe import NO_OFFSET, OnGap, Phase, Problem

_FORMAT: Final = "1"
_FIELDS: Final = 6


class SiteLog(NamedTuple):
    """The log of a partition of this broker."""

    topic_id: UUID
    start_offset: int
    stable_offset: int
    """The last stable offset: all transactions below it are decided."""
    end_offset: int
    size_bytes: int


class SentMark(NamedTuple):
    """What a position refers to: a topic of this broker, and the last batch that was sent."""

    topic_id: UUID
    batch: BatchMark

    @classmethod
    def without_batch(cls, topic_id: UUID) -> Self:
        """Return the mark of a position that no batch led to."""
        return cls(topic_id, BatchMark(NO_OFFSET, NO_OFFSET, NO_OFFSET, 0))

    def text(self) -> str:
        """Return the metadata of a committed offset."""
        return ":".join((_FORMAT, self.topic_id.hex, *map(str, self.batch)))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the mark of a committed offset; None if an operator committed it."""
        parts = text.split(":")
        if len(parts) != _FIELDS or parts[0] != _FORMAT:
            return None
        try:
            return cls(UUID(hex=parts[1]), BatchMark(*map(int, parts[2:])))
        except ValueError:
            return None


class Position(NamedTuple):
    """How far the records of a partition are at the parent."""

    offset: int
    mark: SentMark | None
    """None: an operator has chosen the offset."""


class Compare(NamedTuple):
    """Call `compared` with the batch that ends at or after this offset."""

    offset: int


class Send(NamedTuple):
    """Send records from the position."""


class Rest(NamedTuple):
    """Do nothing until an operator or the next connection changes the phase."""


Action = Compare | Send | Rest


class UpPartition:
    """One partition of an up pipe."""

    __slots__ = (
        "_awaited",
        "_is_skipping",
        "_is_verifying",
        "gap_records",
        "gaps",
        "is_renewed",
        "phase",
        "position",
        "problem",
    )

    def __init__(
        self, on_gap: OnGap, *, is_dropping: bool, is_verifying: bool, noted: int = NO_OFFSET
    ) -> None:
        """`is_dropping`: a full disk may remove unsent records, by `on_full`.

        `noted` is the position that this broker remembers. `is_verifying`: compare the last
        batch; compaction may have rewritten it otherwise.
        """
        self._is_skipping = is_dropping or on_gap is OnGap.SKIP
        self._is_verifying = is_verifying
        self._awaited: Position | None = None
        """The position while its batch is compared."""
        self.phase = Phase.CONNECTING
        self.position = noted
        """The next offset to send; unknown before the first answer of the parent."""
        self.problem: Problem | None = None
        self.gaps = self.gap_records = 0
        self.is_renewed = False
        """Whether the position belonged to a former topic of this name."""

    @property
    def held_from(self) -> int:
        """Retention must keep the records that begin here."""
        return max(0, self.position)

    def resumed(self, found: Position | None, own: SiteLog) -> Action:
        """The parent has answered with the position of this site."""
        self._begin(Phase.CHECKING)
        self.is_renewed = False
        if found is None:
            return self._send_from(own.start_offset)
        mark = found.mark
        if mark is not None and mark.topic_id != own.topic_id:
            self.is_renewed = True
            return self._send_from(own.start_offset)
        if found.offset > own.end_offset:
            return self.stop(
                f"the parent has records of this site up to offset {found.offset - 1}, and the log "
                f"here ends at {own.end_offset}"
            )
        if found.offset < own.start_offset:
            return self._gap(found.offset, own.start_offset)
        if mark is None or not self._is_verifying or mark.batch.last_offset < own.start_offset:
            return self._send_from(found.offset)
        self._awaited = found
        return Compare(mark.batch.last_offset)

    def compared(self, own: BatchMark | None) -> Action:
        """The log here has this batch at the offset of the mark."""
        assert self._awaited is not None, self.phase
        found = self._awaited
        assert found.mark is not None
        if own != found.mark.batch:
            return self.stop(
                f"the records here up to offset {found.offset - 1} differ from the records that "
                "this site has sent: the disk was restored or copied"
            )
        return self._send_from(found.offset)

    def _gap(self, sent: int, start: int) -> Action:
        missing = start - sent
        if not self._is_skipping:
            self.position = max(self.position, sent)
            self._begin(Phase.GAP)
            self.problem = Problem(
                f"gap: {missing} offsets were deleted here before they were sent "
                f"({sent} to {start - 1})",
                'set on_gap = "skip" to go on without them',
            )
            return Rest()
        self.gaps += 1
        self.gap_records += missing
        return self._send_from(start)

    def overtaken(self, start_offset: int) -> Action:
        """The log begins later than the position now."""
        assert start_offset > self.position
        return self._gap(self.position, start_offset)

    def _send_from(self, offset: int) -> Action:
        self.position = offset
        self._begin(Phase.COPYING)
        return Send()

    def choose(self, offset: int) -> Action:
        """An operator has chosen the position."""
        return self._send_from(offset)

    def committed(self, offset: int) -> None:
        """The parent has committed everything below this offset."""
        assert self.phase is Phase.COPYING, self.phase
        assert offset >= self.position, (offset, self.position)
        self.position = offset

    def lost(self, problem: Problem | None = None) -> None:
        """The parent does not answer, or refuses: wait for the next connection."""
        if self.phase in (Phase.GAP, Phase.STOPPED):
            return
        self._begin(Phase.WAITING)
        self.problem = problem

    def stop(self, reason: str) -> Action:
        """Send no more until an operator has decided."""
        self._begin(Phase.STOPPED)
        self.problem = Problem(
            reason,
            "give this broker a site of its own, or choose what to send: `penstock pipe reset`",
        )
        return Rest()

    def _begin(self, phase: Phase) -> None:
        self.phase = phase
        self.problem = None
        self._awaited = None

    def validate(self) -> None:
        """Assert the invariants."""
        assert (self.phase in (Phase.GAP, Phase.STOPPED)) <= (self.problem is not None)
        assert self.phase is not Phase.COPYING or self.position >= 0
