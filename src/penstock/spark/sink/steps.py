"""The values of the sink's protocol: the ledger, the steps and their results (pure).

`sink.decisions` yields these steps in order and receives their results. `sink.transactions` carries
them out with brokers, and a test with plain values. This module decides nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from penstock.client.transactions.transaction_outcomes import OpenTransaction


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision to make a batch visible, with these transactions and no others."""

    batch_id: int
    run: str
    """The run that wrote the decision."""
    row_count: int
    transactions: tuple[OpenTransaction, ...]
    runs: tuple[str, ...]
    """The runs that have owned the log, the newest last."""
    digest: int | None = None
    """The digest of its rows; None in records of versions that did not store it."""
    id_prefix: str = ""
    """The prefix of all transactional ids of the query, including the log owner's; empty in records
    of versions that did not store it."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The state of one query in the decision log."""

    decision: Decision | None = None
    is_done: bool = False
    """Whether every transaction of the decision is committed."""


# --- Steps and their results ---


@dataclass(frozen=True, slots=True)
class ReadLedger:
    """Read the decision log to its end; the result is a `Ledger`."""


@dataclass(frozen=True, slots=True)
class TakeOwnership:
    """Fence earlier owners of the log; afterwards their decisions are stored or never will be."""


@dataclass(frozen=True, slots=True)
class LookAt:
    """Read the state of these transactions; the result is a `Sight`."""

    transactions: tuple[OpenTransaction, ...]
    age_ms_max: int


class Sight(NamedTuple):
    """The ids of the transactions that may be decided."""

    open_ids: frozenset[str]
    """Transactions that are still open, as the tasks left them."""
    old_ids: frozenset[str]
    """Transactions open for longer than the requested age, measured by their coordinators."""


@dataclass(frozen=True, slots=True)
class WriteDecision:
    """Store the decision durably, as the owner; raises if another driver owns the log."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class CommitAll:
    """Commit each transaction; the result is a `CommitOutcome` by transactional id."""

    transactions: tuple[OpenTransaction, ...]


@dataclass(frozen=True, slots=True)
class AbortAll:
    """Abort each transaction that is still open."""

    transactions: tuple[OpenTransaction, ...]


@dataclass(frozen=True, slots=True)
class WriteDone:
    """Record that every transaction of the decision is committed."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class ListOpen:
    """List the open transactions of this query's tasks; the result is `OpenTransaction`s."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Abort the open ones of these transactions, in any process, so that their writers fail."""

    transactions: tuple[OpenTransaction, ...]


@dataclass(frozen=True, slots=True)
class Warn:
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
    | Warn
)
"""The steps; a failed step raises its error at its `yield`."""


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """A micro-batch, as its tasks report it to the driver."""

    run: str
    batch_id: int
    row_count: int
    digest: int
    """The digest of its rows, in any order."""
    transactions: tuple[OpenTransaction, ...]
    """The open transactions; tasks without rows have none."""
    run_prefix: str
    """The prefix of this run's transactional ids."""
    id_prefix: str
    """The prefix of the transactional ids of all queries with the same options."""
    timeout_ms: int
    """The transaction timeout of the cluster."""
    has_skipped: bool = False
    """Whether a task found the batch committed and wrote nothing."""
    fails_on_difference: bool = True


def added_digests(digests: Iterable[int]) -> int:
    """Return the digest of rows from the digests of their parts."""
    return sum(digests) % 2**64


class Sweep(Enum):
    """The runs to search for leftover transactions after a batch."""

    NONE = auto()
    OWN_RUN = auto()
    ALL_RUNS = auto()


class Committed(NamedTuple):
    """The result of a commit."""

    ledger: Ledger
    """The current ledger."""
    is_swept: bool
    """Whether no leftover transactions remain."""
