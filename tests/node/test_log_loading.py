"""Logs and metadata that do not agree: healed where that is safe, set aside where it is not."""

import logging
import shutil
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.storage.disk.data_directory import format_partition_metadata
from tests.broker.handlers.asker import batch_of
from tests.node.data import TOPIC, broker_on, crash, fill, names_in, records

METADATA = "metadata.sqlite3"


def forget_metadata(path: Path) -> None:
    for file in path.glob(METADATA + "*"):
        file.unlink()


# --- A topic without its log ---


def test_a_topic_whose_log_was_not_made_gets_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with broker_on(path) as asker:
        topic_id = asker.create(TOPIC, 2)
        path = crash(path)
    shutil.rmtree(path / f"{TOPIC}-1")
    with broker_on(path) as asker:
        assert asker.describe(TOPIC).topic_id == topic_id
        assert asker.produce(TOPIC, batch_of(b"first"), partition=1).base_offset == 0
    with broker_on(path) as asker:
        assert asker.list_offsets(TOPIC, {1: -1})[1].offset == 1


def test_a_log_that_went_missing_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with broker_on(tmp_path) as asker:
        fill(asker, b"gone")
    shutil.rmtree(tmp_path / f"{TOPIC}-0")
    with broker_on(tmp_path) as asker:
        assert asker.produce(TOPIC, batch_of(b"first")).base_offset == 0
    (report,) = (record for record in caplog.records if record.levelno >= logging.ERROR)
    assert f"{TOPIC}-0" in report.getMessage()
    caplog.clear()
    with broker_on(tmp_path) as asker:
        assert records(asker) == [b"first"]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


# --- A log without its topic ---


def test_a_log_of_no_topic_is_set_aside_and_never_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with broker_on(tmp_path) as asker:
        fill(asker, b"mine")
    shutil.copytree(tmp_path / f"{TOPIC}-0", tmp_path / "lost-3")
    content = (tmp_path / "lost-3" / "00000000000000000000.log").read_bytes()
    with broker_on(tmp_path) as asker:
        assert asker.describe("lost").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        (stray,) = (name for name in names_in(tmp_path) if name.startswith("lost-3"))
        assert stray.endswith("-stray")
        assert "lost-3" in caplog.text
        # The name is free.
        fill(asker, b"new", topic="lost")
        asker.delete("lost")
        assert records(asker) == [b"mine"]
    caplog.clear()
    with broker_on(tmp_path):
        assert (tmp_path / stray / "00000000000000000000.log").read_bytes() == content
        assert "lost" not in caplog.text


def test_a_log_of_a_former_topic_of_the_same_name_is_set_aside(tmp_path: Path) -> None:
    with broker_on(tmp_path) as asker:
        fill(asker, b"former")
    metadata = tmp_path / f"{TOPIC}-0" / "partition.metadata"
    metadata.write_bytes(format_partition_metadata(uuid4()))
    with broker_on(tmp_path) as asker:
        assert records(asker) == []
        assert asker.produce(TOPIC, batch_of(b"new")).base_offset == 0
    (stray,) = tmp_path.glob(f"{TOPIC}-0.*-stray")
    assert b"former" in (stray / "00000000000000000000.log").read_bytes()


def test_a_partition_that_the_topic_does_not_have_is_set_aside(tmp_path: Path) -> None:
    with broker_on(tmp_path) as asker:
        fill(asker, b"mine")
    shutil.copytree(tmp_path / f"{TOPIC}-0", tmp_path / f"{TOPIC}-7")
    with broker_on(tmp_path) as asker:
        assert len(asker.describe(TOPIC).partitions) == 1
    assert list(tmp_path.glob(f"{TOPIC}-7.*-stray"))


# --- Logs without metadata ---


def test_a_directory_without_metadata_is_adopted(tmp_path: Path) -> None:
    with broker_on(tmp_path) as asker:
        topic_id = fill(asker, b"a", b"b")
        asker.create("empty", 3)
        producer = asker.producer_id()
        batch = batch_of(b"c", producer_id=producer, sequence=0)
        assert asker.produce(TOPIC, batch).base_offset == 2
    properties = (tmp_path / "meta.properties").read_text()
    forget_metadata(tmp_path)
    with broker_on(tmp_path) as asker:
        assert asker.describe(TOPIC).topic_id == topic_id
        assert len(asker.describe("empty").partitions) == 3
        assert records(asker) == [b"a", b"b", b"c"]
        assert asker.produce(TOPIC, batch).base_offset == 2
        assert asker.producer_id() > producer
        assert (tmp_path / "meta.properties").read_text() == properties
    assert not list(tmp_path.glob("*-stray"))


def test_partitions_that_are_missing_in_between_are_made(tmp_path: Path) -> None:
    with broker_on(tmp_path) as asker:
        asker.create(TOPIC, 3)
        asker.produce(TOPIC, batch_of(b"third"), partition=2)
    forget_metadata(tmp_path)
    shutil.rmtree(tmp_path / f"{TOPIC}-1")
    with broker_on(tmp_path) as asker:
        found = asker.list_offsets(TOPIC, dict.fromkeys(range(3), -1))
        assert [found[index].offset for index in range(3)] == [0, 0, 1]


def test_logs_of_two_topics_under_one_name_are_told_apart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with broker_on(tmp_path) as asker:
        asker.create(TOPIC, 2)
    forget_metadata(tmp_path)
    metadata = tmp_path / f"{TOPIC}-1" / "partition.metadata"
    metadata.write_bytes(format_partition_metadata(uuid4()))
    with broker_on(tmp_path) as asker:
        assert asker.produce(TOPIC, batch_of(b"x"), partition=0).error_code == ErrorCode.NONE
        assert asker.produce(TOPIC, batch_of(b"x"), partition=1).error_code == ErrorCode.NONE
    assert "several topic ids" in caplog.text
    assert len(list(tmp_path.glob("*-stray"))) == 1


# --- A damaged log ---


def damage(path: Path, topic: str = TOPIC) -> bytes:
    """Cut a log below what was durable; what is left."""
    file = path / f"{topic}-0" / "00000000000000000000.log"
    left = file.read_bytes()[:-20]
    file.write_bytes(left)
    return left


def test_a_damaged_log_is_not_served_and_the_others_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with broker_on(tmp_path) as asker:
        fill(asker, b"a", b"b")
        fill(asker, b"whole", topic="other")
    left = damage(tmp_path)
    code = ErrorCode.KAFKA_STORAGE_ERROR
    for _ in range(2):
        with broker_on(tmp_path) as asker:
            assert asker.describe(TOPIC).error_code == ErrorCode.NONE
            (partition,) = asker.describe(TOPIC).partitions
            assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
            assert (partition.leader_id, partition.offline_replicas) == (-1, (1,))
            assert asker.describe("other").partitions[0].error_code == ErrorCode.NONE
            assert asker.fetch(TOPIC, 0).error_code == code
            assert asker.produce(TOPIC, batch_of(b"c")).error_code == code
            assert asker.list_offsets(TOPIC, {0: -1})[0].error_code == code
            assert records(asker, "other") == [b"whole"]
            assert asker.produce("other", batch_of(b"more")).error_code == ErrorCode.NONE
            asker.delete("other")
            fill(asker, b"whole", topic="other")
        assert any(
            f"{TOPIC}-0" in record.getMessage() and record.levelno == logging.ERROR
            for record in caplog.records
        )
        caplog.clear()
    assert (tmp_path / f"{TOPIC}-0" / "00000000000000000000.log").read_bytes() == left


def test_deleting_the_topic_of_a_damaged_log_frees_its_name(tmp_path: Path) -> None:
    with broker_on(tmp_path) as asker:
        fill(asker, b"a", b"b")
    left = damage(tmp_path)
    with broker_on(tmp_path) as asker:
        asker.delete(TOPIC)
        fill(asker, b"new")
        assert records(asker) == [b"new"]
    with broker_on(tmp_path) as asker:
        assert records(asker) == [b"new"]
    (stray,) = tmp_path.glob(f"{TOPIC}-0.*-stray")
    assert (stray / "00000000000000000000.log").read_bytes() == left
