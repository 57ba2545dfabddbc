"""The contract between the runtime and a coordinator's state machine.

A `Shard` holds the state behind one partition of an internal topic. It gets one event at a time
and answers each with an `Outcome`: records to append, replies, timers, effects. It does NOT do IO,
read a clock, draw a random number or change replicated state outside `replay`.

The runtime guarantees:

- the records of an outcome are appended as one batch, then replayed at once, in order; the next
  event is handled after that;
- replies and effects of an outcome leave when everything appended so far is committed, also when
  the outcome itself has no records, so that no client learns of state that a crash could lose;
- when an append fails, the records were not replayed, and nothing of that outcome happens: its
  replies are replaced by the error, and the request that led to it gets the error too. The shard
  goes on if the outcome `is_revocable`, or has a `then` that handles the error; otherwise it is
  discarded and loaded anew;
- when the log refuses the records because of the `producer` they belong to (a `ProducerError`: a
  zombie commits offsets in a transaction), the shard goes on in any case, so an outcome with a
  producer must not rest on soft state that its handler changed;
- a timer fires once unless it is cancelled or set again; timers do not outlive the shard;
- `loaded` is the first event, after the last record of the log was replayed.
"""

from collections.abc import Callable, Collection, Hashable
from typing import Final, NamedTuple, Protocol, TypeAlias

from penstock.coordinator.metadata_view import TopicsView
from penstock.core.errors import PenstockError
from penstock.protocol.codec import Message
from penstock.security.acls.values import Operation, ResourceType

Ticket: TypeAlias = int
"""Names one waiting request; each gets exactly one reply, now or in a later outcome."""
TimerKey: TypeAlias = Hashable
"""Names one timer of one shard: a tuple that says what it is for."""
REFUSED_RETRY_MS: Final = 1_000
"""Delay before work without a waiting request is tried again after the log refused it. A disk stays
full for longer, but requests that depend on the work shall not wait long once there is space."""


class StoredRecord(NamedTuple):
    """One record of an internal topic, typed; a value of None is a tombstone."""

    key: Message
    value: Message | None


class Producer(NamedTuple):
    """The producer of a transactional batch, or of a transaction that ended."""

    producer_id: int
    producer_epoch: int


class Permissions(Protocol):
    """The permissions of a client. It does not wait; access rules may change at any moment."""

    def allows(
        self,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        """Whether the client may; pass `is_logged=False` for a check that only hides something."""
        ...


class Asked(NamedTuple):
    """A request and its client."""

    request: Message
    api_version: int
    client_id: str
    client_host: str
    permissions: Permissions | None = None
    """None: the client may do everything. The names in the request itself were checked before."""


class Reply(NamedTuple):
    """The answer to the request that holds this ticket."""

    ticket: Ticket
    response: Message


class SetTimer(NamedTuple):
    """Fire `key` after `delay_ms`; one that is set already is moved."""

    key: TimerKey
    delay_ms: int


class CancelTimer(NamedTuple):
    """Forget the timer, if there is one."""

    key: TimerKey


class Outcome(NamedTuple):
    """The full reaction to one event."""

    records: tuple[StoredRecord, ...] = ()
    replies: tuple[Reply, ...] = ()
    timers: tuple[SetTimer | CancelTimer, ...] = ()
    effects: tuple[object, ...] = ()
    """Effects to carry out once the records are committed; each ends in `effect_done`."""
    producer: Producer | None = None
    """The records belong to this producer's transaction and are written as part of it."""
    is_revocable: bool = False
    """The handler changed no soft state that must agree with the records. On a full disk then only
    the request itself fails, and not each time the shard with all requests that wait in it."""
    then: "Callable[[PenstockError | None], Outcome] | None" = None
    """The second half of the reaction, called at once: with None when the log has the records, with
    its error when it refused them. It changes or corrects soft state that must agree with them. Its
    outcome has no records."""


NOTHING = Outcome()
"""The event changed nothing."""


class Shard(Protocol):
    """One state machine; every method runs to its end before the next is called."""

    def handle(self, asked: Asked, ticket: Ticket, now_ms: int) -> Outcome:
        """React to a request. Its reply may come in a later outcome."""
        ...

    def timer_fired(self, key: TimerKey, now_ms: int) -> Outcome:
        """React to a timer."""
        ...

    def effect_done(self, effect: object, result: object, now_ms: int) -> Outcome:
        """React to the end of an effect; the result is a `PenstockError` when it failed."""
        ...

    def topics_changed(self, topics: TopicsView, gone: Collection[str], now_ms: int) -> Outcome:
        """React to created, grown and deleted topics; `gone` are deleted or created anew."""
        ...

    def loaded(self, topics: TopicsView, now_ms: int) -> Outcome:
        """React to having become the coordinator: start timers, finish transitions under way."""
        ...

    def replay(self, record: StoredRecord, producer: Producer | None, offset: int) -> None:
        """Change the state; `producer` is set for records inside a transaction."""
        ...

    def replay_marker(self, producer: Producer, *, commits: bool) -> None:
        """Change the state by the end of a producer's transaction in this partition."""
        ...

    def validate(self) -> None:
        """Assert the invariants between events."""
        ...
