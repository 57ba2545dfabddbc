"""`FileSender`: sends one large answer past the transport, its records by `sendfile`.

The transport owns the socket; two writers would mix their bytes. So a sender begins only while the
transport's buffer is empty, and until it has ended all later answers go through it, in order
(`listener` ensures both). Guarantees:

- The client gets exactly the bytes that the frame's length promised, or the connection ends: a file
  that turned out shorter, or a disk that cannot be read, is an error for the owner.
- The event loop does not wait for the disk. Records that are no longer in the page cache when the
  socket takes them are loaded on a storage thread first.
- One call sends `SEND_TURN_BYTES_MAX` at most; a fast reader of a large answer does not hold up the
  other connections.
- Bytes that the socket does not accept at once wait for it through a duplicate of the descriptor,
  because event loops do not watch a descriptor for two. `close` closes it, and the files.

Not for TLS, which has to see the bytes: `ListenerState.sends_files` is the switch.
"""

import logging
import os
import socket
import sys
from asyncio import AbstractEventLoop, WriteTransport
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from penstock.core.cancellation import Cancellation
from penstock.core.limits import SEND_CHUNK_BYTES, SEND_TURN_BYTES_MAX
from penstock.protocol.encoder_source import Buffer
from penstock.storage.disk.file_range import (
    CHECK_TRUSTED_SECONDS,
    CutFileError,
    FileRange,
    is_in_file,
    sendable_range,
)

logger = logging.getLogger(__name__)

CAN_SEND_FILES: Final = sys.platform == "linux"
"""Elsewhere `sendfile` has other rules, or does not exist."""


def has_files(buffers: Sequence[Buffer]) -> bool:
    """Whether a part of an answer lies in a file."""
    return any(is_in_file(buffer) for buffer in buffers)


class Loader(Protocol):
    """Reads from the disk on a storage thread."""

    def load_cold(
        self,
        load: Callable[[], None],
        done: Callable[[Exception | None], None],
        client: Cancellation,
    ) -> None:
        """Run `load` on a thread, then `done` on the loop with the error, if there was one."""
        ...


class Owner(Protocol):
    """The connection."""

    def pause_writing(self) -> None:
        """The client does not take the answer at once."""
        ...

    def resume_writing(self) -> None:
        """Everything is sent."""
        ...

    def abort(self) -> None:
        """The answer cannot be sent as it was promised."""
        ...


class _FilePart:
    """Bytes of a file that are still to be sent."""

    __slots__ = ("checked_to", "file_range", "position", "size")

    def __init__(self, file_range: FileRange, size: int, now: float) -> None:
        self.file_range = file_range
        self.position = file_range.position
        self.size = size
        is_trusted = now - file_range.checked_at < CHECK_TRUSTED_SECONDS
        self.checked_to = self.position + size if is_trusted else self.position
        """Up to where the file is known to be in the page cache."""


def _socket_of(descriptor: int) -> socket.socket:
    """A duplicate socket; `socket.dup` would set the shared descriptor to blocking."""
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=descriptor)


def _send_bytes(target: socket.socket, data: memoryview, *, has_more: bool) -> int:
    flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
    if has_more:
        flags |= socket.MSG_MORE  # one segment for a small head and the bytes after it
    return target.send(data, flags)


def _send_file(target: socket.socket, part: _FilePart, size_max: int) -> int:
    """Send the bytes that are known to be in memory, at least one chunk."""
    size = min(part.size, size_max, part.checked_to - part.position)
    sent = part.file_range.source.send_to(target.fileno(), part.position, size)
    if sent == 0:
        raise CutFileError(f"a log file ends {part.size} bytes before the answer does")
    part.position += sent
    part.size -= sent
    return sent


class FileSender:
    """One large answer, and the answers after it, on the way to one client."""

    __slots__ = (
        "_borrowed_descriptor",
        "_is_watching",
        "_loader",
        "_loading",
        "_loop",
        "_owner",
        "_parts",
        "_socket",
        "left_bytes",
    )

    def __init__(
        self,
        owner: Owner,
        loop: AbstractEventLoop,
        loader: Loader,
        transport: WriteTransport,
    ) -> None:
        self._owner = owner
        self._loop = loop
        self._loader = loader
        self._borrowed_descriptor: int = transport.get_extra_info("socket").fileno()
        self._socket: socket.socket | None = None
        """A duplicate of the transport's, while bytes wait."""
        self._parts: deque[memoryview | _FilePart] = deque()
        self._is_watching = False
        self._loading: Cancellation | None = None
        self.left_bytes = 0
        """Bytes that the socket has not accepted yet."""

    def begin(self, buffers: Sequence[Buffer]) -> None:
        """Send what the socket accepts now; the owner is paused until the rest is sent."""
        self.add(buffers)
        borrowed = _socket_of(self._borrowed_descriptor)
        try:
            self._send_turn(borrowed)
            if self.left_bytes:
                self._socket = _socket_of(os.dup(self._borrowed_descriptor))
                self._watch()
        except OSError as error:
            self._fail(error)
        finally:
            borrowed.detach()
        if self.left_bytes:
            self._owner.pause_writing()

    def add(self, buffers: Sequence[Buffer]) -> None:
        """Send these after everything that was added before."""
        for buffer in buffers:
            file_range = sendable_range(buffer)
            size = len(buffer)
            if file_range is not None:
                self._parts.append(_FilePart(file_range, size, self._loop.time()))
            elif size:
                self._parts.append(memoryview(buffer))
            self.left_bytes += size

    def close(self) -> None:
        """Send no more, and close descriptors and files. Closing twice is harmless."""
        self._unwatch()
        self._parts.clear()
        self.left_bytes = 0
        loading, self._loading = self._loading, None
        if loading is not None:
            loading.cancel()
        duplicate, self._socket = self._socket, None
        if duplicate is not None:
            duplicate.close()

    # --- Sending ---

    def _continue(self) -> None:
        """Continue: the socket accepts more, or the missing bytes are in memory."""
        assert self._socket is not None
        try:
            self._send_turn(self._socket)
        except OSError as error:
            self._fail(error)
            return
        if self.left_bytes:
            self._watch()
        else:
            self.close()
            self._owner.resume_writing()

    def _fail(self, error: Exception) -> None:
        # A client that disconnects is not logged; a file that cannot be sent is.
        level = logging.DEBUG if isinstance(error, ConnectionError) else logging.INFO
        logger.log(level, "closing a connection whose answer cannot be sent: %s", error)
        self.close()
        self._owner.abort()

    def _send_turn(self, target: socket.socket) -> None:
        budget_bytes = SEND_TURN_BYTES_MAX
        parts = self._parts
        try:
            while parts and budget_bytes > 0:
                part = parts[0]
                if isinstance(part, memoryview):
                    sent = _send_bytes(target, part, has_more=len(parts) > 1)
                    left = part[sent:]
                    if left:
                        parts[0] = left
                    else:
                        parts.popleft()
                else:
                    if not self._is_in_memory(part):
                        return
                    sent = _send_file(target, part, budget_bytes)
                    if not part.size:
                        parts.popleft()
                self.left_bytes -= sent
                budget_bytes -= sent
        except BlockingIOError:
            return

    # --- Loading from the disk ---

    def _is_in_memory(self, part: _FilePart) -> bool:
        """Whether the next chunk can be sent without waiting; if not, it is being loaded."""
        size = min(part.size, SEND_CHUNK_BYTES)
        if part.position + size <= part.checked_to:
            return True
        if part.file_range.source.is_cached(part.position, size):
            part.checked_to = part.position + size
            return True
        self._unwatch()
        loading = self._loading = Cancellation()
        source, position = part.file_range.source, part.position

        def load() -> None:
            source.load(position, size)

        def loaded(error: Exception | None) -> None:
            if loading.is_cancelled:
                return
            self._loading = None
            if error is not None:
                self._fail(error)
                return
            part.checked_to = position + size
            self._continue()

        self._loader.load_cold(load, loaded, loading)
        return False

    # --- Waiting for the socket ---

    def _watch(self) -> None:
        if not self._is_watching and self._loading is None:
            assert self._socket is not None
            self._is_watching = True
            self._loop.add_writer(self._socket.fileno(), self._continue)

    def _unwatch(self) -> None:
        if self._is_watching:
            self._is_watching = False
            assert self._socket is not None
            self._loop.remove_writer(self._socket.fileno())


def left_bytes(sender: FileSender | None) -> int:
    """Bytes that a sender has not sent yet."""
    return 0 if sender is None else sender.left_bytes
