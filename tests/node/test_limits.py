"""Limits of the machine: descriptors are divided, and a topic without room is rejected."""

import errno
import logging
import resource
import shutil
import time
from pathlib import Path

import pytest

from penstock.core.limits import CONNECTIONS_MAX_DEFAULT, DESCRIPTORS_RESERVED, FILES_OPEN_MAX
from penstock.core.settings.config import BrokerConfig
from penstock.node.administration import topic_administration
from penstock.node.descriptors import Shares, claim_descriptors, share
from penstock.protocol.error_codes import ErrorCode
from penstock.storage.disk.filesystem import DiskFileSystem
from penstock.testing import Broker
from penstock.testing.faulty_disk import FaultyDisk
from tests.broker.handlers.asker import Asker, batch_of
from tests.node.data import TOPIC, broker_on, fill, records

ENOUGH = DESCRIPTORS_RESERVED + FILES_OPEN_MAX + CONNECTIONS_MAX_DEFAULT
WAIT_SECONDS_MAX = 10.0


class Process:
    """The limits of a process that the test makes up."""

    def __init__(self, soft: int, hard: int) -> None:
        self.limits = (soft, hard)
        self.is_stubborn = False

    def getrlimit(self, kind: int) -> tuple[int, int]:
        assert kind == resource.RLIMIT_NOFILE
        return self.limits

    def setrlimit(self, kind: int, limits: tuple[int, int]) -> None:
        assert kind == resource.RLIMIT_NOFILE
        if self.is_stubborn:
            raise ValueError("not allowed")
        self.limits = limits

    def adopt(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(resource, "getrlimit", self.getrlimit)
        monkeypatch.setattr(resource, "setrlimit", self.setrlimit)


# --- Descriptors ---


def test_a_limit_that_is_enough_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for soft, hard in ((ENOUGH, ENOUGH), (resource.RLIM_INFINITY, resource.RLIM_INFINITY)):
        process = Process(soft, hard)
        process.adopt(monkeypatch)
        shares = claim_descriptors(CONNECTIONS_MAX_DEFAULT)
        assert shares == Shares(FILES_OPEN_MAX, CONNECTIONS_MAX_DEFAULT)
        assert process.limits == (soft, hard)
    assert not caplog.records


@pytest.mark.parametrize("hard", [ENOUGH, 1_048_576, resource.RLIM_INFINITY])
def test_the_soft_limit_is_raised_to_what_is_needed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, hard: int
) -> None:
    process = Process(1_024, hard)
    process.adopt(monkeypatch)
    assert claim_descriptors(CONNECTIONS_MAX_DEFAULT).connections == CONNECTIONS_MAX_DEFAULT
    assert process.limits == (ENOUGH, hard)
    assert not caplog.records


@pytest.mark.parametrize("is_stubborn", [False, True])
def test_a_limit_that_is_too_low_is_shared_and_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_stubborn: bool
) -> None:
    process = Process(1_024, 4_096)
    process.is_stubborn = is_stubborn
    process.adopt(monkeypatch)
    limit = 1_024 if is_stubborn else 4_096
    shares = claim_descriptors(CONNECTIONS_MAX_DEFAULT)
    assert sum(shares) + DESCRIPTORS_RESERVED == limit == process.limits[0]
    (warning,) = caplog.records
    assert warning.levelno == logging.WARNING
    assert f"ulimit -n {ENOUGH}" in warning.getMessage()


@pytest.mark.parametrize("limit", [0, 64, 256, 300, 1_024, 4_096, ENOUGH - 1, ENOUGH, 10**6])
@pytest.mark.parametrize("connections_max", [1, 100, CONNECTIONS_MAX_DEFAULT])
def test_shares_never_exceed_the_limit_nor_what_is_wanted(limit: int, connections_max: int) -> None:
    shares = share(limit, connections_max, FILES_OPEN_MAX)
    assert 0 < shares.connections <= connections_max
    assert 0 < shares.files <= FILES_OPEN_MAX
    if limit >= 300:
        assert sum(shares) + DESCRIPTORS_RESERVED <= limit
    if limit >= DESCRIPTORS_RESERVED + FILES_OPEN_MAX + connections_max:
        assert shares == (FILES_OPEN_MAX, connections_max)


def test_a_broker_takes_as_many_connections_as_it_can_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Process(DESCRIPTORS_RESERVED, DESCRIPTORS_RESERVED).adopt(monkeypatch)
    with Broker() as broker:
        askers = [Asker(broker.port) for _ in range(17)]
        for asker in askers[:16]:
            assert asker.describe(TOPIC).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert askers[16].is_closed()
        for asker in askers:
            asker.close()


# --- Room for logs ---


def test_a_missing_log_that_finds_no_room_is_made_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_administration, "ROOM_SECONDS", 0.005)
    with broker_on(tmp_path) as asker:
        fill(asker)
    shutil.rmtree(tmp_path / f"{TOPIC}-0")
    disk = FaultyDisk(DiskFileSystem())

    def refuse(operation: str, path: str) -> None:
        if operation == "make_directory" and TOPIC in path:
            raise OSError(errno.ENOSPC, "no room", path)

    disk.hook = refuse
    config = BrokerConfig(port=0, data_dir=tmp_path)
    with Broker(config, filesystem=disk) as broker, Asker(broker.port) as asker:
        code = ErrorCode.KAFKA_STORAGE_ERROR
        assert asker.produce(TOPIC, batch_of(b"x")).error_code == code
        (partition,) = asker.describe(TOPIC).partitions
        assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        disk.hook = None
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while asker.produce(TOPIC, batch_of(b"x")).error_code == code:
            assert time.monotonic() < deadline
        assert asker.describe(TOPIC).partitions[0].error_code == ErrorCode.NONE
        assert records(asker) == [b"x"]


def test_a_topic_that_cannot_be_undone_on_the_disk_is_gone_all_the_same(tmp_path: Path) -> None:
    """Its first log is made, the second finds a dead disk, and so does taking the first back."""
    disk = FaultyDisk(DiskFileSystem())

    def break_down(operation: str, path: str) -> None:
        if path.endswith(f"{TOPIC}-1") or operation in ("rename", "sync_directory"):
            raise OSError(errno.EIO, "dead", path)

    config = BrokerConfig(port=0, data_dir=tmp_path)
    with Broker(config, filesystem=disk) as broker, Asker(broker.port) as asker:
        disk.hook = break_down
        with pytest.raises(AssertionError, match="KAFKA_STORAGE_ERROR"):
            asker.create(TOPIC, 2)
        assert asker.describe(TOPIC).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        disk.hook = None
    with broker_on(tmp_path) as asker:
        fill(asker, b"new")
        assert records(asker) == [b"new"]
