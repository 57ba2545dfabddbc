"""Records without a timestamp (-1): their segments grow old, roll and are compacted anyway."""

import pytest

from penstock.storage.log.log_settings import LogSettings
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.compacted import COMPACTED, clean, compacted_log, keyed, seal
from tests.storage.logs import PARTITION, batch, new_log, open_manager, sync


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_records_without_timestamps_grow_old(is_reloaded: bool) -> None:
    """Retention counts from the file's time, and the broker's time rolls the active segment."""
    disk = MemoryDisk()
    settings = LogSettings(segment_bytes=1_000, retention_ms=10, segment_ms=5_000)
    manager, log = new_log(disk, settings)
    for number in range(40):
        log.append(batch(timestamp_ms=-1 if number < 20 else 1_000), leader_epoch=0)
    sync(manager)
    if is_reloaded:
        manager.close()
        manager = open_manager(disk, settings)
        log = manager.logs[PARTITION]
    for name in disk.list_directory("/data/orders-0"):
        disk.set_modified_ms(f"/data/orders-0/{name}", 3_000)
    assert manager.run_retention(3_010) == 0
    assert manager.run_retention(3_011) > 0
    sync(manager)
    manager.run_retention(3_011)
    assert log.log_start_offset == log.end_offset == 40


def test_a_segment_that_begins_without_a_timestamp_rolls_by_the_brokers_time() -> None:
    manager, log = new_log(MemoryDisk(), LogSettings(segment_ms=5_000, retention_ms=-1))
    manager.run_retention(1_000)
    for _ in range(3):
        log.append(batch(timestamp_ms=-1), leader_epoch=0)
    sync(manager)
    for now_ms in (2_000, 7_000):
        manager.run_retention(now_ms)
        assert len(log.segments) == 1
    manager.run_retention(7_001)
    assert [segment.base_offset for segment in log.segments] == [0, log.end_offset]
    manager.run_retention(10**9)
    assert len(log.segments) == 2, "an empty one stays"
    log.append(batch(timestamp_ms=5_000), leader_epoch=0)
    sync(manager)
    manager.run_retention(10**9)
    manager.run_retention(10**10)
    assert len(log.segments) == 2, "record time rolls this one"


def test_compaction_keeps_the_age_of_a_segment_without_timestamps() -> None:
    """Or a log with both policies would be compacted again and again and never grow old."""
    disk = MemoryDisk()
    manager = open_manager(disk, COMPACTED)
    log = compacted_log(manager)
    for value in (b"1", b"2"):
        log.append(keyed([(b"a", value)], timestamp_ms=-1), leader_epoch=0)
    seal(manager, log)
    path = f"{log.directory}/00000000000000000000.log"
    size, modified_ms = disk.file_size(path), 123_456
    disk.set_modified_ms(path, modified_ms)
    clean(manager, log)
    assert disk.file_size(path) < size
    assert disk.modified_ms(path) == log.segments[0].modified_ms == modified_ms
