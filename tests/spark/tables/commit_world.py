"""A world in which drivers commit to one table: small enough to try every order of events.

Rows are offsets. A file has the offsets that a driver read, not those of its note: the tests check
that both agree. Commits can be rejected, lose their answer, or arrive late; each guard of the
product can be removed (`Guards`), and then the model must find the order that breaks it.
"""

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from penstock.core.types import TopicPartition
from penstock.spark.tables.commit.decisions import (
    Commit,
    Driver,
    Offer,
    Skip,
    TableState,
    Trim,
    newest_note,
    resume_positions,
)
from penstock.spark.tables.commit.note import (
    BatchRanges,
    CommitNote,
    PartitionRange,
    read_note,
    write_note,
)
from penstock.spark.tables.commit.steps import (
    Answer,
    Append,
    Committed,
    Load,
    Step,
    Taken,
    commit_offer,
    take_table,
)
from penstock.spark.tables.commit.stops import Stop

TOPIC = "orders"
PARTITIONS = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))
FIRST_OFFSET = 10
"""Where the stream begins; what is before it comes by a backfill, another pipeline."""

Row = tuple[TopicPartition, int]
Positions = dict[TopicPartition, int]


class Fate(Enum):
    """The fate of a commit that a driver sends."""

    ANSWERED = "answered"
    ANSWER_LOST = "answer lost"
    REFUSED = "refused"
    LATE = "late"
    """The driver gives up waiting; the commit arrives some time afterwards."""


@dataclass
class Guards:
    """The guards of a commit; a test removes one to show that it is needed."""

    commits_are_conditional: bool = True
    keeps_a_copy_of_notes: bool = True
    reads_before_repeating: bool = True
    searches_ancestors: bool = True
    rollback_ends_ownership: bool = True


@dataclass
class _Version:
    note_text: str | None
    rows: Counter[Row]
    parent: int


@dataclass
class ModelTable:
    """Versions, each with the one it came from; old ones expire, and an older one may be put back.

    As in Iceberg the one that is put back is the current one again, with its number.
    """

    guards: Guards
    versions: dict[int, _Version] = field(default_factory=dict)
    newest: int = -1
    current: int = -1
    kept: dict[str, str] = field(default_factory=dict)

    def rows(self) -> Counter[Row]:
        return self.versions[self.current].rows if self.current >= 0 else Counter()

    def push(self, note_text: str | None, added: Counter[Row]) -> None:
        rows = self.rows() + added
        self.newest += 1
        self.versions[self.newest] = _Version(note_text, rows, self.current)
        self.current = self.newest

    @property
    def is_whole(self) -> bool:
        return len(self.versions) == self.newest + 1

    def ancestors(self) -> list[int]:
        """The current version and those it came from, as far as they are there."""
        found = []
        at = self.current
        while at in self.versions:
            found.append(at)
            at = self.versions[at].parent
        return found

    def roll_back(self, steps: int) -> None:
        self.current = self.ancestors()[: steps + 1][-1]

    def append(self, commit: Commit, rows: Counter[Row]) -> bool:
        if self.guards.commits_are_conditional and commit.after.version != self.current:
            return False
        text = write_note(commit.note)
        self.push(text, rows)
        if self.guards.keeps_a_copy_of_notes:
            self.kept[commit.note.pipeline] = text
        return True

    def expire(self, keep_count: int) -> None:
        for version in sorted(self.versions)[:-keep_count]:
            del self.versions[version]

    def state(self) -> TableState:
        found: dict[str, CommitNote] = {}
        for version in self.ancestors():
            text = self.versions[version].note_text
            if text is not None:
                note = read_note(text)
                found.setdefault(note.pipeline, note)
            if not self.guards.searches_ancestors:
                break
        is_whole = self.is_whole and self.guards.searches_ancestors
        notes = {}
        for name in {*found, *self.kept}:
            kept = read_note(self.kept[name]) if name in self.kept else None
            note_or_none = newest_note(found.get(name), kept, is_whole=is_whole)
            if note_or_none is None:
                continue
            if kept is not None and not self.guards.rollback_ends_ownership:
                note_or_none = replace(note_or_none, run=kept.run)
            notes[name] = note_or_none
        return TableState(notes, self.current)


@dataclass
class World:
    """The topic, the table, and commits that are under way."""

    guards: Guards = field(default_factory=Guards)
    table: ModelTable = field(init=False)
    ends: Positions = field(default_factory=lambda: dict.fromkeys(PARTITIONS, FIRST_OFFSET + 5))
    checkpoints: list[Positions] = field(default_factory=list)
    under_way: list[tuple[Commit, Counter[Row]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table = ModelTable(self.guards)
        self.table.push(None, Counter())  # the table is created, without a pipeline

    def arrive(self, index: int) -> None:
        commit, rows = self.under_way.pop(index)
        self.table.append(commit, rows)


class Run:
    """One driver, step by step."""

    def __init__(
        self,
        world: World,
        name: str,
        checkpoint: Positions | None,
        *,
        pipeline: str = "orders",
        stop_at: Positions | None = None,
        asks_table: bool = True,
    ) -> None:
        self.world = world
        self.name = name
        self.pipeline = pipeline
        self.is_alive = True
        self.stop: Stop | None = None
        self.taken: Taken | None = None
        self._stop_at = stop_at
        self._asks_table = asks_table
        self._first = FIRST_OFFSET if stop_at is None else 0
        self.positions = checkpoint
        self._known: TableState | None = None
        self._offer: Offer | None = None
        self.steps: Generator[Step, Any, Any] | None = take_table(
            pipeline, name, BatchRanges(self._starting(), {TOPIC: "id-1"}, "cluster-1")
        )
        self._answer: object = None

    def _starting(self) -> tuple[PartitionRange, ...]:
        return tuple(PartitionRange(*at, self._first, self._first) for at in PARTITIONS)

    def offer_batch(self, sizes: tuple[int, ...]) -> None:
        """Read some offsets of each partition, and offer them."""
        assert self.positions is not None
        assert self.taken is not None
        ranges = []
        for at, size in zip(PARTITIONS, sizes, strict=True):
            start = self.positions[at]
            limit = self.world.ends[at] if self._stop_at is None else self._stop_at[at]
            ranges.append(PartitionRange(*at, start, max(start, min(start + size, limit)), 1))
        self._begin(BatchRanges(tuple(ranges), {TOPIC: "id-1"}, "cluster-1"), self._known)

    def _begin(self, ranges: BatchRanges, known: TableState | None) -> None:
        assert self.taken is not None
        self._offer = Offer(self.taken.driver, ranges)
        self.steps = commit_offer(self._offer, known)
        self._answer = None

    def advance(self, fate: Fate) -> None:
        """One step; then one of its results."""
        assert self.steps is not None
        try:
            step = self.steps.send(self._answer)
        except StopIteration as end:
            self._ended(end.value)
            return
        self._answer = self._carry_out(step, fate)

    def _carry_out(self, step: Step, fate: Fate) -> object:
        table = self.world.table
        if isinstance(step, Load):
            return table.state()
        if not isinstance(step, Append):
            return None
        rows = self._rows()
        is_made = False
        for _ in range(1 if self.world.guards.reads_before_repeating else 2):
            if fate is Fate.LATE:
                self.world.under_way.append((step.commit, rows))
            elif fate is not Fate.REFUSED:
                is_made = table.append(step.commit, rows)
            if fate is Fate.ANSWERED:
                break
        if is_made and fate is Fate.ANSWERED:
            return Answer(table.state())
        return Answer(None, "no answer")

    def _rows(self) -> Counter[Row]:
        """What the files have: all offsets that were read."""
        if self.taken is None or self._offer is None:
            return Counter()
        return Counter(
            (one.at, offset)
            for one in self._offer.ranges.ranges
            for offset in range(one.start_offset, one.end_offset)
        )

    def _ended(self, result: object) -> None:
        self.steps = None
        match result:
            case Stop():
                self.stop = result
                self.is_alive = False
            case Taken():
                self._took(result)
            case Trim(left):
                self._begin(left, None)
                return
            case Committed() | Skip():
                self._known = result.state if isinstance(result, Committed) else None
                assert self._offer is not None
                assert self.positions is not None
                self.positions |= {one.at: one.end_offset for one in self._offer.ranges.ranges}
                if self.pipeline == "orders":
                    self.world.checkpoints.append(dict(self.positions))
        self._offer = None

    def _took(self, taken: Taken) -> None:
        self.taken = taken
        self._known = taken.state
        held = resume_positions(taken.state, self.pipeline)
        places = {} if held is None else {at: one.offset for at, one in held.positions.items()}
        if self.positions is None:
            self.positions = dict.fromkeys(PARTITIONS, self._first)
            if self._asks_table:
                self.positions |= places
        for at, place in places.items():
            # The source begins where the table ends, when a checkpoint is ahead of it.
            self.positions[at] = min(self.positions[at], place)


def driver_of(state: TableState, pipeline: str) -> Driver:
    """The owner, as the table says."""
    note = state.notes[pipeline]
    return Driver(pipeline, note.run, note.epoch)
