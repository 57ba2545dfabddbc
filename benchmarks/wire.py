"""Our own client for asyncio: one process can be a thousand members of a group.

`Wire` is one connection: requests may be in flight together, answers come in order. It is the same
client for every broker that is compared. It does NOT find coordinators or retry: there is one
broker, and a measurement needs each answer.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from penstock.protocol.codec import Message
from penstock.protocol.connection import ClientConnection
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

FIND_COORDINATOR_VERSION = 4
GROUP_KEY = 0
TRANSACTION_KEY = 1
RETRY_SECONDS = 0.05
START_SECONDS_MAX = 60.0

NOT_YET = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""The coordinator is being created or loaded: repeat the request."""

Result = TypeVar("Result")


class RefusedError(Exception):
    """The broker answered with an error that the measurement does not expect."""


class Wire(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._client = ClientConnection("benchmark")
        self._waiting: deque[asyncio.Future[Message]] = deque()
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the open socket."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, _error: Exception | None) -> None:
        """Raise `ConnectionError` in all waiting requests."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(ConnectionError("the broker closed the connection"))
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        """Complete the waiting requests whose answers have arrived."""
        self._client.receive_data(data)
        while (response := self._client.next_response()) is not None:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(response.message)

    def send(self, request: Message, version: int) -> asyncio.Future[Message]:
        """Send now; the answer is awaited later."""
        assert self._transport is not None
        _, frame = self._client.send_request(request, version)
        self._transport.write(b"".join(frame))
        waiting: asyncio.Future[Message] = self._loop.create_future()
        self._waiting.append(waiting)
        return waiting

    async def ask(self, request: Message, version: int, answer_type: type[Result]) -> Result:
        """Send, and wait for the answer."""
        answer = await self.send(request, version)
        assert isinstance(answer, answer_type)
        return answer

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()


async def connect(bootstrap: str) -> Wire:
    """A connection to a broker."""
    host, _, port = bootstrap.rpartition(":")
    _, wire = await asyncio.get_running_loop().create_connection(Wire, host, int(port))
    return wire


async def until_ready(
    attempt: Callable[[], Awaitable[Result]], code_of: Callable[[Result], ErrorCode]
) -> Result:
    """Repeat the attempt while the coordinator is being created or loaded."""
    deadline = asyncio.get_running_loop().time() + START_SECONDS_MAX
    while True:
        result = await attempt()
        code = code_of(result)
        if code not in NOT_YET:
            return result
        if asyncio.get_running_loop().time() > deadline:
            raise RefusedError(f"still {code.name} after {START_SECONDS_MAX} s")
        await asyncio.sleep(RETRY_SECONDS)


async def make_coordinator(wire: Wire, key: str, key_type: int) -> None:
    """Find the coordinator of a key: the broker creates the internal topic if it is missing."""
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=(key,))
    found = await until_ready(
        lambda: wire.ask(request, FIND_COORDINATOR_VERSION, FindCoordinatorResponse),
        lambda answer: answer.coordinators[0].error_code,
    )
    check(found.coordinators[0].error_code, "FindCoordinator")


def check(code: ErrorCode, what: str) -> None:
    """Raise if there is an error code: a rejected request is never a figure."""
    if code is not ErrorCode.NONE:
        raise RefusedError(f"{what}: {code.name}")


def percentile(sorted_values: list[Any], share: float) -> float:
    """Return the value below which this share of all values lies."""
    return float(sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))])
