"""Sockets: pipelines, addresses, limits, and a stop that finishes accepted requests."""

import asyncio
import contextlib
import errno
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from penstock.broker.connections import binding
from penstock.broker.connections.entrance import Entrance
from penstock.broker.connections.listener import ConnectionProtocol
from penstock.broker.connections.listener_state import ListenerState
from penstock.broker.dispatch import Dispatcher
from penstock.broker.handlers import HANDLERS
from penstock.core.errors import ConfigError
from penstock.core.metrics import Registry
from penstock.core.settings.config import BrokerConfig
from penstock.core.settings.tree import ListenerSettings, Settings
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.fetch import FetchResponse
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
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
    fresh_name,
    produce_request,
)
from tests.broker.handlers.fakes import FakeServices
from tests.broker.handlers.quotas import set_quotas

LONG_MS = 20_000
TOPIC = "records"
RATE = "connection_creation_rate"


def limited(**listener: int) -> Broker:
    tree = Settings.model_validate({"listener": listener})
    return Broker(BrokerConfig(port=0, storage="memory", settings=tree))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def asker(broker: Broker) -> Iterator[Asker]:
    with Asker(broker.port) as connection:
        yield connection


# --- Pipelines ---


def test_many_requests_at_once_are_answered_in_order(asker: Asker) -> None:
    """Three kinds: answered at once, by a task, and after a sync."""
    name = fresh_name()
    asker.create(name)
    for _ in range(20):
        asker.send(ApiVersionsRequest(), 0)
        asker.send(MetadataRequest(topics=()), 9)
        asker.send(produce_request(name, {0: batch_of(b"x")}), NAMED)
    for number in range(20):
        assert asker.receive(ApiVersionsResponse).api_keys
        assert asker.receive(MetadataResponse).brokers
        answer = asker.receive(ProduceResponse)
        assert answer.responses[0].partition_responses[0].base_offset == number


def test_a_pipeline_longer_than_the_room_is_answered_whole(asker: Asker) -> None:
    frame = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
    count = 500
    asker.send_bytes(frame * count)
    for _ in range(count):
        assert asker.receive_bytes()[:4] == frame[8:12]


def test_what_follows_a_fetch_that_waits_is_answered_after_it(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    asker.send(fetch_request({name: {0: 0}}, wait_ms=LONG_MS), NAMED)
    asker.send(ApiVersionsRequest(), 0)
    asker.send(fetch_request({name: {0: 0}}, wait_ms=LONG_MS), NAMED)
    asker.send(MetadataRequest(topics=()), 9)
    assert asker.is_silent(0.02)
    with asker.another() as writer:
        writer.produce(name, batch_of(b"new"))
    begun = time.monotonic()
    for kind in (FetchResponse, ApiVersionsResponse, FetchResponse, MetadataResponse):
        asker.receive(kind)
    assert time.monotonic() - begun < 1.0


def test_requests_may_come_byte_by_byte(asker: Asker) -> None:
    for byte in bytes.fromhex("0000000a 0012 0000 00000007 ffff"):
        asker.send_bytes(bytes([byte]))
    assert asker.receive_bytes()[:4] == b"\x00\x00\x00\x07"


def test_who_sends_no_more_still_gets_its_answers(broker: Broker) -> None:
    with Asker(broker.port) as asker:
        name = fresh_name()
        asker.create(name)
        asker.send(fetch_request({name: {0: 0}}, wait_ms=50), NAMED)
        asker.finish_sending()
        assert asker.receive(FetchResponse).error_code == ErrorCode.NONE
        assert asker.is_closed()


def test_who_sends_no_more_does_not_wait_for_records(broker: Broker) -> None:
    with Asker(broker.port) as asker:
        name = fresh_name()
        asker.create(name)
        begun = time.monotonic()
        asker.send(fetch_request({name: {0: 0}}, wait_ms=LONG_MS), NAMED)
        asker.finish_sending()
        assert asker.receive(FetchResponse).error_code == ErrorCode.NONE
        assert asker.is_closed()
        assert time.monotonic() - begun < 5.0


@pytest.mark.parametrize("is_reset", [False, True])
def test_who_is_gone_leaves_nothing_parked(broker: Broker, is_reset: bool) -> None:
    with Asker(broker.port) as maker:
        name = fresh_name()
        maker.create(name)
    askers = [Asker(broker.port) for _ in range(5)]
    for asker in askers:
        asker.send(fetch_request({name: {0: 0}}, wait_ms=LONG_MS), NAMED)
    assert settles(broker, "parked_requests", 5)
    for asker in askers:
        if is_reset:
            asker.reset()
        asker.close()
    assert settles(broker, "parked_requests", 0)
    assert settles(broker, "connections", 0)


# --- Addresses ---


def has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


def test_localhost_is_both_addresses() -> None:
    hosts = ["127.0.0.1", "::1"] if has_ipv6() else ["127.0.0.1"]
    with Broker(BrokerConfig(host="localhost", port=0, storage="memory")) as broker:
        assert broker.host == "localhost"
        for host in hosts:
            with Asker(broker.port, host=host) as asker:
                (known,) = asker.ask(MetadataRequest(topics=()), 9, MetadataResponse).brokers
                assert (known.host, known.port) == ("localhost", broker.port)


def test_a_free_port_is_free_on_both_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    bind, ports = binding.bind, list[int]()

    def taken_once(host: str, port: int) -> socket.socket:
        if host == "::1":
            ports.append(port)
            raise OSError(errno.EADDRINUSE if len(ports) == 1 else errno.EAFNOSUPPORT, "taken")
        return bind(host, port)

    monkeypatch.setattr(binding, "bind", taken_once)
    with Broker(BrokerConfig(host="localhost", port=0, storage="memory")) as broker:
        assert len(ports) == 2
        assert broker.port == ports[1]


def test_clients_are_told_the_advertised_address() -> None:
    listener = {"advertised_host": "broker.example", "advertised_port": 19_092}
    tree = Settings.model_validate({"listener": listener})
    settings = BrokerConfig(port=0, storage="memory", settings=tree)
    with Broker(settings) as broker:
        assert broker.bootstrap_server == "broker.example:19092"


def test_a_port_that_is_taken_is_named_with_a_remedy(broker: Broker) -> None:
    taken = BrokerConfig(port=broker.port, storage="memory")
    with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{broker.port}") as refused:
        Broker(taken).start()
    assert "--port" in refused.value.hint


def test_an_address_of_another_machine_is_named() -> None:
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1"):
        Broker(BrokerConfig(host="192.0.2.1", port=0, storage="memory")).start()


# --- Limits ---


def serves(asker: Asker) -> bool:
    """Whether the connection is served; one above a limit is closed instead."""
    try:
        asker.send(ApiVersionsRequest(), 0)
        return bool(asker.receive(ApiVersionsResponse).api_keys)
    except (AssertionError, ConnectionError):
        return False


def settles(broker: Broker, name: str, value: float) -> bool:
    """Whether a metric comes to a value: a connection ends on the broker's thread, later."""
    deadline = time.monotonic() + SECONDS_MAX
    while broker.metrics()[name] != value:
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(0.001)
    return True


def test_a_connection_that_comes_too_soon_is_counted_as_refused() -> None:
    address = "127.0.0.79"
    with limited() as broker, contextlib.ExitStack() as stack:
        set_quotas(stack.enter_context(Asker(broker.port)), {"ip": address}, **{RATE: 1.0})
        name = 'connections_refused_total{reason="quota"}'
        while not broker.metrics()[name]:
            last = stack.enter_context(Asker(broker.port, source=address))
            last.send(ApiVersionsRequest(), 0)
            threading.Event().wait(0.01)
        assert last.is_closed()
        assert broker.metrics()[name] == 1
        assert not any(
            value for metric, value in broker.metrics().items() if "timed_out_total" in metric
        )


@pytest.mark.parametrize(
    ("limit", "reason"), [("connections_max", "all"), ("connections_per_address_max", "address")]
)
def test_a_connection_too_many_is_closed_and_the_others_live(limit: str, reason: str) -> None:
    with limited(**{limit: 2}) as broker, contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(Asker(broker.port)) for _ in range(2))
        assert serves(first)
        assert serves(second)
        third = stack.enter_context(Asker(broker.port))
        assert not serves(third)
        assert broker.metrics()[f'connections_refused_total{{reason="{reason}"}}'] == 1
        assert settles(broker, "connections", 2)
        counted = broker.metrics()
        assert counted["connections_opened_total"] - counted["connections_closed_total"] == 2
        assert serves(first)
        second.close()
        assert settles(broker, "connections", 1)
        assert serves(stack.enter_context(Asker(broker.port)))


def test_each_address_has_its_own_limit() -> None:
    with limited(connections_per_address_max=1) as broker, contextlib.ExitStack() as stack:
        assert serves(stack.enter_context(Asker(broker.port)))
        assert not serves(stack.enter_context(Asker(broker.port)))
        other = stack.enter_context(Asker(broker.port, source="127.0.0.2"))
        assert serves(other)


def test_ipv6_addresses_of_one_network_have_the_limit_of_one_address() -> None:
    async def go() -> tuple[list[bool], int]:
        metrics = Registry()
        dispatcher = Dispatcher(FakeServices().services, HANDLERS, metrics)
        settings = ListenerSettings(connections_per_address_max=2)
        state, entrance = ListenerState(settings, dispatcher, metrics), Entrance()
        addresses = ["2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1"]
        addresses += ["10.0.0.1", "::ffff:10.0.0.1", "::ffff:10.0.0.1"]
        opened = [(ConnectionProtocol(state, entrance), one) for one in addresses]
        found = [state.admit(connection, entrance, one) for connection, one in opened]
        for connection, one in opened:
            state.dismiss(connection, entrance, one)
        state.stop()
        return found, len(state.by_address)

    assert asyncio.run(go()) == ([True, True, False, True, True, True, False], 0)


def test_an_answer_that_the_socket_does_not_take_counts() -> None:
    """Also one below 1 MiB, which is what consumers ask for: thousands of them are gigabytes."""

    async def go() -> tuple[float, float]:
        metrics = Registry()
        dispatcher = Dispatcher(FakeServices().services, HANDLERS, metrics)
        state = ListenerState(ListenerSettings(), dispatcher, metrics)
        ours, peer = socket.socketpair()
        loop = asyncio.get_running_loop()
        _, protocol = await loop.connect_accepted_socket(
            lambda: ConnectionProtocol(state, Entrance()), ours
        )
        protocol.write([bytes(500_000)], 500_000)
        waiting = metrics.snapshot()["unsent_answer_bytes"]
        protocol.abort()
        peer.close()
        await asyncio.sleep(0)
        state.stop()
        return waiting, metrics.snapshot()["unsent_answer_bytes"]

    assert asyncio.run(go()) == (500_000, 0)


# --- Stopping ---


@contextlib.contextmanager
def stopping(broker: Broker) -> Iterator[None]:
    """Stop the broker on a thread while the block runs; it has stopped when the block ends."""
    thread = threading.Thread(target=broker.stop)
    thread.start()
    yield
    thread.join(SECONDS_MAX)
    assert not thread.is_alive()


def test_a_fetch_that_waits_is_answered_and_its_connection_closed() -> None:
    broker = Broker()
    broker.start()
    with Asker(broker.port) as asker:
        asker.create(TOPIC)
        poll = fetch_request({TOPIC: {0: 0}}, wait_ms=LONG_MS)
        # Behind the first, received whole and not looked at yet: they were accepted too.
        asker.send_together((poll, NAMED), (ApiVersionsRequest(), 0), (poll, NAMED))
        assert settles(broker, "parked_requests", 1)
        begun = time.monotonic()
        with stopping(broker):
            assert asker.receive(FetchResponse).error_code == ErrorCode.NONE
            assert asker.receive(ApiVersionsResponse).api_keys
            assert asker.receive(FetchResponse).error_code == ErrorCode.NONE
            assert asker.is_closed()
        assert time.monotonic() - begun < 2.0


def test_a_produce_that_was_accepted_is_answered_and_kept() -> None:
    memory = MemoryDisk()
    disk = FaultyDisk(memory)
    is_syncing, may_sync = threading.Event(), threading.Event()

    def hold(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            is_syncing.set()
            may_sync.wait(SECONDS_MAX)

    broker = Broker(filesystem=disk)
    broker.start()
    with Asker(broker.port) as asker:
        asker.create(TOPIC)
        disk.hook = hold
        asker.send(produce_request(TOPIC, {0: batch_of(b"kept")}), NAMED)
        assert is_syncing.wait(SECONDS_MAX)
        with stopping(broker):
            assert asker.is_silent(0.02)
            may_sync.set()
            answer = asker.receive(ProduceResponse)
            assert answer.responses[0].partition_responses[0].base_offset == 0
            assert asker.is_closed()


@pytest.fixture
def muted() -> Iterator[tuple[Broker, Asker]]:
    """A broker, and a connection that has to wait for a minute; a request of it is here already."""
    broker = Broker()
    broker.start()
    with Asker(broker.port) as admin, Asker(broker.port, client_id="slow") as asker:
        admin.create(TOPIC)
        set_quotas(admin, {"client-id": "slow"}, producer_byte_rate=10)
        # Small enough to arrive at once: the broker does not read while the client has to wait.
        asker.send_together(
            (produce_request(TOPIC, {0: batch_of(bytes(700))}), NAMED), (ApiVersionsRequest(), 0)
        )
        assert asker.receive(ProduceResponse).throttle_time_ms > 50_000
        yield broker, asker
        broker.stop()


def test_who_has_to_wait_does_not_hold_the_stop_up(muted: tuple[Broker, Asker]) -> None:
    broker, asker = muted
    assert asker.is_silent(0.02)
    begun = time.monotonic()
    with stopping(broker):
        assert asker.receive(ApiVersionsResponse).api_keys
        assert asker.is_closed()
    assert time.monotonic() - begun < 2.0


def test_who_has_to_wait_and_sends_no_more_is_still_served(muted: tuple[Broker, Asker]) -> None:
    """Its last request was accepted: it is answered when the wait is over, or the broker stops."""
    broker, asker = muted
    asker.finish_sending()
    assert asker.is_silent(0.02)
    with stopping(broker):
        assert asker.receive(ApiVersionsResponse).api_keys
        assert asker.is_closed()


def test_who_has_to_wait_and_hangs_up_is_forgotten_with_the_broker(
    muted: tuple[Broker, Asker],
) -> None:
    broker, asker = muted
    asker.reset()
    asker.close()
    begun = time.monotonic()
    with stopping(broker):
        pass
    assert time.monotonic() - begun < 2.0


def test_idle_connections_are_closed_and_new_ones_refused() -> None:
    broker = Broker()
    broker.start()
    with Asker(broker.port) as asker:
        assert serves(asker)
        begun = time.monotonic()
        with stopping(broker):
            assert asker.is_closed()
        assert time.monotonic() - begun < 2.0
    with pytest.raises(ConnectionRefusedError):
        Asker(broker.port)


def test_a_request_that_is_half_here_does_not_hold_the_stop_up() -> None:
    broker = Broker()
    broker.start()
    with Asker(broker.port) as asker:
        asker.send_bytes(bytes.fromhex("0000000a 0012"))
        assert settles(broker, "received_bytes_total", 6)
        begun = time.monotonic()
        with stopping(broker):
            assert asker.is_closed()
        assert time.monotonic() - begun < 2.0
