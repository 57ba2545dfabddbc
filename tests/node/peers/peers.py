"""Fakes of other brokers: connections that answer as a test says, and images that name brokers."""

import asyncio
from collections.abc import Callable
from types import MappingProxyType
from typing import TypeVar

from penstock.client.security.options import Security
from penstock.client.transport.addresses import Address
from penstock.client.transport.call import Call
from penstock.cluster.image import BrokerImage, Endpoint, MetadataImage
from penstock.core.errors import AnswerLostError, PenstockError
from penstock.core.types import CLUSTER_LISTENER
from penstock.protocol.codec import Message

Result = TypeVar("Result")
Respond = Callable[[Message], Message]


def broker(broker_id: int, *, epoch: int = 1, port: int = 7000) -> BrokerImage:
    client = Endpoint("PLAINTEXT", "127.0.0.1", 9000 + broker_id)
    peer = Endpoint(CLUSTER_LISTENER, "127.0.0.1", port + broker_id)
    return BrokerImage(broker_id, (client, peer), None, "d", epoch)


def image_of(*brokers: BrokerImage) -> MetadataImage:
    return MetadataImage(brokers=MappingProxyType({one.id: one for one in brokers}))


class FakeConnection:
    """A connection whose answers a test writes."""

    def __init__(self, address: Address, respond: Respond) -> None:
        self.address = address
        self.is_open = True
        self.requests: list[Message] = []
        self.in_flight_most = 0
        self._respond = respond
        self._in_flight = 0
        self._lost = asyncio.Event()
        self.holds: asyncio.Event | None = None
        """Answers wait for it, if it is set."""

    async def carry(self, call: Call[Result]) -> Result:
        self.requests.append(call.request)
        self._in_flight += 1
        self.in_flight_most = max(self.in_flight_most, self._in_flight)
        try:
            if self.holds is not None:
                waits = [self.holds.wait(), self._lost.wait()]
                tasks = [asyncio.get_running_loop().create_task(one) for one in waits]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    task.cancel()
            if not self.is_open:
                raise AnswerLostError("the connection was closed.")
            return call.read(self._respond(call.request))
        finally:
            self._in_flight -= 1

    async def close(self) -> None:
        self.is_open = False
        self._lost.set()


class Network:
    """Opens fake connections; an address may have an error instead."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self.opened: list[FakeConnection] = []
        self.error: PenstockError | None = None
        self.holds: asyncio.Event | None = None
        self.opens: asyncio.Event | None = None
        """Connections are opened when it is set, if there is one."""

    async def __call__(
        self,
        address: Address,
        *,
        timeout_seconds: float,
        client_id: str,
        security: Security,
    ) -> FakeConnection:
        del timeout_seconds, client_id, security
        await asyncio.sleep(0)
        if self.opens is not None:
            await self.opens.wait()
        if self.error is not None:
            raise self.error
        connection = FakeConnection(address, self._respond)
        connection.holds = self.holds
        self.opened.append(connection)
        return connection
