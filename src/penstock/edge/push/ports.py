"""Ports of the push server: the broker behind it, and the doors of its clients. `node` fills them.

A port has the methods that `connection` and `server` call and no more. Nothing here decides.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import NamedTuple, Protocol, TypeVar

from penstock.core.errors import PenstockError
from penstock.edge.push.queue_ports import QueueMember
from penstock.edge.push.reactions import OpenedTopic
from penstock.edge.push.record_runs import LogRead, Version
from penstock.protocol.push.payloads import Credentials, Refusal, SubscribeRequest

Client = object
"""The identity of a client, as its door created it. The push server only passes it on."""
Result = TypeVar("Result")


class PushRefusedError(PenstockError):
    """The broker refuses a request of the push protocol."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.error)
        self.refusal = refusal


class PartitionView(NamedTuple):
    """What a consumer can read of a partition now."""

    version: Version
    start_offset: int
    end_offset: int
    """Records at or above it are not committed, or their transaction is undecided."""
    refreshes: int = 0
    """How often a snapshot replaced its log."""


class Admitted(NamedTuple):
    """A client that proved its identity."""

    client: Client
    lifetime_seconds: float | None
    """Until its credentials expire; None: never."""


class PushBroker(Protocol):
    """Reads, appends and commits, with the rights of a client."""

    def now_ms(self) -> int:
        """Return the time of the broker, in milliseconds since 1970."""
        ...

    async def open(self, client: Client, request: SubscribeRequest) -> OpenedTopic:
        """Return the topic of a subscription; raise `PushRefusedError`."""
        ...

    def queue_group(self, request: SubscribeRequest) -> str | None:
        """Return the share group of a queue subscription; None: the subscription is fanout."""
        ...

    async def join(
        self,
        client: Client,
        request: SubscribeRequest,
        group: str,
        lost: Callable[[Refusal], None],
    ) -> QueueMember:
        """Return a member of a share group; raise `PushRefusedError`.

        `lost` is called if the member cannot continue.
        """
        ...

    def charge_publish(self, client: Client, size_bytes: int) -> float:
        """Count published bytes; return the seconds for which the client has to wait."""
        ...

    def charge_delivery(self, client: Client, size_bytes: int) -> float:
        """Count delivered bytes; return the seconds for which the client has to wait."""
        ...

    def may_read(self, client: Client, topic: str) -> bool:
        """Whether the rules in force still allow the client to read a topic."""
        ...

    def view(self, topic: str, partition: int) -> PartitionView:
        """Return the readable offsets of a partition; raise `PenstockError` if it is not here."""
        ...

    def read(self, topic: str, partition: int, offset: int, bytes_max: int) -> LogRead:
        """Read from the page cache; raise `BlockingIOError` on a miss."""
        ...

    async def read_cold(self, topic: str, partition: int, offset: int, bytes_max: int) -> LogRead:
        """Read, and wait for the disk."""
        ...

    async def run_heavy(self, call: Callable[[], Result], size_bytes: int) -> Result:
        """Run a call on a thread and return its result."""
        ...

    def wait(
        self, topic: str, partition: int, on_news: Callable[[], None]
    ) -> Callable[[], None] | None:
        """Call `on_news` once, when more can be read or anything changed; return its cancellation.

        None: it cannot wait now.
        """
        ...

    def publish(
        self,
        client: Client,
        topic: str,
        partition: int,
        batch: bytes | bytearray,
        done: Callable[[int | Refusal], None],
    ) -> None:
        """Append a batch; `done` gets its first offset when it is on disk."""
        ...

    async def commit(self, client: Client, group: str, topic: str, offsets: dict[int, int]) -> None:
        """Commit offsets of a group; raise `PushRefusedError`."""
        ...


class PushDoor(Protocol):
    """One address of the push server, and how its clients prove their identity."""

    @property
    def needs_credentials(self) -> bool:
        """Whether the first SUBSCRIBE must have credentials."""
        ...

    def client_of(self, transport: asyncio.BaseTransport) -> tuple[Client, str]:
        """Return a new client, before it proves an identity, and its address."""
        ...

    def secured(self, client: Client, certificate: bytes | None) -> Client:
        """Return the client with the identity in its certificate; raise `PenstockError`."""
        ...

    async def check(self, client: Client, credentials: Credentials | None) -> Admitted:
        """Return the client with its proven identity; raise `PushRefusedError`."""
        ...

    def principal_of(self, client: Client) -> str | None:
        """Return the proven identity, whose sessions are counted; None without one."""
        ...


Start = Callable[[Coroutine[object, object, None]], None]
"""Runs a coroutine that raises nothing."""
