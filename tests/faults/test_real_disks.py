"""The same faults on real file systems under a real broker process (marker `crash`).

A tmpfs of a few megabytes that another file fills, and an ext4 that the kernel shuts down, so that
every sync fails with EIO. Six real clients must wait out the full disk by their own retries: they
all retry their error, KAFKA_STORAGE_ERROR. It needs root; where a file system cannot be mounted
that is an error, never a skip.
"""

import errno
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.protocol.error_codes import ErrorCode
from tests.crash.loop_disk import LoopDisk
from tests.faults.wire import Wire
from tests.interop.client_drivers import CLIENTS, DriverError, DriverProcess
from tests.interop.driver_protocol import Fetch, Produce, Record
from tests.oracle.cache import OracleError, run, tool
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

OK, STORAGE_ERROR = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR
SMALL_DISK = "16m"
FULL_SECONDS = 1.5
"""Longer than the first retries of every client."""
IMPATIENT = "kafkajs"
"""Its driver is set to three retries within half a second; it must be told the error by then."""
RESUME_SECONDS_MAX = 30.0
LARGE = b"x" * 10_000
"""More than the rest of a page that a file has already."""
MIB = b"y" * 1_000_000


class SmallDisk:
    """A tmpfs, and another file that fills it to the last byte."""

    def __init__(self, path: Path) -> None:
        if os.geteuid() != 0:
            raise OracleError("mounting a tmpfs needs root: run this test as root")
        self.path = path
        path.mkdir()
        run(
            [
                tool("mount", "install util-linux"),
                "-t",
                "tmpfs",
                "-o",
                f"size={SMALL_DISK}",
                "x",
                path,
            ]
        )

    def fill(self) -> None:
        with (self.path / "filler").open("wb", buffering=0) as filler:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        filler.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        (self.path / "filler").unlink()

    def close(self) -> None:
        run([tool("umount", "install util-linux"), self.path])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    made = SmallDisk(tmp_path / "small")
    yield made
    made.close()


@pytest.fixture
def broker(small_disk: SmallDisk, tmp_path: Path) -> Iterator[RunningBroker]:
    """Without the guard: the disk itself must say that it is full."""
    data_dir, environment = small_disk.path / "data", {"PENSTOCK_DISK__FREE_BYTES_MIN": "0"}
    made = penstock_broker(tmp_path / "broker", data_dir=data_dir, environment=environment)
    with made as running:
        yield running


@pytest.fixture
def drivers(broker: RunningBroker) -> Iterator[dict[str, DriverProcess]]:
    made = {client: DriverProcess(client, broker.bootstrap) for client in CLIENTS}
    yield made
    for driver in made.values():
        driver.close()


def test_deleting_a_topic_frees_a_full_disk(small_disk: SmallDisk, broker: RunningBroker) -> None:
    """A thread kept the deleted file open: produce was refused until a restart (6 of 6 runs)."""
    with Wire(broker.port) as wire:
        assert wire.create("big") == OK
        while wire.produce(MIB, topic="big")[0] == OK:
            pass
        assert os.statvfs(small_disk.path).f_bavail < 1_024
        assert wire.delete("big") == OK
        deadline = time.monotonic() + RESUME_SECONDS_MAX
        while os.statvfs(small_disk.path).f_bavail * 4_096 < 8 * len(MIB):
            assert time.monotonic() < deadline, "the room of the deleted topic never came back"
            time.sleep(0.05)
        assert wire.create("next") == OK
        assert wire.produce(MIB, topic="next") == (OK, 0)


def one(client: str, value: bytes) -> Produce:
    """One idempotent record to the client's own topic."""
    return Produce(client, (Record(0, value),), idempotence=True)


def test_every_client_waits_out_a_full_disk(
    small_disk: SmallDisk, broker: RunningBroker, drivers: dict[str, DriverProcess]
) -> None:
    for client, driver in drivers.items():
        driver.create_topic(client, 1)
        assert driver.produce(one(client, b"before")) == [(0, 0)]
    small_disk.fill()
    with Wire(broker.port) as wire:
        assert wire.produce(LARGE, topic=CLIENTS[0])[0] == STORAGE_ERROR
        assert wire.fetch(topic=CLIENTS[0]) == (OK, [b"before"])
        assert wire.create("late") != OK
    with pytest.raises(DriverError) as told:
        drivers[IMPATIENT].produce(one(IMPATIENT, LARGE))
    assert told.value.error.code == STORAGE_ERROR
    patient = [client for client in CLIENTS if client != IMPATIENT]
    with ThreadPoolExecutor(len(patient)) as pool:
        sent = {
            client: pool.submit(drivers[client].produce, one(client, LARGE)) for client in patient
        }
        try:
            time.sleep(FULL_SECONDS)
            assert [client for client in patient if sent[client].done()] == []
        finally:
            small_disk.free()
        for client in patient:
            assert sent[client].result(RESUME_SECONDS_MAX) == [(0, 1)], client
    assert drivers[IMPATIENT].produce(one(IMPATIENT, LARGE)) == [(0, 1)]
    for client, driver in drivers.items():
        found = driver.fetch(Fetch(client, 0, "earliest", 2))
        assert [record.value for record in found] == [b"before", LARGE], client
    with Wire(broker.port) as wire:
        assert wire.create("late") == OK
        assert wire.produce(b"first", topic="late") == (OK, 0)
    assert broker.is_running()


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
def test_a_start_without_any_room_says_what_to_do(
    small_disk: SmallDisk, broker: RunningBroker, is_killed: bool
) -> None:
    with Wire(broker.port) as wire:
        assert wire.create() == OK
        assert wire.produce(b"before") == (OK, 0)
    small_disk.fill()
    if is_killed:
        broker.kill()
    else:
        broker.stop()
    with pytest.raises(OracleError, match="Make room"):
        broker.start()
    small_disk.free()
    broker.start()
    with Wire(broker.port) as wire:
        assert wire.fetch() == (OK, [b"before"])
        assert wire.produce(b"after") == (OK, 1)


def test_a_disk_that_dies_under_a_broker(tmp_path: Path) -> None:
    disk = LoopDisk(tmp_path)
    broker = penstock_broker(tmp_path / "broker", data_dir=disk.path / "data")
    try:
        with broker, Wire(broker.port) as wire:
            assert wire.create() == OK
            assert wire.produce(b"before") == (OK, 0)
            disk.cut()
            assert wire.produce(b"after")[0] == STORAGE_ERROR
            assert wire.produce(b"after")[0] == STORAGE_ERROR
            # This kernel answers reads of a file system that was shut down with EIO as well.
            assert wire.fetch()[0] in (OK, STORAGE_ERROR)
            assert broker.is_running()
            assert "offline until a restart" in broker.log_text()
            broker.kill()
            disk.restore()
            broker.start()
            with Wire(broker.port) as again:
                assert again.fetch() == (OK, [b"before"])
                assert again.produce(b"resumed") == (OK, 1)
    finally:
        disk.close()
