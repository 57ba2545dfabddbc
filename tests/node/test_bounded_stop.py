"""A stop ends within five seconds whatever the broker is doing: a hanging disk simulates the work.

Each test makes one kind of work hang on a worker thread, as a scan of a huge batch or a dead disk
would, and stops the broker meanwhile. `tests/hostile` does the same with real floods.
"""

import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from penstock.core import stopping
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.testing import Broker
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from tests.broker.handlers.asker import NAMED, Asker, batch_of, fetch_request, produce_request

STOP_SECONDS_MAX = 5.0
SECONDS_MAX = 20.0


class HangingDisk:
    """A disk that stops to answer some operations of some threads."""

    def __init__(self) -> None:
        self.disk = FaultyDisk(MemoryDisk())
        self.may_go_on = threading.Event()
        self.hangs = threading.Event()

    def hang(self, operation: str, threads: str) -> None:
        """Let this operation hang on worker threads of a class."""

        def hook(name: str, _path: str) -> None:
            if name == operation and threading.current_thread().name.startswith(threads):
                self.hangs.set()
                self.may_go_on.wait(SECONDS_MAX)

        self.disk.hook = hook


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingDisk]:
    # The proportions stay; a test need not wait for seconds.
    monkeypatch.setattr("penstock.broker.connections.server.STOP_DRAIN_SECONDS_MAX", 0.2)
    monkeypatch.setattr("penstock.storage.service.WORK_STOP_SECONDS_MAX", 0.1)
    monkeypatch.setattr(
        "penstock.node.wiring.StopDeadline", partial(stopping.StopDeadline, seconds=0.5)
    )
    disk = HangingDisk()
    yield disk
    disk.may_go_on.set()


def test_the_bounds_add_up_to_a_stop_within_five_seconds() -> None:
    """Guards the promise of docs/behaviour.md: time is left for checkpoints and the exit."""
    total = stopping.STOP_DRAIN_SECONDS_MAX + stopping.WORK_STOP_SECONDS_MAX
    assert total <= stopping.STOP_CLOSE_SECONDS
    assert stopping.STOP_CLOSE_SECONDS < stopping.STOP_EXIT_SECONDS < stopping.STOP_SECONDS_MAX
    assert stopping.STOP_SECONDS_MAX == STOP_SECONDS_MAX


def stop_quickly(broker: Broker, hanging: HangingDisk) -> None:
    """Stop while something hangs; the test's own bounds are 0.3 s."""
    assert hanging.hangs.wait(SECONDS_MAX), "nothing hangs"
    begun = time.monotonic()
    broker.stop()
    assert time.monotonic() - begun < STOP_SECONDS_MAX


def filled(disk: FaultyDisk) -> Broker:
    """A broker with a few batches in topic `t`."""
    broker = Broker(filesystem=disk)
    broker.start()
    with Asker(broker.port) as asker:
        asker.create("t", 1)
        for _ in range(3):
            asker.produce("t", batch_of(b"a", b"b"))
    return broker


def test_a_stop_does_not_wait_for_a_read_that_hangs(hanging: HangingDisk) -> None:
    broker = filled(hanging.disk)
    with Asker(broker.port) as asker:
        hanging.disk.is_cold = True
        hanging.hang("read", "storage-reads")
        asker.send(fetch_request({"t": {0: 0}}), NAMED)
        stop_quickly(broker, hanging)


def test_a_stop_does_not_wait_for_a_search_by_time_that_hangs(hanging: HangingDisk) -> None:
    """Guards defect 6: SIGTERM was answered after the searches, 65 s later."""
    broker = filled(hanging.disk)
    with Asker(broker.port) as asker:
        hanging.hang("read", "storage-lookups")
        partition = ListOffsetsPartition(partition_index=0, timestamp=1)
        topic = ListOffsetsTopic(name="t", partitions=(partition,))
        asker.send(ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=(topic,)), 7)
        stop_quickly(broker, hanging)


def test_a_stop_does_not_wait_for_a_duty_that_hangs_and_is_not_clean(
    hanging: HangingDisk, caplog: pytest.LogCaptureFixture
) -> None:
    broker = filled(hanging.disk)
    with Asker(broker.port) as asker:
        hanging.hang("rename", "storage-duties")
        asker.create("other", 1)
        deleted = DeleteTopicsRequest(topic_names=("other",), timeout_ms=10_000)
        asker.send(deleted, 5)
        stop_quickly(broker, hanging)
    assert "the next start verifies" in caplog.text


def test_a_stop_does_not_wait_for_a_sync_that_hangs_and_is_not_clean(
    hanging: HangingDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """Guards SIGTERM on a disk that does not answer: a round under way had no bound."""
    broker = filled(hanging.disk)
    with Asker(broker.port) as asker:
        asker.create("wide", 3)
        hanging.hang("sync", "flusher")
        asker.send(produce_request("wide", dict.fromkeys(range(3), batch_of(b"c"))), NAMED)
        stop_quickly(broker, hanging)
    assert "the next start verifies" in caplog.text
