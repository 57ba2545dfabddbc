"""`Channel`: messages between a supervisor and one of its workers, over a pair of sockets.

A message is a list in JSON, behind its length in four bytes. Its first element names its kind.
Guarantees: messages arrive whole and in order, or the channel ends. A length above
`MESSAGE_BYTES_MAX` ends it before memory is allocated. The end of the other process ends the
channel, because no other process has the sockets. It does NOT know the kinds.
"""

import asyncio
import json
import socket
import struct
from contextlib import suppress
from typing import Any, Final

MESSAGE_BYTES_MAX: Final = 268_435_456
"""Above the largest transaction of a store: 128 values of one mebibyte."""

_LENGTH: Final = struct.Struct(">I")

Message = list[Any]


class Channel:
    """One end, on the event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, end: socket.socket) -> "Channel":
        """Use one socket of a connected pair; the channel closes it."""
        return cls(*await asyncio.open_unix_connection(sock=end))

    def send(self, *message: object) -> None:
        """Send a message without waiting; after the end of the channel it is dropped."""
        if not self._writer.is_closing():
            self._writer.write(packed(message))

    async def flush(self) -> None:
        """Wait until the other end has read most messages; return at once if it is gone."""
        with suppress(OSError):
            await self._writer.drain()

    async def receive(self) -> Message | None:
        """Return the next message; None when the other end is gone."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            if length > MESSAGE_BYTES_MAX:
                return None
            return _read(await self._reader.readexactly(length))
        except (OSError, ValueError, asyncio.IncompleteReadError):
            return None

    async def close(self) -> None:
        """Close this end; the other one reads its end."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


def packed(message: object) -> bytes:
    """Return the bytes of a message."""
    data = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
    return _LENGTH.pack(len(data)) + data


def receive_now(end: socket.socket) -> Message | None:
    """Return the next message of a blocking socket; None when the other end is gone."""
    head = _exactly(end, _LENGTH.size)
    (length,) = _LENGTH.unpack(head) if len(head) == _LENGTH.size else (0,)
    data = _exactly(end, min(length, MESSAGE_BYTES_MAX))
    return _read(data) if data and len(data) == length else None


def _exactly(end: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = end.recv(size - len(data))
        if not part:
            break
        data += part
    return bytes(data)


def _read(data: bytes) -> Message:
    message = json.loads(data)
    if not isinstance(message, list) or not message:
        raise ValueError("no message")
    return message
