"""`ProducerStates`: the state of idempotent producers in a partition. Pure; snapshot to bytes.

For each producer id: its epoch, its last five batches (sequence range, offsets, timestamp) and its
open transaction. A batch that is among them was sent twice and is answered with its offset; a batch
that does not follow the last one is refused. Sequences wrap from 2^31-1 to 0. A producer that is
not known may begin at any sequence, as in Apache Kafka: its history may have been deleted by
retention. Coordinators write without sequences; only the transaction of their batches is kept.

Snapshot file `<offset>.snapshot`, big-endian, Kafka's version 1: version int16, CRC-32C of all that
follows uint32, number of entries int32, then for each producer:

    producer id int64, epoch int16, last sequence int32, last offset int64, offset delta int32,
    timestamp int64, coordinator epoch int32, first offset of the open transaction int64 (or -1)

Kafka writes one entry for each producer, its last batch. We write one for each remembered batch,
the oldest first: a client may have five batches in flight when the broker dies, and all of them
must be known again. Kafka's reader takes the last entry of a producer, so it reads ours as its own.
`check` and `check_marker` change nothing; `update` is the only way state changes, live and on
replay. Open transactions and their verifications are in `open_transactions`.

`entries` is in the order of each producer's last batch or marker in the log, and so is a snapshot.
Eviction follows that order, so replicas that read the same log evict the same producers. Expiry
counts from a producer's last activity at this broker; no timestamp of a client is compared with a
clock. See docs/decisions/0016.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from penstock.core.errors import (
    FencedTransactionCoordinatorError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    StorageError,
)
from penstock.core.limits import (
    PRODUCER_BATCHES_REMEMBERED,
    PRODUCER_EXPIRATION_MS,
    PRODUCER_IDS_PER_PARTITION_MAX,
)
from penstock.core.untracked import untracked
from penstock.records.batch import BatchHeader
from penstock.records.control import Marker
from penstock.records.crc32c import checksum
from penstock.storage.log.open_transactions import (
    NO_GUARD,
    AbortedTransaction,
    OpenTransactions,
    Verifications,
)
from penstock.storage.log.producer_entry import NO_BATCH, NOT_SEEN, ProducerBatch, ProducerEntry

_SNAPSHOT_HEADER: Final = Struct(">hIi")
_SNAPSHOT_ENTRY: Final = Struct(">qhiqiqiq")
_CRC_END: Final = 6
_VERSION: Final = 1
_SEQUENCE_MASK: Final = 0x7FFFFFFF
_NO_COORDINATOR: Final = -1
_LAST_EPOCH: Final = 32_767
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_EVICTED_AT_ONCE: Final = 64
"""Producers evicted together when the table is full, so that finding the oldest is rare work."""
_NO_PRODUCER: Final = -1


def _stale_epoch(header: BatchHeader, entry: ProducerEntry) -> InvalidProducerEpochError:
    return InvalidProducerEpochError(
        f"producer {header.producer_id} has epoch {entry.epoch}, not {header.producer_epoch}"
    )


def _repeated(entry: ProducerEntry | None, header: BatchHeader) -> ProducerBatch | None:
    """The same batch as it was stored before, if it is remembered."""
    if entry is None or header.producer_epoch != entry.epoch or header.base_sequence < 0:
        return None
    last_sequence = header.last_sequence
    for batch in entry.batches:
        if batch.base_sequence == header.base_sequence and batch.last_sequence == last_sequence:
            return batch
    return None


def _check_sequence(header: BatchHeader, entry: ProducerEntry) -> ProducerBatch | None:
    """Whether a batch follows the last one: None for yes, the original when it is a repetition."""
    base_sequence = header.base_sequence
    if header.producer_epoch != entry.epoch or not entry.batches:
        if base_sequence != 0:
            begins = f"producer {header.producer_id} begins epoch {header.producer_epoch}"
            raise OutOfOrderSequenceError(
                f"{begins} at sequence {base_sequence}, not 0", expected_sequence=0
            )
        return None
    last = entry.batches[-1]
    expected_sequence = (last.last_sequence + 1) & _SEQUENCE_MASK
    if base_sequence == expected_sequence:
        return None
    original = _repeated(entry, header)
    if original is None:
        raise OutOfOrderSequenceError(
            f"producer {header.producer_id} epoch {entry.epoch}: sequence {base_sequence}"
            f" after {last.last_sequence}",
            expected_sequence=expected_sequence,
        )
    return original


class ProducerSnapshot:
    """All producers at one offset. Nothing changes it, so any thread may pack it."""

    __slots__ = ("entries",)

    def __init__(self, entries: dict[int, ProducerEntry]) -> None:
        self.entries = entries

    def to_bytes(self) -> bytes:
        """The snapshot file."""
        parts = list(self.parts(len(self.entries)))
        return b"".join((snapshot_header(parts), *parts))

    def parts(self, producers_at_once: int) -> Iterator[bytes]:
        """The file after its header, at most `producers_at_once` producers at a time."""
        packed = bytearray()
        for number, (producer_id, entry) in enumerate(self.entries.items(), start=1):
            batches = entry.batches or [NO_BATCH]
            for batch in batches:
                # A marker is later than the last batch, and expiry counts from it.
                is_last = batch is batches[-1]
                packed += _SNAPSHOT_ENTRY.pack(
                    producer_id,
                    entry.epoch,
                    batch.last_sequence,
                    batch.last_offset,
                    batch.last_offset - batch.base_offset,
                    entry.last_timestamp_ms if is_last else batch.timestamp_ms,
                    entry.coordinator_epoch,
                    entry.open_offset,
                )
            if number % producers_at_once == 0:
                yield bytes(packed)
                packed = bytearray()
        if packed:
            yield bytes(packed)


def snapshot_header(parts: list[bytes]) -> bytes:
    """The header of the snapshot file with these parts."""
    count = sum(map(len, parts)) // _SNAPSHOT_ENTRY.size
    header = bytearray(_SNAPSHOT_HEADER.pack(_VERSION, 0, count))
    crc = checksum(memoryview(header)[_CRC_END:])
    for part in parts:
        crc = checksum(part, crc)
    _SNAPSHOT_HEADER.pack_into(header, 0, _VERSION, crc, count)
    return bytes(header)


class ProducerStates:
    """All producers of one partition."""

    __slots__ = (
        "_generation",
        "_latest_id",
        "entries",
        "map_end_offset",
        "transactions",
        "verifications",
    )

    def __init__(self) -> None:
        self._generation = 0
        self._latest_id = _NO_PRODUCER
        """The last producer of `entries`: the usual one, which need not move."""
        self.entries: dict[int, ProducerEntry] = {}
        """In the order of the last batch or marker in the log."""
        self.map_end_offset = 0
        """Every batch below this offset is included."""
        self.transactions = OpenTransactions()
        self.verifications = Verifications()

    # --- Checks before an append ---

    def check(self, header: BatchHeader, guard: int = NO_GUARD) -> ProducerBatch | None:
        """Whether the batch may be appended: None for yes, the original when it is a repetition.

        The first batch of a transaction needs the guard of its verification.
        """
        entry = self.entries.get(header.producer_id)
        if header.attributes & _TRANSACTIONAL:
            if header.attributes & _CONTROL:
                return None
            original = _repeated(entry, header)
            if original is not None:
                return original
            self._check_transactional(header, entry, guard)
        if entry is None:
            return None
        if header.producer_epoch < entry.epoch:
            raise _stale_epoch(header, entry)
        if header.base_sequence < 0:
            return None
        original = _check_sequence(header, entry)
        if entry.open_offset >= 0 and not header.attributes & _TRANSACTIONAL and original is None:
            raise InvalidTransactionStateError(
                f"producer {header.producer_id} has an open transaction in this partition, and"
                " this batch is not part of it"
            )
        return original

    def _check_transactional(
        self, header: BatchHeader, entry: ProducerEntry | None, guard: int
    ) -> None:
        """Only a transaction that its coordinator knows of may grow (KIP-890)."""
        if entry is not None and entry.epoch == header.producer_epoch and entry.open_offset >= 0:
            return
        if entry is not None and header.producer_epoch < entry.epoch:
            raise _stale_epoch(header, entry)
        known = self.verifications.get(header.producer_id)
        sequence = header.base_sequence
        # A coordinator's batch has no guard of its own: a confirmed verification is enough.
        is_verified = known is not None and (
            guard == known.guard if sequence >= 0 else known.is_verified
        )
        if known is None or not is_verified:
            raise InvalidTransactionStateError(
                f"a batch of producer {header.producer_id} that was not part of an open transaction"
            )
        if len(self.transactions) >= PRODUCER_IDS_PER_PARTITION_MAX:
            raise InvalidTransactionStateError(
                f"{PRODUCER_IDS_PER_PARTITION_MAX} transactions are open in this partition"
            )
        if sequence > 0 and known.adds and (entry is None or not entry.batches):
            raise OutOfOrderSequenceError(
                f"producer {header.producer_id} begins at sequence {sequence}, not 0"
            )
        if sequence > known.lowest_sequence:
            raise OutOfOrderSequenceError(
                f"producer {header.producer_id}: sequence {sequence} before"
                f" {known.lowest_sequence}, which is being verified"
            )

    def check_marker(self, header: BatchHeader, marker: Marker, *, is_strict: bool) -> None:
        """Whether a marker may be appended.

        A strict one must have a higher epoch than the records of an open transaction: in version 2
        each end raises the epoch, so a marker with their epoch is late and belongs to the
        transaction before. A repeated marker is harmless when no transaction is open; and the last
        epoch cannot be raised.
        """
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return
        epoch = header.producer_epoch
        is_late = (
            is_strict and epoch == entry.epoch and entry.open_offset >= 0 and epoch != _LAST_EPOCH
        )
        if epoch < entry.epoch or is_late:
            raise _stale_epoch(header, entry)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise FencedTransactionCoordinatorError(
                f"a marker for producer {header.producer_id} of coordinator epoch"
                f" {marker.coordinator_epoch}, after one of {entry.coordinator_epoch}"
            )

    # --- Updates after an append ---

    def aborted_by(self, producer_id: int, marker_offset: int) -> AbortedTransaction | None:
        """The index entry of an abort marker at this offset, which is not noted yet."""
        entry = self.entries.get(producer_id)
        if entry is None or entry.open_offset < 0:
            return None
        stable_offset = self.transactions.stable_offset_after(producer_id, marker_offset)
        return AbortedTransaction(producer_id, entry.open_offset, marker_offset, stable_offset)

    def update(
        self,
        header: BatchHeader,
        base_offset: int,
        timestamp_ms: int,
        coordinator_epoch: int = _NO_COORDINATOR,
    ) -> None:
        """Add an appended batch; `header` may still have the producer's offset.

        `coordinator_epoch` is a marker's.
        """
        producer_id = header.producer_id
        entry = self.entries.get(producer_id)
        if entry is None:
            self._make_room()
            entry = ProducerEntry(header.producer_epoch, self._generation)
        else:
            if producer_id != self._latest_id:
                del self.entries[producer_id]
            if entry.generation != self._generation:
                entry = entry.copy(self._generation)
            if entry.epoch != header.producer_epoch:
                entry.epoch = header.producer_epoch
                entry.batches = []
            entry.heard_ms = NOT_SEEN
        self.entries[producer_id] = entry
        self._latest_id = producer_id
        if header.attributes & _CONTROL:
            entry.open_offset = -1
            self.transactions.end(producer_id, base_offset)
            self.verifications.forget(producer_id)
            entry.last_timestamp_ms = timestamp_ms
            if coordinator_epoch != _NO_COORDINATOR:
                entry.coordinator_epoch = coordinator_epoch
            return
        delta, sequence = header.last_offset_delta, header.base_sequence
        if sequence >= 0:
            last_sequence = (sequence + delta) & _SEQUENCE_MASK
            entry.add(
                ProducerBatch(
                    sequence, last_sequence, base_offset, base_offset + delta, timestamp_ms
                )
            )
        else:
            entry.last_timestamp_ms = timestamp_ms
        if header.attributes & _TRANSACTIONAL:
            self.verifications.forget(producer_id)
            if entry.open_offset < 0:
                entry.open_offset = base_offset
                self.transactions.begin(producer_id, base_offset)

    def replay(
        self, header: BatchHeader, marker: Marker | None = None
    ) -> AbortedTransaction | None:
        """Add a batch of the log while loading; return its entry for the index.

        `marker` is the marker of a control batch, if it ends a transaction.
        """
        aborted = None
        if header.producer_id >= 0:
            if marker is not None and not marker.is_commit:
                aborted = self.aborted_by(header.producer_id, header.base_offset)
            epoch = _NO_COORDINATOR if marker is None else marker.coordinator_epoch
            self.update(header, header.base_offset, header.max_timestamp_ms, epoch)
        self.map_end_offset = header.next_offset
        return aborted

    # --- Bounds ---

    def note_repeated(self, producer_id: int) -> None:
        """A known batch arrived again: it is not appended, but the producer is active."""
        self.entries[producer_id].heard_ms = NOT_SEEN

    def expire(self, now_ms: int, silent_ms: int = PRODUCER_EXPIRATION_MS) -> int:
        """Forget producers without an open transaction that were silent too long; return how many.

        `now_ms` is of a clock that never jumps. The first call after a producer's last activity, or
        after a load, starts its time: a producer is forgotten late, by at most the time between two
        calls, and never early.
        """
        return self.expire_some(list(self.entries), now_ms, silent_ms)

    def expire_some(self, producer_ids: list[int], now_ms: int, silent_ms: int) -> int:
        """As `expire`, for these producers only; the table may have changed since they were listed.

        Clients choose the size of the table, so the event loop scans it in slices.
        """
        limit_ms, count, entries = now_ms - silent_ms, 0, self.entries
        for producer_id in producer_ids:
            entry = entries.get(producer_id)
            if entry is None:
                continue
            if entry.heard_ms < 0:
                entry.heard_ms = now_ms
            elif entry.heard_ms <= limit_ms and entry.open_offset < 0:
                del entries[producer_id]
                count += 1
        return count

    def _make_room(self) -> None:
        """Evict the idle producers whose last batch is lowest in the log if the table is full."""
        if len(self.entries) < PRODUCER_IDS_PER_PARTITION_MAX:
            return
        # One with an open transaction is never idle; `_check_transactional` bounds their number.
        # A loop, not a generator: compiled, a generator is a list of the whole table.
        idle: list[int] = []
        for producer_id, entry in self.entries.items():
            if entry.open_offset < 0:
                idle.append(producer_id)
                if len(idle) == _EVICTED_AT_ONCE:
                    break
        for producer_id in idle:
            del self.entries[producer_id]

    def snapshot(self) -> "ProducerSnapshot":
        """The present producers; the writer of the file packs them.

        The snapshot shares the entries afterwards: `update` copies one before it changes it.
        """
        self._generation += 1
        return ProducerSnapshot(untracked(dict(self.entries)))

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
        opened = {entry.open_offset: producer_id for producer_id, entry in states.entries.items()}
        for first_offset in sorted(opened):
            if first_offset >= 0:
                states.transactions.begin(opened[first_offset], first_offset)
        return states

    def summary(self) -> dict[int, tuple[int, int, int]]:
        """Epoch, last sequence and last offset by producer, to compare two states."""
        return {
            producer_id: (
                entry.epoch,
                entry.batches[-1].last_sequence if entry.batches else -1,
                entry.batches[-1].last_offset if entry.batches else -1,
            )
            for producer_id, entry in self.entries.items()
        }

    def validate(self) -> None:
        """Assert the invariants. Sequences may have gaps: compaction drops batches."""
        assert len(self.entries) <= PRODUCER_IDS_PER_PARTITION_MAX
        self.transactions.validate()
        for producer_id, entry in self.entries.items():
            assert (entry.open_offset >= 0) == (producer_id in self.transactions)
            assert len(entry.batches) <= PRODUCER_BATCHES_REMEMBERED
            for earlier, later in zip(entry.batches, entry.batches[1:], strict=False):
                assert later.base_offset > earlier.last_offset
