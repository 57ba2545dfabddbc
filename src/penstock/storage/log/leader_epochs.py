"""`LeaderEpochs`: which leader epoch began at which offset. Pure; snapshot to bytes and back.

Entries (epoch, start offset) grow strictly in both. The file `leader-epoch-checkpoint` is text:

    0                      version
    2                      number of entries
    0 0                    epoch, start offset
    3 1200

Answers follow KIP-101 and KIP-279, as in Apache Kafka's `LeaderEpochFileCache.endOffsetFor`. The
file must be durable before the first batch of a new epoch counts as durable; `partition_log` and
`flusher` ensure it.
"""

from bisect import bisect_right
from typing import Final, NamedTuple

from penstock.core.errors import StorageError

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1
_VERSION: Final = "0"


class EpochEntry(NamedTuple):
    """An epoch and the first offset that was written in it."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The largest epoch at or below the one asked for, and the offset after its last record."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """The epochs of one log."""

    __slots__ = ("_entries",)

    def __init__(self, entries: list[EpochEntry] | None = None) -> None:
        self._entries: list[EpochEntry] = []
        for entry in entries or []:
            self.assign(entry.epoch, entry.start_offset)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries, oldest first."""
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int:
        """The last epoch, or -1."""
        return self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` begins at `start_offset`; whether anything changed.

        An entry that the new one contradicts is removed: an epoch without records, or a lost
        history.
        """
        entries = self._entries
        if entries and entries[-1].epoch == epoch:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochEntry(epoch, start_offset))
        return True

    def truncate_end(self, end_offset: int) -> bool:
        """Forget epochs that begin at or after `end_offset`; whether anything changed."""
        kept = [entry for entry in self._entries if entry.start_offset < end_offset]
        changed = len(kept) != len(self._entries)
        self._entries = kept
        return changed

    def truncate_start(self, start_offset: int) -> bool:
        """Forget epochs that end at or before `start_offset`; whether anything changed."""
        number = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset) - 1
        if number < 0 or (number == 0 and self._entries[0].start_offset == start_offset):
            return False
        first = EpochEntry(self._entries[number].epoch, start_offset)
        self._entries = [first, *self._entries[number + 1 :]]
        return True

    def epoch_at(self, offset: int) -> int:
        """The epoch in which the record at `offset` was written, or -1."""
        number = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset) - 1
        return self._entries[number].epoch if number >= 0 else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Where `epoch` ends, as OffsetForLeaderEpoch answers it."""
        if epoch == UNDEFINED_EPOCH or not self._entries or epoch > self._entries[-1].epoch:
            return EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == self._entries[-1].epoch:
            return EpochEnd(epoch, log_end_offset)
        number = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        higher = self._entries[number]
        if number == 0:
            return EpochEnd(epoch, higher.start_offset)
        return EpochEnd(self._entries[number - 1].epoch, higher.start_offset)

    def to_bytes(self) -> bytes:
        """The text of the checkpoint file."""
        lines = [_VERSION, str(len(self._entries))]
        lines += [f"{entry.epoch} {entry.start_offset}" for entry in self._entries]
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "LeaderEpochs":
        """Read the checkpoint file; `StorageError` when it is not one."""
        try:
            lines = data.decode("ascii").splitlines()
            if lines[0] != _VERSION or len(lines) - 2 != int(lines[1]):
                raise StorageError("leader-epoch-checkpoint: wrong version or number of entries")
            pairs = [line.split(" ") for line in lines[2:]]
            entries = [EpochEntry(int(epoch), int(offset)) for epoch, offset in pairs]
        except (ValueError, IndexError) as error:
            raise StorageError(f"leader-epoch-checkpoint cannot be read: {error}") from error
        return cls(entries)

    def validate(self) -> None:
        """Assert the invariants."""
        for earlier, later in zip(self._entries, self._entries[1:], strict=False):
            assert earlier.epoch < later.epoch
            assert earlier.start_offset < later.start_offset
