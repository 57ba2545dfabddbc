"""A cluster, its transactions and drivers of one query, as far as the sink's protocol needs them.

Every step that the protocol yields is carried out on plain values, one transaction at a time, so
that a test can stop a driver anywhere: before a step, in the middle of one, or after it and before
its answer. The visible rows are computed from the committed transactions.
"""

import contextlib
import itertools
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from penstock.client.transactions.transaction_outcomes import CommitOutcome, OpenTransaction
from penstock.core.errors import BrokerUnreachableError, PenstockError
from penstock.spark.sink import decisions as protocol
from penstock.spark.sink import steps as sink_steps
from penstock.spark.sink.records import decision_record, done_record, fold
from penstock.spark.sink.steps import (
    Committed,
    Ledger,
    Sight,
    Step,
    Sweep,
    WrittenBatch,
    added_digests,
)

QUERY = "query"
ROWS_PER_BATCH = 4
TIMEOUT_MS = 900_000
PRODUCER_ID = 7
Row = tuple[int, int]


class FencedError(PenstockError):
    """Another driver owns the log of decisions."""


class State(Enum):
    """The states of a transaction that matter here."""

    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass
class Transaction:
    """One, with the rows that become visible when it is committed."""

    run: str
    rows: tuple[Row, ...]
    state: State = State.OPEN
    was_committed: bool = False
    is_old: bool = False
    """Close to its timeout."""
    is_timed_out: bool = False


@dataclass
class World:
    """The cluster, and the checkpoint that all runs of the query share."""

    transactions: dict[OpenTransaction, Transaction] = field(default_factory=dict)
    """In the order in which they began; ids are used again."""
    log: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)
    owner: int = 0
    committed_batch: int = -1
    """The newest batch that Spark has noted as committed."""
    _read: tuple[int, Ledger] = (0, Ledger())

    def ledger(self) -> Ledger:
        """What the log says."""
        if self._read[0] != len(self.log):
            self._read = (len(self.log), fold(QUERY, self.log))
        return self._read[1]

    @property
    def is_disturbed(self) -> bool:
        """A decided transaction timed out: the query may stay with a loud error."""
        return any(self.transactions[one].is_timed_out for one in self.decided())

    def visible_rows(self) -> list[Row]:
        """What a reader of committed records sees."""
        return [row for one in self.transactions.values() if one.was_committed for row in one.rows]

    def open_ones(self) -> dict[str, OpenTransaction]:
        """Transactions that nobody ended yet, by their ids."""
        found = self.transactions.items()
        return {one.transactional_id: one for one, what in found if what.state is State.OPEN}

    def sight(self, wanted: Sequence[OpenTransaction]) -> Sight:
        """What there is to be seen of transactions before they are decided."""
        found = self.open_ones()
        old = (name for name, one in found.items() if self.transactions[one].is_old)
        names = frozenset(one.transactional_id for one in wanted if one in found.values())
        return Sight(names, frozenset(old))

    def pass_time(self, one: OpenTransaction) -> None:
        """A transaction comes close to its timeout; with the next call it is over."""
        what = self.transactions[one]
        if what.is_old and what.state is State.OPEN:
            what.is_timed_out = True
            what.state = State.ABORTED
        what.is_old = True

    def decided(self) -> tuple[OpenTransaction, ...]:
        """Transactions of the newest decision."""
        decision = self.ledger().decision
        return decision.transactions if decision else ()

    def open_transaction(self, run: str, rows: Sequence[Row]) -> OpenTransaction:
        """What a task does, or a zombie: it takes the first id under which nothing is open.

        Nor one that a decision needs which is not carried out: that so many tasks start between
        is left out here, and told in the documentation.
        """
        taken = set(self.open_ones())
        taken.update(one.transactional_id for one in protocol.unfinished(self.ledger()))
        ids = (f"sink.{QUERY}.{run}.{number}" for number in itertools.count())
        name = next(name for name in ids if name not in taken)
        epoch = sum(one.transactional_id == name for one in self.transactions)
        one = OpenTransaction(name, PRODUCER_ID, epoch, 2)
        self.transactions[one] = Transaction(run, tuple(rows))
        return one

    def commit(self, one: OpenTransaction) -> CommitOutcome:
        """EndTxn(commit), as often as one likes."""
        what = self.transactions[one]
        if what.state is State.OPEN:
            what.state = State.COMMITTED
            what.was_committed = True
        newest = [other for other in self.transactions if other[0] == one.transactional_id][-1]
        if newest != one:
            is_aborted = self.transactions[newest].state is State.ABORTED
            return CommitOutcome.ABORTED if is_aborted else CommitOutcome.UNKNOWN
        is_committed = what.state is State.COMMITTED
        return CommitOutcome.COMMITTED if is_committed else CommitOutcome.ABORTED

    def abort(self, one: OpenTransaction) -> None:
        """EndTxn(abort), a fence or a timeout: ends what is open and nothing else."""
        if self.transactions[one].state is State.OPEN:
            self.transactions[one].state = State.ABORTED


@dataclass
class Run:
    """One run of the query: a driver that lives until it crashes or fails."""

    world: World
    name: str
    batch_id: int
    id_prefix: str = "sink"
    token: int = -1
    known: Ledger | None = None
    batch: WrittenBatch | None = None
    steps: Generator[Step, Any, Any] | None = None
    step: Step | None = None
    outcomes: dict[str, CommitOutcome] = field(default_factory=dict)
    commits: bool = False
    """What goes on is a commit; otherwise it is an abort."""
    is_alive: bool = True
    is_swept: bool = False
    """Nothing was left when this process of the driver swept last."""
    failure: BaseException | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def prefix(self) -> str:
        """What the ids of its transactions begin with."""
        return f"sink.{QUERY}.{self.name}."

    def write(self, parts: Sequence[Sequence[Row]], *, skips: bool) -> None:
        """The tasks of the batch: each part is one task's rows; none, and it has no transaction."""
        is_skipped = skips and protocol.is_committed(self.world.ledger(), self.batch_id)
        made = [
            self.world.open_transaction(self.name, rows)
            for rows in parts
            if rows and not is_skipped
        ]
        count = sum(len(rows) for rows in parts)
        self.batch = WrittenBatch(
            self.name,
            self.batch_id,
            count,
            added_digests(hash(row) for rows in parts for row in rows),
            tuple(made),
            self.prefix,
            self.id_prefix,
            TIMEOUT_MS,
            has_skipped=is_skipped,
        )

    def begin_commit(self, *, remembers: bool, sweeps: bool) -> None:
        """Spark asks for the commit; a new process of the driver remembers nothing."""
        assert self.batch is not None
        if not remembers:
            self.known, self.is_swept = None, False
        own = Sweep.OWN_RUN if sweeps else Sweep.NONE
        self.commits = True
        self._begin(
            protocol.commit_batch(self.batch, self.known, own if self.is_swept else Sweep.ALL_RUNS)
        )

    def begin_abort(self) -> None:
        """Spark asks for the abort: a task failed, or the commit did."""
        assert self.batch is not None
        self.commits = False
        self._begin(protocol.abort_batch(self.name, self.batch.transactions, self.prefix))

    def _begin(self, steps: Generator[Step, Any, Any]) -> None:
        self.steps = steps
        self.step = None
        self.outcomes = {}
        self._resume(lambda: next(steps))

    def advance(self) -> None:
        """Carry out the step that is due, or one transaction of it, and give its answer."""
        steps, step = self.steps, self.step
        assert steps is not None
        assert step is not None
        try:
            is_over, answer = self.carry_out(step)
        except FencedError as error:
            fenced = error
            self._resume(lambda: steps.throw(fenced))
            return
        if is_over:
            self.outcomes = {}
            self._resume(lambda: steps.send(answer))

    def fail(self, *, is_carried_out: bool) -> None:
        """The brokers are away: the step that is due fails, or only its answer is lost."""
        steps, step = self.steps, self.step
        assert steps is not None
        assert step is not None
        if is_carried_out:
            with contextlib.suppress(FencedError):
                self.carry_out(step)
        self.outcomes = {}
        self._resume(lambda: steps.throw(BrokerUnreachableError("nobody is there")))

    def carry_out(self, step: Step) -> tuple[bool, Any]:
        """Whether the step is over, and what came of it."""
        world = self.world
        match step:
            case sink_steps.ReadLedger():
                return True, world.ledger()
            case sink_steps.TakeOwnership():
                world.owner += 1
                self.token = world.owner
                return True, None
            case sink_steps.LookAt(transactions):
                return True, world.sight(transactions)
            case sink_steps.WriteDecision(decision):
                if self.token != world.owner:
                    raise FencedError
                world.log.append(decision_record(QUERY, decision))
                return True, None
            case sink_steps.WriteDone(decision):
                world.log.append(done_record(QUERY, decision))
                return True, None
            case sink_steps.ListOpen():
                return True, list(world.open_ones().values())
            case sink_steps.Warn(warning):
                self.warnings.append(warning)
                return True, None
            case _:
                return self._end_one(step)

    def _abort(self, one: OpenTransaction) -> CommitOutcome:
        """A decided transaction must not be here, whoever wants to abort it."""
        is_open = self.world.transactions[one].state is State.OPEN
        assert not (is_open and one in self.world.decided())
        self.world.abort(one)
        return CommitOutcome.ABORTED

    def _end_one(
        self, step: sink_steps.CommitAll | sink_steps.AbortAll | sink_steps.Fence
    ) -> tuple[bool, dict[str, CommitOutcome]]:
        """End one transaction of those that are meant: the driver may crash before the next."""
        left = [one for one in step.transactions if one.transactional_id not in self.outcomes]
        if left:
            end = self.world.commit if isinstance(step, sink_steps.CommitAll) else self._abort
            self.outcomes[left[0].transactional_id] = end(left[0])
        return len(left) <= 1, dict(self.outcomes)

    def _resume(self, go_on: Callable[[], Step]) -> None:
        is_commit = self.commits
        try:
            self.step = go_on()
        except StopIteration as ended:
            self.steps, self.step = None, None
            if is_commit:
                self._committed(ended.value)
            else:
                self.is_alive = False
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001 - Spark takes any error of a commit this way
            self.steps, self.step = None, None
            self.known = None
            self.failure = error
            if is_commit:
                self.begin_abort()
            else:
                self.is_alive = False

    def _committed(self, done: Committed) -> None:
        self.known, self.is_swept = done.ledger, done.is_swept
        self.world.committed_batch = max(self.world.committed_batch, self.batch_id)
        self.batch_id += 1
        self.batch = None


# --- Helpers for tests ---


def rows_of(batch_id: int) -> list[Row]:
    """Batch 3 is empty each time: empty batches are decided too."""
    return [] if batch_id % 4 == 3 else [(batch_id, n) for n in range(ROWS_PER_BATCH)]


def cut(rows: Sequence[Row], sizes: Sequence[int]) -> list[list[Row]]:
    """The rows of a batch, cut into tasks in another way each time."""
    parts = []
    rest = list(rows)
    for size in sizes:
        parts.append(rest[:size])
        rest = rest[size:]
    return [*parts, rest]


def new_run(world: World, name: str) -> Run:
    return Run(world, name, world.committed_batch + 1)


def finish(run: Run) -> None:
    while run.is_alive and run.steps is not None:
        run.advance()


def write_and_commit(run: Run, sizes: Sequence[int] = (2,)) -> None:
    run.write(cut(rows_of(run.batch_id), sizes), skips=True)
    run.begin_commit(remembers=True, sweeps=False)
    finish(run)


def advance_to(run: Run, kind: type) -> None:
    while not isinstance(run.step, kind):
        run.advance()
