"""`ShardRig`: a runtime for one shard of any kind, on a list of records and a clock that is set.

It keeps the promises of `coordinator.shard`: records are encoded, appended, decoded and replayed
before anything else happens; a ticket is answered once; timers fire in order. After every event the
shard is validated, and a second shard that is loaded from the log must have the same replicated
state. Effects wait until a test says that they are done. A log that `refuses` takes no records, as
on a full disk; no decision may then cost the shard its life.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from penstock.coordinator.metadata_view import TopicView
from penstock.coordinator.shard import (
    NOTHING,
    Asked,
    Outcome,
    Producer,
    SetTimer,
    Shard,
    StoredRecord,
    TimerKey,
)
from penstock.core.errors import DiskFullError
from penstock.protocol.codec import Message
from penstock.protocol.stored.codec import encode

START_MS = 1_000_000
"""When every test begins."""

NO_ROOM = DiskFullError("no room")

ShardT = TypeVar("ShardT", bound=Shard)


class Topics:
    """A plain view of a cluster's topics."""

    def __init__(self, revision: int, topics: dict[str, TopicView]) -> None:
        self.revision = revision
        self._topics = topics

    def by_name(self, name: str) -> TopicView | None:
        return self._topics.get(name)

    def by_id(self, topic_id: UUID) -> TopicView | None:
        return next((t for t in self._topics.values() if t.topic_id == topic_id), None)

    def names(self) -> list[str]:
        return list(self._topics)


class TopicsMaker:
    """Creates views; a topic keeps its id while it exists, and a recreated one gets another."""

    def __init__(self) -> None:
        self._revision = 0
        self._made = 0
        self._topics: dict[str, TopicView] = {}

    def make(self, partition_counts: dict[str, int]) -> Topics:
        """The view in which exactly these topics exist."""
        self._revision += 1
        before, self._topics = self._topics, {}
        for name, count in partition_counts.items():
            old = before.get(name)
            if old is None:
                self._made += 1
            topic_id = UUID(int=self._made) if old is None else old.topic_id
            self._topics[name] = TopicView(topic_id, name, count)
        return Topics(self._revision, dict(self._topics))


class Kind(Protocol[ShardT]):
    """The functions of a kind of shard that a rig needs."""

    def make_shard(self) -> ShardT:
        """A new one, with nothing replayed."""
        ...

    def decode(self, key: bytes, value: bytes | None) -> tuple[Message, Message | None] | None:
        """A record of its topic."""
        ...

    def snapshot(self, shard: ShardT) -> object:
        """Its replicated state as a value that can be compared."""
        ...


class Marker(NamedTuple):
    """The end of a transaction, in the log."""

    producer: Producer
    commits: bool


class Written(NamedTuple):
    """A record in the log, as it reads after having been bytes."""

    record: StoredRecord
    producer: Producer | None


class ShardRig(Generic[ShardT]):
    """One shard and everything around it."""

    def __init__(
        self,
        kind: Kind[ShardT],
        *,
        compares: bool = True,
        watch: Callable[[str, Outcome], None] | None = None,
    ) -> None:
        self._kind = kind
        self._compares = compares
        self._watch = watch
        self.now_ms = START_MS
        self.log: list[Written | Marker] = []
        self.replies: dict[int, Message] = {}
        self.refuses = False
        """Whether the log takes nothing now."""
        self.refused: set[int] = set()
        """Tickets that were answered with the log's error."""
        self.effects: list[object] = []
        self.timers: dict[TimerKey, int] = {}
        """When each is due."""
        self.topics_maker = TopicsMaker()
        self.topics = self.topics_maker.make({})
        self._ticket = 0
        self.shard = kind.make_shard()
        self._follower = kind.make_shard()
        """It only ever replays: what a reload would give, without doing it after every event."""
        self._followed = 0
        self._do("start", self.shard.loaded(self.topics, self.now_ms))

    # --- Events ---

    def ask(
        self, request: Message, version: int, client_id: str = "client", host: str = "/127.0.0.1"
    ) -> int:
        """Hand in a request; returns its ticket."""
        self._ticket += 1
        asked = Asked(request, version, client_id, host)
        self._do("ask", self.shard.handle(asked, self._ticket, self.now_ms), self._ticket)
        return self._ticket

    def answer(self, request: Message, version: int, client_id: str = "client") -> Message:
        """Hand in a request that is answered at once."""
        return self.replies[self.ask(request, version, client_id)]

    def try_answer(self, request: Message, version: int, client_id: str = "client") -> object:
        """Hand in a request that is answered or refused at once; None: refused."""
        ticket = self.ask(request, version, client_id)
        return None if ticket in self.refused else self.replies[ticket]

    def advance(self, by_ms: int) -> None:
        """Let time pass; each timer fires when its time comes."""
        until_ms = self.now_ms + by_ms
        while self.timers:
            key, due_ms = min(self.timers.items(), key=lambda item: item[1])
            if due_ms > until_ms:
                break
            del self.timers[key]
            self.now_ms = max(self.now_ms, due_ms)
            self._do(timer_text(key), self.shard.timer_fired(key, self.now_ms))
        self.now_ms = until_ms

    def set_topics(self, partition_counts: dict[str, int]) -> None:
        """These topics exist from now on, and no others."""
        before, self.topics = self.topics, self.topics_maker.make(partition_counts)
        gone = [name for name in before.names() if self.topics.by_name(name) is None]
        self._do("topics", self.shard.topics_changed(self.topics, gone, self.now_ms))

    def finish(self, effect: object, result: object) -> None:
        """Somebody did what the shard asked for."""
        self.effects.remove(effect)
        self._do("effect", self.shard.effect_done(effect, result, self.now_ms))

    def mark(self, producer: Producer, *, commits: bool) -> None:
        """A transaction ends in this partition."""
        self.log.append(Marker(producer, commits))
        self.shard.replay_marker(producer, commits=commits)
        self._check()

    def restart(self) -> None:
        """Crash: what was written stays, who waited is gone."""
        self.timers.clear()
        self.effects.clear()
        self.shard = self.loaded_shard()
        self._do("restart", self.shard.loaded(self.topics, self.now_ms))

    # --- Inside ---

    def loaded_shard(self, record_count: int | None = None) -> ShardT:
        """A shard that has replayed the log, or its beginning, and nothing else."""
        shard = self._kind.make_shard()
        for offset, entry in enumerate(self.log[:record_count]):
            if isinstance(entry, Marker):
                shard.replay_marker(entry.producer, commits=entry.commits)
            else:
                shard.replay(entry.record, entry.producer, offset)
        return shard

    def _written(self, record: StoredRecord, producer: Producer | None) -> Written:
        decoded = self._kind.decode(*encode(record))
        assert decoded is not None, "a record that cannot be read back"
        return Written(StoredRecord(*decoded), producer)

    def _do(self, event: str, outcome: Outcome, ticket: int | None = None) -> None:
        is_refused = self.refuses and outcome.records != ()
        for record in () if is_refused else outcome.records:
            written = self._written(record, outcome.producer)
            self.shard.replay(written.record, written.producer, len(self.log))
            self.log.append(written)
        rest = NOTHING if outcome.then is None else outcome.then(NO_ROOM if is_refused else None)
        assert not rest.records, "the second half of a reaction has no records"
        if is_refused:
            can_go_on = outcome.is_revocable or outcome.then is not None
            assert can_go_on, "a full disk costs the whole shard"
            self._carry_out(event, rest)
            told = {reply.ticket for reply in outcome.replies} | {ticket or 0}
            self.refused |= told - self.replies.keys() - {0}
        else:
            both = outcome._replace(
                replies=outcome.replies + rest.replies,
                timers=outcome.timers + rest.timers,
                effects=outcome.effects + rest.effects,
            )
            self._carry_out(event, both)
        self._check()

    def _carry_out(self, event: str, outcome: Outcome) -> None:
        for reply in outcome.replies:
            assert reply.ticket not in self.replies, "a ticket is answered once"
            assert reply.ticket not in self.refused, "a ticket is answered once"
            self.replies[reply.ticket] = reply.response
        if self._watch is not None:
            self._watch(event, outcome)
        for timer in outcome.timers:
            if isinstance(timer, SetTimer):
                self.timers[timer.key] = self.now_ms + timer.delay_ms
            else:
                self.timers.pop(timer.key, None)
        self.effects.extend(outcome.effects)

    def _check(self) -> None:
        self.shard.validate()
        if self._compares:
            self._follow()
            followed = self._kind.snapshot(self._follower)
            assert followed == self._kind.snapshot(self.shard), "reload gives another state"

    def _follow(self) -> None:
        for offset in range(self._followed, len(self.log)):
            entry = self.log[offset]
            if isinstance(entry, Marker):
                self._follower.replay_marker(entry.producer, commits=entry.commits)
            else:
                self._follower.replay(entry.record, entry.producer, offset)
        self._followed = len(self.log)


def timer_text(key: TimerKey) -> str:
    """A timer's key for people."""
    return " ".join(str(part) for part in key) if isinstance(key, tuple) else str(key)
