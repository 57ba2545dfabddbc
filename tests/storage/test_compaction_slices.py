"""Compaction stops inside a batch: a step is a few records, and memory does not grow with keys."""

import pytest

from penstock.core.limits import SCAN_SLICE_RECORDS
from penstock.records.batch import read_header
from penstock.records.compression import CODEC_NAMES, compress, compress_pieces, decompress
from penstock.storage.compaction.cleaner import CleaningJob
from penstock.storage.compaction.decisions import TransactionFilter, add_batch
from penstock.storage.compaction.log_cleaner import source_of, view_of
from penstock.storage.compaction.offset_map import OffsetMap
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log_manager import LogManager
from penstock.testing.memory_disk import MemoryDisk
from tests.records.steps import finished
from tests.storage.compacted import COMPACTED, all_records, clean, compacted_log, keyed, put, seal
from tests.storage.logs import open_manager

SLICES = 10
COUNT = SLICES * SCAN_SLICE_RECORDS


def large_log(codec: int = 0) -> tuple[LogManager, PartitionLog]:
    """One large batch of few keys, sealed."""
    manager = open_manager(MemoryDisk(), COMPACTED)
    log = compacted_log(manager)
    pairs = [(b"%d" % (number % 7), b"v") for number in range(COUNT)]
    put(log, *pairs, codec=codec)
    seal(manager, log)
    return manager, log


@pytest.mark.parametrize("codec", range(len(CODEC_NAMES)))
def test_a_step_is_a_slice_of_a_batch(codec: int) -> None:
    """Guards defect 10: a step was a whole batch, 1.5 s where the slice is 2 ms."""
    manager, log = large_log(codec)
    home = manager.home_of(log.topic_partition)
    view = view_of(log, home)
    job = CleaningJob(source_of(view, home), view.cleanable(10_000), 10_000)
    swaps = [step for step in job.steps() if step is not None]
    assert len(swaps) == 1
    # Three looks at the records: for keys, to decide, to copy.
    steps = sum(
        1 for _ in CleaningJob(source_of(view, home), view.cleanable(10_000), 10_000).steps()
    )
    assert steps >= 3 * SLICES


def test_a_pass_may_be_given_up_at_every_step() -> None:
    """What a stop or a change of the log does between two slices: the log stays as it was."""
    manager, log = large_log()
    home = manager.home_of(log.topic_partition)
    before = all_records(log)
    for steps_before in range(0, 3 * SLICES, 4):
        view = view_of(log, home)
        steps = CleaningJob(source_of(view, home), view.cleanable(10_000), 10_000).steps()
        for _ in range(steps_before):
            next(steps)
        steps.close()
        assert all_records(log) == before
    clean(manager, log)
    assert [record.offset for record in all_records(log)] == list(range(COUNT - 7, COUNT))


def test_the_map_stops_within_a_batch_when_it_is_full() -> None:
    """Guards the memory of a pass: one batch of a million keys went into the map as a whole."""
    made = keyed([(b"%d" % number, b"v") for number in range(COUNT)])
    header = read_header(made.buffer)
    latest = OffsetMap(3 * SCAN_SLICE_RECORDS)
    assert not finished(add_batch(latest, TransactionFilter(), header, made.buffer, 0))
    assert len(latest) == 3 * SCAN_SLICE_RECORDS
    assert latest.latest_offset == 3 * SCAN_SLICE_RECORDS - 1


def test_passes_go_on_where_the_map_was_full_within_a_batch() -> None:
    manager = open_manager(MemoryDisk(), COMPACTED)
    log = compacted_log(manager)
    keys = [b"%d" % number for number in range(3 * SCAN_SLICE_RECORDS)]
    put(log, *[(key, b"1") for key in keys])
    put(log, *[(key, b"2") for key in keys])
    seal(manager, log)
    ends: list[int] = []
    while not ends or ends[-1] < 2 * len(keys):
        ends.append(clean(manager, log, keys_max=SCAN_SLICE_RECORDS).end_offset)
        assert len(ends) < 20, "passes make progress"
    assert len(ends) > 3
    manager.home_of(log.topic_partition).cleaned_offsets.clear()
    clean(manager, log)
    assert [record.offset for record in all_records(log)] == list(range(len(keys), 2 * len(keys)))


@pytest.mark.parametrize("codec", range(len(CODEC_NAMES)))
def test_compressing_in_pieces_gives_what_unfolds_to_the_same(codec: int) -> None:
    data = b"".join(b"%d," % number for number in range(400_000))
    pieces = finished(compress_pieces(codec, data))
    assert bytes(decompress(codec, pieces, len(data))) == data
    assert len(pieces) <= len(compress(codec, data)) * 1.1 + 100
