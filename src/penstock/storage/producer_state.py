"""`ProducerStates`: what a partition remembers of idempotent producers. Pure; snapshot to bytes.

For each producer id: its epoch and its last five batches (sequence range, offsets, timestamp). A
batch that is among them was sent twice and is answered with where it is; a batch that does not
follow the last one is refused. Sequences wrap from 2^31-1 to 0. A producer that is not known may
begin at any sequence, as in Apache Kafka: its history may have been deleted by retention.

Snapshot file `<offset>.snapshot`, big-endian, Kafka's version 1: version int16, CRC-32C of all that
follows uint32, number of entries int32, then for each producer:

    producer id int64, epoch int16, last sequence int32, last offset int64, offset delta int32,
    timestamp int64, coordinator epoch int32, first offset of the open transaction int64 (or -1)

Kafka writes one entry for each producer, its last batch. We write one for each batch that is
remembered, the oldest first: a client may have five batches in flight when the broker dies, and all
of them must be known again. Kafka's reader takes the last entry of a producer, so it reads ours as
its own. `check` changes nothing; `update` is the only way state changes, live and on replay. It
does not fence transactions: that is the coordinator's work.
"""

from collections.abc import Iterable
from heapq import nsmallest
from struct import Struct
from typing import Final, NamedTuple

from penstock.core.errors import (
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    StorageError,
)
from penstock.core.limits import (
    PRODUCER_BATCHES_REMEMBERED,
    PRODUCER_EXPIRATION_MS,
    PRODUCER_IDS_PER_PARTITION_MAX,
)
from penstock.records.batch import BatchHeader
from penstock.records.crc32c import checksum

_SNAPSHOT_HEADER: Final = Struct(">hIi")
_SNAPSHOT_ENTRY: Final = Struct(">qhiqiqiq")
_CRC_END: Final = 6
_VERSION: Final = 1
_SEQUENCE_MASK: Final = 0x7FFFFFFF
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_EVICTED_AT_ONCE: Final = 64
"""Producers forgotten together when the table is full, so that finding the oldest is rare work."""


class ProducerBatch(NamedTuple):
    """One remembered batch."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp_ms: int


_NO_BATCH: Final = ProducerBatch(-1, -1, -1, -1, -1)
"""Written for a producer of which only control batches are known."""


class ProducerEntry:
    """One producer id in one partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "generation",
        "last_timestamp_ms",
        "open_offset",
    )

    def __init__(self, epoch: int, generation: int = 0) -> None:
        self.epoch = epoch
        self.generation = generation
        """Snapshots that had been taken when this entry was made; a later one shares it."""
        self.batches: list[ProducerBatch] = []
        self.last_timestamp_ms = -1
        self.coordinator_epoch = -1
        self.open_offset = -1
        """First offset of the transaction that is open, or -1."""

    def copy(self, generation: int) -> "ProducerEntry":
        """The same, to be changed while a snapshot keeps this one."""
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


class ProducerSnapshot:
    """All producers at one offset. Nothing changes it, so any thread may pack it."""

    __slots__ = ("_entries",)

    def __init__(self, entries: dict[int, ProducerEntry]) -> None:
        self._entries = entries

    def to_bytes(self) -> bytes:
        """The snapshot file."""
        body = bytearray(_SNAPSHOT_HEADER.size)
        count = 0
        for producer_id, entry in self._entries.items():
            for batch in entry.batches or [_NO_BATCH]:
                count += 1
                body += _SNAPSHOT_ENTRY.pack(
                    producer_id,
                    entry.epoch,
                    batch.last_sequence,
                    batch.last_offset,
                    batch.last_offset - batch.base_offset,
                    entry.last_timestamp_ms if batch is _NO_BATCH else batch.timestamp_ms,
                    entry.coordinator_epoch,
                    entry.open_offset,
                )
        _SNAPSHOT_HEADER.pack_into(body, 0, _VERSION, 0, count)
        crc = checksum(memoryview(body)[_CRC_END:])
        _SNAPSHOT_HEADER.pack_into(body, 0, _VERSION, crc, count)
        return bytes(body)


class ProducerStates:
    """All producers of one partition."""

    __slots__ = ("_generation", "entries", "map_end_offset")

    def __init__(self) -> None:
        self._generation = 0
        self.entries: dict[int, ProducerEntry] = {}
        self.map_end_offset = 0
        """Every batch below this offset has been taken into account."""

    def check(self, header: BatchHeader) -> ProducerBatch | None:
        """Whether the batch may be appended: None for yes, the original when it is a repetition."""
        entry = self.entries.get(header.producer_id)
        if entry is None or header.attributes & _CONTROL:
            return None
        if header.producer_epoch != entry.epoch:
            if header.producer_epoch < entry.epoch:
                raise InvalidProducerEpochError(
                    f"producer {header.producer_id} has epoch {entry.epoch},"
                    f" not {header.producer_epoch}"
                )
            if header.base_sequence != 0:
                raise OutOfOrderSequenceError(
                    f"producer {header.producer_id} begins epoch {header.producer_epoch}"
                    f" at sequence {header.base_sequence}, not 0"
                )
            return None
        batches = entry.batches
        if not batches:
            return None
        base_sequence = header.base_sequence
        if base_sequence == (batches[-1].last_sequence + 1) & _SEQUENCE_MASK:
            return None
        last_sequence = header.last_sequence
        for batch in batches:
            if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                return batch
        raise OutOfOrderSequenceError(
            f"producer {header.producer_id} epoch {entry.epoch}: sequence {base_sequence}"
            f" after {batches[-1].last_sequence}"
        )

    def update(self, header: BatchHeader, base_offset: int, timestamp_ms: int) -> None:
        """Take an appended batch into account; `header` may still carry the producer's offset."""
        producer_id = header.producer_id
        entry = self.entries.get(producer_id)
        if entry is None:
            self._make_room()
            entry = ProducerEntry(header.producer_epoch, self._generation)
            self.entries[producer_id] = entry
        else:
            if entry.generation != self._generation:
                entry = self.entries[producer_id] = entry.copy(self._generation)
            if entry.epoch != header.producer_epoch:
                entry.epoch = header.producer_epoch
                entry.batches = []
        if header.attributes & _CONTROL:
            entry.open_offset = -1
            entry.last_timestamp_ms = timestamp_ms
            return
        delta, sequence = header.last_offset_delta, header.base_sequence
        last_sequence = (sequence + delta) & _SEQUENCE_MASK
        entry.add(
            ProducerBatch(sequence, last_sequence, base_offset, base_offset + delta, timestamp_ms)
        )
        if header.attributes & _TRANSACTIONAL and entry.open_offset < 0:
            entry.open_offset = base_offset

    def replay(self, header: BatchHeader) -> None:
        """Take a batch of the log into account while loading."""
        if header.producer_id >= 0:
            self.update(header, header.base_offset, header.max_timestamp_ms)
        self.map_end_offset = header.next_offset

    def expire(self, now_ms: int) -> int:
        """Forget producers that were silent too long; how many. Open transactions stay."""
        limit_ms = now_ms - PRODUCER_EXPIRATION_MS
        expired = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.last_timestamp_ms <= limit_ms and entry.open_offset < 0
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        return len(expired)

    def _make_room(self) -> None:
        """Keep the table within its bound; the oldest idle producers go first."""
        if len(self.entries) < PRODUCER_IDS_PER_PARTITION_MAX:
            return
        oldest: Iterable[tuple[int, int]] = nsmallest(
            _EVICTED_AT_ONCE,
            ((entry.last_timestamp_ms, producer_id) for producer_id, entry in self.entries.items()),
        )
        for _, producer_id in oldest:
            del self.entries[producer_id]

    def snapshot(self) -> "ProducerSnapshot":
        """What is known now; packing it is left to whoever writes the file.

        The entries belong to the snapshot from here on: `update` copies one before it changes it.
        """
        self._generation += 1
        return ProducerSnapshot(dict(self.entries))

    def to_bytes(self) -> bytes:
        """The snapshot file."""
        return self.snapshot().to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes, map_end_offset: int) -> "ProducerStates":
        """Read a snapshot; `StorageError` when any byte of it is wrong."""
        if len(data) < _SNAPSHOT_HEADER.size:
            raise StorageError("producer snapshot is too short")
        version, crc, count = _SNAPSHOT_HEADER.unpack_from(data)
        if version != _VERSION or checksum(memoryview(data)[_CRC_END:]) != crc:
            raise StorageError("producer snapshot has a wrong version or checksum")
        if len(data) != _SNAPSHOT_HEADER.size + count * _SNAPSHOT_ENTRY.size:
            raise StorageError("producer snapshot has a wrong length")
        states = cls()
        states.map_end_offset = map_end_offset
        for fields in _SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[_SNAPSHOT_HEADER.size :]):
            producer_id, epoch, sequence, offset, delta, timestamp_ms, coordinator, open_at = fields
            entry = states.entries.get(producer_id)
            if entry is None or entry.epoch != epoch:
                entry = states.entries[producer_id] = ProducerEntry(epoch)
            if sequence >= 0:
                first = (sequence - delta) & _SEQUENCE_MASK
                entry.add(ProducerBatch(first, sequence, offset - delta, offset, timestamp_ms))
            entry.last_timestamp_ms = timestamp_ms
            entry.coordinator_epoch = coordinator
            entry.open_offset = open_at
        return states

    def summary(self) -> dict[int, tuple[int, int, int]]:
        """Epoch, last sequence and last offset by producer: what two states are compared by."""
        return {
            producer_id: (
                entry.epoch,
                entry.batches[-1].last_sequence if entry.batches else -1,
                entry.batches[-1].last_offset if entry.batches else -1,
            )
            for producer_id, entry in self.entries.items()
        }

    def validate(self) -> None:
        """Assert what always holds."""
        assert len(self.entries) <= PRODUCER_IDS_PER_PARTITION_MAX
        for entry in self.entries.values():
            assert len(entry.batches) <= PRODUCER_BATCHES_REMEMBERED
            for earlier, later in zip(entry.batches, entry.batches[1:], strict=False):
                assert later.base_offset > earlier.last_offset
                assert later.base_sequence == (earlier.last_sequence + 1) & _SEQUENCE_MASK
