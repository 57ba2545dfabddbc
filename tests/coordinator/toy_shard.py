"""A shard that adds numbers, and a journal, alarm and tasks that a test drives by hand.

The shard is the smallest one that uses everything the runtime promises: records, replies that come
at once and later, timers, effects, transactions.
"""

from collections.abc import Callable, Collection, Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, NamedTuple

from penstock.coordinator.metadata_view import TopicsView, TopicView
from penstock.coordinator.ports import LoadedBatch, OffsetRecord
from penstock.coordinator.runtime import Runtime
from penstock.coordinator.shard import (
    NOTHING,
    Asked,
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


@dataclass(frozen=True)
class Toy:
    """The base of messages."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = None


@dataclass(frozen=True)
class Add(Toy):
    """Add to a total; the answer is the total."""

    key: str
    amount: int
    producer: Producer | None = None
    is_revocable: bool = False


@dataclass(frozen=True)
class Join(Toy):
    """Add one to a total; all joined requests are answered when the timer fires.

    When the log refuses it, the others hear of that at once.
    """

    key: str


@dataclass(frozen=True)
class Read(Toy):
    """The answer is the total."""

    key: str


@dataclass(frozen=True)
class Park(Toy):
    """The answer comes after a while."""

    key: str
    delay_ms: int


@dataclass(frozen=True)
class Unpark(Toy):
    """A parked request waits for ever; the answer is sent at once."""

    key: str


@dataclass(frozen=True)
class Delegate(Toy):
    """An effect returns the amount to add; the answer is the total."""

    key: str


@dataclass(frozen=True)
class Break(Toy):
    """The shard has a defect."""


@dataclass(frozen=True)
class Done(Toy):
    """The answer to everything."""

    total: int


@dataclass(frozen=True)
class Key(Toy):
    """Of a record."""

    key: str


@dataclass(frozen=True)
class Value(Toy):
    """Of a record."""

    total: int


class ToyShard:
    """Totals by key."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.pending: dict[Producer, dict[str, int]] = {}
        self.revisions: list[int] = []
        self._parked: dict[str, Ticket] = {}
        self._delegated: dict[str, Ticket] = {}
        self.joined: list[Ticket] = []

    def handle(self, asked: Asked, ticket: Ticket, now_ms: int) -> Outcome:
        request = asked.request
        if isinstance(request, Add):
            total = self.totals.get(request.key, 0) + request.amount
            return Outcome(
                records=(StoredRecord(Key(request.key), Value(total)),),
                replies=(Reply(ticket, Done(total)),),
                producer=request.producer,
                is_revocable=request.is_revocable,
            )
        if isinstance(request, Join):
            total = self.totals.get(request.key, 0) + 1
            return Outcome(
                records=(StoredRecord(Key(request.key), Value(total)),),
                then=partial(self._joined, ticket),
            )
        if isinstance(request, Read):
            return Outcome(replies=(Reply(ticket, Done(self.totals.get(request.key, 0))),))
        if isinstance(request, Park):
            self._parked[request.key] = ticket
            return Outcome(timers=(SetTimer(("parked", request.key), request.delay_ms),))
        if isinstance(request, Unpark):
            return Outcome(
                replies=(Reply(ticket, Done(0)),), timers=(CancelTimer(("parked", request.key)),)
            )
        if isinstance(request, Delegate):
            self._delegated[request.key] = ticket
            return Outcome(effects=(request.key,))
        raise AssertionError("a defect")

    def _joined(self, ticket: Ticket, error: PenstockError | None) -> Outcome:
        if error is None:
            self.joined.append(ticket)
            return Outcome(timers=(SetTimer(("joined",), 300),))
        return self._all_joined(-1)

    def _all_joined(self, total: int) -> Outcome:
        tickets, self.joined = self.joined, []
        return Outcome(replies=tuple(Reply(ticket, Done(total)) for ticket in tickets))

    def timer_fired(self, key: TimerKey, now_ms: int) -> Outcome:
        assert isinstance(key, tuple)
        if key == ("joined",):
            return self._all_joined(len(self.joined))
        return Outcome(replies=(Reply(self._parked.pop(key[1]), Done(now_ms)),))

    def effect_done(self, effect: object, result: object, now_ms: int) -> Outcome:
        assert isinstance(effect, str)
        ticket = self._delegated.pop(effect)
        if isinstance(result, PenstockError):
            return Outcome(replies=(Reply(ticket, Done(-1)),))
        assert isinstance(result, int)
        total = self.totals.get(effect, 0) + result
        return Outcome(
            records=(StoredRecord(Key(effect), Value(total)),),
            replies=(Reply(ticket, Done(total)),),
        )

    def topics_changed(self, topics: TopicsView, gone: Collection[str], now_ms: int) -> Outcome:
        self.revisions.append(topics.revision)
        return NOTHING

    def loaded(self, topics: TopicsView, now_ms: int) -> Outcome:
        self.revisions.append(topics.revision)
        return NOTHING

    def replay(self, record: StoredRecord, producer: Producer | None, offset: int) -> None:
        assert isinstance(record.key, Key)
        assert isinstance(record.value, Value)
        where = self.totals if producer is None else self.pending.setdefault(producer, {})
        where[record.key.key] = record.value.total

    def replay_marker(self, producer: Producer, *, commits: bool) -> None:
        ended = self.pending.pop(producer, {})
        if commits:
            self.totals |= ended

    def validate(self) -> None:
        assert all(total >= 0 for total in self.totals.values())


class Pause:
    """Awaiting it yields the loop once."""

    def __await__(self) -> Generator[None]:
        yield


class Entry(NamedTuple):
    """One batch of a `MemoryJournal`."""

    base_offset: int
    size: int
    batch: LoadedBatch


@dataclass
class MemoryJournal:
    """A log in memory; `commit` moves the high watermark."""

    entries: list[Entry] = field(default_factory=list)
    committed_offset: int = 0
    append_error: PenstockError | None = None
    read_error: PenstockError | None = None
    waits: list[tuple[int, Callable[[PenstockError | None], None]]] = field(default_factory=list)
    late: list[Callable[[PenstockError], None]] = field(default_factory=list)
    start_offset: int = 0
    skipped: list[tuple[int, Exception]] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        return self.entries[-1].base_offset + self.entries[-1].size if self.entries else 0

    def append(
        self, records: Sequence[StoredRecord], producer: Producer | None, now_ms: int
    ) -> int:
        if self.append_error is not None:
            raise self.append_error
        base = self.end_offset
        numbered = [OffsetRecord(base + index, record) for index, record in enumerate(records)]
        self.entries.append(Entry(base, len(records), LoadedBatch(numbered, producer)))
        return base

    def append_marker(self, producer: Producer, *, commits: bool) -> None:
        batch = LoadedBatch((), producer, commits)
        self.entries.append(Entry(self.end_offset, 1, batch))

    def when_committed(
        self, end_offset: int, on_done: Callable[[PenstockError | None], None]
    ) -> None:
        self.waits.append((end_offset, on_done))

    def when_late(self, end_offset: int, on_late: Callable[[PenstockError], None]) -> None:
        self.late.append(on_late)

    def be_late(self, error: PenstockError) -> None:
        """The replies that wait have waited long enough."""
        late, self.late = self.late, []
        for on_late in late:
            on_late(error)

    async def read(self, offset: int) -> tuple[Sequence[LoadedBatch], int]:
        await Pause()
        if self.read_error is not None:
            raise self.read_error
        entry = next(entry for entry in self.entries if entry.base_offset >= offset)
        return [entry.batch], entry.base_offset + entry.size

    def note_skipped(self, offset: int, error: Exception) -> None:
        self.skipped.append((offset, error))

    def commit(self, offset: int | None = None) -> None:
        """The high watermark reaches an offset, or the end."""
        self.committed_offset = self.end_offset if offset is None else offset
        due = [wait for wait in self.waits if wait[0] <= self.committed_offset]
        self.waits = [wait for wait in self.waits if wait[0] > self.committed_offset]
        for _, on_done in due:
            on_done(None)

    def fail(self, error: PenstockError) -> None:
        """Nothing that waits will be committed."""
        waits, self.waits = self.waits, []
        for _, on_done in waits:
            on_done(error)

    def after_crash(self) -> "MemoryJournal":
        """What a restart finds."""
        kept = [entry for entry in self.entries if entry.base_offset < self.committed_offset]
        return MemoryJournal(kept, self.committed_offset)


class ManualTime:
    """Clock and alarm in one."""

    def __init__(self) -> None:
        self.seconds = 1_000.0
        self._alarm: tuple[float, Callable[[], None]] | None = None

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return round(self.seconds * 1_000)

    def set_alarm(self, moment: float, action: Callable[[], None]) -> None:
        self._alarm = (moment, action)

    def advance(self, milliseconds: int) -> None:
        """Let time pass; what is due on the way happens when it is due."""
        end = self.seconds + milliseconds / 1_000
        while self._alarm is not None and self._alarm[0] <= end:
            moment, action = self._alarm
            self._alarm = None
            self.seconds = max(self.seconds, moment)
            action()
        self.seconds = end


class ManualTasks:
    """Runs tasks when the test says so."""

    def __init__(self) -> None:
        self.running: list[Coroutine[object, object, None]] = []

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        self.running.append(coroutine)

    def step(self) -> None:
        """Run each task up to where it gives its turn away."""
        tasks, self.running = self.running, []
        for task in tasks:
            try:
                task.send(None)
            except StopIteration:
                continue
            self.running.append(task)

    def run(self) -> None:
        """Run all tasks to their end."""
        while self.running:
            self.step()


class Helper:
    """Carries effects out: says the same to everybody."""

    def __init__(self) -> None:
        self.result: int | PenstockError = 10
        self.asked: list[object] = []

    async def perform(self, effect: object) -> object:
        self.asked.append(effect)
        await Pause()
        if isinstance(self.result, PenstockError):
            raise self.result
        return self.result


class NoTopics:
    """A cluster without topics."""

    def __init__(self, revision: int = 0) -> None:
        self.revision = revision

    def by_name(self, name: str) -> TopicView | None:
        return None

    def by_id(self, topic_id: object) -> TopicView | None:
        return None

    def names(self) -> tuple[str, ...]:
        return ()


class Rig:
    """A runtime of toy shards."""

    def __init__(self, journal: MemoryJournal | None = None) -> None:
        self.time = ManualTime()
        self.tasks = ManualTasks()
        self.helper = Helper()
        self.journal = MemoryJournal() if journal is None else journal
        self.runtime = Runtime(
            "toys",
            make_shard=ToyShard,
            topics=NoTopics,
            clock=self.time,
            alarm=self.time,
            effects=self.helper,
            tasks=self.tasks,
        )
        self.runtime.open(0, self.journal)

    @property
    def shard(self) -> ToyShard:
        driver = self.runtime.driver(0)
        assert driver is not None
        assert isinstance(driver.shard, ToyShard)
        return driver.shard

    def ask(self, request: Message) -> list[Message | PenstockError]:
        """The answer, once it is there."""
        answers: list[Message | PenstockError] = []
        self.runtime.ask(0, Asked(request, 0, "client", "/host")).then(answers.append)
        return answers

    def validate(self) -> None:
        for driver in self.runtime:
            driver.validate()
