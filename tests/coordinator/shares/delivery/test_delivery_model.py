"""A model of delivery: a plain dictionary of offsets beside the runs of `ShareDelivery`.

Random acquisitions, acknowledgements, releases, ends of locks, members that leave, writes that
succeed, fail or are interrupted, crashes and moves of the log start. After each of them the state
of every offset equals that of the dictionary, and every durable state loads to itself. At the end
all records are consumed: each was accepted at most once, none was lost, and none was delivered more
often than the limit and the crashes allow. With a dead-letter topic, each record that was given up
has a letter, more than one only after a crash or a failure, and no record with a letter is
delivered again.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from penstock.coordinator.shares.delivery.acknowledgement import Acknowledged
from penstock.coordinator.shares.delivery.acquisition import FetchedBatch
from penstock.coordinator.shares.delivery.runs import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    Change,
)
from penstock.coordinator.shares.delivery.share_delivery import (
    DeliveryRules,
    Letter,
    ShareDelivery,
    Write,
)
from penstock.coordinator.shares.ports import Refusal, StateBatch
from tests.coordinator.model_runs import EXAMPLES, IS_SEEDED

BATCH_MAX, GAP_MAX = 6, 2
BATCH_AND_GAP_MAX = BATCH_MAX + GAP_MAX
MEMBERS: Final = ("one", "two", "three")
LOCK_SECONDS: Final = 30.0
TERMINAL: Final = (ACKNOWLEDGED, ARCHIVED)


@dataclass(frozen=True)
class Record:
    """The state of one offset in the model."""

    state: int = AVAILABLE
    count: int = 0
    member: str = ""
    deadline: float = 0.0
    target: int = -1
    """The state that is being written."""


def seen(delivery: ShareDelivery) -> dict[int, Record]:
    """Return the state of every offset that a delivery knows; terminal states are all alike."""
    states: dict[int, Record] = {}
    for run in delivery._runs:
        for offset in range(run.first, run.last + 1):
            if run.is_terminal:
                states[offset] = Record(ARCHIVED)
            else:
                target = -1 if run.change is None else run.target
                target = ARCHIVED if target in TERMINAL else target
                states[offset] = Record(run.state, run.count, run.member, run.deadline, target)
    return states


class Delivery(RuleBasedStateMachine):
    """The runs and the dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.log: list[FetchedBatch] = []
        self.records: dict[int, Record] = {}
        """All offsets from the start offset on that were looked at."""
        self.durable: dict[int, tuple[int, int]] = {}
        self.durable_start = 0
        self.start = self.end = 0
        self.log_start = 0
        self.write: Write | None = None
        self.pending: dict[Change, list[int]] = {}
        self.accepted: dict[int, int] = {}
        self.deliveries: dict[int, int] = {}
        self.rejected: set[int] = set()
        self.skipped: set[int] = set()
        """Acknowledged as offsets without a record: no letter is written."""
        self.crashes = 0
        self.sent: tuple[Letter, ...] = ()
        self.letters: dict[int, int] = {}
        self.letter_failures = 0

    @initialize(limit=st.integers(2, 5), room=st.integers(4, 30), has_letters=st.booleans())
    def begin(self, limit: int, room: int, has_letters: bool) -> None:
        self.given = DeliveryRules(LOCK_SECONDS, limit, room, has_dead_letters=has_letters)
        self.given_up = ARCHIVING if has_letters else ARCHIVED
        self.delivery = ShareDelivery(0, (), self.given)
        # Most walks never acquire a record otherwise: the log is empty, and rules are many.
        for first in range(0, 4 * BATCH_MAX, BATCH_MAX):
            self.append(BATCH_MAX, first % 3, "r")
        self.acquire(MEMBERS[0], BATCH_MAX, False)

    # --- The log ---

    @rule(
        size=st.integers(1, BATCH_MAX), gap=st.integers(0, GAP_MAX), kind=st.sampled_from("rrrrd")
    )
    def append(self, size: int, gap: int, kind: str) -> None:
        first = (self.log[-1].last + 1 if self.log else 0) + gap
        self.log.append(FetchedBatch(first, first + size - 1, kind == "d"))

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.log) - 1))
        self.log_start = max(self.log_start, self.log[index].first)
        self.delivery.move_log_start(self.log_start)
        self._forget_below(self.log_start)

    def _forget_below(self, offset: int) -> None:
        for gone in [one for one in self.records if one < offset]:
            del self.records[gone]
        self.start, self.end = max(self.start, offset), max(self.end, offset)
        self._advance()

    def _read(self, offset: int) -> list[FetchedBatch]:
        return [batch for batch in self.log if batch.last >= offset]

    def _is_live(self, offset: int) -> bool:
        return any(b.first <= offset <= b.last and not b.is_dead for b in self.log)

    # --- Members ---

    @rule(member=st.sampled_from(MEMBERS), most=st.integers(1, 12), is_exact=st.booleans())
    def acquire(self, member: str, most: int, is_exact: bool) -> None:
        delivery, offset = self.delivery, self.delivery.next_offset()
        had_room = delivery.has_room
        batches = self._read(offset)
        got = delivery.acquire(
            member, offset, batches, self.now, records_max=most, batch_size=3, is_exact=is_exact
        )
        offsets = [one for span in got for one in range(span.first, span.last + 1)]
        assert offsets == sorted(set(offsets))
        assert not is_exact or len(offsets) <= most
        for span in got:
            for one in range(span.first, span.last + 1):
                record = self.records.get(one, Record())
                assert record.state == AVAILABLE, "an available record, or a new one"
                assert self._is_live(one), "a record that clients may see"
                assert one not in self.letters, f"{one} has a letter and was delivered again"
                assert span.delivery_count == record.count + 1 <= self.given.delivery_limit
                if 2 < self.given.delivery_limit == span.delivery_count:
                    assert len(offsets) == 1, "the last attempt is alone"
                deadline = self.now + LOCK_SECONDS
                self.records[one] = Record(ACQUIRED, span.delivery_count, member, deadline)
                self.deliveries[one] = self.deliveries.get(one, 0) + 1
        live = [batch for batch in batches if not batch.is_dead]
        if live and (had_room or offset < self.end) and not offsets:
            assert delivery.next_offset() != offset or not had_room, "progress is made"
        self._follow_archived()

    def _follow_archived(self) -> None:
        """Archive what the delivery found dead: offsets that no client may see."""
        delivery = self.delivery
        for offset in range(self.start, delivery.end_offset):
            record = self.records.get(offset)
            is_new = record is None
            if is_new or (record is not None and record.state == AVAILABLE):
                count = 0 if record is None else record.count
                if count < self.given.delivery_limit and self._is_live(offset):
                    assert not is_new, f"{offset} was skipped"
                    continue
                known = seen(delivery).get(offset, Record(ARCHIVED))
                if known.state == ARCHIVED:
                    self.records[offset] = Record(ARCHIVED)
                elif known.state == ARCHIVING:
                    assert self.given.has_dead_letters
                    self.records[offset] = Record(ARCHIVING, count)
        self._advance()

    def _advance(self) -> None:
        self.end = max(self.end, self.delivery.end_offset)
        while self.start < self.end and self.records[self.start].state in TERMINAL:
            del self.records[self.start]
            self.start += 1

    @rule(member=st.sampled_from(MEMBERS), data=st.data())
    def acknowledge(self, member: str, data: st.DataObject) -> None:
        own = [
            one
            for one, record in sorted(self.records.items())
            if record.member == member and record.target < 0
        ]
        if not own:
            return
        first = data.draw(st.sampled_from(own))
        last = first
        while last + 1 in own and data.draw(st.booleans()):
            last += 1
        kinds = data.draw(
            st.lists(st.sampled_from((0, 1, 2, 3, 4)), min_size=1, max_size=last - first + 1)
        )
        if len(kinds) != last - first + 1:
            kinds = kinds[:1]
        change = self.delivery.acknowledge(
            member, [Acknowledged(first, last, tuple(kinds))], self.now
        )
        assert not isinstance(change, Refusal), change
        for offset in range(first, last + 1):
            self._acknowledge_one(offset, kinds[(offset - first) % len(kinds)], change)

    def _acknowledge_one(self, offset: int, kind: int, change: Change | None) -> None:
        record = self.records[offset]
        if kind == 4:
            self.records[offset] = replace(record, deadline=self.now + LOCK_SECONDS)
            return
        assert change is not None
        is_last = record.count >= self.given.delivery_limit
        target = AVAILABLE if kind == 2 and not is_last else ARCHIVED
        if kind == 3 or (kind == 2 and is_last):
            target = self.given_up
        self.records[offset] = replace(record, target=target)
        self.pending.setdefault(change, []).append(offset)
        if kind == 1:
            self.accepted.setdefault(offset, 0)
            self.accepted[offset] |= 2
        elif kind in (0, 3):
            (self.rejected if kind else self.skipped).add(offset)

    @rule(member=st.sampled_from(MEMBERS), other=st.sampled_from(MEMBERS), data=st.data())
    def acknowledge_wrongly(self, member: str, other: str, data: st.DataObject) -> None:
        wrong = [
            one
            for one, record in self.records.items()
            if record.member != member or record.target >= 0
        ]
        if wrong:
            offset = data.draw(st.sampled_from(wrong))
            outcome = self.delivery.acknowledge(
                member, [Acknowledged(offset, offset, (1,))], self.now
            )
            assert isinstance(outcome, Refusal)

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        self.delivery.release_member(member)
        self._release(lambda record: record.member == member)

    @rule(seconds=st.sampled_from((1.0, 20.0, 40.0)))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.delivery.expire(self.now)
        self._expire()

    def _expire(self) -> None:
        self._release(lambda record: record.deadline <= self.now)

    def _release(self, is_due: Callable[[Record], bool]) -> None:
        for offset, record in list(self.records.items()):
            if record.state == ACQUIRED and record.target < 0 and is_due(record):
                is_last = record.count >= self.given.delivery_limit
                state = self.given_up if is_last else AVAILABLE
                self.records[offset] = Record(state, 0 if state == ARCHIVED else record.count)
        self._advance()

    # --- Writes ---

    @precondition(lambda self: self.delivery.needs_write)
    @rule()
    def begin_write(self) -> None:
        self.write = self.delivery.take_write()

    @precondition(lambda self: self.write is not None)
    @rule(is_durable=st.sampled_from((True, True, False)))
    def end_write(self, is_durable: bool) -> None:
        write, self.write = self.write, None
        assert write is not None
        if is_durable:
            self._store(write)
            self.delivery.written(write)
        else:
            self.delivery.failed(write, self.now)
        for change in write.changes:
            for offset in self.pending.pop(change, ()):
                record = self.records.get(offset)
                if record is None or record.target < 0:
                    continue
                if not is_durable:
                    self.records[offset] = replace(record, target=-1)
                elif record.target in (AVAILABLE, ARCHIVING):
                    self.records[offset] = Record(record.target, record.count)
                else:
                    self.records[offset] = Record(ARCHIVED)
        if not is_durable:
            self._expire()
        self._advance()

    def _store(self, write: Write) -> None:
        """Merge a write into the durable state, as the share coordinator does."""
        firsts = [batch.first_offset for batch in write.batches]
        assert firsts == sorted(firsts)
        previous = -1
        for batch in write.batches:
            assert batch.first_offset > previous, "no overlap"
            previous = batch.last_offset
            for offset in range(batch.first_offset, batch.last_offset + 1):
                before = self.durable.get(offset, (AVAILABLE, 0))
                assert before[0] not in TERMINAL or batch.delivery_state in TERMINAL
                assert before[0] != ARCHIVING or batch.delivery_state in (ARCHIVING, ARCHIVED)
                self.durable[offset] = (batch.delivery_state, batch.delivery_count)
        assert write.start_offset >= self.durable_start, "the start never moves back"
        self.durable_start = write.start_offset
        for offset in [one for one in self.durable if one < write.start_offset]:
            del self.durable[offset]
        for change in write.changes:
            for offset in self.pending.get(change, ()):
                if self.accepted.get(offset, 0) & 2:
                    assert not self.accepted[offset] & 1, f"{offset} was accepted twice"
                    self.accepted[offset] = 1
        self._check_loaded()

    def _loaded(self) -> ShareDelivery:
        batches = [StateBatch(one, one, *state) for one, state in sorted(self.durable.items())]
        return ShareDelivery(self.durable_start, batches, self.given)

    def _check_loaded(self) -> None:
        loaded = self._loaded()
        loaded.validate()
        first = self.durable_start
        while self.durable.get(first, (AVAILABLE, 0))[0] in TERMINAL:
            first += 1
        assert loaded.start_offset == first
        for offset, record in seen(loaded).items():
            state, count = self.durable.get(offset, (AVAILABLE, 0))
            expected = Record(ARCHIVED) if state in TERMINAL else Record(state, count)
            assert record == expected

    # --- Dead letters ---

    @precondition(lambda self: not self.sent)
    @rule(most=st.integers(1, 9))
    def send_letters(self, most: int) -> None:
        self.sent = self.delivery.take_letters(most)
        offsets = [one for letter in self.sent for one in range(letter.first, letter.last + 1)]
        assert len(offsets) <= most
        for letter in self.sent:
            for one in range(letter.first, letter.last + 1):
                assert self.records[one].state == ARCHIVING
                assert letter.delivery_count == self.records[one].count
                assert self.durable[one][0] == ARCHIVING, "no crash makes it available again"

    @precondition(lambda self: self.sent)
    @rule(is_written=st.booleans(), is_known=st.sampled_from((True, True, False)))
    def end_letters(self, is_written: bool, is_known: bool) -> None:
        """Letters are written or not; an answer that was lost counts as a failure."""
        sent, self.sent = self.sent, ()
        for letter in sent:
            self._land(letter, is_written)
            if not (is_written and is_known):
                self.letter_failures += 1
                self.delivery.letters_failed(letter.first, letter.last)
                continue
            self.delivery.letters_written(letter.first, letter.last)
            for one in range(letter.first, letter.last + 1):
                if one in self.records:
                    self.records[one] = Record(ARCHIVED)
        self._advance()

    def _land(self, letter: Letter, is_written: bool) -> None:
        if is_written:
            for one in range(letter.first, letter.last + 1):
                self.letters[one] = self.letters.get(one, 0) + 1

    @rule(is_durable=st.booleans(), is_letter_written=st.booleans())
    def crash(self, is_durable: bool, is_letter_written: bool) -> None:
        """Another broker leads now, or this one again; a write on its way arrives or not."""
        for letter in self.sent:
            self._land(letter, is_letter_written)
        self.sent = ()
        if self.write is not None and is_durable:
            self._store(self.write)
        self.write = None
        for offset in self.accepted:
            self.accepted[offset] &= 1
        self.pending.clear()
        self.crashes += 1
        self.delivery = self._loaded()
        self.delivery.move_log_start(self.log_start)
        self.start, self.end = self.delivery.start_offset, self.delivery.end_offset
        self.records = seen(self.delivery)
        self._advance()

    # --- What must hold ---

    @invariant()
    def is_equal(self) -> None:
        self.delivery.validate()
        assert self.delivery.start_offset == self.start
        assert seen(self.delivery) == self.records
        held = sum(record.state == ACQUIRED for record in self.records.values())
        assert len(self.delivery._runs) <= 2 * held + 2 * len(self.records) + 2

    @invariant()
    def is_within_limit(self) -> None:
        for offset, count in self.deliveries.items():
            most = self.given.delivery_limit * (1 + self.crashes)
            assert count <= most, f"{offset} was delivered {count} times"

    @invariant()
    def is_bounded(self) -> None:
        if not self.given.has_dead_letters:
            window = self.delivery.end_offset - self.delivery.start_offset
            assert window <= 2 * self.given.in_flight_max + BATCH_AND_GAP_MAX

    @invariant()
    def holder_is_named(self) -> None:
        """The owner of the first records that stay is named if nothing more can be acquired."""
        delivery = self.delivery
        kept = [
            offset
            for offset, one in sorted(self.records.items())
            if one.state not in TERMINAL and one.target not in TERMINAL
        ]
        is_closed = not (delivery.has_available or delivery.has_room) and bool(kept)
        first = self.records[kept[0]] if is_closed else None
        if first is None or first.state != ACQUIRED or first.target >= 0:
            assert delivery.held() is None
        else:
            assert delivery.held() == (kept[0], first.member)

    @invariant()
    def has_few_letters(self) -> None:
        for offset, count in self.letters.items():
            assert count <= 1 + self.crashes + self.letter_failures, f"{offset}: {count} letters"
            assert self.accepted.get(offset, 0) != 1, f"{offset} was accepted and has a letter"

    def teardown(self) -> None:
        if not hasattr(self, "delivery"):
            return
        if self.write is not None:
            self.end_write(True)
        end = self.log[-1].last + 1 if self.log else 0
        for _ in range(60 * self.given.delivery_limit):
            if self.start >= end and not self.delivery.needs_write:
                break
            self._consume()
        assert self.start >= end, "every record is delivered or archived"
        for batch in self.log:
            for offset in range(max(batch.first, self.log_start), batch.last + 1):
                assert batch.is_dead or self._is_done(offset), f"{offset} was lost"

    def _consume(self) -> None:
        """One member accepts all records that it gets; letters that are due are written."""
        if not self.sent:
            self.send_letters(100)
        if self.sent:
            self.end_letters(True, True)
        if self.delivery.needs_write:
            self.begin_write()
            self.end_write(True)
        self.acquire("one", 1000, False)
        own = [o for o, one in self.records.items() if one.member == "one" and one.target < 0]
        for offset in sorted(own):
            change = self.delivery.acknowledge(
                "one", [Acknowledged(offset, offset, (1,))], self.now
            )
            assert isinstance(change, Change)
            self._acknowledge_one(offset, 1, change)
        if not own and not self.delivery.needs_write and not self.delivery.has_letters:
            self.wait(LOCK_SECONDS)

    def _is_done(self, offset: int) -> bool:
        if self.given.has_dead_letters:
            return (
                self.accepted.get(offset) == 1 or offset in self.letters or offset in self.skipped
            )
        return (
            offset in self.skipped
            or self.accepted.get(offset) == 1
            or offset in self.rejected
            or self.deliveries.get(offset, 0) >= self.given.delivery_limit
        )


Delivery.TestCase.settings = settings(
    max_examples=EXAMPLES, derandomize=IS_SEEDED, stateful_step_count=40, deadline=None
)


@pytest.mark.model
class TestDeliveryModel(Delivery.TestCase):  # type: ignore[misc, valid-type]
    pass
