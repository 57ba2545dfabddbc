"""`AsyncCluster`: brokers and leaders for the tasks of one event loop.

It shares its state, its retry rules and its pauses with the blocking `client.cluster`: see
`cluster_view`, `offset_lookup` and `retries`. This module adds only the connections. All tasks
share one connection for each broker. It is opened once, also when several tasks need it at the same
time, and discarded when it fails.

It has the operations that servers need: topics, leaders, offsets, and any call to any broker. It
does NOT administer topics; the command line does that with the blocking cluster.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

from penstock.client import calls
from penstock.client.cluster import TIMEOUT_SECONDS_DEFAULT
from penstock.client.cluster_view import (
    ClusterView,
    Leader,
    TopicDescription,
    check_topics,
    join_unreachable,
    present_topics,
)
from penstock.client.offset_lookup import FoundOffset, OffsetLookUp
from penstock.client.transport.addresses import Address
from penstock.client.transport.call import Call, SharedConnection
from penstock.client.transport.pool import breaks_connection
from penstock.client.transport.retries import Pauses, may_repeat
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import BrokerUnreachableError, ClientError, PeerError
from penstock.core.types import TopicPartition
from penstock.protocol.messages.metadata import MetadataResponse

SharedConnect = Callable[[Address], Awaitable[SharedConnection]]
"""Opens a connection, or raises `BrokerUnreachableError`."""

Result = TypeVar("Result")


class AsyncCluster:
    """The brokers behind some bootstrap addresses."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        connect: SharedConnect,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`timeout_seconds` bounds a call with all its retries."""
        assert bootstrap
        self._bootstrap = tuple(bootstrap)
        self._connect = connect
        self._timeout_seconds = timeout_seconds
        self._clock: Clock = clock or SystemClock()
        self._sleep = sleep
        self._view = ClusterView()
        self._open: dict[Address, SharedConnection] = {}
        self._opening: dict[Address, asyncio.Lock] = {}

    async def close(self) -> None:
        """Close every connection."""
        while self._open:
            _, connection = self._open.popitem()
            await connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # --- Topics, leaders and offsets ---

    async def cluster_id(self) -> str:
        """Return the id that the cluster got at its creation; empty from very old brokers."""
        if self._view.cluster_id is None:
            await self.repeat(lambda: self._learn([]), repeatable=True)
        return self._view.cluster_id or ""

    async def describe(self, names: Iterable[str] | None) -> dict[str, TopicDescription]:
        """Return the current state of these or all topics by name; missing topics are absent.

        Sends one request.
        """
        wanted = None if names is None else list(names)

        async def attempt() -> dict[str, TopicDescription]:
            return present_topics(await self._learn(wanted))

        return await self.repeat(attempt, repeatable=True)

    async def leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Leader]:
        """Return the leaders of these partitions; fetch the metadata of unknown topics first."""
        wanted = list(partitions)
        unknown = self._view.unknown_topics(wanted)
        if unknown:
            check_topics(await self._learn(unknown))
        return {at: self._view.leader(at) for at in wanted}

    async def look_up_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, is_read_committed: bool
    ) -> dict[TopicPartition, FoundOffset]:
        """Return the first offset at or after each time, or an end of the log.

        Sends one call for each leader.
        """
        look_up = OffsetLookUp(timestamps, is_read_committed=is_read_committed)

        async def attempt() -> dict[TopicPartition, FoundOffset]:
            asked = look_up.ask(await self.leaders(look_up.missing()))
            for outcome in await self.at_each(asked):
                if isinstance(outcome, Exception):
                    raise outcome
                look_up.take(outcome)
            return look_up.result()

        return await self.repeat(attempt, repeatable=True)

    # --- Calls to brokers ---

    async def at(self, address: Address, call: Call[Result]) -> Result:
        """Send one call to one broker. A failed connection is not used again."""
        connection = await self._connection(address)
        try:
            return await connection.carry(call)
        except (ClientError, PeerError) as error:
            if breaks_connection(error):
                if self._open.get(address) is connection:
                    del self._open[address]
                await connection.close()
            raise

    async def at_each(
        self, asked: Mapping[Address, Call[Result]]
    ) -> list[Result | ClientError | PeerError]:
        """Send a call to each broker concurrently; return results and errors in the same order."""

        async def outcome(address: Address, call: Call[Result]) -> Result | ClientError | PeerError:
            try:
                return await self.at(address, call)
            except (ClientError, PeerError) as error:
                return error

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(outcome(to, call)) for to, call in asked.items()]
        return [task.result() for task in tasks]

    async def anywhere(self, call: Call[Result]) -> Result:
        """Send the call to the first reachable broker: known brokers, then bootstrap addresses."""
        problems: list[BrokerUnreachableError] = []
        for address in self._view.candidates(self._bootstrap):
            try:
                return await self.at(address, call)
            except BrokerUnreachableError as error:
                problems.append(error)
        raise join_unreachable(problems)

    async def repeat(self, attempt: Callable[[], Awaitable[Result]], *, repeatable: bool) -> Result:
        """Retry an attempt until it succeeds, its error is not retriable, or the time is over.

        The first contact is retried too, because a server outlives the restarts of brokers.
        """
        pauses = Pauses(self._clock.monotonic() + self._timeout_seconds)
        while True:
            try:
                return await attempt()
            except ClientError as error:
                if not may_repeat(error, repeatable=repeatable):
                    raise
                self._view.forget_topics()
                pause = pauses.next_pause(self._clock.monotonic())
                if pause is None:
                    raise
            await self._sleep(pause)

    async def _connection(self, address: Address) -> SharedConnection:
        async with self._opening.setdefault(address, asyncio.Lock()):
            connection = self._open.get(address)
            if connection is None or not connection.is_open:
                try:
                    connection = self._open[address] = await self._connect(address)
                except BrokerUnreachableError as error:
                    raise self._view.unreachable(address, self._bootstrap, error) from error
            return connection

    async def _learn(self, names: Iterable[str] | None) -> MetadataResponse:
        response = await self.anywhere(calls.describe_brokers(names))
        self._view.learn(response)
        return response
