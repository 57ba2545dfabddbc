"""`penstock serve` with a door: a client of a socket file gets every metric as JSON.

    python host.py DOOR serve --config penstock.toml ...

It is the command that users start, unchanged but for the class of its server, so that settings are
read and watched as they are for users. Only Penstock itself is imported: this runs on the
interpreter of an installed, compiled package too.
"""

import asyncio
import json
import sys
from types import TracebackType
from typing import Self

from penstock.node import server


class WatchedServer(server.BrokerServer):
    """A broker that reports its metrics."""

    door = ""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._listener = await asyncio.start_unix_server(self._tell, self.door)
        return self

    async def _tell(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(json.dumps(dict(self.metrics())).encode())
        writer.close()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        self._listener.close()
        return await super().__aexit__(exc_type, exc_value, traceback)


def run(kind: type[WatchedServer]) -> None:
    """Run the command line with this class of server; its first argument is the socket file."""
    kind.door = sys.argv.pop(1)
    server.BrokerServer = kind  # type: ignore[misc]
    from penstock.cli.main import main as penstock

    penstock()


def main() -> None:
    run(WatchedServer)


if __name__ == "__main__":
    main()
