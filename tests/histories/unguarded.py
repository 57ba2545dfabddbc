"""Runs `penstock` with safeguards of groups and transactions taken out, or known ones of the log.

    unguarded.py CHANGE[,CHANGE...] serve ...

For `test_mutations` alone: a checker that finds nothing in a broken broker proves nothing. The
product's code is changed from outside, in this process, before it starts. `slower-sync`, and
`slow-sync` and `late-answer` of `tests/crash/unguarded.py`, remove nothing; they make the
dangerous moment longer.
"""

import sys
import time
from collections.abc import Callable

from penstock.cli.main import run
from penstock.coordinator.driver import ShardDriver
from penstock.coordinator.shard import Outcome
from penstock.coordinator.transactions import decisions
from penstock.core.deferred import Deferred
from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.node.transaction_effects import TransactionEffects
from penstock.records.batch import BatchHeader
from penstock.replication.manager import HostedPartition, TransactionEnd
from penstock.storage import group_commit
from penstock.storage.flusher import Flusher, FlushRound
from penstock.storage.open_transactions import NO_GUARD
from penstock.storage.producer_entry import ProducerBatch
from penstock.storage.producer_state import ProducerStates
from tests.crash.unguarded import CHANGES as CHANGES_OF_THE_LOG
from tests.crash.unguarded import replace

SLOW_SECONDS = 0.3
"""Some client commits in any such span."""


def no_epoch_check() -> None:
    """Take a producer that was replaced for the one that replaced it."""
    original = ProducerStates.check

    def check(
        self: ProducerStates, header: BatchHeader, guard: int = NO_GUARD
    ) -> ProducerBatch | None:
        entry = self.entries.get(header.producer_id)
        if entry is not None and header.producer_epoch < entry.epoch:
            return None
        return original(self, header, guard)

    replace(ProducerStates, "check", check)
    replace(decisions, "_stranger", lambda *_: None)


def offsets_before_durable() -> None:
    """Answer for a coordinator's records while they are in the page cache only."""

    def leave_at_once(self: ShardDriver, outcome: Outcome) -> None:
        answers = [self._answer_to(reply) for reply in outcome.replies]
        self._leave(answers, outcome, self._life, None)

    replace(ShardDriver, "_leave_when_committed", leave_at_once)


def no_last_stable_offset() -> None:
    """Show records of transactions that are still open."""
    stable = property(lambda partition: partition.state.high_watermark)
    replace(HostedPartition, "last_stable_offset", stable)


def no_abort_marker() -> None:
    """Call a transaction aborted and write it nowhere."""
    original = TransactionEffects._append

    def append(
        self: TransactionEffects, name: TopicPartition, end: TransactionEnd
    ) -> Deferred[PenstockError | None]:
        if end.commits:
            return original(self, name, end)
        answer: Deferred[PenstockError | None] = Deferred()
        answer.set(None)
        return answer

    replace(TransactionEffects, "_append", append)


def slower_sync() -> None:
    """A very slow disk; removes nothing."""
    original = Flusher.execute

    def execute(self: Flusher, flush_round: FlushRound) -> None:
        time.sleep(SLOW_SECONDS)
        original(self, flush_round)

    replace(Flusher, "execute", execute)
    # The pool is not reached by what is changed here.
    replace(group_commit, "open_sync_pool", lambda _threads_max: None)


CHANGES: dict[str, Callable[[], None]] = {
    **CHANGES_OF_THE_LOG,
    "slower-sync": slower_sync,
    "no-epoch-check": no_epoch_check,
    "offsets-before-durable": offsets_before_durable,
    "no-last-stable-offset": no_last_stable_offset,
    "no-abort-marker": no_abort_marker,
}

if __name__ == "__main__":
    for change in sys.argv[1].split(","):
        CHANGES[change]()
    sys.exit(run(sys.argv[2:]))
