"""Compaction is Kafka's: its tool reads the logs that Penstock cleaned, and its broker serves them.

Its own cleaner keeps the same records of the same log, and it finishes a swap that Penstock began.
"""

import re
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from penstock.records.batch import read_header
from penstock.storage.compaction.cleaner import CleaningJob
from penstock.storage.compaction.log_cleaner import source_of, view_of
from penstock.storage.disk.filesystem import DiskFileSystem
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log_manager import LogManager
from tests.broker.handlers.asker import Asker
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.log_dump import Dump, check_indexes, dump_log, segment_files
from tests.oracle.running_broker import RunningBroker
from tests.storage.compacted import (
    COMPACTED,
    all_batches,
    all_records,
    append_marker,
    clean,
    compacted_log,
    put,
    put_in_transaction,
    seal,
)
from tests.storage.logs import PARTITION, open_manager

pytestmark = pytest.mark.interop

SETTINGS = replace(COMPACTED, segment_bytes=1_500, delete_retention_ms=10**12)
FOLDER = "orders-0"
NOW_MS = 1_700_000_000_000
CLEANED_SECONDS = 60.0


def write(path: Path) -> tuple[LogManager, PartitionLog]:
    """A log with all codecs, tombstones, transactions that ended both ways, and two producers."""
    manager = open_manager(DiskFileSystem(), SETTINGS, path=str(path))
    log = compacted_log(manager, SETTINGS)
    for number in range(60):
        key = b"key-%d" % (number % 9)
        value = None if number % 11 == 10 else b"value-%d-" % number + b"x" * 40
        if number % 3 == 0:
            put_in_transaction(
                log, 7, number // 3, [(key, value)], timestamp_ms=NOW_MS, codec=number % 5
            )
            append_marker(log, 7, is_commit=number % 2 == 0, timestamp_ms=NOW_MS)
        elif number % 3 == 1:
            put(log, (key, value), (b"other", b"1"), timestamp_ms=NOW_MS, codec=number % 5)
        else:
            put(log, (key, value), timestamp_ms=NOW_MS, producer_id=8, sequence=number // 3)
    seal(manager, log)
    put(log, (b"key-0", b"in the active segment"), timestamp_ms=NOW_MS)
    seal(manager, log)
    return manager, log


def dumped(folder: Path) -> Dump:
    """What the tool says; that offsets are missing is no complaint in a compacted log."""
    dump = dump_log(folder)
    real = [text for text in dump.complaints if not re.search(r"\d+ is followed by \d+", text)]
    assert real == []
    return dump


def values(log: PartitionLog) -> dict[int, tuple[str | None, str | None]]:
    return {
        seen.offset: (
            None if seen.key is None else seen.key.decode(),
            None if seen.value is None else seen.value.decode(),
        )
        for seen in all_records(log)
    }


def test_kafkas_tool_reads_what_was_cleaned(tmp_path: Path) -> None:
    manager, log = write(tmp_path / "data")
    before = len(all_batches(log))
    clean(manager, log, NOW_MS)
    clean(manager, log, NOW_MS)
    assert len(all_batches(log)) < before
    expected = values(log)
    headers = [read_header(batch) for batch in all_batches(log)]
    manager.close()
    dump = dumped(tmp_path / "data" / FOLDER)
    markers = {header.base_offset for header in headers if header.is_control}
    data = {offset: pair for offset, pair in dump.records.items() if offset not in markers}
    assert data == expected
    assert [(batch.base_offset, batch.last_offset, batch.count) for batch in dump.batches] == [
        (header.base_offset, header.last_offset, header.record_count) for header in headers
    ]
    report = check_indexes(tmp_path / "data" / FOLDER)
    assert report.complaints == []
    names = {
        file.name
        for suffix in ("index", "timeindex")
        for file in segment_files(tmp_path / "data" / FOLDER, suffix)
    }
    assert report.passed == names


def kafka_with_topic(folder: Path, **properties: str) -> RunningBroker:
    """Apache Kafka, stopped, with the topic in its metadata."""
    dotted = {name.replace("_", "."): value for name, value in properties.items()}
    broker = kafka_broker(folder, properties=dotted)
    with broker, Asker(broker.port, is_kafka=True) as asker:
        asker.create(
            "orders",
            configs={
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0.0001",
                "delete.retention.ms": str(SETTINGS.delete_retention_ms),
            },
        )
    return broker


def give(broker: RunningBroker, log_folder: Path) -> None:
    """Put a log of Penstock in the place of the topic's."""
    target = broker.data_dir / FOLDER
    metadata = (target / "partition.metadata").read_bytes()
    shutil.rmtree(target)
    shutil.copytree(log_folder, target)
    (target / "partition.metadata").write_bytes(metadata)


def consumed(bootstrap: str, end: int) -> dict[int, tuple[str | None, str | None]]:
    """All committed records below `end`, as a consumer gets them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "compacted",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
    found: dict[int, tuple[str | None, str | None]] = {}
    deadline = time.monotonic() + CLEANED_SECONDS
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                break
            key, value, offset = message.key(), message.value(), message.offset()
            assert offset is not None
            found[offset] = (
                None if key is None else bytes(key).decode(),
                None if value is None else bytes(value).decode(),
            )
        (position,) = consumer.position([TopicPartition("orders", 0)])
        assert position.offset == end
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_kafka_serves_what_was_cleaned(tmp_path: Path, is_interrupted: bool) -> None:
    manager, log = write(tmp_path / "data")
    copy = tmp_path / "copy"
    if is_interrupted:
        # The first group is decided and not named yet: Kafka is to finish it.
        home = manager.home_of(PARTITION)
        view = view_of(log, home)
        job = CleaningJob(source_of(view, home), view.cleanable(NOW_MS), NOW_MS)
        swap = next(outcome for outcome in job.steps() if outcome is not None)
        swap.decide()
        shutil.copytree(tmp_path / "data" / FOLDER, copy)
        assert list(copy.glob("*.log.swap"))
        swap.exchange(log)
        swap.finish()
        expected = values(log)
    else:
        clean(manager, log, NOW_MS)
        expected = values(log)
        shutil.copytree(tmp_path / "data" / FOLDER, copy)
    end = log.end_offset
    manager.close()
    broker = kafka_with_topic(tmp_path / "kafka", log_cleaner_backoff_ms="600000")
    give(broker, copy)
    with broker:
        assert consumed(broker.bootstrap, end) == expected
    assert not list((broker.data_dir / FOLDER).glob("*.swap"))


def test_kafkas_cleaner_keeps_the_same_records(tmp_path: Path) -> None:
    manager, log = write(tmp_path / "data")
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "data" / FOLDER, copy)
    clean(manager, log, NOW_MS)
    expected, end = values(log), log.end_offset
    ours = [read_header(batch) for batch in all_batches(log)]
    manager.close()
    broker = kafka_with_topic(
        tmp_path / "kafka", log_cleaner_backoff_ms="200", log_initial_task_delay_ms="200"
    )
    give(broker, copy)
    checkpoint = broker.data_dir / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + CLEANED_SECONDS
    with broker:
        while f"orders 0 {end}" not in checkpoint.read_text():
            assert time.monotonic() < deadline, checkpoint.read_text()
            time.sleep(0.2)
        assert consumed(broker.bootstrap, end) == expected
    theirs = dumped(broker.data_dir / FOLDER).batches
    # Penstock keeps the last header of each new segment, and has more segments here.
    assert {
        (header.base_offset, header.last_offset, header.record_count)
        for header in ours
        if header.record_count
    } == {(batch.base_offset, batch.last_offset, batch.count) for batch in theirs if batch.count}
    empty = {header.base_offset for header in ours if not header.record_count}
    assert {batch.base_offset for batch in theirs if not batch.count} <= empty
