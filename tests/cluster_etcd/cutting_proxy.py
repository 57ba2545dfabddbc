"""`CuttingProxy`: a TCP proxy on loopback that cuts, freezes, and swallows answers on demand.

Guarantees: bytes are passed on unchanged while it is well. It is NOT a proxy of gRPC: after answers
were swallowed, the connection is of no use and is cut by `heal`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from enum import Enum

from tests.oracle.running_broker import HOST


class Mode(Enum):
    WELL = "well"
    CUT = "cut"
    """Connections are closed, and new ones too."""
    FROZEN = "frozen"
    """Connections stay open and nothing is passed on; new ones are accepted."""
    NO_ANSWERS = "no answers"
    """Requests are passed on, answers are swallowed."""


class CuttingProxy:
    """One listening port in front of one server."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._mode = Mode.WELL
        self._is_well = asyncio.Event()
        self._is_well.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def set(self, mode: Mode) -> None:
        """Change what happens, for open connections too."""
        self._mode = mode
        if mode is Mode.FROZEN:
            self._is_well.clear()
        else:
            self._is_well.set()
        if mode is Mode.CUT:
            self.cut()

    def cut(self) -> None:
        """Close every connection, with a reset."""
        for writer in self._writers:
            writer.transport.abort()

    def heal(self) -> None:
        """Pass on again; connections of before are cut."""
        self.cut()
        self.set(Mode.WELL)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator["CuttingProxy"]:
        server = await asyncio.start_server(self._serve, HOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self.set(Mode.CUT)
            server.close()
            await asyncio.sleep(0.01)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            if self._mode is Mode.CUT:
                return
            server_reader, server_writer = await asyncio.open_connection(HOST, self._target_port)
            self._writers.add(server_writer)
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._pump(reader, server_writer, is_answer=False))
                    tasks.create_task(self._pump(server_reader, writer, is_answer=True))
            finally:
                self._writers.discard(server_writer)
                server_writer.transport.abort()
        except (OSError, ExceptionGroup):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        while data := await reader.read(65_536):
            await self._is_well.wait()
            if is_answer and self._mode is Mode.NO_ANSWERS:
                continue
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError


@contextlib.asynccontextmanager
async def proxies(*ports: int) -> AsyncIterator[list[CuttingProxy]]:
    """Yield a proxy in front of each port."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(CuttingProxy(port).serving()) for port in ports]
