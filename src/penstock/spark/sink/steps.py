"""The values of the sink's protocol: the ledger, the steps and their results (pure).

`sink.decisions` yields these steps in order and is sent their results; `sink.transactions` carries
them out against brokers, and a test on plain values. Nothing is decided here.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from penstock.client.transactions.transaction_outcomes import OpenTransaction


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision to make a batch visible, by these transactions and no others."""

    batch_id: int
    run: str
    """The run that decided."""
    row_count: int
    transactions: tuple[OpenTransaction, ...]
    runs: tuple[str, ...]
    """The runs that owned the log so far, the newest last."""
    digest: int | None = None
    """The digest of its rows; None in records from before it was stored."""
    id_prefix: str = ""
    """The prefix of the query's transactional ids, the log's owner among them; empty in records
    from before it was stored."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The state of one query in the log of decisions."""

    decision: Decision | None = None
    is_done: bool = False
    """Every transaction of the decision is committed."""


# --- Steps and their results ---


@dataclass(frozen=True, slots=True)
class ReadLedger:
    """Read the log of decisions to its end; returns a `Ledger`."""


@dataclass(frozen=True, slots=True)
class TakeOwnership:
    """Fence earlier owners of the log; afterwards their decisions are stored or never will be."""


@dataclass(frozen=True, slots=True)
class LookAt:
    """Read the state of these transactions; returns a `Sight`."""

    transactions: tuple[OpenTransaction, ...]
    age_ms_max: int


class Sight(NamedTuple):
    """Which transactions may be decided, by their ids."""

    open_ids: frozenset[str]
    """Those that are open as the tasks left them."""
    old_ids: frozenset[str]
    """Those that are open for longer than the requested age, measured by their coordinators."""


@dataclass(frozen=True, slots=True)
class WriteDecision:
    """Store it durably, as the owner; raises when another driver owns the log."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class CommitAll:
    """Commit each; returns a `CommitOutcome` by transactional id."""

    transactions: tuple[OpenTransaction, ...]


@dataclass(frozen=True, slots=True)
class AbortAll:
    """Abort each that is still open."""

    transactions: tuple[OpenTransaction, ...]


@dataclass(frozen=True, slots=True)
class WriteDone:
    """Record that every transaction of the decision is committed."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class ListOpen:
    """List the open transactions of this query's tasks; returns `OpenTransaction`s."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Abort those of these that are still open, in any process, so that their writers fail."""

    transactions: tuple[OpenTransaction, ...]


@dataclass(frozen=True, slots=True)
class Tell:
    """Log a warning for the user of the query."""

    warning: str


Step = (
    ReadLedger
    | TakeOwnership
    | LookAt
    | WriteDecision
    | CommitAll
    | AbortAll
    | WriteDone
    | ListOpen
    | Fence
    | Tell
)
"""A step that fails raises its error where it was yielded."""


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """A micro-batch as the driver gets it from its tasks."""

    run: str
    batch_id: int
    row_count: int
    digest: int
    """The digest of its rows, in any order."""
    transactions: tuple[OpenTransaction, ...]
    """Tasks that had no rows have none."""
    run_prefix: str
    """The prefix of this run's transactional ids."""
    id_prefix: str
    """The prefix of the transactional ids of all queries with the same options."""
    timeout_ms: int
    """How long the cluster lets a transaction be open."""
    has_skipped: bool = False
    """A task found the batch committed and wrote nothing."""
    fails_on_difference: bool = True


def added_digests(digests: Iterable[int]) -> int:
    """The digest of rows from those of their parts."""
    return sum(digests) % 2**64


class Sweep(Enum):
    """Which runs' leftover transactions are searched for after a batch."""

    NONE = auto()
    OWN_RUN = auto()
    ALL_RUNS = auto()


class Committed(NamedTuple):
    """The result of a commit."""

    ledger: Ledger
    """The current ledger."""
    is_swept: bool
    """No leftover transactions remain."""
