"""`Network`: faults between a broker's sockets and its connections: resets, delay, a slow line.

Each connection is wrapped when it is accepted. Without a fault, bytes pass unchanged. With a
`Line`, each connection has a limit of bytes per second in each direction, and each answer is
delayed. The order is kept, and for the broker it looks like a real slow client. `reset_all` ends
connections like a dead machine: unsent bytes are lost, and the peer gets a reset. After `cut` new
connections are reset too.

Everything here runs on the broker's event loop. It is not a proxy: there is one socket, and the
broker sees the client's own address.
"""

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, cast

from typing_extensions import Buffer

_SLICES_PER_SECOND: Final = 20
"""Number of pieces for the bytes of one second: a slow line is even, without bursts."""
_SEND_NO_MORE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with a time of zero: closing resets the connection."""

_Bytes = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Line:
    """The speed of the network; None means no limit."""

    bytes_per_second: int | None = None
    latency_ms: float = 0.0

    def __post_init__(self) -> None:
        if self.bytes_per_second is not None and self.bytes_per_second <= 0:
            raise ValueError("bytes_per_second must be positive; pause() is what stops everything")
        if self.latency_ms < 0:
            raise ValueError("latency_ms must not be negative")

    @property
    def slice_bytes(self) -> int | None:
        """Return the largest piece that is sent at once."""
        if self.bytes_per_second is None:
            return None
        return max(1, self.bytes_per_second // _SLICES_PER_SECOND)

    def seconds_for(self, size: int) -> float:
        """Return the seconds that `size` bytes need."""
        return 0.0 if self.bytes_per_second is None else size / self.bytes_per_second


class Network:
    """The connections of one run of a broker."""

    def __init__(self, line: Line | None = None) -> None:
        self.line = line
        self._connections: set[_Connection] = set()
        self._is_cut = False

    def wrap(self, inner: asyncio.BufferedProtocol) -> asyncio.BufferedProtocol:
        """Return the protocol that the event loop uses instead of a connection."""
        return _Connection(self, inner)

    def set_line(self, line: Line | None) -> None:
        """Change the line; waiting bytes are sent when the line is fast again."""
        self.line = line
        for connection in tuple(self._connections):
            connection.line_changed()

    def reset_all(self) -> None:
        """End every connection with a reset."""
        for connection in tuple(self._connections):
            connection.reset()

    def cut(self) -> None:
        """End every connection, and each new one, with a reset."""
        self._is_cut = True
        self.reset_all()

    def joined(self, connection: "_Connection") -> bool:
        """Add an accepted connection; return whether it may stay open."""
        self._connections.add(connection)
        return not self._is_cut

    def left(self, connection: "_Connection") -> None:
        """Remove a closed connection."""
        self._connections.discard(connection)


class _Connection(asyncio.BufferedProtocol):
    """A wrapper between a transport and the broker's protocol."""

    def __init__(self, network: Network, inner: asyncio.BufferedProtocol) -> None:
        self._network = network
        self._inner = inner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._out: _SlowTransport | None = None
        self._is_dead = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wrap the transport of a new client."""
        self._transport = cast("asyncio.Transport", transport)
        self._out = _SlowTransport(self._network, self._transport, self._inner, self._loop)
        is_alive = self._network.joined(self)
        self._inner.connection_made(self._out)
        if not is_alive:
            self.reset()

    def reset(self) -> None:
        """Reset the connection; no more bytes are read or sent."""
        assert self._transport is not None
        assert self._out is not None
        self._is_dead = True
        opened = self._transport.get_extra_info("socket")
        # A socket that is closed already needs no reset.
        with contextlib.suppress(OSError):
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _SEND_NO_MORE)
        self._out.abort()

    def line_changed(self) -> None:
        """Apply the new speed of the network."""
        assert self._out is not None
        self._out.line_changed()

    def get_buffer(self, sizehint: int) -> Buffer:
        """Return the buffer for the next bytes; a short one on a slow line."""
        buffer = memoryview(self._inner.get_buffer(sizehint))
        line = self._network.line
        slice_bytes = None if line is None else line.slice_bytes
        return buffer if slice_bytes is None else buffer[:slice_bytes]

    def buffer_updated(self, nbytes: int) -> None:
        """Pass received bytes on; on a slow line the next read is delayed."""
        if self._is_dead:
            return
        assert self._out is not None
        self._out.received(nbytes)
        self._inner.buffer_updated(nbytes)

    def eof_received(self) -> bool | None:
        """Handle the end of the client's stream; delayed answers are still sent."""
        assert self._out is not None
        stays_open = bool(self._inner.eof_received())
        if not stays_open and self._out.has_unsent:
            self._out.close()
            return True
        return stays_open

    def pause_writing(self) -> None:
        """Note that the kernel's buffer is full."""
        assert self._out is not None
        self._out.kernel_is_full(is_full=True)

    def resume_writing(self) -> None:
        """Note that the kernel's buffer has room again."""
        assert self._out is not None
        self._out.kernel_is_full(is_full=False)

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the end of the connection."""
        assert self._out is not None
        self._network.left(self)
        self._out.stop()
        self._inner.connection_lost(exc)


class _SlowTransport(asyncio.Transport):
    """A transport that delays bytes until their sending time."""

    def __init__(
        self,
        network: Network,
        transport: asyncio.Transport,
        inner: asyncio.BufferedProtocol,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__()
        self._network = network
        self._transport = transport
        self._inner = inner
        self._loop = loop
        self._unsent: deque[tuple[float, bytes]] = deque()
        """Pieces of answers, each with its sending time."""
        self._unsent_bytes = 0
        self._line_free_at = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        self._read_alarm: asyncio.TimerHandle | None = None
        self._high_bytes = 65_536
        self._is_kernel_full = False
        self._is_inner_paused = False
        self._is_reading_wanted = True
        self._is_closing = False

    @property
    def has_unsent(self) -> bool:
        """Whether delayed bytes are left."""
        return bool(self._unsent)

    # --- Out ---

    def write(self, data: _Bytes) -> None:
        """Send now, or at the sending time of the bytes."""
        line = self._network.line
        if line is None and not self._unsent:
            self._transport.write(data)
            return
        if line is None:
            line = Line()
        # A copy: the broker may reuse its buffer when this returns.
        self._hold_back(line, bytes(data))

    def writelines(self, list_of_data: Iterable[_Bytes]) -> None:
        """Send several buffers in their order."""
        if self._network.line is None and not self._unsent:
            self._transport.writelines(list_of_data)
        else:
            self.write(b"".join(list_of_data))

    def _hold_back(self, line: Line, data: bytes) -> None:
        now = self._loop.time()
        slice_bytes = line.slice_bytes or len(data) or 1
        for begin in range(0, len(data), slice_bytes):
            piece = data[begin : begin + slice_bytes]
            self._line_free_at = max(now, self._line_free_at) + line.seconds_for(len(piece))
            self._unsent.append((self._line_free_at + line.latency_ms / 1_000, piece))
        self._unsent_bytes += len(data)
        self._set_alarm()
        self._pause_or_resume_inner()

    def _set_alarm(self) -> None:
        if self._alarm is None and self._unsent:
            self._alarm = self._loop.call_at(self._unsent[0][0], self._send_due)

    def _send_due(self) -> None:
        self._alarm = None
        now = self._loop.time()
        while self._unsent and self._unsent[0][0] <= now:
            self._send_first()
        self._set_alarm()
        self._after_sending()

    def _send_first(self) -> None:
        _, piece = self._unsent.popleft()
        self._unsent_bytes -= len(piece)
        self._transport.write(piece)

    def _after_sending(self) -> None:
        self._pause_or_resume_inner()
        if self._is_closing and not self._unsent:
            self._transport.close()

    def line_changed(self) -> None:
        """Send all delayed bytes on a fast line; on another slow line they keep their times."""
        if self._network.line is None:
            self._cancel_alarms()
            self._line_free_at = 0.0
            while self._unsent:
                self._send_first()
            self._read_on()
            self._after_sending()

    def kernel_is_full(self, *, is_full: bool) -> None:
        """Note that the real transport pauses or resumes writing."""
        self._is_kernel_full = is_full
        self._pause_or_resume_inner()

    def _pause_or_resume_inner(self) -> None:
        """Pause or resume the broker's writing, as a transport with one buffer would."""
        low_bytes = self._high_bytes // 4 if self._is_inner_paused else self._high_bytes
        wants_pause = self._is_kernel_full or self._unsent_bytes > low_bytes
        if wants_pause and not self._is_inner_paused:
            self._is_inner_paused = True
            self._inner.pause_writing()
        elif not wants_pause and self._is_inner_paused:
            self._is_inner_paused = False
            self._inner.resume_writing()

    # --- In ---

    def received(self, nbytes: int) -> None:
        """Pause reading for the time that the received bytes need."""
        line = self._network.line
        seconds = 0.0 if line is None else line.seconds_for(nbytes)
        if seconds and self._read_alarm is None:
            self._transport.pause_reading()
            self._read_alarm = self._loop.call_later(seconds, self._read_on)

    def _read_on(self) -> None:
        self._read_alarm = None
        if self._is_reading_wanted and not self._transport.is_closing():
            self._transport.resume_reading()

    def pause_reading(self) -> None:
        """Pause reading for the broker."""
        self._is_reading_wanted = False
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading for the broker; on a slow line at the right time."""
        self._is_reading_wanted = True
        if self._read_alarm is None:
            self._transport.resume_reading()

    def is_reading(self) -> bool:
        """Whether bytes are read."""
        return self._is_reading_wanted

    # --- The rest of a transport ---

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the number of bytes that may wait before the broker's writing is paused."""
        self._transport.set_write_buffer_limits(high, low)
        self._high_bytes = 65_536 if high is None else high

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that wait here and in the transport."""
        return self._unsent_bytes + self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: object = None) -> object:
        """Return the extra info of the transport."""
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Whether the transport is closed or closing."""
        return self._is_closing or self._transport.is_closing()

    def close(self) -> None:
        """Close when everything is sent."""
        self._is_closing = True
        if not self._unsent:
            self._transport.close()

    def abort(self) -> None:
        """Close now; delayed bytes are lost."""
        self.stop()
        self._is_closing = True
        self._transport.abort()

    def stop(self) -> None:
        """Cancel timers and drop delayed bytes."""
        self._cancel_alarms()
        self._unsent.clear()
        self._unsent_bytes = 0

    def _cancel_alarms(self) -> None:
        for alarm in (self._alarm, self._read_alarm):
            if alarm is not None:
                alarm.cancel()
        self._alarm = self._read_alarm = None
