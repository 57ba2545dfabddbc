"""The simulated network: order, cuts, resets, dead processes and back-pressure."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from tests.cluster_sim.brokers import simulated_sockets
from tests.cluster_sim.loop import Machine, SimulatedLoop
from tests.cluster_sim.network import SimulatedNetwork, SimulatedSocket
from tests.cluster_sim.threads import simulated_process

PORT = 9092


class Peer(asyncio.Protocol):
    """Collects everything."""

    def __init__(self) -> None:
        self.received = b""
        self.is_lost = False
        self.error: Exception | None = None
        self.transport: asyncio.Transport
        self.pauses: list[bool] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.received += data

    def pause_writing(self) -> None:
        self.pauses.append(True)

    def resume_writing(self) -> None:
        self.pauses.append(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost, self.error = True, exc


class Pair:
    """A server and a client that is connected to it."""

    def __init__(self, loop: SimulatedLoop, network: SimulatedNetwork) -> None:
        self.loop = loop
        self.network = network
        self.server = loop.add_machine("server")
        self.client = loop.add_machine("client")
        network.place(self.server, "server")
        network.place(self.client, "client")
        self.accepted: list[Peer] = []

    async def listen(self) -> None:
        def accept() -> Peer:
            self.accepted.append(Peer())
            return self.accepted[-1]

        bound = SimulatedSocket("server", PORT)
        await self._on(self.server, self.network.create_server(accept, sock=bound, backlog=1))

    async def connect(self) -> Peer:
        _, peer = await self._on(self.client, self.network.create_connection(Peer, "server", PORT))
        await asyncio.sleep(0.1)
        assert isinstance(peer, Peer)
        return peer

    async def _on(self, machine: Machine, work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401
        return await self.loop.start(machine, work)


def run(body: Callable[[Pair], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    loop = SimulatedLoop(seed)  # type: ignore[abstract]
    network = SimulatedNetwork(loop, seed)
    with simulated_process(loop, seed), simulated_sockets(loop, network):
        try:
            loop.run_until_complete(body(Pair(loop, network)))
        finally:
            loop.end()


def test_bytes_arrive_in_order() -> None:
    async def body(pair: Pair) -> None:
        await pair.listen()
        peer = await pair.connect()
        sent = b"".join(b"%05d" % number for number in range(500))
        for start in range(0, len(sent), 7):
            peer.transport.write(sent[start : start + 7])
        peer.transport.close()
        await asyncio.sleep(5)
        (accepted,) = pair.accepted
        assert accepted.received == sent
        assert accepted.is_lost
        assert accepted.error is None

    run(body)


def test_a_cut_delays_bytes_and_hangs_new_connections() -> None:
    async def body(pair: Pair) -> None:
        await pair.listen()
        peer = await pair.connect()
        pair.network.cut("client", "server", both_ways=False)
        peer.transport.write(b"late")
        pair.accepted[0].transport.write(b"other way")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await pair.connect()
        assert peer.received == b"other way"
        assert pair.accepted[0].received == b""
        pair.network.heal()
        await asyncio.sleep(0.1)
        assert pair.accepted[0].received == b"late"

    run(body)


def test_a_killed_process_resets_and_refuses() -> None:
    async def body(pair: Pair) -> None:
        await pair.listen()
        peer = await pair.connect()
        pair.network.process_died(pair.server, has_power=True)
        pair.loop.crash(pair.server)
        await asyncio.sleep(0.1)
        assert isinstance(peer.error, ConnectionResetError)
        with pytest.raises(ConnectionRefusedError):
            await pair.connect()

    run(body)


def test_a_host_without_power_says_nothing_until_it_is_back() -> None:
    async def body(pair: Pair) -> None:
        await pair.listen()
        peer = await pair.connect()
        pair.network.process_died(pair.server, has_power=False)
        pair.loop.crash(pair.server)
        peer.transport.write(b"lost")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await pair.connect()
        assert not peer.is_lost
        pair.network.power_on("server")
        await asyncio.sleep(0.1)
        assert isinstance(peer.error, ConnectionResetError)

    run(body)


def test_a_receiver_that_does_not_read_pauses_the_sender() -> None:
    async def body(pair: Pair) -> None:
        await pair.listen()
        peer = await pair.connect()
        pair.accepted[0].transport.pause_reading()
        for _ in range(40):
            peer.transport.write(bytes(20_000))
        await asyncio.sleep(1)
        assert peer.pauses == [True]
        assert pair.accepted[0].received == b""
        pair.accepted[0].transport.resume_reading()
        await asyncio.sleep(1)
        assert peer.pauses == [True, False]
        assert len(pair.accepted[0].received) == 800_000

    run(body)
