"""`Reaction`: gathers the outcome of one event while parts of the shard decide.

It is passed down, filled, and turned into the frozen `Outcome` at the end. Live state that must
agree with the records is not changed by the decision but in a step that runs when the log has them,
or is corrected in a step that runs when it refused them. A reaction is NOT kept: a part that
answers later keeps the ticket and answers in a later reaction.
"""

from collections.abc import Callable
from typing import TypeAlias

from penstock.coordinator.shard import (
    CancelTimer,
    Outcome,
    Producer,
    Reply,
    SetTimer,
    StoredRecord,
    Ticket,
    TimerKey,
)
from penstock.core.errors import PenstockError
from penstock.protocol.codec import Message

Step: TypeAlias = "Callable[[Reaction], None]"
"""A part of the second half of a reaction: it may do all but write."""


class Reaction:
    """Collects the outcome of one event."""

    __slots__ = (
        "_effects",
        "_is_revocable",
        "_producer",
        "_records",
        "_replies",
        "_timers",
        "_when_refused",
        "_when_written",
        "now_ms",
    )

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        """When the event happened."""
        self._records: list[StoredRecord] = []
        self._replies: list[Reply] = []
        self._timers: dict[TimerKey, SetTimer | CancelTimer] = {}
        self._effects: list[object] = []
        self._producer: Producer | None = None
        self._is_revocable = False
        self._when_written: tuple[Step, ...] = ()
        self._when_refused: tuple[Step, ...] = ()

    @property
    def records(self) -> tuple[StoredRecord, ...]:
        """The records to write so far."""
        return tuple(self._records)

    @property
    def record_count(self) -> int:
        """The number of records to write so far."""
        return len(self._records)

    def write(self, key: Message, value: Message | None) -> None:
        """Append a record; a value of None is a tombstone. It is replayed after this event."""
        self._records.append(StoredRecord(key, value))

    def write_all(self, records: list[StoredRecord]) -> None:
        """Append records in order."""
        self._records.extend(records)

    def write_as(self, producer: Producer) -> None:
        """The records of this reaction are part of this producer's transaction."""
        self._producer = producer

    def make_revocable(self) -> None:
        """This event changes only the records: if the log refuses them, it is undone."""
        self._is_revocable = True

    def when_written(self, step: Step) -> None:
        """Run `step` once the log has the records, before the next event."""
        self._when_written += (step,)

    def when_refused(self, step: Step) -> None:
        """Run only `step` when the log refuses the records; it undoes the event."""
        self._is_revocable = True
        self._when_refused += (step,)

    def stand_when_refused(self) -> None:
        """Go on if the log refuses the records: the members need not wait for them."""
        self.when_refused(lambda rest: rest._timers.update(self._timers))

    def reply(self, ticket: Ticket, response: Message) -> None:
        """Answer a request, of this event or of an earlier one."""
        self._replies.append(Reply(ticket, response))

    def set_timer(self, key: TimerKey, delay_ms: int) -> None:
        """Fire `key` after `delay_ms`; the last change of a timer within one reaction counts."""
        self._timers.pop(key, None)
        self._timers[key] = SetTimer(key, delay_ms)

    def cancel_timer(self, key: TimerKey) -> None:
        """Cancel a timer."""
        self._timers.pop(key, None)
        self._timers[key] = CancelTimer(key)

    def perform(self, effect: object) -> None:
        """Carry out an effect when the records are committed; it ends in `effect_done`."""
        self._effects.append(effect)

    def outcome(self) -> Outcome:
        """The `Outcome` for the runtime."""
        return Outcome(
            records=tuple(self._records),
            replies=tuple(self._replies),
            timers=tuple(self._timers.values()),
            effects=tuple(self._effects),
            producer=self._producer,
            is_revocable=self._is_revocable,
            then=self._then if self._when_written or self._when_refused else None,
        )

    def _then(self, error: PenstockError | None) -> Outcome:
        rest = Reaction(self.now_ms)
        for step in self._when_written if error is None else self._when_refused:
            step(rest)
        return rest.outcome()
