"""`Network`: a namespace for each machine, all on one bridge, with cuts that are silent.

Guarantees: a cut drops packets and sends nothing back, as a pulled cable does, and open connections
continue when it is healed. A machine is isolated by taking its port off the bridge. A one-way cut
gives one machine a wrong hardware address of another one: packets leave and reach no machine.
Tests are on the bridge too, in the namespace of the process that runs them.

Names and addresses hold the process id of the owner. A new network first removes namespaces and
bridges whose owner is gone, so that a killed run leaves nothing for long.

It needs root and iproute2. Without them it is an error that says so, never a skip.
It does NOT delay or lose single packets: the kernel of many machines has no such module.
"""

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.oracle.cache import OracleError, run, tool

PREFIX: Final = "pc"
_OWNED = re.compile(rf"\b{PREFIX}(\d+)x\w*")
_NOWHERE: Final = "02:00:00:00:ff:ff"
"""A hardware address of no machine."""
_GATEWAY: Final = 254
_DEVICE: Final = "eth0"


class Place:
    """One machine's place in the network."""

    def __init__(self, network: "Network", number: int) -> None:
        self.number = number
        self.address = network.address_of(number)
        self.namespace = f"{network.name}n{number}"
        self.port = f"{network.name}p{number}"
        self.hardware_address = f"02:00:00:00:00:{number:02x}"
        self._network = network
        self._unreachable: set[Place] = set()

    def make(self) -> None:
        """Create the namespace and connect it."""
        ip = self._network.ip
        ip("netns", "add", self.namespace)
        peer = ("peer", "name", _DEVICE, "address", self.hardware_address, "netns", self.namespace)
        ip("link", "add", self.port, "type", "veth", *peer)
        ip("-n", self.namespace, "address", "add", f"{self.address}/24", "dev", _DEVICE)
        ip("-n", self.namespace, "link", "set", "lo", "up")
        ip("-n", self.namespace, "link", "set", _DEVICE, "up")
        ip("link", "set", self.port, "master", self._network.name, "up")

    def command(self, words: Iterable[str]) -> list[str]:
        """The command that runs another one here. It sees the mounts of the caller."""
        return [self._network.enter, f"--net=/run/netns/{self.namespace}", "--", *words]

    def isolate(self) -> None:
        """Pull the cable: nothing comes and nothing goes, on all connections."""
        self._network.ip("link", "set", self.port, "nomaster")

    def blackhole(self, other: "Place") -> None:
        """Packets to this machine vanish. Packets from it still arrive."""
        self._set_neighbour(other, _NOWHERE)
        self._unreachable.add(other)

    def heal(self) -> None:
        """Everything is connected again."""
        self._network.ip("link", "set", self.port, "master", self._network.name)
        for other in self._unreachable:
            self._set_neighbour(other, other.hardware_address)
        self._unreachable.clear()

    def _set_neighbour(self, other: "Place", hardware_address: str) -> None:
        words = (other.address, "lladdr", hardware_address, "dev", _DEVICE, "nud", "permanent")
        self._network.ip("-n", self.namespace, "neigh", "replace", *words)

    def remove(self) -> None:
        """Delete the namespace, with everything in it."""
        with contextlib.suppress(OracleError):
            self._network.ip("netns", "delete", self.namespace)


class Network:
    """One bridge and its places; a context manager."""

    def __init__(self) -> None:
        if os.geteuid() != 0:
            raise OracleError("network namespaces need root: run this test as root")
        self._ip = tool("ip", "install iproute2")
        self.enter = tool("nsenter", "install util-linux")
        process_id = os.getpid()
        self.name = f"{PREFIX}{process_id}x"
        self._prefix = f"10.{200 + (process_id >> 8) % 50}.{process_id % 256}"
        self.places: list[Place] = []

    def ip(self, *words: str) -> str:
        """Run iproute2's `ip`."""
        return run([self._ip, *words])

    def address_of(self, number: int) -> str:
        """The address of a place."""
        return f"{self._prefix}.{number}"

    def __enter__(self) -> Self:
        self._remove_leftovers()
        self.ip("link", "add", self.name, "type", "bridge")
        self.ip("address", "add", f"{self.address_of(_GATEWAY)}/24", "dev", self.name)
        self.ip("link", "set", self.name, "up")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for place in self.places:
            place.remove()
        with contextlib.suppress(OracleError):
            self.ip("link", "delete", self.name)

    def add(self) -> Place:
        """One more machine."""
        place = Place(self, len(self.places) + 1)
        self.places.append(place)
        place.make()
        return place

    def heal(self) -> None:
        """Everything is connected again."""
        for place in self.places:
            place.heal()

    def _remove_leftovers(self) -> None:
        for namespace in _without_owner(self.ip("netns", "list")):
            with contextlib.suppress(OracleError):
                self.ip("netns", "delete", namespace)
        for bridge in _without_owner(self.ip("-o", "link", "show", "type", "bridge")):
            with contextlib.suppress(OracleError):
                self.ip("link", "delete", bridge)


def _without_owner(text: str) -> set[str]:
    """The names in this text whose process is gone."""
    return {found[0] for found in _OWNED.finditer(text) if not Path(f"/proc/{found[1]}").exists()}
