"""`PeerConnections`: connections of this broker to the others, by broker id.

The address is the one of the listener `CLUSTER` in the newest image. Guarantees:

- A fetcher gets a connection of its own. Calls share one connection for each broker and *lane*; it
  is opened at the first call, and again after a failure.
- When an image shows that a broker is gone or has registered again, the shared connections to its
  former registration are closed: a call does not wait for a broker that counts as stopped, also
  if its connection is still being opened.
- A connection to a machine that has gone silent ends after some seconds (`peer_silence`).
- A call to a broker that is not registered fails at once. Each failure is a `ClientError`.
- Two refused connections within a short time are reported, once (`refusals`).

It retries nothing, and does NOT know which broker leads what.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from penstock.client.security.options import NO_SECURITY, Security
from penstock.client.transport.addresses import Address
from penstock.client.transport.call import Call, SharedConnection
from penstock.cluster.changes import BrokerRegistered, BrokerRemoved, Change
from penstock.cluster.image import BrokerImage, MetadataImage
from penstock.core.errors import BrokerUnreachableError, ClientError, PenstockError
from penstock.core.types import CLUSTER_LISTENER
from penstock.node.peers.peer_limits import CALLS_MAX, TIMEOUT_SECONDS
from penstock.node.peers.peer_silence import connect_to_peer
from penstock.node.peers.refusals import Refusals
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse

Result = TypeVar("Result")

FETCH_VERSION: Final = 17
"""The version of Fetch that followers send: it names the registration of the follower."""


class PeerLink(SharedConnection, Protocol):
    """A connection whose end can be awaited."""

    async def lost(self) -> None:
        """Wait until the connection has ended, for any reason."""
        ...


class OpenConnection(Protocol):
    """`peer_silence.connect_to_peer`, or a fake of it."""

    def __call__(
        self, address: Address, *, timeout_seconds: float, client_id: str, security: Security
    ) -> Awaitable[PeerLink]:
        """Open a connection; raises `PenstockError`."""
        ...


class PeerConnection:
    """`replication.ports.LeaderConnection` over a connection of its own."""

    def __init__(self, connection: PeerLink) -> None:
        self._connection = connection

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        """Fetch as a follower; raises `ClientError`."""
        call = Call(
            request,
            FetchResponse,
            _whole_answer,
            version_max=FETCH_VERSION,
            version_min=FETCH_VERSION,
        )
        return await _carried(self._connection, call)

    async def lost(self) -> None:
        """Wait until the connection has ended, for any reason."""
        await self._connection.lost()

    async def close(self) -> None:
        """Close the connection; a call under way raises `ClientError`."""
        await self._connection.close()


def _whole_answer(answer: FetchResponse) -> FetchResponse:
    return answer


async def _carried(connection: SharedConnection, call: Call[Result]) -> Result:
    """Carry a call; bytes that are no answer end the connection."""
    try:
        return await connection.carry(call)
    except ClientError:
        raise
    except PenstockError as error:
        await connection.close()
        raise ClientError(f"a broker answered with bytes that are no answer: {error}") from error


class _Lane:
    """The shared connection to one registration of a broker."""

    __slots__ = ("_is_ended", "broker_epoch", "calls", "connection", "opening", "patience")

    def __init__(self, broker_epoch: int) -> None:
        self.broker_epoch = broker_epoch
        self.connection: SharedConnection | None = None
        self.opening = asyncio.Lock()
        self.calls = 0
        """Calls in flight."""
        self.patience: asyncio.Timeout | None = None
        """While a connection is opened; its end gives up."""
        self._is_ended = False

    def has_ended(self) -> bool:
        """Return whether the registration has ended."""
        return self._is_ended

    def end(self) -> SharedConnection | None:
        """Give up a connection that is being opened; return the one to close."""
        self._is_ended = True
        if self.patience is not None:
            self.patience.reschedule(0.0)
        return self.connection


class PeerConnections:
    """`replication.ports.LeaderConnections`, and calls between brokers."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        own_id: int,
        *,
        security: Security = NO_SECURITY,
        timeout_seconds: float = TIMEOUT_SECONDS,
        on_refused: Callable[[int], None] | None = None,
        open_connection: OpenConnection = connect_to_peer,
    ) -> None:
        """`on_refused` gets the id of a broker whose process is probably gone."""
        self._image = image
        self._client_id = f"broker-{own_id}"
        self._security = security
        self._timeout_seconds = timeout_seconds
        self.on_refused: Callable[[int], None] | None = on_refused
        self._open_connection = open_connection
        self._refusals = Refusals()
        self._lanes: dict[tuple[int, str], _Lane] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    # --- Connections ---

    async def open(self, broker_id: int) -> PeerConnection:
        """Return a new connection to a registered broker; raises `ClientError`."""
        return PeerConnection(await self._connect(self._registered(broker_id)))

    def _registered(self, broker_id: int) -> BrokerImage:
        broker = self._image().brokers.get(broker_id)
        if self._is_closed:
            raise BrokerUnreachableError("this broker stops")
        if broker is None:
            raise BrokerUnreachableError(f"broker {broker_id} is not registered")
        return broker

    async def _connect(self, broker: BrokerImage) -> PeerLink:
        at = broker.endpoint(CLUSTER_LISTENER)
        if at is None:
            raise BrokerUnreachableError(f"broker {broker.id} has no listener for brokers")
        try:
            connection = await self._open_connection(
                Address(at.host, at.port),
                timeout_seconds=self._timeout_seconds,
                client_id=self._client_id,
                security=self._security,
            )
        except ClientError as error:
            self._note_failure(broker, error)
            raise
        except PenstockError as error:
            raise ClientError(f"no connection to broker {broker.id}: {error}") from error
        self._refusals.worked(broker.id, broker.epoch)
        return connection

    def _note_failure(self, broker: BrokerImage, error: ClientError) -> None:
        if not isinstance(error.__cause__, ConnectionRefusedError):
            return
        now = asyncio.get_running_loop().time()
        is_gone = self._refusals.refused(broker.id, broker.epoch, now)
        if is_gone and self.on_refused is not None:
            self.on_refused(broker.id)

    # --- Calls ---

    async def call(self, broker_id: int, call: Call[Result], lane: str = "") -> Result:
        """Carry a call over the shared connection of a lane; raises `ClientError`.

        The calls of one lane are answered in order: a slow one holds up the others.
        """
        broker = self._registered(broker_id)
        shared = self._lane(broker, lane)
        if shared.calls >= CALLS_MAX:
            raise BrokerUnreachableError(
                f"{shared.calls} calls to broker {broker_id} are under way, at most {CALLS_MAX}; "
                "retry later"
            )
        shared.calls += 1
        try:
            async with shared.opening:
                connection = shared.connection
                if connection is None or not connection.is_open:
                    connection = shared.connection = await self._opened(broker, shared)
            return await _carried(connection, call)
        finally:
            shared.calls -= 1

    async def _opened(self, broker: BrokerImage, lane: _Lane) -> PeerLink:
        """Connect, unless an image ends the registration before or meanwhile."""
        gone = f"broker {broker.id} has stopped, or registered again"
        if lane.has_ended():
            raise BrokerUnreachableError(gone)
        try:
            async with asyncio.timeout(None) as lane.patience:
                connection = await self._connect(broker)
        except TimeoutError:
            raise BrokerUnreachableError(gone) from None
        finally:
            lane.patience = None
        if lane.has_ended():
            # In the same moment.
            await connection.close()
            raise BrokerUnreachableError(gone)
        return connection

    def _lane(self, broker: BrokerImage, lane: str) -> _Lane:
        key = (broker.id, lane)
        known = self._lanes.get(key)
        if known is None or known.broker_epoch != broker.epoch:
            self._end(key)
            known = self._lanes[key] = _Lane(broker.epoch)
        return known

    # --- Images ---

    def follow(
        self, _before: MetadataImage, image: MetadataImage, changes: tuple[Change, ...]
    ) -> None:
        """Close the connections to registrations that have ended; a subscriber of images."""
        for change in changes:
            match change:
                case BrokerRemoved(broker_id):
                    self._check(broker_id, image)
                case BrokerRegistered(broker):
                    self._check(broker.id, image)
                case _:
                    pass

    def _check(self, broker_id: int, image: MetadataImage) -> None:
        broker = image.brokers.get(broker_id)
        if broker is None:
            self._refusals.forget(broker_id)
        for key, lane in tuple(self._lanes.items()):
            if key[0] == broker_id and (broker is None or broker.epoch != lane.broker_epoch):
                self._end(key)

    def _end(self, key: tuple[int, str]) -> None:
        lane = self._lanes.pop(key, None)
        connection = None if lane is None else lane.end()
        if connection is None:
            return
        task = asyncio.get_running_loop().create_task(_closed(connection))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all shared connections; later calls fail."""
        self._is_closed = True
        for key in tuple(self._lanes):
            self._end(key)
        if self._closing:
            await asyncio.wait(tuple(self._closing))


async def _closed(connection: SharedConnection) -> None:
    with suppress(ClientError):
        await connection.close()
