"""`ChannelStore`: the metadata store of a worker, which its supervisor has.

It implements the port `MetadataStore` over a channel. When the supervisor is gone, calls raise
`StoreError`, a transaction under way raises `AmbiguousStoreError`, and watches raise `StoreError`:
the worker ends then. A watch whose reader is slow ends with `CompactedError`; it never skips.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import count
from typing import Any

from penstock.cluster.stores.port import (
    CompactedError,
    Compare,
    EventBatch,
    Operation,
    Snapshot,
    TransactionResult,
    check_transaction,
)
from penstock.core.errors import AmbiguousStoreError, StoreError
from penstock.core.limits import STORE_WATCH_BATCHES_MAX
from penstock.node.workers import store_messages as messages
from penstock.node.workers.worker_channel import Channel, Message

_GONE = "the supervisor, which has the metadata store, is gone"


class _Watch:
    """The batches that wait for one reader."""

    __slots__ = ("batches", "failure", "is_ended", "wakened")

    def __init__(self) -> None:
        self.batches: deque[EventBatch] = deque()
        self.wakened = asyncio.Event()
        self.is_ended = False
        self.failure: StoreError | None = None

    def offer(self, batch: EventBatch) -> None:
        """Queue a batch."""
        if self.is_ended:
            return
        if len(self.batches) == STORE_WATCH_BATCHES_MAX:
            self.batches.clear()
            self.end(CompactedError("the watcher fell too far behind"))
            return
        self.batches.append(batch)
        self.wakened.set()

    def end(self, failure: StoreError | None) -> None:
        """End the watch after its queued batches."""
        if not self.is_ended:
            self.is_ended = True
            self.failure = failure
            self.wakened.set()


class ChannelStore:
    """The store at the other end of a channel. `run` reads the channel."""

    def __init__(
        self, channel: Channel, on_other: Callable[[Message], None] = lambda _: None
    ) -> None:
        """`on_other` gets the messages that are not of the store."""
        self._channel = channel
        self._on_other = on_other
        self._numbers = count(1)
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._watches: dict[int, _Watch] = {}
        self._is_gone = False
        self._is_closed = False

    async def run(self) -> None:
        """Read the channel; return when the supervisor is gone."""
        try:
            while (message := await self._channel.receive()) is not None:
                self._take(message)
        finally:
            self._is_gone = True
            for call in self._calls.values():
                if not call.done():
                    call.set_exception(StoreError(_GONE))
            for watch in self._watches.values():
                watch.end(StoreError(_GONE))

    def _take(self, message: Message) -> None:
        match message:
            case ["answer", int(number), result]:
                call = self._calls.get(number)
                if call is not None and not call.done():
                    call.set_result(result)
            case ["failed", int(number), str(kind), str(text)]:
                call = self._calls.get(number)
                if call is not None and not call.done():
                    call.set_exception(messages.read_error(kind, text))
            case ["batch", int(number), batch]:
                if number in self._watches:
                    self._watches[number].offer(messages.read_batch(batch))
            case ["watch_ended", int(number), list(failure)]:
                if number in self._watches:
                    self._watches[number].end(messages.read_error(*failure) if failure else None)
            case _:
                self._on_other(message)

    async def read(self, key: str, *, revision: int | None = None) -> Snapshot:
        """Return one key, now or at a revision."""
        return messages.read_snapshot(await self._call("read", key, revision))

    async def read_prefix(self, prefix: str, *, revision: int | None = None) -> Snapshot:
        """Return every key with the prefix, now or at a revision."""
        return messages.read_snapshot(await self._call("read_prefix", prefix, revision))

    async def transact(
        self,
        compares: Sequence[Compare],
        operations: Sequence[Operation],
        *,
        read_on_failure: Sequence[str] = (),
    ) -> TransactionResult:
        """Apply all operations if all compares hold, else none."""
        check_transaction(compares, operations, read_on_failure)
        was_sent = not self._is_gone and not self._is_closed
        try:
            result = await self._call(
                "transact",
                messages.write_compares(compares),
                messages.write_operations(operations),
                list(read_on_failure),
            )
        except StoreError as error:
            if was_sent and self._is_gone:
                raise AmbiguousStoreError(str(error)) from error
            raise
        return messages.read_result(result)

    async def watch(self, prefix: str, *, from_revision: int) -> AsyncIterator[EventBatch]:
        """Yield changes of keys with the prefix, starting at `from_revision`."""
        if self._is_closed:
            return
        self._check()
        number, watch = next(self._numbers), _Watch()
        self._watches[number] = watch
        self._channel.send("watch", number, prefix, from_revision)
        try:
            while True:
                await watch.wakened.wait()
                watch.wakened.clear()
                while watch.batches:
                    yield watch.batches.popleft()
                if watch.failure is not None:
                    raise watch.failure
                if watch.is_ended:
                    return
        finally:
            del self._watches[number]
            self._channel.send("unwatch", number)

    async def open_session(self, time_to_live_seconds: float) -> int:
        """Begin a session; it also ends with this process."""
        session: int = await self._call("open_session", time_to_live_seconds)
        return session

    async def keep_alive(self, session: int) -> None:
        """Restart the session's time to live."""
        await self._call("keep_alive", session)

    async def end_session(self, session: int) -> None:
        """End a session and delete its keys."""
        await self._call("end_session", session)

    async def close(self) -> None:
        """End open watches, and close the channel: sessions of this process end."""
        self._is_closed = True
        for watch in self._watches.values():
            watch.end(None)
        await self._channel.close()

    async def _call(self, method: str, *arguments: object) -> Any:  # noqa: ANN401 (from JSON)
        self._check()
        number = next(self._numbers)
        call = self._calls[number] = asyncio.get_running_loop().create_future()
        self._channel.send("call", number, method, arguments)
        try:
            return await call
        finally:
            del self._calls[number]

    def _check(self) -> None:
        if self._is_closed:
            raise StoreError("the metadata store is closed")
        if self._is_gone:
            raise StoreError(_GONE)
