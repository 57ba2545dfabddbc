"""A full disk and short writes: a retriable error, no partial write, fetch continues, room resumes.

The whole broker runs in this process over a disk that fails on demand. Real file systems and real
clients are in `test_clients_on_full_disk`.
"""

import errno
import threading
import time
from collections.abc import Callable

import pytest

from penstock.core.settings.config import BrokerConfig
from penstock.core.settings.tree import LogCareSettings, Settings
from penstock.node import duties
from penstock.protocol.error_codes import ErrorCode
from penstock.storage import group_commit
from penstock.testing.broker import Broker
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from tests.faults.wire import FaultyRoom, Wire

OK, STORAGE_ERROR = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR
WAIT_SECONDS_MAX = 10.0
HURRIED = BrokerConfig(
    port=0,
    storage="memory",
    settings=Settings(log=LogCareSettings(checkpoint_interval_ms=5, retention_check_interval_ms=5)),
)
"""A broker whose duties are always due."""
CHECKPOINT_IN_MAKING = "recovery-point-offset-checkpoint.tmp"


def eventually(is_so: Callable[[], bool]) -> None:
    """Ask again until it is so; for what a duty of the broker does in its own time."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.002)


def test_a_batch_without_room_is_refused_and_room_resumes(disk: FaultyRoom, wire: Wire) -> None:
    assert wire.produce(b"before") == (OK, 0)
    disk.bytes_left = 40
    assert wire.produce(b"x" * 100) == (STORAGE_ERROR, -1)
    assert wire.produce(b"y" * 100) == (STORAGE_ERROR, -1)
    assert wire.fetch() == (OK, [b"before"])
    disk.bytes_left = None
    assert wire.produce(b"after") == (OK, 1)
    assert wire.fetch() == (OK, [b"before", b"after"])


def test_a_refused_batch_of_an_idempotent_producer_can_be_sent_again(
    disk: FaultyRoom, wire: Wire
) -> None:
    assert wire.produce(b"0", sequence=0) == (OK, 0)
    disk.bytes_left = 10
    assert wire.produce(b"1", sequence=1) == (STORAGE_ERROR, -1)
    disk.bytes_left = None
    assert wire.produce(b"1", sequence=1) == (OK, 1)
    assert wire.produce(b"1", sequence=1) == (OK, 1)
    assert wire.produce(b"2", sequence=2) == (OK, 2)
    assert wire.fetch() == (OK, [b"0", b"1", b"2"])


def test_what_a_refused_batch_left_behind_is_gone_after_a_restart(
    disk: FaultyRoom, wire: Wire, broker: Broker
) -> None:
    assert wire.produce(b"before") == (OK, 0)
    disk.bytes_left = 40
    assert wire.produce(b"x" * 100)[0] == STORAGE_ERROR
    disk.bytes_left = None
    wire.close()
    broker.stop()
    with Broker(filesystem=disk) as again, Wire(again.port) as connection:
        assert connection.fetch() == (OK, [b"before"])
        assert connection.produce(b"after") == (OK, 1)


def test_short_writes_are_completed(disk: FaultyRoom, wire: Wire) -> None:
    disk.write_bytes_max = 7
    values = [bytes([number]) * 50 for number in range(5)]
    for offset, value in enumerate(values):
        assert wire.produce(value) == (OK, offset)
    assert wire.fetch() == (OK, values)


def test_no_room_for_a_new_segment(disk: FaultyRoom, wire: Wire) -> None:
    assert wire.create("rolling", configs={"segment.ms": "1000"}) == OK
    assert wire.produce(b"old", topic="rolling", timestamp_ms=1) == (OK, 0)
    disk.bytes_left = 0
    assert wire.produce(b"new", topic="rolling", timestamp_ms=5_000)[0] == STORAGE_ERROR
    assert wire.fetch(topic="rolling") == (OK, [b"old"])
    disk.bytes_left = None
    assert wire.produce(b"new", topic="rolling", timestamp_ms=5_000) == (OK, 1)
    assert wire.fetch(topic="rolling") == (OK, [b"old", b"new"])


@pytest.mark.uncompiled
def test_no_room_for_the_small_files_of_a_flush(
    disk: FaultyRoom, broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch fits, the checkpoint of its leader epoch does not: the answer waits for room."""
    monkeypatch.setattr(group_commit, "FULL_RETRY_SECONDS", 0.005)
    refused = threading.Event()

    def fill(operation: str, path: str) -> None:
        if operation == "create" and "leader-epoch" in path:
            disk.bytes_left = 0
            refused.set()

    disk.hook = fill
    answers: list[tuple[ErrorCode, int]] = []
    with Wire(broker.port) as second:
        sender = threading.Thread(target=lambda: answers.append(second.produce(b"first")))
        sender.start()
        assert refused.wait(WAIT_SECONDS_MAX)
        assert wire.fetch() == (OK, [])
        assert not answers
        disk.hook = None
        disk.bytes_left = None
        sender.join()
    assert answers == [(OK, 0)]
    assert wire.fetch() == (OK, [b"first"])


@pytest.mark.uncompiled
def test_the_guard_stops_produce_before_the_disk_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duties, "SPACE_SECONDS", 0.005)
    disk = FaultyDisk(MemoryDisk())
    with Broker(filesystem=disk) as broker, Wire(broker.port) as wire:
        assert wire.create() == OK
        assert wire.produce(b"before") == (OK, 0)
        disk.bytes_left = 100_000
        eventually(lambda: wire.produce(b"while")[0] == STORAGE_ERROR)
        assert disk.bytes_left > 0, "the guard came too late"
        taken = len(wire.fetch()[1])
        disk.bytes_left = None
        eventually(lambda: wire.produce(b"after")[0] == OK)
        assert wire.fetch()[1][taken:] == [b"after"]


def test_a_full_disk_does_not_end_the_duties(disk: FaultyRoom) -> None:
    """Checkpoints and retention go wrong while there is no room, and come right afterwards."""
    refused = threading.Event()
    is_full = True

    def refuse_checkpoints(operation: str, path: str) -> None:
        # In force before the first record: a checkpoint that succeeds leaves nothing to write.
        if is_full and operation == "create" and path.endswith(CHECKPOINT_IN_MAKING):
            refused.set()
            raise OSError(errno.ENOSPC, "no room", path)

    with Broker(HURRIED, filesystem=disk) as broker, Wire(broker.port) as wire:
        disk.hook = refuse_checkpoints
        assert wire.create("short", configs={"segment.ms": "1000", "retention.bytes": "1"}) == OK
        assert wire.create() == OK
        assert wire.produce(b"1", topic="short", timestamp_ms=1) == (OK, 0)
        assert wire.produce(b"kept") == (OK, 0)
        assert wire.produce(b"2", topic="short", timestamp_ms=5_000) == (OK, 1)
        disk.bytes_left = 0
        assert refused.wait(WAIT_SECONDS_MAX)
        assert wire.fetch() == (OK, [b"kept"])
        disk.bytes_left = None
        is_full = False
        assert wire.produce(b"3", topic="short", timestamp_ms=10_000)[0] == OK
        eventually(lambda: wire.fetch(topic="short")[0] == ErrorCode.OFFSET_OUT_OF_RANGE)
        assert wire.produce(b"more") == (OK, 1)


def test_deleting_a_topic_makes_room_on_a_full_disk(disk: FaultyRoom) -> None:
    """Also one that is in the checkpoint, which cannot be written anew."""
    with Broker(HURRIED, filesystem=disk) as broker, Wire(broker.port) as wire:
        assert wire.create() == OK
        deleted_on_a_full_disk(disk, wire)


def checkpoint_of(disk: FaultyRoom) -> bytes:
    try:
        return disk.read_file("/penstock/recovery-point-offset-checkpoint")
    except FileNotFoundError:
        return b""


def deleted_on_a_full_disk(disk: FaultyRoom, wire: Wire) -> None:
    assert wire.produce(b"kept") == (OK, 0)
    assert wire.create("large") == OK
    assert wire.produce(b"x" * 1_000, topic="large") == (OK, 0)
    eventually(lambda: b"large 0 1" in checkpoint_of(disk))
    disk.bytes_left = 0
    assert wire.delete("large") == OK
    assert wire.fetch() == (OK, [b"kept"])
    disk.bytes_left = None
    assert wire.create("large") == OK
    assert wire.fetch(topic="large") == (OK, [])
    assert wire.produce(b"new", topic="large") == (OK, 0)
    assert wire.produce(b"more") == (OK, 1)


def test_a_topic_that_finds_no_room_is_refused_and_can_be_created_later(
    disk: FaultyRoom,
) -> None:
    """Nothing of it stays: neither in the metadata nor of the partitions that found room."""
    with Broker(filesystem=disk) as broker, Wire(broker.port) as wire:
        disk.bytes_left = 80
        assert wire.create("later", partitions=2) == STORAGE_ERROR
        assert wire.produce(b"x", topic="later") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        disk.bytes_left = None
        assert not [name for name in disk.list_directory("/penstock") if "later" in name]
        assert wire.create("later", partitions=2) == OK
        assert wire.produce(b"first", topic="later") == (OK, 0)
        assert wire.fetch(topic="later") == (OK, [b"first"])
        assert wire.fetch(topic="later", partition=1) == (OK, [])
