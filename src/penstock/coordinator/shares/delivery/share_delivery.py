"""`ShareDelivery`: the state machine of one share-partition on the broker that leads it. Pure.

    AVAILABLE ── acquire, count + 1 ──► ACQUIRED ── accept ──────────────► ACKNOWLEDGED
        ▲                                  │        reject, gap ─────────► ARCHIVED
        └── release, lock over, member gone┘── the same at the limit ────► ARCHIVED

With a dead-letter topic, rejected records and those at the limit are ARCHIVING first:

    ARCHIVING ── this state is durable ──► letter due ── letter written ──► ARCHIVED

Guarantees:

- a record has at most one owner, and is accepted at most once;
- an acknowledgement is pending until its new state is durable (`written`), or is rolled back
  (`failed`). Meanwhile no other member gets the record. A lock that ends meanwhile counts later;
- a release by time or by the end of a member needs no write before the next delivery: the state on
  disk is then older, never wrong. Its delivery count may be lost in a crash;
- a letter is due when no crash can make its record available again, and its record is archived
  after the letter is written: a crash between them causes a second letter, never a lost one;
- the start offset moves over terminal records only, and never back;
- the window between the start offset and the end is bounded, so the memory is too. Records at its
  start whose end is being written leave room for new ones, at most as many as the window has.

`take_write` returns the changes since the last one as one write; one write is under way at a time,
so the state after any prefix of the writes is a state that this partition had. It reads no clock
and does no IO: `node.shares` does both.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from penstock.coordinator.shares.delivery.acknowledgement import (
    REJECT,
    RENEW,
    Acknowledged,
    Span,
    plan_acknowledged,
)
from penstock.coordinator.shares.delivery.acquisition import (
    Acquired,
    FetchedBatch,
    Wanted,
    acquire,
    archive_gap,
)
from penstock.coordinator.shares.delivery.durable_states import disjoint, durable_state
from penstock.coordinator.shares.delivery.runs import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    EXHAUSTED,
    LETTER_CHANGED,
    LETTER_DUE,
    LETTER_NONE,
    LETTER_SENT,
    LETTER_STORING,
    REJECTED,
    Change,
    Run,
    RunMap,
)
from penstock.coordinator.shares.ports import Refusal, StateBatch
from penstock.protocol.error_codes import ErrorCode

RUNS_MAX: Final = 20_000
"""Runs of one share-partition: no more than the state batches that the share coordinator stores.
The records of the largest window (`WINDOW_MAX`) need three quarters of it, each with its own state.
Only a batch of very many records, which is acquired whole, could be split into more."""


class DeliveryRules(NamedTuple):
    """The settings of a group that deliveries follow. They may change at any moment."""

    lock_seconds: float = 30.0
    delivery_limit: int = 5
    in_flight_max: int = 2000
    may_renew: bool = True
    has_dead_letters: bool = False
    """Whether records that are given up get a letter in a dead-letter topic."""


class Held(NamedTuple):
    """The first records of a full window, which their owner has not acknowledged."""

    offset: int
    member: str


class Letter(NamedTuple):
    """Consecutive records that are given up for one cause after one number of deliveries."""

    first: int
    last: int
    delivery_count: int
    cause: int
    """REJECTED or EXHAUSTED."""


class DeliveryCounts(NamedTuple):
    """Records of a share-partition by state."""

    acquired: int
    archiving: int
    """They wait for their letters."""
    complete: int
    """Terminal, behind a record that is not."""


class Write(NamedTuple):
    """Changes to make durable."""

    start_offset: int
    complete_count: int
    batches: tuple[StateBatch, ...]
    changes: tuple[Change, ...]
    """The acknowledgements that wait for it."""
    spans: tuple[tuple[int, int], ...]


class ShareDelivery:
    """The records of one share-partition."""

    __slots__ = ("_changes", "_dirty", "_is_writing", "_runs", "rules")

    def __init__(
        self, start_offset: int, batches: Sequence[StateBatch], rules: DeliveryRules
    ) -> None:
        """Load the durable state; records without a batch are available."""
        self.rules = rules
        self._runs = runs = RunMap(start_offset)
        self._changes: list[Change] = []
        """Acknowledgements that are in no write yet."""
        self._dirty: list[tuple[int, int]] = []
        """Spans whose durable state is older."""
        self._is_writing = False
        for batch in sorted(batches):
            if batch.last_offset < runs.end:
                continue
            if batch.first_offset > runs.end:
                runs.append(batch.first_offset - 1, AVAILABLE)
            run = runs.append(batch.last_offset, batch.delivery_state, batch.delivery_count)
            if run.state == ARCHIVING:
                run.letter = LETTER_DUE
                # The cause is not stored; only a rejection ends a record before the limit.
                run.cause = EXHAUSTED if run.count >= rules.delivery_limit else REJECTED
        runs.drop_terminal()

    @property
    def start_offset(self) -> int:
        """All records before it are delivered, or gone."""
        return self._runs.start

    @property
    def end_offset(self) -> int:
        """No record at or after it was delivered."""
        return self._runs.end

    @property
    def run_count(self) -> int:
        """The number of runs in memory."""
        return len(self._runs)

    def counts(self) -> DeliveryCounts:
        """Return the numbers of records by state."""
        acquired = sum(len(run) for run in self._runs if run.state == ACQUIRED)
        return DeliveryCounts(acquired, self._runs.archiving, self._runs.complete)

    # --- Acquire ---

    def next_offset(self) -> int:
        """Return where to read: the first available record, else the first unknown one."""
        if self._runs.available:
            for run in self._runs:
                if run.state == AVAILABLE:
                    return run.first
        return self._runs.end

    @property
    def has_available(self) -> bool:
        """Whether a record waits for another delivery."""
        return self._runs.available > 0

    @property
    def has_room(self) -> bool:
        """Whether records behind the end may be acquired."""
        return self._runs.room(self.rules.in_flight_max) > 0

    def held(self) -> Held | None:
        """Return the records that keep the window closed; None if more can be acquired."""
        if self.has_available or self.has_room:
            return None
        run = self._runs.first_kept()
        is_held = run is not None and run.state == ACQUIRED and run.change is None
        return Held(run.first, run.member) if run is not None and is_held else None

    def acquire(
        self,
        member: str,
        fetch_offset: int,
        batches: Iterable[FetchedBatch],
        now: float,
        *,
        records_max: int,
        batch_size: int,
        is_exact: bool,
    ) -> list[Acquired]:
        """Give records of these batches to a member; the batches begin at `fetch_offset`."""
        rules = self.rules
        wanted = Wanted(
            member,
            records_max,
            batch_size,
            is_exact,
            now + rules.lock_seconds,
            rules.in_flight_max,
            rules.delivery_limit,
            rules.has_dead_letters,
        )
        acquired, archived = acquire(self._runs, fetch_offset, batches, wanted)
        self._archived(archived)
        return acquired

    def skip_gap(self, first: int, last: int) -> None:
        """Note that the log has no records at these offsets."""
        self._archived(archive_gap(self._runs, first, last))

    def _archived(self, spans: Sequence[tuple[int, int]]) -> None:
        for span in spans:
            self._dirty.append(span)
            self._runs.merge(*span)
        if spans:
            self._runs.drop_terminal()

    def move_log_start(self, offset: int) -> None:
        """Forget the records before the start of the log."""
        self._runs.drop_below(offset)
        self._runs.drop_terminal()

    # --- Acknowledge ---

    def acknowledge(
        self, member: str, batches: Sequence[Acknowledged], now: float
    ) -> Change | Refusal | None:
        """Begin an acknowledgement; None if nothing has to be written for it."""
        spans = plan_acknowledged(self._runs, member, batches)
        if isinstance(spans, Refusal):
            return spans
        if self._run_count_after(spans) > RUNS_MAX:
            why = f"the records would have more than {RUNS_MAX} states; acknowledge the oldest"
            return Refusal(ErrorCode.INVALID_REQUEST, why)
        if not self.rules.may_renew and any(span.kind == RENEW for span in spans):
            return Refusal(
                ErrorCode.INVALID_RECORD_STATE, "the group does not allow members to renew locks"
            )
        change = Change()
        for span in spans:
            for run in self._runs.cut(span.first, span.last):
                if span.kind == RENEW:
                    run.deadline = now + self.rules.lock_seconds
                    continue
                run.change = change
                run.target = self._limited(run, span.target, is_rejected=span.kind == REJECT)
                change.spans.append((run.first, run.last))
        if not change.spans:
            return None
        self._changes.append(change)
        self._dirty += change.spans
        return change

    def _run_count_after(self, spans: Sequence[Span]) -> int:
        """Return the most runs that these spans can leave: a run for each record at most."""
        edges, behind = len(self._runs), -1
        for span in spans:
            edges += 1 if span.first == behind else 2
            behind = span.last + 1
        return min(edges, self._runs.end - self._runs.start)

    def _limited(self, run: Run, target: int, *, is_rejected: bool = False) -> int:
        """Return the state after an acknowledgement or a release: archived at the delivery limit.

        With a dead-letter topic, records that are given up are ARCHIVING first.
        """
        is_exhausted = target == AVAILABLE and run.count >= self.rules.delivery_limit
        if not (is_exhausted or is_rejected):
            return target
        run.cause = REJECTED if is_rejected else EXHAUSTED
        return ARCHIVING if self.rules.has_dead_letters else ARCHIVED

    # --- Releases that no acknowledgement asked for ---

    def release_member(self, member: str) -> None:
        """Release all records of a member that is gone."""
        self._release([run for run in self._runs if run.member == member and run.change is None])

    def expire(self, now: float) -> None:
        """Release the records whose locks are over."""
        self._release(
            [
                run
                for run in self._runs
                if run.state == ACQUIRED and run.change is None and run.deadline <= now
            ]
        )

    def next_deadline(self) -> float | None:
        """Return when the next lock ends; those of pending acknowledgements do not count."""
        return min(
            (run.deadline for run in self._runs if run.state == ACQUIRED and run.change is None),
            default=None,
        )

    def _release(self, released: Sequence[Run]) -> None:
        for run in released:
            self._leave(run, self._limited(run, AVAILABLE))
            self._dirty.append((run.first, run.last))
        for first, last in [(run.first, run.last) for run in released]:
            self._runs.merge(first, last)
        self._runs.drop_terminal()

    def _leave(self, run: Run, state: int) -> None:
        self._runs.move(run, state)
        run.member, run.deadline, run.change = "", 0.0, None
        run.letter = LETTER_CHANGED if state == ARCHIVING else LETTER_NONE

    # --- Durable ---

    @property
    def needs_write(self) -> bool:
        """Whether there are changes, and no write is under way."""
        return bool(self._dirty) and not self._is_writing

    @property
    def is_busy(self) -> bool:
        """Whether a write is under way, or due."""
        return self._is_writing or bool(self._dirty)

    def take_write(self) -> Write:
        """Return all changes since the last write; call `written` or `failed` afterwards."""
        assert not self._is_writing, "one write at a time"
        self._is_writing = True
        spans, self._dirty = tuple(self._dirty), []
        changes, self._changes = tuple(self._changes), []
        start = self._runs.start
        complete = 0
        is_at_start = True
        for run in self._runs:
            if run.letter == LETTER_CHANGED:
                run.letter = LETTER_STORING
            if is_at_start and run.ends:
                start = run.last + 1
            else:
                is_at_start = False
                complete += len(run) if run.ends else 0
        return Write(start, complete, self._states(spans, start), changes, spans)

    def _states(self, spans: Sequence[tuple[int, int]], start: int) -> tuple[StateBatch, ...]:
        states: dict[int, StateBatch] = {}
        for first, last in spans:
            for run in self._runs.covering(first, last):
                begin, end = max(run.first, first, start), min(run.last, last)
                known = states.get(begin)
                if begin <= end and (known is None or known.last_offset < end):
                    states[begin] = durable_state(run, begin, end)
        return tuple(disjoint(states))

    def written(self, write: Write) -> None:
        """The write is durable: its acknowledgements take effect."""
        self._is_writing = False
        for change in write.changes:
            for first, last in change.spans:
                for run in self._runs.covering(first, last):
                    if run.change is change:
                        self._leave(run, run.target)
                        run.letter = LETTER_STORING if run.letter else LETTER_NONE
                self._runs.merge(first, last)
        self._turn_letters(LETTER_STORING, LETTER_DUE)
        self._runs.drop_terminal()

    def failed(self, write: Write, now: float) -> None:
        """The write was refused: its records are acquired as before, or free if the lock is over.

        Other changes are written again with the next write.
        """
        self._is_writing = False
        for change in write.changes:
            for first, last in change.spans:
                for run in self._runs.covering(first, last):
                    if run.change is change:
                        self._runs.restore(run)
        self._turn_letters(LETTER_STORING, LETTER_CHANGED)
        pending = {span for change in write.changes for span in change.spans}
        self._dirty[:0] = [span for span in write.spans if span not in pending]
        self.expire(now)

    # --- Dead letters ---

    @property
    def has_letters(self) -> bool:
        """Whether records wait for their letters."""
        return self._runs.archiving > 0

    def take_letters(self, records_max: int) -> tuple[Letter, ...]:
        """Return letters to write now; call `letters_written` or `letters_failed` for each."""
        letters: list[Letter] = []
        due = [run for run in self._runs if run.letter == LETTER_DUE] if self.has_letters else []
        for run in due:
            if records_max <= 0:
                break
            (part,) = self._runs.cut(run.first, min(run.last, run.first + records_max - 1))
            part.letter = LETTER_SENT
            records_max -= len(part)
            letters.append(Letter(part.first, part.last, part.count, part.cause))
        return tuple(letters)

    def letters_written(self, first: int, last: int) -> None:
        """Archive records whose letters are written."""
        for run in self._sent(first, last):
            self._runs.move(run, ARCHIVED)
            run.letter = LETTER_NONE
            self._dirty.append((run.first, run.last))
        self._runs.merge(first, last)
        self._runs.drop_terminal()

    def letters_failed(self, first: int, last: int) -> None:
        """Note that letters were not written; they are due again."""
        for run in self._sent(first, last):
            run.letter = LETTER_DUE
        self._runs.merge(first, last)

    def _sent(self, first: int, last: int) -> list[Run]:
        """Return the runs of sent letters; the start of the log may have passed some of them."""
        return [run for run in self._runs.cut(first, last) if run.letter == LETTER_SENT]

    def _turn_letters(self, before: int, after: int) -> None:
        if self._runs.archiving:
            for run in self._runs:
                if run.letter == before:
                    run.letter = after

    def validate(self) -> None:
        """Assert the invariants."""
        self._runs.validate()
        for run in self._runs:
            assert run.change is None or run.change in self._changes or self._is_writing
        assert not self._runs.complete or next(iter(self._runs)).is_terminal is False
