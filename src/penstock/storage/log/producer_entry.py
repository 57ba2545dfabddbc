"""`ProducerEntry`: the state of one idempotent producer in a partition.

Data and copying only: `producer_state` decides which batches may be appended and changes entries.
"""

from typing import Final, NamedTuple

from penstock.core.limits import PRODUCER_BATCHES_REMEMBERED

NOT_SEEN: Final = -1
"""`heard_ms` of a producer that was active after the last call of `ProducerStates.expire`."""


class ProducerBatch(NamedTuple):
    """One remembered batch."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


NO_BATCH: Final = ProducerBatch(-1, -1, -1, -1, -1)
"""Written for a producer of which only control batches are known."""


class ProducerEntry:
    """One producer id in one partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "generation",
        "heard_ms",
        "last_timestamp_ms",
        "open_offset",
    )

    def __init__(self, epoch: int, generation: int = 0) -> None:
        self.epoch = epoch
        self.generation = generation
        """Number of snapshots taken before this entry was created; a later snapshot shares it."""
        self.batches: list[ProducerBatch] = []
        self.last_timestamp_ms = -1
        """Timestamp of the last batch or marker, as the client set it. Not used for expiry."""
        self.heard_ms = NOT_SEEN
        """When `expire` first saw the entry after the producer's last activity."""
        self.coordinator_epoch = -1
        self.open_offset = -1
        """First offset of the transaction that is open, or -1."""

    def copy(self, generation: int) -> "ProducerEntry":
        """Return a mutable copy; the snapshot keeps this instance."""
        entry = ProducerEntry(self.epoch, generation)
        entry.batches = list(self.batches)
        entry.last_timestamp_ms = self.last_timestamp_ms
        entry.coordinator_epoch = self.coordinator_epoch
        entry.open_offset = self.open_offset
        return entry

    def add(self, batch: ProducerBatch) -> None:
        """Remember a batch, forgetting the oldest."""
        batches = self.batches
        if len(batches) >= PRODUCER_BATCHES_REMEMBERED:
            del batches[0]
        batches.append(batch)
        self.last_timestamp_ms = batch.timestamp_ms
