"""`Reaction`: gathers the outcome of one event while parts of the shard decide.

It is handed down, filled, and turned into the frozen `Outcome` at the end. It is NOT kept: a part
that wants to answer later keeps the ticket and answers in a later reaction.
"""

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
from penstock.protocol.codec import Message


class Reaction:
    """What one event leads to, in the making."""

    __slots__ = (
        "_effects",
        "_is_revocable",
        "_producer",
        "_records",
        "_replies",
        "_timers",
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

    @property
    def records(self) -> tuple[StoredRecord, ...]:
        """What is to be written so far."""
        return tuple(self._records)

    @property
    def record_count(self) -> int:
        """How much is to be written so far."""
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
        """Nothing but the records is changed by this event: a log that refuses them undoes it."""
        self._is_revocable = True

    def reply(self, ticket: Ticket, response: Message) -> None:
        """Answer a request, of this event or of an earlier one."""
        self._replies.append(Reply(ticket, response))

    def set_timer(self, key: TimerKey, delay_ms: int) -> None:
        """Fire `key` after a while; the last word on a timer within one reaction counts."""
        self._timers.pop(key, None)
        self._timers[key] = SetTimer(key, delay_ms)

    def cancel_timer(self, key: TimerKey) -> None:
        """Forget a timer."""
        self._timers.pop(key, None)
        self._timers[key] = CancelTimer(key)

    def outcome(self) -> Outcome:
        """All of it, as the runtime takes it."""
        return Outcome(
            records=tuple(self._records),
            replies=tuple(self._replies),
            timers=tuple(self._timers.values()),
            effects=tuple(self._effects),
            producer=self._producer,
            is_revocable=self._is_revocable,
        )
