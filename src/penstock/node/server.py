"""`BrokerServer`: a broker as an async context manager; starts and stops its parts in order.

    async with BrokerServer(BrokerConfig(port=0, data_dir="data")) as server:
        print(server.host, server.port)

When entering returns, the broker answers. When leaving returns, everything that was accepted is
answered and on disk, and the data directory says that the stop was clean. A part that fails takes
the whole broker down with its exception: half a broker is worse than none.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from penstock.core.config import BrokerConfig
from penstock.core.settings import Settings
from penstock.node.wiring import Parts, start_parts

logger = logging.getLogger(__name__)


class BrokerServer:
    """One broker in this process. It can be started once."""

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = BrokerConfig() if settings is None else settings
        self._stack = AsyncExitStack()
        self._parts: Parts | None = None

    @property
    def host(self) -> str:
        """The address that clients are told to connect to."""
        return self._running.advertised_host

    @property
    def port(self) -> int:
        """The port that clients are told to connect to; the real one when 0 was asked for."""
        return self._running.advertised_port

    @property
    def bootstrap_server(self) -> str:
        """What a client's `bootstrap.servers` takes."""
        return f"{self.host}:{self.port}"

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, made at the first start on a data directory."""
        return self._running.metadata.image.cluster_id

    def metrics(self) -> Mapping[str, float]:
        """Every metric now, by name."""
        return self._running.metrics.snapshot()

    async def run(self) -> None:
        """Start, serve until cancelled, stop."""
        async with self:
            await asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Self:
        assert self._parts is None, "a BrokerServer is started once"
        async with AsyncExitStack() as stack:
            self._parts = await start_parts(self._settings, stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._stack.__aexit__(exc_type, exc_value, traceback)

    @property
    def _running(self) -> Parts:
        assert self._parts is not None, "the broker is not started"
        return self._parts
