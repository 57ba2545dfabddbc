"""The values of the sink's protocol: what the log says, what is to be done, what came of it (pure).

`sink_decisions` yields these steps in an order and is sent their answers; `sink_transactions`
carries them out against brokers, and a test on plain values. Nothing is decided here.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from penstock.client.transaction_outcomes import OpenTransaction


@dataclass(frozen=True, slots=True)
class Decision:
    """That a batch is to become visible, by these transactions and no others."""

    batch_id: int
    run: str
    """The run that decided."""
    row_count: int
    transactions: tuple[OpenTransaction, ...]
    runs: tuple[str, ...]
    """The runs that owned the log so far, the newest last."""
    digest: int | None = None
    """What its rows add up to; None when the record is from before it was kept."""
    id_prefix: str = ""
    """What the ids of the query's transactions begin with, the log's owner among them; empty when
    the record is from before it was kept."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the log of decisions says of one query."""

    decision: Decision | None = None
    is_done: bool = False
    """Every transaction of the decision is committed."""


# --- What is to be done, and what comes back ---


@dataclass(frozen=True, slots=True)
class ReadLedger:
    """Read the log of decisions to its end; gives a `Ledger`."""


@dataclass(frozen=True, slots=True)
class TakeOwnership:
    """Fence whoever owned the log; afterwards every decision of theirs is made or will never be."""


@dataclass(frozen=True, slots=True)
class LookAt:
    """How these transactions are; gives a `Sight`."""

    transactions: tuple[OpenTransaction, ...]
    age_ms_max: int


class Sight(NamedTuple):
    """Which transactions may be decided, by their ids."""

    open_ids: frozenset[str]
    """Those that are open as the tasks left them."""
    old_ids: frozenset[str]
    """Those that are open for longer than was asked, measured by their coordinators."""


@dataclass(frozen=True, slots=True)
class WriteDecision:
    """Make it durable, as the owner; raises when somebody else owns the log."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class CommitAll:
    """Commit each; gives a `CommitOutcome` by transactional id."""

    transactions: tuple[OpenTransaction, ...]


@dataclass(frozen=True, slots=True)
class AbortAll:
    """Abort each that is still open."""

    transactions: tuple[OpenTransaction, ...]


@dataclass(frozen=True, slots=True)
class WriteDone:
    """Note that every transaction of the decision is committed."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class ListOpen:
    """List the transactions of this query's tasks that are open; gives `OpenTransaction`s."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Abort those of these that are still open, whoever has them, and let their writers fail."""

    transactions: tuple[OpenTransaction, ...]


@dataclass(frozen=True, slots=True)
class Tell:
    """Warn whoever runs the query."""

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
    """What its rows add up to, in any order."""
    transactions: tuple[OpenTransaction, ...]
    """Tasks that had no rows have none."""
    run_prefix: str
    """What the ids of this run's transactions begin with."""
    id_prefix: str
    """And what those of all queries with the same options begin with."""
    timeout_ms: int
    """How long the cluster lets a transaction be open."""
    has_skipped: bool = False
    """A task found the batch committed and wrote nothing."""
    fails_on_difference: bool = True


def added_digests(digests: Iterable[int]) -> int:
    """The digest of rows from those of their parts."""
    return sum(digests) % 2**64


class Sweep(Enum):
    """Whose leftover transactions are looked for after a batch."""

    NONE = auto()
    OWN_RUN = auto()
    ALL_RUNS = auto()


class Committed(NamedTuple):
    """What a commit leaves behind."""

    ledger: Ledger
    """What the log says now."""
    is_swept: bool
    """Nothing is left of what was looked for."""
