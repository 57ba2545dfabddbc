"""Decoders of storage on any bytes: they accept, or raise the one error they declare."""

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.storage.logs import PARTITION, batch, let_go, new_log, open_manager, read_all, sync

from penstock.core.errors import CorruptBatchError, StorageError
from penstock.storage.batch_walk import find_offset, whole_batches
from penstock.storage.checkpoint import parse_offsets
from penstock.storage.data_directory import parse_partition_metadata, parse_properties
from penstock.storage.index import (
    OFFSET_ENTRY_BYTES,
    floor_by_offset,
    offsets_are_sound,
    trimmed_size,
)
from penstock.storage.leader_epochs import LeaderEpochs
from penstock.storage.log_settings import LogSettings
from penstock.storage.producer_state import ProducerStates
from penstock.testing.memory_disk import MemoryDisk

LOG = "/data/orders-0/00000000000000000000.log"
SETTINGS = LogSettings(index_interval_bytes=200, retention_ms=-1)


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_small_files(data: bytes) -> None:
    for decode in (parse_offsets, LeaderEpochs.from_bytes):
        with contextlib.suppress(StorageError):
            decode(data)
    with contextlib.suppress(StorageError):
        ProducerStates.from_bytes(data, 0)
    parse_partition_metadata(data)
    parse_properties(data)


@settings(deadline=None)
@given(st.text("0123456789 abc\n-", max_size=60))
def test_nearly_right_text(text: str) -> None:
    for decode in (parse_offsets, LeaderEpochs.from_bytes):
        with contextlib.suppress(StorageError):
            decode(text.encode())


@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(0, 2**31 - 1))
def test_indexes(data: bytes, target: int) -> None:
    whole = data[: trimmed_size(data, OFFSET_ENTRY_BYTES)]
    floor_by_offset(whole, target)
    offsets_are_sound(whole, 1_000)


@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(0, 1_000))
def test_walks(data: bytes, offset: int) -> None:
    with contextlib.suppress(CorruptBatchError):
        assert whole_batches(data, 0, len(data)).size <= len(data)
    with contextlib.suppress(CorruptBatchError):
        find_offset(data, offset)


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
