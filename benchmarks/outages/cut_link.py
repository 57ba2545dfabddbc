"""`CutLink`: the line between a site and its headquarters, as a TCP proxy that can be cut.

While it is cut, open connections carry nothing and are not closed, and new ones are accepted and
carry nothing: packets are lost, as on a real line. When it is restored, all of these are reset, and
clients have to connect again.
"""

import asyncio
import contextlib
import socket
import struct
import threading

CHUNK_BYTES = 65_536
STOP_SECONDS_MAX = 2.0


class CutLink:
    """A proxy on its own thread. `port` is the site's side."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self.port = 0
        self.carried_bytes = 0
        self._is_cut = False
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()

    def start(self) -> None:
        """Listen."""
        self._thread.start()
        self._ready.wait(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._accept, "127.0.0.1", self.port)
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self._is_cut:
                await reader.read()
                return
            there = await asyncio.open_connection("127.0.0.1", self._target_port)
            self._writers.add(there[1])
            await asyncio.gather(self._carry(reader, there[1]), self._carry(there[0], writer))
            self._writers.discard(there[1])
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                while self._is_cut:  # noqa: ASYNC110 (set by another thread)
                    await asyncio.sleep(0.05)
                self.carried_bytes += len(data)
                writer.write(data)
                await writer.drain()
        writer.close()

    def cut(self) -> None:
        """Carry nothing more."""
        self._is_cut = True

    def restore(self) -> None:
        """Carry new connections; reset the old ones."""
        self._loop.call_soon_threadsafe(self._reset)

    def _reset(self) -> None:
        for writer in self._writers:
            end = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        self._writers.clear()
        self._is_cut = False

    def stop(self) -> None:
        """End all connections, and listen no more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        self._reset()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left:
            await asyncio.wait(left, timeout=STOP_SECONDS_MAX)
