"""Compaction of one log: kept and removed records, and the view of a reader."""

from dataclasses import replace

import pytest

from penstock.records.batch import read_header
from penstock.records.builder import LOG_APPEND_TIME
from penstock.storage.compaction.decisions import cleanable_range
from penstock.storage.disk.checkpoint import CLEANER_FILE, parse_offsets
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log_manager import LogManager
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.compacted import (
    COMPACTED,
    Seen,
    all_batches,
    all_records,
    append_marker,
    clean,
    compacted_log,
    keyed,
    put,
    put_in_transaction,
    seal,
)
from tests.storage.logs import PARTITION, let_go, open_manager

LATER_MS = 1_000_000


def fresh() -> tuple[LogManager, PartitionLog]:
    manager = open_manager(MemoryDisk(), COMPACTED)
    return manager, compacted_log(manager)


def values(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(seen.offset, seen.key, seen.value) for seen in all_records(log)]


def test_the_last_record_of_each_key_stays_with_its_offset() -> None:
    manager, log = fresh()
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", b"2"))
    put(log, (b"c", b"1"), (b"b", b"2"), (b"a", b"3"))
    seal(manager, log)
    clean(manager, log)
    assert values(log) == [(3, b"c", b"1"), (4, b"b", b"2"), (5, b"a", b"3")]
    assert log.end_offset == 6


def test_a_record_without_a_key_goes() -> None:
    manager, log = fresh()
    put(log, (None, b"1"), (b"a", b"1"))
    seal(manager, log)
    clean(manager, log)
    assert values(log) == [(1, b"a", b"1")]


def test_the_active_segment_stays_as_it_is() -> None:
    manager, log = fresh()
    put(log, (b"a", b"1"))
    seal(manager, log)
    put(log, (b"a", b"2"), (b"a", b"3"))
    clean(manager, log)
    assert values(log) == [(0, b"a", b"1"), (1, b"a", b"2"), (2, b"a", b"3")]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_batches_keep_their_codec_offsets_and_producers(codec: int) -> None:
    manager, log = fresh()
    pairs: list[tuple[bytes | None, bytes | None]] = [(b"a", b"x" * 40), (b"b", b"y"), (b"c", b"z")]
    log.append(keyed(pairs, codec=codec, producer_id=7, sequence=0), leader_epoch=3)
    put(log, (b"a", b"2"), (b"c", b"2"))
    seal(manager, log)
    clean(manager, log)
    header = read_header(all_batches(log)[0])
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (0, 2, 1)
    assert (header.codec, header.leader_epoch) == (codec, 3)
    assert (header.producer_id, header.base_sequence, header.last_sequence) == (7, 0, 2)
    assert header.max_timestamp_ms == 1_001
    assert values(log)[0] == (1, b"b", b"y")


def test_a_batch_that_loses_nothing_keeps_its_bytes() -> None:
    manager, log = fresh()
    put(log, (b"a", b"1"), codec=2)
    before = all_batches(log)
    seal(manager, log)
    clean(manager, log)
    assert all_batches(log) == before


def test_timestamps_stay_what_they_were() -> None:
    manager, log = fresh()
    put(log, (b"a", b"1"), (b"b", None), (b"c", b"1"), timestamp_ms=5_000)
    put(log, (b"a", b"2"), timestamp_ms=6_000, timestamp_type=LOG_APPEND_TIME)
    seal(manager, log)
    clean(manager, log)
    times = [seen.timestamp_ms for seen in all_records(log)]
    assert times == [5_001, 5_002, 6_000]


def test_a_tombstone_stays_until_its_horizon() -> None:
    manager, log = fresh()
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", None))
    put(log, (b"z", b"1"))
    seal(manager, log)
    clean(manager, log, now_ms=10_000)
    assert values(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"z", b"1")]
    header = read_header(all_batches(log)[1])
    assert header.has_delete_horizon
    assert header.base_timestamp_ms == 10_000 + COMPACTED.delete_retention_ms
    for now_ms, count in ((10_999, 3), (11_000, 2)):
        put(log, (b"z", b"2"))
        seal(manager, log)
        clean(manager, log, now_ms=now_ms)
        assert len(all_records(log)) == count
    assert values(log) == [(1, b"b", b"1"), (5, b"z", b"2")]


def test_the_horizon_is_set_once() -> None:
    manager, log = fresh()
    put(log, (b"a", None), (b"b", b"1"))
    put(log, (b"z", b"1"))
    for now_ms in (10_000, 10_500, 10_900):
        put(log, (b"c", str(now_ms).encode()))
        seal(manager, log)
        clean(manager, log, now_ms=now_ms)
        assert read_header(all_batches(log)[0]).base_timestamp_ms == 11_000


def test_the_last_batch_of_a_producer_stays_empty() -> None:
    manager, log = fresh()
    log.append(keyed([(b"a", b"1"), (b"b", b"1")], producer_id=7, sequence=0), leader_epoch=0)
    log.append(keyed([(b"a", b"2"), (b"b", b"2")], producer_id=7, sequence=2), leader_epoch=0)
    put(log, (b"a", b"3"), (b"b", b"3"))
    seal(manager, log)
    clean(manager, log)
    headers = [read_header(batch) for batch in all_batches(log)]
    assert [(header.base_offset, header.record_count) for header in headers] == [(2, 0), (4, 2)]
    assert (headers[0].last_offset, headers[0].last_sequence) == (3, 3)
    let_go(manager)
    again = log.append(
        keyed([(b"a", b"2"), (b"b", b"2")], producer_id=7, sequence=2), leader_epoch=0
    )
    assert again.is_duplicate


def test_a_producer_is_known_again_from_what_was_left() -> None:
    disk = MemoryDisk()
    manager = open_manager(disk, COMPACTED)
    log = compacted_log(manager)
    log.append(keyed([(b"a", b"1"), (b"b", b"1")], producer_id=7, sequence=0), leader_epoch=0)
    put(log, (b"a", b"3"), (b"b", b"3"))
    seal(manager, log)
    clean(manager, log)
    manager.close()
    for name in disk.list_directory("/data/orders-0"):
        if name.endswith(".snapshot"):
            disk.remove_file(f"/data/orders-0/{name}")
    loaded = open_manager(disk, COMPACTED).get_log(PARTITION)
    assert loaded is not None
    assert loaded.producers.summary() == {7: (0, 1, 1)}


def test_aborted_records_go_and_committed_ones_stay() -> None:
    manager, log = fresh()
    put(log, (b"a", b"1"), (b"b", b"1"))
    put_in_transaction(log, 7, 0, [(b"a", b"aborted"), (b"b", None)])
    append_marker(log, 7, is_commit=False)
    put_in_transaction(log, 8, 0, [(b"b", b"committed")])
    append_marker(log, 8, is_commit=True)
    put(log, (b"z", b"1"))
    seal(manager, log)
    clean(manager, log)
    assert values(log) == [(0, b"a", b"1"), (5, b"b", b"committed"), (7, b"z", b"1")]


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_goes_when_nothing_is_left_and_its_horizon_is_past(is_commit: bool) -> None:
    manager, log = fresh()
    put_in_transaction(log, 7, 0, [(b"a", b"1")])
    append_marker(log, 7, is_commit=is_commit)
    # The producer is forgotten, so that its last batch is not kept for its sequence.
    log.producers.expire(0, 1)
    log.producers.expire(2**40, 1)
    found = []
    for now_ms in (10_000, 20_000, 20_999, 21_000):
        put(log, (b"a", b"2"))
        seal(manager, log)
        clean(manager, log, now_ms=now_ms)
        header = read_header(all_batches(log)[0])
        found.append((header.base_offset, header.is_control, header.has_delete_horizon))
    assert found == [
        (1, True, False),
        (1, True, True),
        (1, True, True),
        (5, False, False),
    ], "the pass that drops the records keeps the marker, the next one sets its horizon"


def test_the_transaction_index_follows_what_is_left() -> None:
    manager, log = fresh()
    put_in_transaction(log, 7, 0, [(b"a", b"1")])
    append_marker(log, 7, is_commit=False)
    put_in_transaction(log, 9, 0, [(b"b", b"1")])
    append_marker(log, 9, is_commit=False)
    del log.producers.entries[7]
    for _ in range(2):
        put(log, (b"z", b"1"))
        seal(manager, log)
        clean(manager, log)
    left = [read_header(batch) for batch in all_batches(log)]
    assert [(header.base_offset, header.record_count) for header in left] == [
        (1, 1),
        (2, 0),
        (3, 1),
        (5, 1),
    ]
    aborted = log.aborted_transactions(0, log.end_offset, nowait=False)
    assert [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in aborted] == [
        (9, 2, 3)
    ]


def test_nothing_at_or_above_an_open_transaction_is_cleaned() -> None:
    manager, log = fresh()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    seal(manager, log)
    put_in_transaction(log, 7, 0, [(b"a", b"3")])
    seal(manager, log)
    put(log, (b"a", b"4"))
    seal(manager, log)
    clean(manager, log)
    assert [offset for offset, _, _ in values(log)][:2] == [1, 2]
    append_marker(log, 7, is_commit=True)
    seal(manager, log)
    clean(manager, log)
    assert [offset for offset, _, value in values(log) if value] == [3]


def test_a_full_map_takes_several_passes() -> None:
    manager, log = fresh()
    for number in range(12):
        put(log, (b"k%d" % (number % 6), b"%d" % number), (b"other", b"%d" % number))
    seal(manager, log)
    passes = 0
    while manager.home_of(PARTITION).cleaned_offsets.get(PARTITION, 0) < 24:
        clean(manager, log, keys_max=3)
        passes += 1
    assert passes > 2
    assert [seen.value for seen in all_records(log) if seen.key != b"other"] == [
        b"%d" % number for number in range(6, 12)
    ]
    assert [seen.offset for seen in all_records(log) if seen.key == b"other"] == [23]


def test_small_segments_become_one_and_the_indexes_lead_to_every_batch() -> None:
    manager = open_manager(MemoryDisk(), COMPACTED)
    log = compacted_log(manager, replace(COMPACTED, segment_bytes=3_000))
    for number in range(40):
        put(log, (b"k%d" % (number % 20), b"x" * 30), timestamp_ms=1_000 + number)
        if number % 3 == 2:
            log.roll()
    seal(manager, log)
    before = len(log.segments)
    clean(manager, log)
    assert len(log.segments) < before / 2
    for offset in range(log.end_offset):
        answer = log.read(offset, 1, offset_limit=40, at_least_one=True, nowait=True)
        assert answer.first_offset == max(offset, 20)
    found = log.offset_for_timestamp(1_025)
    assert found is not None
    assert (found.timestamp_ms, found.offset) == (1_025, 25)
    latest = log.max_timestamp()
    assert latest is not None
    assert latest.offset == 39


def test_the_cleaned_offset_is_checkpointed_as_kafka_does() -> None:
    disk = MemoryDisk()
    manager = open_manager(disk, COMPACTED)
    log = compacted_log(manager)
    put(log, (b"a", b"1"), (b"a", b"2"))
    seal(manager, log)
    clean(manager, log)
    data = disk.read_file(f"/data/{CLEANER_FILE}")
    assert data == b"0\n1\norders 0 2\n"
    manager.delete_log(PARTITION)
    assert parse_offsets(disk.read_file(f"/data/{CLEANER_FILE}")) == {}


def test_a_log_that_was_compacted_once_may_have_gaps_for_ever() -> None:
    disk = MemoryDisk()
    manager = open_manager(disk, COMPACTED)
    log = compacted_log(manager)
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    put(log, (b"a", b"3"))
    seal(manager, log)
    clean(manager, log)
    let_go(manager)
    plain = open_manager(disk)
    assert plain.problems == []
    loaded = plain.get_log(PARTITION)
    assert loaded is not None
    assert values(loaded) == [(2, b"a", b"3")]


def test_cleaning_twice_is_cleaning_once() -> None:
    manager, log = fresh()
    for number in range(30):
        put(log, (b"k%d" % (number % 7), b"%d" % number))
    seal(manager, log)
    clean(manager, log)
    found = []
    for _ in range(4):
        found.append((all_records(log), all_batches(log)))
        manager.home_of(PARTITION).cleaned_offsets[PARTITION] = 0
        clean(manager, log)
    assert [records for records, _ in found[1:]] == [found[0][0]] * 3
    # The last batch of its segment may not be the last any more when segments are joined.
    assert found[-1][1] == found[-2][1]
    assert len(found[-1][1]) <= len(found[0][1])


class Plain:
    """A segment for the choice of segments to clean."""

    def __init__(self, base_offset: int, size: int, max_timestamp_ms: int) -> None:
        self.base_offset = base_offset
        self.size = size
        self.max_timestamp_ms = max_timestamp_ms
        self.modified_ms = 0
        self.index_bytes = 0


def chosen(
    *, cleaned: int | None = None, limit: int = 400, lag_min: int = 0, lag_max: int = 2**63 - 1
) -> tuple[int, int, int, int, bool]:
    segments = [Plain(base, 10, base * 10) for base in (0, 100, 200, 300, 400)]
    found = cleanable_range(
        segments,
        cleaned_offset=cleaned,
        log_start_offset=0,
        end_offset=450,
        offset_limit=limit,
        lag_ms_min=lag_min,
        lag_ms_max=lag_max,
        now_ms=5_000,
        first_timestamp_ms=lambda number: segments[number].max_timestamp_ms,
    )
    return (
        found.first_dirty_offset,
        found.first_uncleanable_offset,
        found.clean_bytes,
        found.dirty_bytes,
        found.is_overdue,
    )


def test_what_may_be_cleaned() -> None:
    assert chosen() == (0, 400, 0, 40, False)
    assert chosen(cleaned=200) == (200, 400, 20, 20, False)
    assert chosen(cleaned=400) == (400, 400, 40, 0, False)
    assert chosen(limit=250) == (0, 200, 0, 20, False), "only whole segments"
    assert chosen(cleaned=300, limit=250) == (300, 300, 30, 0, False)
    assert chosen(cleaned=9_999) == (0, 400, 0, 40, False), "a checkpoint ahead of the log"
    assert chosen(lag_min=2_500) == (0, 300, 0, 30, False)
    assert chosen(lag_min=4_500) == (0, 100, 0, 10, False)
    assert chosen(lag_max=3_500) == (0, 400, 0, 40, True)
    assert chosen(lag_max=4_500) == (0, 400, 0, 40, False), "a time of 0 is no time"
    assert chosen(cleaned=200, lag_max=3_500) == (200, 400, 20, 20, False)


def test_seen_is_what_a_reader_gets() -> None:
    manager, log = fresh()
    put(log, (b"a", b"1"), timestamp_ms=77)
    seal(manager, log)
    assert all_records(log) == [Seen(0, b"a", b"1", 77)]
