"""Runs `penstock` with safeguards taken out: `unguarded.py GUARD[,GUARD...] serve ...`.

For `test_broker_guards` alone: a check that cannot fail proves nothing. The product's code is
changed from outside, in this process, before it starts. Two of the changes remove nothing and only
make a dangerous moment longer, so that a crash falls into it; a broker with these two alone keeps
every promise.
"""

import sys
import time
from collections.abc import Callable

from penstock.cli.main import run
from penstock.records.batch import BatchHeader
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.manager import ReplicaManager
from penstock.replication.read_result import PartitionRead
from penstock.storage import group_commit
from penstock.storage.disk.filesystem import DiskFile
from penstock.storage.flusher import Flusher, FlushRound
from penstock.storage.log import recovery
from penstock.storage.log.producer_entry import ProducerBatch
from penstock.storage.log.producer_state import ProducerStates

LONGER_SECONDS = 0.06


def replace(owner: object, name: str, stand_in: object) -> None:
    """Put something else in the place of a function; that types differ is the point."""
    setattr(owner, name, stand_in)


def without_pool() -> None:
    """Have every round done by `Flusher.execute`, which can be changed from outside."""
    replace(group_commit, "open_sync_pool", lambda _threads_max: None)


def ack_before_sync() -> None:
    """Acknowledge data that is in the page cache only."""
    replace(DiskFile, "sync", lambda _self: None)
    without_pool()


def watermark_ahead() -> None:
    """Show consumers what is appended and not yet durable."""
    original = ReplicaManager.read

    def read(
        self: ReplicaManager, partition: HostedPartition, offset: int, bytes_max: int, **words: int
    ) -> PartitionRead:
        state = partition.state
        durable, state.high_watermark = state.high_watermark, partition.log.end_offset
        try:
            return original(self, partition, offset, bytes_max, **words)  # type: ignore[arg-type]
        finally:
            state.high_watermark = durable

    replace(ReplicaManager, "read", read)


def no_sequence_check() -> None:
    """Append whatever a producer sends, also for the second time."""

    def check(_self: ProducerStates, _header: BatchHeader, _guard: int = 0) -> ProducerBatch | None:
        return None

    replace(ProducerStates, "check", check)


def no_checksum() -> None:
    """Believe every batch in the log whose length fits."""
    replace(recovery, "checksum_matches", lambda *_: True)


def slow_sync() -> None:
    """A slow disk: long between the append and the sync."""
    original = Flusher.execute

    def execute(self: Flusher, flush_round: FlushRound) -> None:
        time.sleep(LONGER_SECONDS)
        original(self, flush_round)

    replace(Flusher, "execute", execute)
    without_pool()


def late_answer() -> None:
    """Long between the sync and the acknowledgement."""
    original = Flusher.execute

    def execute(self: Flusher, flush_round: FlushRound) -> None:
        original(self, flush_round)
        time.sleep(LONGER_SECONDS)

    replace(Flusher, "execute", execute)
    without_pool()


CHANGES: dict[str, Callable[[], None]] = {
    change.__name__.replace("_", "-"): change
    for change in (
        ack_before_sync,
        watermark_ahead,
        no_sequence_check,
        no_checksum,
        slow_sync,
        late_answer,
    )
}

if __name__ == "__main__":
    for name in sys.argv[1].split(","):
        CHANGES[name]()
    sys.exit(run(sys.argv[2:]))
