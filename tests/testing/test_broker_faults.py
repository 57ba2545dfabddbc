"""Faults on demand: their effect on a client, the state afterwards, and no hanging calls."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.core.errors import BrokerUnreachableError
from penstock.core.settings.config import BrokerConfig
from penstock.node.server import BrokerServer
from penstock.protocol.error_codes import ErrorCode
from penstock.testing import Broker
from penstock.testing.broker_run import BrokerRun
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from tests.broker.handlers.asker import NAMED, Asker, batch_of, fetch_request, produce_request
from tests.faults.wire import Wire
from tests.testing.test_broker import API_VERSIONS, answers

TOPIC = "orders"
OK, STORAGE_ERROR = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR
SECONDS_MAX = 10.0
LONG_MS = 20_000
QUICK_SECONDS = 5.0
"""Far below what a client would wait, far above what a busy machine takes."""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def values_of(broker: Broker) -> list[str | None]:
    return [record.value for record in broker.records(TOPIC)]


@contextlib.contextmanager
def quickly() -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < QUICK_SECONDS


# --- Crash ---


def test_what_was_acknowledged_survives_a_crash_on_the_same_port(broker: Broker) -> None:
    broker.create_topic(TOPIC, partitions=2)
    broker.produce(TOPIC, "paid", "sent", key="42", headers={"by": "card"})
    address = broker.bootstrap_server
    broker.crash()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((broker.host, broker.port), SECONDS_MAX)
    broker.restart()
    assert broker.bootstrap_server == address
    first, second = broker.records(TOPIC)
    assert (first.key, first.value, first.headers) == ("42", "paid", {"by": "card"})
    assert (second.value, second.offset) == ("sent", 1)
    broker.produce(TOPIC, "returned", key="42")
    assert values_of(broker) == ["paid", "sent", "returned"]


def test_while_it_is_down_its_port_is_nobody_elses(broker: Broker) -> None:
    broker.crash()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((broker.host, broker.port))
    broker.restart()
    assert answers((broker.host, broker.port))


def test_what_was_not_synced_is_lost_in_memory() -> None:
    """Mode `os` acknowledges what no disk has: a power cut takes it, and the topic stays."""
    with Broker(BrokerConfig(port=0, storage="memory", flush_mode="os")) as broker:
        broker.create_topic(TOPIC)
        broker.produce(TOPIC, "acknowledged")
        assert values_of(broker) == ["acknowledged"]
        with broker.crashed():
            pass
        assert values_of(broker) == []


def test_a_stop_in_between_loses_nothing() -> None:
    with Broker(BrokerConfig(port=0, storage="memory", flush_mode="os")) as broker:
        broker.produce(TOPIC, "acknowledged")
        broker.restart()
        assert values_of(broker) == ["acknowledged"]


def test_connections_are_reset_and_who_waits_is_told_at_once(broker: Broker) -> None:
    broker.create_topic(TOPIC)
    with Asker(broker.port) as waiting, Asker(broker.port) as idle:
        waiting.send(fetch_request({TOPIC: {0: 0}}, wait_ms=LONG_MS), NAMED)
        idle.send_bytes(API_VERSIONS[:6])
        while broker.metrics()["parked_requests"] < 1:
            time.sleep(0.001)
        with quickly():
            broker.crash()
            for asker in (waiting, idle):
                with pytest.raises(ConnectionResetError):
                    asker.receive_bytes()


def test_a_request_that_came_while_it_was_paused_dies_with_the_crash(broker: Broker) -> None:
    """Nothing is handled between the end of the pause and the crash."""
    broker.create_topic(TOPIC)
    with Asker(broker.port) as asker:
        with broker.paused(), quickly():
            asker.send(produce_request(TOPIC, {0: batch_of(b"never")}), NAMED)
            broker.crash()
        with pytest.raises(ConnectionResetError):
            asker.receive_bytes()
    broker.restart()
    assert values_of(broker) == []


def test_a_crash_in_the_middle_of_a_sync_ends_and_acknowledges_nothing() -> None:
    disk = FaultyDisk(MemoryDisk())
    is_syncing, may_sync = threading.Event(), threading.Event()

    def hold(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            is_syncing.set()
            may_sync.wait(SECONDS_MAX)

    with Broker(filesystem=disk) as broker, Asker(broker.port) as asker:
        broker.create_topic(TOPIC)
        disk.hook = hold
        # Two batches: they are synced on a thread, so that the loop is free to crash.
        asker.send_together(
            (produce_request(TOPIC, {0: batch_of(b"a")}), NAMED),
            (produce_request(TOPIC, {0: batch_of(b"b")}), NAMED),
        )
        assert is_syncing.wait(SECONDS_MAX)
        crashing = threading.Thread(target=broker.crash)
        crashing.start()
        with pytest.raises(ConnectionResetError):
            asker.receive_bytes()
        may_sync.set()
        crashing.join(SECONDS_MAX)
        assert not crashing.is_alive()
        broker.restart()
        assert answers((broker.host, broker.port))


def test_a_directory_keeps_what_was_written_and_is_recovered(tmp_path: Path) -> None:
    place = tmp_path / "data"
    with Broker(data_dir=place) as broker:
        broker.produce(TOPIC, "kept")
        broker.crash()
        assert not (place / ".kafka_cleanshutdown").exists(), "the dead wrote to the disk"
        broker.restart()
        assert values_of(broker) == ["kept"]
    assert (place / ".kafka_cleanshutdown").exists()


def test_settings_of_topics_and_the_cluster_survive(broker: Broker) -> None:
    broker.create_topic(TOPIC, partitions=3, configs={"retention.ms": "12345"})
    with broker.crashed():
        pass
    from penstock.client.opening import open_cluster
    from penstock.client.transport.addresses import parse_addresses
    from penstock.client.transport.options import ClientOptions

    options = ClientOptions(parse_addresses(broker.bootstrap_server))
    with open_cluster(options) as cluster:
        assert len(cluster.partitions_of(TOPIC)) == 3
        configs = {one.name: one.value for one in cluster.topic_configs([TOPIC])[TOPIC].configs}
    assert configs["retention.ms"] == "12345"


def test_it_can_crash_many_times_and_leaves_no_thread_and_no_descriptor() -> None:
    answers_once = Broker()
    answers_once.start()
    answers_once.stop()  # Creates objects that are kept, such as a resolver's files.
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    with Broker() as broker:
        for number in range(3):
            broker.produce(TOPIC, f"{number}")
            broker.pause()
            broker.crash()
            broker.restart()
        assert values_of(broker) == ["0", "1", "2"]
        broker.crash()
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == descriptors


# --- Pause ---


def test_a_paused_broker_accepts_and_does_not_answer(broker: Broker) -> None:
    address = (broker.host, broker.port)
    with broker.paused(), socket.create_connection(address, SECONDS_MAX) as connection:
        connection.sendall(API_VERSIONS)
        connection.settimeout(0.05)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        broker.resume()
        connection.settimeout(SECONDS_MAX)
        assert connection.recv(1)


def test_pausing_twice_is_pausing_once(broker: Broker) -> None:
    broker.resume()
    with quickly(), broker.paused(), broker.paused():
        pass
    assert answers((broker.host, broker.port))


def test_a_held_loop_does_what_is_asked_before_anything_that_came_earlier() -> None:
    """So that a paused broker which is killed handles nothing in between."""
    settings = BrokerConfig(port=0, storage="memory")
    run = BrokerRun(BrokerServer(settings), use_uvloop=True)
    run.start()
    order: list[str] = []
    run.hold()
    run._alive_loop().call_soon_threadsafe(order.append, "came earlier")
    run.do(lambda: order.append("asked"))
    run.release()
    run.stop()
    assert order == ["asked", "came earlier"]


def test_it_stops_while_it_is_paused() -> None:
    broker = Broker()
    broker.start()
    broker.pause()
    with quickly():
        broker.stop()


# --- Disk, connections, speed ---


def test_a_full_disk_refuses_until_there_is_room(broker: Broker) -> None:
    with Wire(broker.port) as wire:
        assert wire.create(TOPIC) == OK
        assert wire.produce(b"before", topic=TOPIC) == (OK, 0)
        with broker.full_disk():
            assert wire.produce(b"while", topic=TOPIC) == (STORAGE_ERROR, -1)
            assert wire.fetch(topic=TOPIC) == (OK, [b"before"])
        assert wire.produce(b"after", topic=TOPIC) == (OK, 1)
        assert wire.fetch(topic=TOPIC) == (OK, [b"before", b"after"])


def test_a_disk_stays_full_over_a_crash_and_a_start_that_fails_can_be_repeated(
    broker: Broker,
) -> None:
    broker.produce(TOPIC, "before")
    broker.disk_full()
    broker.crash()
    with pytest.raises(OSError, match="no space left on device"):
        broker.restart()
    assert not broker.is_running
    broker.disk_free()
    broker.restart()
    broker.produce(TOPIC, "after")
    assert values_of(broker) == ["before", "after"]


def test_dropped_connections_are_reset_and_new_ones_served(broker: Broker) -> None:
    with socket.create_connection((broker.host, broker.port), SECONDS_MAX) as connection:
        connection.sendall(API_VERSIONS)
        assert connection.recv(4096)
        broker.drop_connections()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    assert answers((broker.host, broker.port))


def seconds_to_answer(broker: Broker) -> float:
    with socket.create_connection((broker.host, broker.port), SECONDS_MAX) as connection:
        begun = time.monotonic()
        connection.sendall(API_VERSIONS)
        assert connection.recv(4096)
        return time.monotonic() - begun


def test_latency_is_added_to_each_answer_and_outlives_a_crash(broker: Broker) -> None:
    broker.throttle(latency_ms=60)
    assert seconds_to_answer(broker) >= 0.059
    with broker.crashed():
        pass
    assert seconds_to_answer(broker) >= 0.059
    broker.unthrottle()
    assert min(seconds_to_answer(broker) for _ in range(5)) < 0.059


@pytest.mark.parametrize("is_produce", [True, False], ids=["requests", "answers"])
def test_bytes_take_their_time_in_both_directions(broker: Broker, is_produce: bool) -> None:
    broker.create_topic(TOPIC)
    size = 50_000
    if not is_produce:
        broker.produce(TOPIC, "x" * size)
    with broker.throttled(bytes_per_second=500_000):
        begun = time.monotonic()
        if is_produce:
            broker.produce(TOPIC, "x" * size)
        else:
            assert len(values_of(broker)[0] or "") == size
        assert time.monotonic() - begun >= 0.9 * size / 500_000
    assert len(values_of(broker)[0] or "") == size


def test_what_was_held_back_goes_out_when_the_line_is_fast_again(broker: Broker) -> None:
    broker.throttle(latency_ms=60_000)
    with socket.create_connection((broker.host, broker.port), SECONDS_MAX) as connection:
        connection.sendall(API_VERSIONS * 2)
        while broker.metrics()["received_bytes_total"] < 2 * len(API_VERSIONS):
            time.sleep(0.001)
        broker.unthrottle()
        connection.sendall(API_VERSIONS)
        received = 0
        while received < 3:
            (size,) = (int.from_bytes(connection.recv(4, socket.MSG_WAITALL)),)
            assert int.from_bytes(connection.recv(size, socket.MSG_WAITALL)[:4]) == 1
            received += 1


@pytest.mark.parametrize("end", [Broker.stop, Broker.restart])
def test_a_slow_line_does_not_hold_the_stop_up(end: Callable[[Broker], None]) -> None:
    with Broker() as broker:
        broker.throttle(latency_ms=60_000)
        with socket.create_connection((broker.host, broker.port), SECONDS_MAX) as connection:
            connection.sendall(API_VERSIONS)
            while broker.metrics()["received_bytes_total"] < len(API_VERSIONS):
                time.sleep(0.001)
            with quickly():
                end(broker)
            size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL))
            assert len(connection.recv(size, socket.MSG_WAITALL)) == size, "it was accepted"


@pytest.mark.parametrize("wrong", [{"bytes_per_second": 0}, {"latency_ms": -1.0}])
def test_an_impossible_line_is_refused(broker: Broker, wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        broker.throttle(**wrong)  # type: ignore[arg-type]


# --- Wrong moments ---


def test_what_cannot_be_done_says_what_can(broker: Broker) -> None:
    broker.crash()
    for call in (broker.crash, broker.pause, broker.drop_connections):
        with pytest.raises(RuntimeError, match=r"not running; restart\(\)"):
            call()
    with pytest.raises(RuntimeError, match="started once"):
        broker.start()
    with pytest.raises(BrokerUnreachableError):
        broker.produce(TOPIC, "nobody is there")
    broker.stop()
    with pytest.raises(RuntimeError, match="make a new one"):
        broker.restart()
    with pytest.raises(RuntimeError, match="with Broker"):
        _ = Broker().port
