"""Every limit is shown with its usage, and rejections by it are counted there."""

import errno
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.broker.fetch_sessions import FetchSessionCache
from penstock.core.settings.config import BrokerConfig
from penstock.core.settings.tree import Settings
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.produce import ProduceResponse
from penstock.testing import Broker
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from tests.broker.handlers.asker import (
    NAMED,
    SECONDS_MAX,
    Asker,
    batch_of,
    fetch_request,
    produce_request,
)

TOPIC = "records"
LIMITS = {
    "connections",
    "connections_of_one_address",
    "requests_in_flight",
    "request_bytes_handled",
    "request_bytes_arriving",
    "unsent_answer_bytes",
    "slow_reader",
    "request_completion",
    "connection_idle",
    "parked_requests",
    "parked_partitions",
    "fetch_sessions",
    "partitions",
    "disk_used_bytes",
}


@contextmanager
def running(disk: FaultyDisk | None = None, **listener: int) -> Iterator[Broker]:
    tree = Settings.model_validate({"listener": listener})
    settings = BrokerConfig(port=0, storage="memory", settings=tree)
    with Broker(settings, filesystem=disk or FaultyDisk(MemoryDisk())) as broker:
        yield broker


def of(broker: Broker, metric: str) -> dict[str, float]:
    """The rows of one metric, by limit."""
    start = f'{metric}{{limit="'
    return {
        name.removeprefix(start).removesuffix('"}'): value
        for name, value in broker.metrics().items()
        if name.startswith(start)
    }


def comes_to(broker: Broker, metric: str, limit: str, value: float) -> bool:
    """Whether a row comes to a value: the broker's thread may be a moment behind."""
    deadline = time.monotonic() + SECONDS_MAX
    while of(broker, metric)[limit] != value:
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(0.001)
    return True


def test_every_limit_is_shown() -> None:
    with running() as broker:
        used, most = of(broker, "limit_used"), of(broker, "limit_max")
        assert set(most) == LIMITS
        assert LIMITS - set(used) == {"slow_reader", "request_completion", "connection_idle"}
        assert all(most.values())
        assert all(used[name] <= most[name] for name in used)
        assert not any(of(broker, "limit_refusals_total").values())


def test_connections_are_counted_in_all_and_for_the_busiest_address() -> None:
    with (
        running(connections_max=9, connections_per_address_max=2) as broker,
        Asker(broker.port),
        Asker(broker.port),
        Asker(broker.port, source="127.0.0.2"),
    ):
        assert comes_to(broker, "limit_used", "connections", 3)
        assert of(broker, "limit_used")["connections_of_one_address"] == 2
        with Asker(broker.port) as third:
            assert third.is_closed()
        assert comes_to(broker, "limit_refusals_total", "connections_of_one_address", 1)
        assert of(broker, "limit_refusals_total")["connections"] == 0


class HeldDisk(FaultyDisk):
    """A disk whose syncs wait until the test releases them."""

    def __init__(self) -> None:
        super().__init__(MemoryDisk())
        self.may_sync = threading.Event()

    def hold(self) -> None:
        def wait(operation: str, path: str) -> None:
            if operation == "sync" and path.endswith(".log"):
                self.may_sync.wait(SECONDS_MAX)

        self.hook = wait


def test_requests_in_flight_hold_the_next_ones_back() -> None:
    disk = HeldDisk()
    with running(disk, requests_in_flight_max=1) as broker:
        with Asker(broker.port) as writer, Asker(broker.port) as other:
            writer.create(TOPIC)
            disk.hold()
            # Above the size that the event loop syncs itself.
            writer.send(produce_request(TOPIC, {0: batch_of(bytes(20_000))}), NAMED)
            assert comes_to(broker, "limit_used", "requests_in_flight", 1)
            # One small request at a time is read anyway; behind one in flight, reading pauses.
            other.send(ApiVersionsRequest(), 0)
            assert other.receive(ApiVersionsResponse).api_keys
            other.send(produce_request(TOPIC, {0: batch_of(b"x")}), NAMED)
            assert comes_to(broker, "limit_used", "requests_in_flight", 2)
            other.send(ApiVersionsRequest(), 0)
            assert other.is_silent(0.05)
            assert of(broker, "limit_refusals_total")["requests_in_flight"] >= 1
            disk.may_sync.set()
            assert writer.receive(ProduceResponse).responses
            assert other.receive(ProduceResponse).responses
            assert other.receive(ApiVersionsResponse).api_keys
        assert comes_to(broker, "limit_used", "requests_in_flight", 0)


def test_a_fetch_that_waits_holds_nobody_back() -> None:
    with (
        running(requests_in_flight_max=1) as broker,
        Asker(broker.port) as reader,
        Asker(broker.port) as other,
    ):
        other.create(TOPIC)
        reader.send(fetch_request({TOPIC: {0: 0}}, wait_ms=20_000), NAMED)
        assert comes_to(broker, "limit_used", "parked_requests", 1)
        assert of(broker, "limit_used")["requests_in_flight"] == 0
        for _ in range(3):
            other.send(ApiVersionsRequest(), 0)
            assert other.receive(ApiVersionsResponse).api_keys


def test_a_full_disk_refuses_from_the_first_request_on_and_counts() -> None:
    disk = FaultyDisk(MemoryDisk())
    with running(disk) as broker, Asker(broker.port) as asker:
        asker.create(TOPIC)
        assert asker.produce(TOPIC, batch_of(b"kept")).error_code == ErrorCode.NONE
    disk.bytes_left = 100_000
    with running(disk) as broker, Asker(broker.port) as asker:
        for _ in range(3):
            refused = asker.produce(TOPIC, batch_of(b"no"))
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "MiB are free" in (refused.error_message or "")
        name = 'produce_refused_batches_total{error="KAFKA_STORAGE_ERROR"}'
        assert broker.metrics()[name] == 3
        assert of(broker, "limit_refusals_total")["disk_used_bytes"] == 3
        used, most = of(broker, "limit_used"), of(broker, "limit_max")
        assert used["disk_used_bytes"] > most["disk_used_bytes"]
        disk.bytes_left = None


def test_a_disk_that_failed_has_not_refused_for_want_of_room() -> None:
    disk = FaultyDisk(MemoryDisk())
    with running(disk) as broker, Asker(broker.port) as asker:
        asker.create(TOPIC)
        disk.fail_next("sync", errno.EIO)
        for _ in range(2):
            failed = asker.produce(TOPIC, batch_of(b"no"))
            assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        name = 'produce_refused_batches_total{error="KAFKA_STORAGE_ERROR"}'
        assert broker.metrics()[name] == 2
        assert of(broker, "limit_refusals_total")["disk_used_bytes"] == 0


def test_a_batch_that_is_too_large_is_counted_by_its_error() -> None:
    with running() as broker, Asker(broker.port) as asker:
        asker.create(TOPIC, configs={"max.message.bytes": "1000"})
        refused = asker.produce(TOPIC, batch_of(bytes(2_000)))
        assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
        name = 'produce_refused_batches_total{error="MESSAGE_TOO_LARGE"}'
        assert broker.metrics()[name] == 1


@pytest.mark.parametrize("partitions_max", [0, 1])
def test_a_session_that_finds_no_room_is_counted(partitions_max: int) -> None:
    cache = FetchSessionCache(lambda: 1, partitions_max=partitions_max)
    plan = cache.begin(fetch_request({TOPIC: {0: 0}}, session_epoch=0), 0.0)
    assert (plan.session is None) == (partitions_max == 0)
    assert cache.refusals == 1 - partitions_max
