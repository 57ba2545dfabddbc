"""All logs of a node: names, files, locks, checkpoints, deletion, stops."""

import errno
from pathlib import Path
from uuid import UUID

import pytest

from penstock.core.errors import (
    DataDirectoryLockedError,
    DiskFullError,
    LogDirectoryOfflineError,
    StorageError,
)
from penstock.core.types import TopicPartition
from penstock.storage.disk import data_directory as names
from penstock.storage.disk.checkpoint import RECOVERY_POINT_FILE, parse_offsets
from penstock.storage.disk.filesystem import DiskFileSystem
from penstock.storage.log.log_settings import LogSettings
from penstock.storage.log_manager import LogManager
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.logs import (
    PARTITION,
    SMALL,
    TOPIC_ID,
    Clock,
    batch,
    let_go,
    new_log,
    open_manager,
    read_all,
    sync,
)


def test_the_files_of_a_directory_are_kafkas() -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk)
    for _ in range(20):
        log.append(batch(), leader_epoch=0)
    sync(manager)
    manager.close()
    assert sorted(disk.list_directory("/data")) == [
        ".kafka_cleanshutdown",
        ".lock",
        "log-start-offset-checkpoint",
        "orders-0",
        "recovery-point-offset-checkpoint",
    ]
    assert disk.read_file("/data/recovery-point-offset-checkpoint") == b"0\n1\norders 0 20\n"
    assert disk.read_file("/data/orders-0/partition.metadata") == (
        b"version: 0\ntopic_id: EjRWeBI0VngSNFZ4EjRWeA"
    )
    assert disk.read_file("/data/orders-0/leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    found = disk.list_directory("/data/orders-0")
    for suffix in ("log", "index", "timeindex"):
        assert f"00000000000000000000.{suffix}" in found
    assert "00000000000000000020.snapshot" in found


def test_a_clean_stop_and_start_keep_everything() -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk)
    for number in range(50):
        log.append(batch(2, timestamp_ms=number), leader_epoch=number // 25)
    sync(manager)
    before = read_all(log)
    manager.close()
    with pytest.raises(StorageError, match="stopped"):
        log.append(batch(), leader_epoch=0)
    manager = open_manager(disk)
    again = manager.get_log(PARTITION)
    assert again is not None
    again.validate()
    assert read_all(again) == before
    assert again.topic_id == TOPIC_ID
    assert again.epochs.entries == log.epochs.entries
    assert again.append(batch(), leader_epoch=1).base_offset == 100
    assert ".kafka_cleanshutdown" not in disk.list_directory("/data")


def test_a_clean_stop_of_an_untouched_log_writes_nothing_in_it() -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk)
    log.append(batch(), leader_epoch=0)
    manager.close()
    watched = FaultyDisk(disk)
    manager = open_manager(watched)
    watched.operations.clear()
    manager.close()
    assert not [path for _, path in watched.operations if "orders-0" in path]


def test_two_processes_do_not_share_a_directory(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    manager = open_manager(DiskFileSystem(), path=path)
    with pytest.raises(DataDirectoryLockedError, match="another process"):
        open_manager(DiskFileSystem(), path=path)
    manager.close()
    open_manager(DiskFileSystem(), path=path).close()


def test_the_checkpoint_holds_what_is_synced() -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk)
    log.append(batch(3), leader_epoch=0)
    sync(manager)
    log.append(batch(2), leader_epoch=0)
    manager.checkpoint_recovery_points()
    assert parse_offsets(disk.read_file(f"/data/{RECOVERY_POINT_FILE}")) == {PARTITION: 3}


def test_a_checkpoint_without_change_writes_nothing() -> None:
    disk = FaultyDisk(MemoryDisk())
    manager, log = new_log(disk)
    log.append(batch(3), leader_epoch=0)
    sync(manager)
    manager.checkpoint_recovery_points()
    disk.operations.clear()
    manager.checkpoint_recovery_points()
    assert disk.operations == []


def test_a_deleted_log_is_gone_at_once_and_its_files_later() -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk)
    log.append(batch(), leader_epoch=0)
    manager.delete_log(PARTITION)
    assert manager.get_log(PARTITION) is None
    with pytest.raises(StorageError, match="deleted"):
        log.append(batch(), leader_epoch=0)
    assert not manager.flushers[0].directory.dirty
    assert "orders-0.0123456789abcdef-delete" in disk.list_directory("/data")
    let_go(manager)
    manager = open_manager(disk)
    assert manager.get_log(PARTITION) is None
    manager.purge_deleted()
    assert not [name for name in disk.list_directory("/data") if name.endswith("-delete")]


def test_a_name_can_be_used_again_after_a_crash() -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk)
    for _ in range(20):
        log.append(batch(), leader_epoch=0)
    sync(manager)
    manager.checkpoint_recovery_points()
    manager.delete_log(PARTITION)
    created = manager.create_log(PARTITION, UUID(int=1), SMALL)
    created.append(batch(), leader_epoch=0)
    sync(manager)
    let_go(manager)
    again = open_manager(disk).get_log(PARTITION)
    assert again is not None
    assert again.end_offset == 1
    assert again.topic_id == UUID(int=1)


def test_no_room_for_a_new_log_leaves_nothing() -> None:
    disk = FaultyDisk(MemoryDisk())
    manager = open_manager(disk)
    disk.fail_next("create", errno.ENOSPC)
    with pytest.raises(DiskFullError):
        manager.create_log(PARTITION, TOPIC_ID, SMALL)
    assert "orders-0" not in disk.list_directory("/data")
    manager.create_log(PARTITION, TOPIC_ID, SMALL)


def test_a_broken_disk_refuses_new_logs() -> None:
    disk = FaultyDisk(MemoryDisk())
    manager = open_manager(disk)
    disk.fail_next("make_directory", errno.EIO)
    for _ in range(2):
        with pytest.raises(LogDirectoryOfflineError):
            manager.create_log(PARTITION, TOPIC_ID, SMALL)


def test_logs_are_spread_over_directories_and_found_again() -> None:
    disk = MemoryDisk()
    manager = LogManager(disk, ["/a", "/b"], Clock())
    manager.start()
    for number in range(4):
        manager.create_log(TopicPartition("t", number), TOPIC_ID, SMALL)
    counts = [
        sum(name.startswith("t-") for name in disk.list_directory(path)) for path in ("/a", "/b")
    ]
    assert counts == [2, 2]
    manager.close()
    manager = LogManager(disk, ["/a", "/b"], Clock())
    manager.start()
    assert len(manager.logs) == 4


def test_the_same_partition_twice_is_reported() -> None:
    disk = MemoryDisk()
    for path in ("/a", "/b"):
        manager = LogManager(disk, [path], Clock())
        manager.start()
        manager.create_log(PARTITION, TOPIC_ID, SMALL)
        manager.close()
    manager = LogManager(disk, ["/a", "/b"], Clock())
    manager.start()
    assert ["two data directories" in problem.message for problem in manager.problems] == [True]


def test_the_start_survives() -> None:
    disk = MemoryDisk()
    manager, log = new_log(disk, LogSettings(segment_bytes=300, retention_bytes=600))
    for _ in range(20):
        log.append(batch(), leader_epoch=0)
    sync(manager)
    manager.run_retention(0)
    start = log.log_start_offset
    assert start > 0
    let_go(manager)
    again = open_manager(disk).get_log(PARTITION)
    assert again is not None
    assert (again.log_start_offset, again.end_offset) == (start, 20)


def test_a_dead_directory_gets_no_clean_marker() -> None:
    disk = FaultyDisk(MemoryDisk())
    manager, log = new_log(disk)
    log.append(batch(), leader_epoch=0)
    disk.fail_next("sync", errno.EIO)
    manager.close()
    assert ".kafka_cleanshutdown" not in disk.list_directory("/data")


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("orders-0", TopicPartition("orders", 0)),
        ("a-b-c-12", TopicPartition("a-b-c", 12)),
        ("__consumer_offsets-3", TopicPartition("__consumer_offsets", 3)),
        ("__cluster_metadata-0", None),
        ("orders-0.abc-delete", None),
        ("orders", None),
        ("-0", None),
        ("orders-x", None),
    ],
)
def test_directory_names(name: str, partition: TopicPartition | None) -> None:
    assert names.parse_log_name(name) == partition
    if partition is not None:
        assert names.log_name(partition) == name


def test_a_long_topic_can_be_deleted() -> None:
    name = names.deleted_name(TopicPartition("t" * 249, 12_345), "0" * 32)
    assert len(name) == 255
    assert name.endswith("-12345." + "0" * 32 + "-delete")


def test_properties_come_back() -> None:
    disk = MemoryDisk()
    assert names.read_properties(disk, "/") == {}
    written = {"version": "1", "cluster.id": "abc", "node.id": "1", "directory.id": "xyz"}
    names.write_properties(disk, "", written)
    assert names.parse_properties(b"#comment=1\n" + disk.read_file("/meta.properties")) == written


def test_topic_ids_are_kafkas_text() -> None:
    text = names.format_topic_id(TOPIC_ID)
    assert names.parse_topic_id(text) == TOPIC_ID
    assert names.parse_partition_metadata(b"version: 0\ntopic_id: !\n") is None
    assert names.parse_partition_metadata(b"") is None
