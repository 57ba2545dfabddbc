"""`SimulatedNetwork`: connections between simulated machines, in memory, with faults from a seed.

It has the guarantees of TCP: bytes arrive in order and once, or the connection ends. A write is cut
into pieces at random positions, and each piece has its own delay. Faults:

- a cut between two machines, in one direction or both: bytes wait, as with retransmissions, and
  arrive after the cut is healed; a connection attempt hangs;
- a reset of open connections;
- a slow link: a larger delay for each piece;
- a crashed process: its peers get a reset, and connection attempts are refused. A machine without
  power: its peers get no message, and attempts hang until it is back.

`transport` has the two ends of a connection. It knows no protocol.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final

from tests.cluster_sim.loop import MACHINE, Machine, SimulatedLoop
from tests.cluster_sim.transport import DELAY_SECONDS, Host, SimulatedTransport

SLOW_DELAY_SECONDS: Final = (0.05, 0.4)
CROWDED_DELAY_SECONDS: Final = (0.5, 2.0)
CONNECT_RETRY_SECONDS: Final = 0.5


class SimulatedSocket:
    """A bound address that is not a real socket."""

    def __init__(self, host: str, port: int) -> None:
        self.address = (host, port)

    def getsockname(self) -> tuple[str, int]:
        """Return the address."""
        return self.address

    def close(self) -> None:
        """Do nothing: the address is free when its server is closed."""


class SimulatedServer:
    """A listening address of one machine."""

    def __init__(
        self,
        network: "SimulatedNetwork",
        address: tuple[str, int],
        machine: Machine,
        factory: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        self._network = network
        self.address = address
        self.machine = machine
        self.factory = factory

    def close(self) -> None:
        """Refuse new connections."""
        if self._network.servers.get(self.address) is self:
            del self._network.servers[self.address]

    async def wait_closed(self) -> None:
        """Return: open connections are not counted."""


class SimulatedNetwork:
    """All connections of a run."""

    def __init__(self, loop: SimulatedLoop, seed: int) -> None:
        self.loop = loop
        self.random = random.Random(f"network {seed}")
        self.hosts: dict[str, Host] = {}
        self.servers: dict[tuple[str, int], SimulatedServer] = {}
        self._host_of: dict[Machine, Host] = {}

    def host(self, name: str) -> Host:
        """Return the host of this name."""
        return self.hosts.setdefault(name, Host(name))

    def place(self, machine: Machine, name: str) -> None:
        """Run a process on a host."""
        self._host_of[machine] = self.host(name)

    def delay_seconds(self, here: Host, there: Host) -> float:
        """Return the delay of one piece."""
        bounds = SLOW_DELAY_SECONDS if here.is_slow or there.is_slow else DELAY_SECONDS
        if there.name in here.crowded_to:
            bounds = CROWDED_DELAY_SECONDS
        return self.random.uniform(*bounds)

    # --- Called by the loop ---

    async def create_server(
        self, factory: Callable[[], asyncio.BaseProtocol], *, sock: SimulatedSocket, backlog: int
    ) -> SimulatedServer:
        """Listen at an address."""
        del backlog
        machine = MACHINE.get()
        server = SimulatedServer(self, sock.address, machine, factory)
        assert sock.address not in self.servers, f"{sock.address} is in use"
        self.servers[sock.address] = server
        return server

    async def create_connection(
        self,
        factory: Callable[[], Any],
        host: str,
        port: int,
        *,
        ssl: None = None,
        server_hostname: None = None,
    ) -> tuple[SimulatedTransport, Any]:
        """Open a connection; hang while the way is cut; raise if the port is closed."""
        del ssl, server_hostname
        machine = MACHINE.get()
        here, there = self._host_of[machine], self.host(host)
        while True:
            await asyncio.sleep(2 * self.delay_seconds(here, there))
            is_cut = there.name in here.cut_to or here.name in there.cut_to
            if there.has_power and not is_cut:
                break
            await asyncio.sleep(CONNECT_RETRY_SECONDS)
        server = self.servers.get((host, port))
        if server is None or server.machine.is_dead:
            raise ConnectionRefusedError(111, "Connection refused")
        return self._connect(machine, here, server, there, port, factory)

    def _connect(
        self,
        machine: Machine,
        here: Host,
        server: SimulatedServer,
        there: Host,
        port: int,
        factory: Callable[[], Any],
    ) -> tuple[SimulatedTransport, Any]:
        ours = SimulatedTransport(self, machine, here, there, port)
        theirs = SimulatedTransport(self, server.machine, there, here, port)
        ours.peer, theirs.peer = theirs, ours
        self.loop.at(server.machine, 0.0, _accept, server, theirs)
        protocol = factory()
        ours.set_protocol(protocol)
        protocol.connection_made(ours)
        return ours, protocol

    # --- Faults ---

    def cut(self, one: str, other: str, *, both_ways: bool) -> None:
        """Let nothing arrive at `other` from `one`, or in both directions."""
        self.host(one).cut_to.add(other)
        if both_ways:
            self.host(other).cut_to.add(one)

    def crowd(self, one: str, other: str) -> None:
        """Delay what two hosts send each other, by seconds; other hosts reach both as before."""
        self.host(one).crowded_to.add(other)
        self.host(other).crowded_to.add(one)

    def heal(self) -> None:
        """End all cuts, crowded and slow links."""
        for host in self.hosts.values():
            host.cut_to.clear()
            host.crowded_to.clear()
            host.is_slow = False
        for host in self.hosts.values():
            for transport in [*host.transports]:
                transport.healed()

    def reset_some(self, share: float) -> int:
        """Reset a share of the connections at both ends; return their number."""
        number = 0
        for host in self.hosts.values():
            for transport in [*host.transports]:
                if self.random.random() < share and transport in host.transports:
                    transport.reset_by_network()
                    transport.peer.reset_by_network()
                    number += 1
        return number

    def power_on(self, name: str) -> None:
        """Let a host answer again."""
        back = self.host(name)
        back.has_power = True
        for host in self.hosts.values():
            for transport in host.transports:
                if transport.there is back:
                    transport.peer_is_back()

    def process_died(self, machine: Machine, *, has_power: bool) -> None:
        """End the connections of a dead process, with resets if its host still runs."""
        host = self._host_of[machine]
        host.has_power = has_power
        for address in [one for one, server in self.servers.items() if server.machine is machine]:
            del self.servers[address]
        for transport in [*host.transports]:
            if transport.machine is machine:
                if has_power:
                    transport.send_reset()
                transport.vanish()


def _accept(server: SimulatedServer, transport: SimulatedTransport) -> None:
    protocol: Any = server.factory()
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
