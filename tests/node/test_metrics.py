"""The metrics of a running broker: one of each kind, after it was used."""

import asyncio
import errno
import math
import os

import pytest

from penstock.core.metrics import Collected, Registry
from penstock.node.metrics.loop_lag import INTERVAL_SECONDS, LoopLag
from penstock.node.metrics.process_metrics import open_descriptors, register_process
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from penstock.protocol.messages.produce import ProduceResponse
from penstock.storage.disk.memory_disk import MemoryDisk
from penstock.testing import Broker
from penstock.testing.faulty_disk import FaultyDisk
from tests.broker.handlers.asker import NAMED, Asker, batch_of, produce_request
from tests.storage.logs import Clock

COORDINATOR_VERSION = 4
INIT_VERSION = 4
JOIN_VERSION = 5
GROUP, TRANSACTION = 0, 1


def test_a_produce_and_a_fetch_are_seen_everywhere() -> None:
    with Broker() as broker, Asker(broker.port) as asker:
        asker.create("orders", partitions=2)
        batch = batch_of(b"first", b"second")
        for partition in (0, 1):
            asker.ask(produce_request("orders", {partition: batch}), NAMED, ProduceResponse)
        asker.fetch("orders", 0)
        seen = broker.metrics()
    size = len(batch)
    assert seen['topic_partitions{topic="orders"}'] == 2
    assert seen['topic_size_bytes{topic="orders"}'] == 2 * size
    assert seen['topic_appended_bytes_total{topic="orders"}'] == 2 * size
    assert seen['topic_appended_records_total{topic="orders"}'] == 4
    assert seen['topic_fetched_bytes_total{topic="orders"}'] == size
    assert seen["appended_bytes_total"] == 2 * size
    assert seen["appended_batches_total"] == 2
    assert seen["fetched_bytes_total"] == size
    assert seen["partitions_offline"] == 0
    assert seen['requests_total{api="Produce"}'] == 2
    assert seen['request_duration_seconds_count{api="Produce"}'] == 2
    assert 0 < seen['request_handling_seconds_total{api="Produce"}'] < 10
    (flushed,) = [value for name, value in seen.items() if name.startswith("flushed_bytes_total")]
    assert flushed == 2 * size
    (count,) = [
        value for name, value in seen.items() if name.startswith("flush_duration_seconds_count")
    ]
    assert count >= 1


def test_records_are_counted_since_the_start_as_a_counter_must() -> None:
    """The end of a log may be lower after a crash, and a counter may only fall to 0."""
    name = 'topic_appended_records_total{topic="orders"}'
    with Broker() as broker:
        with Asker(broker.port) as asker:
            asker.create("orders")
            asker.produce("orders", batch_of(b"first", b"second"))
        assert broker.metrics()[name] == 2
        broker.crash()
        broker.restart()
        assert broker.metrics()[name] == 0
        with Asker(broker.port) as asker:
            asker.produce("orders", batch_of(b"third"))
        assert broker.metrics()[name] == 1


def test_an_error_is_counted_by_its_code() -> None:
    with Broker() as broker, Asker(broker.port) as asker:
        request = produce_request("nowhere", {0: batch_of(b"x")})
        answer = asker.ask(request, NAMED, ProduceResponse)
        (result,) = answer.responses[0].partition_responses
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        name = 'request_errors_total{api="Produce",code="UNKNOWN_TOPIC_OR_PARTITION"}'
        assert broker.metrics()[name] == 1


def coordinator(asker: Asker, key: str, kind: int) -> None:
    request = FindCoordinatorRequest(coordinator_keys=(key,), key_type=kind)
    asker.ask(request, COORDINATOR_VERSION, FindCoordinatorResponse)


def test_groups_and_transactions_by_state() -> None:
    with Broker() as broker, Asker(broker.port) as asker:
        assert not any(name.startswith(("groups", "transactions{")) for name in broker.metrics())
        coordinator(asker, "g", GROUP)
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=(protocol,),
        )
        first = asker.ask(join, JOIN_VERSION, JoinGroupResponse)
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        coordinator(asker, "t", TRANSACTION)
        init = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1_000)
        begun = asker.ask(init, INIT_VERSION, InitProducerIdResponse)
        assert begun.error_code == ErrorCode.NONE
        seen = broker.metrics()
        assert seen['groups{type="classic",state="Empty"}'] == 1
        assert seen['transactions{state="Empty"}'] == 1


def test_a_disk_that_failed_is_seen() -> None:
    disk = FaultyDisk(MemoryDisk())
    with Broker(filesystem=disk) as broker, Asker(broker.port) as asker:
        asker.create("orders")
        disk.fail_next("sync", errno.EIO)
        asker.ask(produce_request("orders", {0: batch_of(b"x")}), NAMED, ProduceResponse)
        seen = broker.metrics()
    (offline,) = [
        value for name, value in seen.items() if name.startswith("data_directory_offline")
    ]
    assert offline == 1
    assert seen["partitions_offline"] == 1


def test_connections_come_and_go() -> None:
    with Broker() as broker:
        with Asker(broker.port) as asker:
            asker.create("orders")
            assert broker.metrics()["connections_closed_total"] == 0
        while not broker.metrics()["connections_closed_total"]:
            pass
        assert broker.metrics()["connections_closed_total"] == 1
        assert broker.metrics()["connections"] == 0


# --- The process ---


def process() -> dict[str, Collected]:
    registry = Registry()
    register_process(registry, Clock())
    return {metric.name: metric for metric in registry.collect()}


def test_the_process_is_told() -> None:
    told = process()
    assert told["process_cpu_seconds_total"].kind == "counter"
    assert told["process_cpu_seconds_total"].rows[0].value > 0
    resident = told["process_resident_memory_bytes"].rows[0].value
    assert 1_000_000 < resident < told["process_virtual_memory_bytes"].rows[0].value
    descriptors = told["process_open_fds"].rows[0].value
    assert 3 <= descriptors <= told["process_max_fds"].rows[0].value
    assert told["process_start_time_seconds"].rows[0].value == 1_000
    assert [row.labels for row in told["python_gc_collections_total"].rows] == [
        ("0",),
        ("1",),
        ("2",),
    ]
    (build,) = told["build_info"].rows
    assert build.value == 1
    assert build.labels[2] in ("true", "false")


def test_descriptors_are_counted() -> None:
    before = open_descriptors()
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(10)]
    try:
        assert open_descriptors() == before + 10
    finally:
        for descriptor in opened:
            os.close(descriptor)


class LateLoop(asyncio.SelectorEventLoop):
    """A loop whose clock the test moves; nothing of it runs."""

    now = 0.0

    def time(self) -> float:
        return self.now


@pytest.mark.parametrize("late_seconds", [0.0, 0.3])
def test_the_loop_is_late(late_seconds: float) -> None:
    loop, registry = LateLoop(), Registry()
    try:
        lag = LoopLag(loop, registry)
        lag.start()
        loop.now += INTERVAL_SECONDS + late_seconds
        loop.call_soon(loop.stop)
        loop.run_forever()
        (row,) = next(m for m in registry.collect() if m.kind == "histogram").histograms
        assert row.buckets[-1] == (math.inf, 1)
        assert row.sum == pytest.approx(late_seconds)
        lag.stop()
    finally:
        loop.close()
