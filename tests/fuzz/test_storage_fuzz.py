"""Decoders of storage on any bytes: they accept, or raise the one error they declare."""

import contextlib
import struct
from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import CorruptBatchError, StorageError
from penstock.core.types import TopicPartition
from penstock.records.crc32c import checksum
from penstock.storage.disk.checkpoint import format_offsets, parse_offsets
from penstock.storage.disk.data_directory import (
    format_partition_metadata,
    format_properties,
    parse_partition_metadata,
    parse_properties,
)
from penstock.storage.log.batch_walk import find_offset, whole_batches
from penstock.storage.log.index import (
    OFFSET_ENTRY_BYTES,
    floor_by_offset,
    offsets_are_sound,
    trimmed_size,
)
from penstock.storage.log.leader_epochs import LeaderEpochs
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log.open_transactions import AbortedTransaction
from penstock.storage.log.producer_entry import ProducerBatch, ProducerEntry
from penstock.storage.log.producer_state import ProducerStates
from penstock.storage.log.transaction_index import (
    TRANSACTION_ENTRY,
    pack_entry,
    sound_bytes,
    unpack_entries,
)
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.logs import PARTITION, batch, let_go, new_log, open_manager, read_all, sync

LOG = "/data/orders-0/00000000000000000000.log"
SETTINGS = LogSettings(index_interval_bytes=200, retention_ms=-1)


def fuzz_offset_checkpoint(data: bytes) -> None:
    """A recovery-point or log-start checkpoint; what is accepted can be written again."""
    with contextlib.suppress(StorageError):
        offsets = parse_offsets(data)
        assert parse_offsets(format_offsets(offsets)) == offsets


def fuzz_leader_epochs(data: bytes) -> None:
    """A leader-epoch checkpoint."""
    with contextlib.suppress(StorageError):
        LeaderEpochs.from_bytes(data)


def fuzz_producer_snapshot(data: bytes) -> None:
    """A producer snapshot, as it is and with a right checksum, so that the rest is reached."""
    for candidate in (data, data[:2] + checksum(data[6:]).to_bytes(4) + data[6:]):
        with contextlib.suppress(StorageError):
            ProducerStates.from_bytes(candidate, 0).to_bytes()


def fuzz_partition_metadata(data: bytes) -> None:
    """The topic id beside a log."""
    parse_partition_metadata(data)


def fuzz_properties(data: bytes) -> None:
    """meta.properties."""
    parse_properties(data)


def fuzz_offset_index(data: bytes) -> None:
    """An offset index; the first bytes choose what is looked for."""
    target, rest = int.from_bytes(data[:4]) & 0x7FFFFFFF, data[4:]
    whole = rest[: trimmed_size(rest, OFFSET_ENTRY_BYTES)]
    floor_by_offset(whole, target)
    offsets_are_sound(whole, 1_000)


def fuzz_transaction_index(data: bytes) -> None:
    """An index of aborted transactions; what counts as sound can be read."""
    size = sound_bytes(data[: len(data) - len(data) % TRANSACTION_ENTRY.size], 2**40)
    aborted = list(unpack_entries(data[:size]))
    assert b"".join(pack_entry(entry) for entry in aborted) == data[:size]


def fuzz_batch_walk(data: bytes) -> None:
    """The walk over the batches of a segment; the first two bytes choose an offset."""
    offset, rest = int.from_bytes(data[:2]), data[2:]
    with contextlib.suppress(CorruptBatchError):
        assert whole_batches(rest, 0, len(rest)).size <= len(rest)
    with contextlib.suppress(CorruptBatchError):
        find_offset(rest, offset)


TARGETS: list[Callable[[bytes], None]] = [
    fuzz_offset_checkpoint,
    fuzz_leader_epochs,
    fuzz_producer_snapshot,
    fuzz_partition_metadata,
    fuzz_properties,
    fuzz_offset_index,
    fuzz_transaction_index,
    fuzz_batch_walk,
]


def _producers() -> bytes:
    states = ProducerStates()
    for producer_id in range(3):
        entry = states.entries[producer_id] = ProducerEntry(0)
        entry.add(ProducerBatch(0, 4, 10, 14, 1_000))
    return states.to_bytes()


CORPUS: dict[str, list[bytes]] = {
    "fuzz_offset_checkpoint": [
        format_offsets({}),
        format_offsets({TopicPartition("orders", 0): 12, TopicPartition("a.b_c-d", 7): 2**40}),
    ],
    "fuzz_leader_epochs": [b"0\n0\n", b"0\n3\n0 0\n1 17\n5 900\n"],
    "fuzz_producer_snapshot": [ProducerStates().to_bytes(), _producers()],
    "fuzz_partition_metadata": [format_partition_metadata(UUID(int=2**100))],
    "fuzz_properties": [format_properties({"version": "1", "cluster.id": "c", "node.id": "1"})],
    "fuzz_offset_index": [
        bytes(4) + b"".join(struct.pack(">ii", n * 10, n * 4_096) for n in range(9))
    ],
    "fuzz_transaction_index": [
        b"".join(pack_entry(AbortedTransaction(7, n * 9, n * 9 + 4, n * 9 + 5)) for n in range(5))
    ],
    "fuzz_batch_walk": [bytes(2) + b"".join(bytes(batch(2).buffer) for _ in range(3))],
}
"""Valid inputs by target."""


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.__name__)
def test_the_corpus_is_taken(target: Callable[[bytes], None]) -> None:
    for data in CORPUS[target.__name__]:
        target(data)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.__name__)
@settings(deadline=None)
@given(data=st.binary(max_size=300))
def test_any_bytes(target: Callable[[bytes], None], data: bytes) -> None:
    target(data)


@settings(deadline=None)
@given(st.text("0123456789 abc\n-", max_size=60))
def test_nearly_right_text(text: str) -> None:
    for decode in (parse_offsets, LeaderEpochs.from_bytes):
        with contextlib.suppress(StorageError):
            decode(text.encode())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2_000), st.binary(min_size=1, max_size=40)), max_size=4),
    st.integers(0, 2_000),
)
def test_a_mangled_segment_never_serves_garbage(
    patches: list[tuple[int, bytes]], size: int
) -> None:
    """Whatever is written over an unsynced log, recovery serves a prefix of what was appended."""
    disk = MemoryDisk()
    manager, log = new_log(disk, SETTINGS)
    for number in range(12):
        log.append(batch(2, timestamp_ms=number), leader_epoch=0)
    sync(manager)
    original = read_all(log)
    let_go(manager)
    file = disk.open_file(LOG)
    for position, data in patches:
        file.write_at(data, position)
    if size < file.size():
        file.truncate(size)
    again = open_manager(disk, SETTINGS).get_log(PARTITION)
    assert again is not None
    again.validate()
    served = read_all(again)
    if not patches:
        assert original.startswith(served)
    # Leader epoch lies outside the checksum; everything else must be as it was.
    assert len(served) <= len(original)
    for start in range(0, len(served), max(1, len(original) // 12)):
        end = start + len(original) // 12
        assert served[start : start + 12] == original[start : start + 12]
        assert served[start + 16 : end] == original[start + 16 : end]
