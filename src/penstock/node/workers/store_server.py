"""`StoreServer`: the supervisor's metadata store, for one worker.

Guarantees: the calls of a worker are carried out in the order of their messages. When the worker's
process ends, for any reason, its sessions end at once: other workers take over without waiting for
a time to live. A call that the worker sent before its end may still be applied; that is safe,
because its compares name the registration of the worker.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from penstock.cluster.stores.port import MetadataStore
from penstock.core.errors import StoreError
from penstock.node.workers import store_messages as messages
from penstock.node.workers.worker_channel import Channel, Message

logger = logging.getLogger(__name__)


class StoreServer:
    """Serves the store over one channel."""

    def __init__(
        self, store: MetadataStore, channel: Channel, on_other: Callable[[Message], None]
    ) -> None:
        """`on_other` gets the messages that are not for the store."""
        self._store = store
        self._channel = channel
        self._on_other = on_other
        self._calls: set[asyncio.Task[None]] = set()
        self._watches: dict[int, asyncio.Task[None]] = {}
        self._sessions: set[int] = set()
        self._methods: dict[str, Callable[..., Awaitable[object]]] = {
            "read": self._read,
            "read_prefix": self._read_prefix,
            "transact": self._transact,
            "open_session": self._open_session,
            "keep_alive": store.keep_alive,
            "end_session": store.end_session,
        }

    async def run(self) -> None:
        """Serve until the worker is gone; then its sessions have ended."""
        try:
            while (message := await self._channel.receive()) is not None:
                self._take(message)
        finally:
            await self._end()

    def _take(self, message: Message) -> None:
        match message:
            case ["call", int(number), str(method), list(arguments)]:
                self._begin_call(self._answer(number, method, arguments))
            case ["watch", int(number), str(prefix), int(revision)]:
                work = self._watch(number, prefix, revision)
                self._watches[number] = asyncio.get_running_loop().create_task(work)
            case ["unwatch", int(number)]:
                watch = self._watches.pop(number, None)
                if watch is not None:
                    watch.cancel()
            case _:
                self._on_other(message)

    def _begin_call(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _answer(self, number: int, method: str, arguments: list[Any]) -> None:
        try:
            result = await self._methods[method](*arguments)
        except StoreError as error:
            self._channel.send("failed", number, *messages.write_error(error))
        else:
            self._channel.send("answer", number, result)
        await self._channel.flush()

    async def _read(self, key: str, revision: int | None) -> object:
        return messages.write_snapshot(await self._store.read(key, revision=revision))

    async def _read_prefix(self, prefix: str, revision: int | None) -> object:
        return messages.write_snapshot(await self._store.read_prefix(prefix, revision=revision))

    async def _transact(
        self, compares: list[Any], operations: list[Any], read_on_failure: list[str]
    ) -> object:
        result = await self._store.transact(
            messages.read_compares(compares),
            messages.read_operations(operations),
            read_on_failure=read_on_failure,
        )
        return messages.write_result(result)

    async def _open_session(self, time_to_live_seconds: float) -> object:
        session = await self._store.open_session(time_to_live_seconds)
        self._sessions.add(session)
        return session

    async def _watch(self, number: int, prefix: str, revision: int) -> None:
        failure: list[str] = []
        try:
            async for batch in self._store.watch(prefix, from_revision=revision):
                self._channel.send("batch", number, messages.write_batch(batch))
                # A worker that reads slowly holds up its own watch only; the store bounds it.
                await self._channel.flush()
        except StoreError as error:
            failure = messages.write_error(error)
        self._channel.send("watch_ended", number, failure)

    async def _end(self) -> None:
        for watch in self._watches.values():
            watch.cancel()
        # A session that is being opened must be known before all of them are ended.
        await asyncio.gather(*self._watches.values(), *self._calls, return_exceptions=True)
        for session in self._sessions:
            try:
                await self._store.end_session(session)
            except StoreError as error:
                logger.warning("session %d ends by its time to live: %s", session, error)
        await self._channel.close()
