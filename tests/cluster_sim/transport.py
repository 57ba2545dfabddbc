"""`SimulatedTransport`: one end of a simulated connection, with asyncio's interface.

Bytes arrive in order and once, or the connection ends (`network` has the faults). Reading and
writing pause as in asyncio's transports: at most `WINDOW_BYTES` are under way in one direction. It
opens no connection.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import Buffer

from tests.cluster_sim.loop import Machine

if TYPE_CHECKING:
    from tests.cluster_sim.network import SimulatedNetwork

WINDOW_BYTES: Final = 262_144
"""Bytes that are written and not read: more stay with the sender."""
DELAY_SECONDS: Final = (0.0001, 0.002)
SPLIT_SHARE: Final = 0.1
"""Share of writes that arrive in two pieces."""


@dataclass(eq=False)
class Host:
    """The network side of a machine; it outlives the process."""

    name: str
    has_power: bool = True
    is_slow: bool = False
    cut_to: set[str] = field(default_factory=set)
    """Hosts to which nothing arrives from here."""
    crowded_to: set[str] = field(default_factory=set)
    """Hosts to which everything arrives late from here."""
    transports: "dict[SimulatedTransport, None]" = field(default_factory=dict)


class SimulatedTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self, network: "SimulatedNetwork", machine: Machine, here: Host, there: Host, port: int
    ) -> None:
        super().__init__({"peername": (there.name, port), "sockname": (here.name, port)})
        self.network = network
        self.machine = machine
        self.here = here
        self.there = there
        self.peer: SimulatedTransport
        self._protocol: Any = None
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._under_way_bytes = 0
        self._arrives_at_seconds = 0.0
        self._held: list[tuple[str, bytes]] = []
        """Pieces that a cut delays."""
        self._received: deque[bytes] = deque()
        self._high_bytes = 65_536
        self._low_bytes = 16_384
        self._is_writing_paused = False
        self._is_reading = True
        self._is_closing = False
        self._has_closed = False
        self._has_peer_ended = False
        here.transports[self] = None

    # --- asyncio.Transport ---

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Use another protocol."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set when writing pauses."""
        self._high_bytes = 65_536 if high is None else high
        self._low_bytes = self._high_bytes // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """Return the bytes that were not handed to the network."""
        return self._unsent_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the limits."""
        return self._low_bytes, self._high_bytes

    def is_reading(self) -> bool:
        """Return whether bytes are delivered."""
        return self._is_reading

    def pause_reading(self) -> None:
        """Deliver no bytes."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Deliver bytes again, in a later turn."""
        if not self._is_reading:
            self._is_reading = True
            self.network.loop.at(self.machine, 0.0, self._deliver)

    def is_closing(self) -> bool:
        """Return whether the connection ends."""
        return self._is_closing

    def can_write_eof(self) -> bool:
        """Return False."""
        return False

    def write(self, data: Buffer) -> None:
        """Send bytes."""
        if self._is_closing:
            return
        piece = bytes(data)
        if not piece:
            return
        self._unsent.append(piece)
        self._unsent_bytes += len(piece)
        self._push()
        if self._unsent_bytes > self._high_bytes and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Send several pieces as one."""
        self.write(b"".join(bytes(one) for one in list_of_data))

    def close(self) -> None:
        """End the connection after the written bytes."""
        if self._is_closing:
            return
        self._is_closing = True
        if not self._unsent:
            self._finish()

    def abort(self) -> None:
        """Reset the connection."""
        if self._has_closed:
            return
        self._is_closing = True
        self._unsent.clear()
        self._unsent_bytes = 0
        self._send("reset", b"")
        self._lose(None)

    # --- Sending ---

    def _push(self) -> None:
        """Hand bytes to the network while the window has room."""
        while self._unsent and self._under_way_bytes < WINDOW_BYTES:
            piece = self._unsent.popleft()
            self._unsent_bytes -= len(piece)
            self._under_way_bytes += len(piece)
            draws = self.network.random
            if len(piece) > 1 and draws.random() < SPLIT_SHARE:
                place = draws.randrange(1, len(piece))
                self._send("data", piece[:place])
                piece = piece[place:]
            self._send("data", piece)

    def _send(self, kind: str, piece: bytes) -> None:
        if self.there.name in self.here.cut_to:
            self._held.append((kind, piece))
            return
        loop = self.network.loop
        delay = self.network.delay_seconds(self.here, self.there)
        self._arrives_at_seconds = max(self._arrives_at_seconds + 1e-9, loop.time() + delay)
        peer = self.peer
        if peer.machine.is_dead:
            # The system of the peer knows no such connection; without power it does not answer.
            if kind == "data" and self.there.has_power:
                loop.at(self.machine, 2 * delay, self.reset_by_network)
            return
        loop.call_at(
            self._arrives_at_seconds,
            peer.arrived,
            kind,
            piece,
            context=peer.machine.context.copy(),
        )

    def healed(self) -> None:
        """Send the pieces that a cut delayed."""
        held, self._held = self._held, []
        for kind, piece in held:
            self._send(kind, piece)

    def _finish(self) -> None:
        self._send("end", b"")
        self._lose(None)

    # --- Receiving ---

    def arrived(self, kind: str, piece: bytes) -> None:
        """Take a piece from the network; on this machine."""
        if self._has_closed:
            if kind == "data":
                self._send("reset", b"")
            return
        if kind == "reset":
            self._is_closing = True
            self._lose(ConnectionResetError(104, "Connection reset by peer"))
            return
        if kind == "end":
            self._has_peer_ended = True
        else:
            self._received.append(piece)
        self._deliver()

    def _deliver(self) -> None:
        while self._received and self._may_deliver():
            piece = self._received.popleft()
            size = self._feed(piece)
            self.peer.taken(size)
            if size < len(piece):
                self._received.appendleft(piece[size:])
        if self._has_peer_ended and not self._received and not self._has_closed:
            self._is_closing = True
            if not self._protocol.eof_received():
                self._lose(None)

    def _may_deliver(self) -> bool:
        return self._is_reading and not self._has_closed

    def _feed(self, piece: bytes) -> int:
        """Give bytes to the protocol until it pauses; return their number."""
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(piece)
            return len(piece)
        fed = 0
        while fed < len(piece) and self._may_deliver():
            buffer = memoryview(protocol.get_buffer(-1)).cast("B")
            size = min(len(buffer), len(piece) - fed)
            buffer[:size] = piece[fed : fed + size]
            fed += size
            protocol.buffer_updated(size)
        return fed

    def taken(self, size: int) -> None:
        """The peer has read bytes: the window has room. The own machine learns it later."""
        self._under_way_bytes -= size
        if self._unsent or self._is_writing_paused:
            self.network.loop.at(self.machine, DELAY_SECONDS[0], self._room)

    def _room(self) -> None:
        if self._has_closed:
            return
        self._push()
        if self._is_writing_paused and self._unsent_bytes <= self._low_bytes:
            self._is_writing_paused = False
            self._protocol.resume_writing()
        if self._is_closing and not self._unsent:
            self._finish()

    # --- The end ---

    def _lose(self, error: Exception | None) -> None:
        if not self._has_closed:
            self._has_closed = True
            self.here.transports.pop(self, None)
            self.network.loop.at(self.machine, 0.0, self._protocol.connection_lost, error)

    def reset_by_network(self) -> None:
        """End the connection with an error, at this end."""
        if not self._has_closed:
            self._is_closing = True
            self._received.clear()
            self._lose(ConnectionResetError(104, "Connection reset by peer"))

    def peer_is_back(self) -> None:
        """The host of the peer runs again: retransmitted bytes get a reset."""
        if self._under_way_bytes and self.peer.machine.is_dead:
            self.network.loop.at(self.machine, DELAY_SECONDS[1], self.reset_by_network)

    def vanish(self) -> None:
        """Close this end without a message to its machine, which is dead."""
        self._is_closing = self._has_closed = True
        self.here.transports.pop(self, None)

    def send_reset(self) -> None:
        """Send a reset, as the system of a dead process does."""
        self._send("reset", b"")
