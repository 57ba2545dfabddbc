"""`Broker`: a real broker in this process, on a free port, for tests and notebooks.

    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_server})

It runs on an event loop of its own in a thread of its own, so that blocking clients work beside it.
Data is in memory and gone at the end, unless a directory is given. It speaks over a real socket:
what works here works against `penstock serve`. Code that has a loop already can use
`penstock.BrokerServer` in it directly.
"""

import asyncio
import threading
from collections.abc import Mapping
from pathlib import PurePath
from types import TracebackType
from typing import Self

from penstock.core.config import BrokerConfig
from penstock.core.metrics import Collected
from penstock.core.settings import Settings
from penstock.node.server import BrokerServer, run
from penstock.storage.filesystem import FileSystem

START_SECONDS_MAX = 30.0
"""A start that takes longer has failed: a log of a terabyte is not what tests use."""


class Broker:
    """A broker in a thread; start and stop it as a context manager."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        data_dir: str | PurePath | None = None,
        filesystem: FileSystem | None = None,
    ) -> None:
        """With `settings` those are used as they are; else memory or `data_dir`, on a free port.

        A `filesystem`, such as a `FaultyDisk`, stands in for the disk of the logs.
        """
        if settings is None:
            settings = (
                BrokerConfig(port=0, storage="memory")
                if data_dir is None
                else BrokerConfig(port=0, data_dir=data_dir)
            )
        self._settings = settings
        self._server = BrokerServer(settings, filesystem=filesystem)
        self._is_ready = threading.Event()
        self._failure: BaseException | None = None
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-broker", daemon=True)

    @property
    def bootstrap_server(self) -> str:
        """What a client's `bootstrap.servers` takes."""
        return self._server.bootstrap_server

    @property
    def host(self) -> str:
        """The address that clients connect to."""
        return self._server.host

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self._server.port

    def metrics(self) -> Mapping[str, float]:
        """Every metric now, by name."""
        return self._server.metrics()

    def collect_metrics(self) -> list[Collected]:
        """Every metric now, with what an exporter must know of it."""
        return self._server.collect_metrics()

    def start(self) -> None:
        """Start, and return when the broker answers; raises what went wrong."""
        self._thread.start()
        if not self._is_ready.wait(START_SECONDS_MAX):
            raise TimeoutError(f"the broker did not start within {START_SECONDS_MAX:.0f} s")
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        """Finish what was accepted and stop; raises what went wrong meanwhile."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            run(self._serve(), use_uvloop=self._settings.node.uvloop)
        except BaseException as error:  # noqa: BLE001 (raised again in the thread that asked)
            self._failure = error
        finally:
            self._is_ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with self._server:
            self._is_ready.set()
            await self._stop.wait()
