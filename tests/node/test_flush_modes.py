"""When records reach the disk: before the answer, later, or when the kernel likes."""

import threading

import pytest

from penstock.core.settings.config import BrokerConfig
from penstock.core.settings.tree import Settings
from penstock.protocol.error_codes import ErrorCode
from penstock.testing import Broker
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from tests.broker.handlers.asker import SECONDS_MAX, Asker, batch_of

TOPIC = "records"


class WatchedDisk(FaultyDisk):
    """Counts the syncs of data files, and signals each."""

    def __init__(self) -> None:
        super().__init__(MemoryDisk())
        self.syncs = 0
        self.has_synced = threading.Event()
        self.hook = self._note

    def _note(self, operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            self.syncs += 1
            self.has_synced.set()


def broker(disk: WatchedDisk, mode: str, interval_ms: int = 3_600_000) -> Broker:
    tree = Settings.model_validate({"flush": {"mode": mode, "interval_ms": interval_ms}})
    return Broker(BrokerConfig(port=0, storage="memory", settings=tree), filesystem=disk)


def produce(asker: Asker, count: int) -> None:
    asker.create(TOPIC)
    for number in range(count):
        answer = asker.produce(TOPIC, batch_of(b"x"))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number)
    assert asker.fetch(TOPIC, 0).high_watermark == count


def test_always_syncs_before_each_answer() -> None:
    disk = WatchedDisk()
    with broker(disk, "always") as running, Asker(running.port) as asker:
        produce(asker, 3)
        assert disk.syncs == 3


@pytest.mark.parametrize("mode", ["os", "interval"])
def test_the_others_sync_at_the_stop_at_the_latest(mode: str) -> None:
    disk = WatchedDisk()
    with broker(disk, mode) as running, Asker(running.port) as asker:
        produce(asker, 3)
        assert disk.syncs == 0
    assert disk.syncs >= 1


def test_interval_syncs_by_itself() -> None:
    disk = WatchedDisk()
    with broker(disk, "interval", interval_ms=5) as running, Asker(running.port) as asker:
        produce(asker, 1)
        assert disk.has_synced.wait(SECONDS_MAX)
