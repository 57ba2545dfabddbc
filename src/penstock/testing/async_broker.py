"""`AsyncBroker`: `Broker` for code that runs on an event loop.

    async with AsyncBroker() as broker:
        await run_my_service(broker.bootstrap_server)
        await broker.crash()

The broker itself has its own thread and loop, like `Broker`. Here every slow call runs on a worker
thread, so that the caller's loop continues meanwhile: test and tested code mostly share that loop.
`AsyncBroker.of(broker)` returns this interface for a running broker.

It is for asyncio; under trio use `Broker` on a thread.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import PurePath
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.core.settings.tree import Settings
from penstock.storage.disk.filesystem import FileSystem
from penstock.testing.broker import Broker
from penstock.testing.limits import ARRIVAL_SECONDS_MAX

if TYPE_CHECKING:
    from penstock.testing.topic_records import Text, TopicRecord


class AsyncBroker:
    """A broker in a thread, for an event loop; start and stop it as a context manager."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        data_dir: str | PurePath | None = None,
        filesystem: FileSystem | None = None,
    ) -> None:
        """As `Broker`."""
        self.broker = Broker(settings, data_dir=data_dir, filesystem=filesystem)

    @classmethod
    def of(cls, broker: Broker) -> "AsyncBroker":
        """Return this interface for a running broker, which its starter must stop."""
        face = cls.__new__(cls)
        face.broker = broker
        return face

    @property
    def bootstrap_server(self) -> str:
        """Return the value for a client's `bootstrap.servers`."""
        return self.broker.bootstrap_server

    async def start(self) -> None:
        """As `Broker.start`."""
        await asyncio.to_thread(self.broker.start)

    async def stop(self) -> None:
        """As `Broker.stop`."""
        await asyncio.to_thread(self.broker.stop)

    async def restart(self) -> None:
        """As `Broker.restart`."""
        await asyncio.to_thread(self.broker.restart)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    # --- Faults ---

    async def pause(self) -> None:
        """As `Broker.pause`."""
        await asyncio.to_thread(self.broker.pause)

    async def resume(self) -> None:
        """As `Broker.resume`."""
        await asyncio.to_thread(self.broker.resume)

    async def crash(self) -> None:
        """As `Broker.crash`."""
        await asyncio.to_thread(self.broker.crash)

    async def drop_connections(self) -> None:
        """As `Broker.drop_connections`."""
        await asyncio.to_thread(self.broker.drop_connections)

    async def throttle(
        self, *, bytes_per_second: int | None = None, latency_ms: float = 0.0
    ) -> None:
        """As `Broker.throttle`."""
        await asyncio.to_thread(
            self.broker.throttle, bytes_per_second=bytes_per_second, latency_ms=latency_ms
        )

    async def unthrottle(self) -> None:
        """As `Broker.unthrottle`."""
        await asyncio.to_thread(self.broker.unthrottle)

    def disk_full(self) -> None:
        """As `Broker.disk_full`; it does not block."""
        self.broker.disk_full()

    def disk_free(self) -> None:
        """As `Broker.disk_free`."""
        self.broker.disk_free()

    @contextlib.asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """As `Broker.paused`."""
        await self.pause()
        try:
            yield
        finally:
            if self.broker.is_running:
                await self.resume()

    @contextlib.asynccontextmanager
    async def crashed(self) -> AsyncIterator[None]:
        """As `Broker.crashed`."""
        await self.crash()
        try:
            yield
        finally:
            await self.restart()

    @contextlib.asynccontextmanager
    async def throttled(
        self, *, bytes_per_second: int | None = None, latency_ms: float = 0.0
    ) -> AsyncIterator[None]:
        """As `Broker.throttled`."""
        await self.throttle(bytes_per_second=bytes_per_second, latency_ms=latency_ms)
        try:
            yield
        finally:
            await self.unthrottle()

    def full_disk(self) -> contextlib.AbstractContextManager[None]:
        """As `Broker.full_disk`."""
        return self.broker.full_disk()

    # --- Topics ---

    async def create_topic(
        self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """As `Broker.create_topic`."""
        await asyncio.to_thread(
            self.broker.create_topic, topic, partitions=partitions, configs=configs
        )

    async def produce(
        self,
        topic: str,
        *values: "Text | None",
        key: "Text | None" = None,
        headers: "Mapping[str, Text] | None" = None,
        partition: int | None = None,
    ) -> None:
        """As `Broker.produce`."""
        await asyncio.to_thread(
            self.broker.produce, topic, *values, key=key, headers=headers, partition=partition
        )

    async def records(
        self,
        topic: str,
        *,
        count: int | None = None,
        timeout_seconds: float = ARRIVAL_SECONDS_MAX,
        partitions: Sequence[int] = (),
        committed: bool = True,
    ) -> "list[TopicRecord]":
        """As `Broker.records`, without blocking the caller's loop."""
        return await asyncio.to_thread(
            self.broker.records,
            topic,
            count=count,
            timeout_seconds=timeout_seconds,
            partitions=partitions,
            committed=committed,
        )
