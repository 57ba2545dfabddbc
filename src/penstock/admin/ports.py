"""The ports of the HTTP interface to its broker; `node` implements them.

There are six ports: the state of the broker itself, the identity of HTTP callers, the sessions of
Kafka clients, its pipes, its leases of segments, and a client of the broker. Everything else is
requested over the wire, as by any client, with the identity of the caller: the interface has no
rights of its own.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from penstock.admin.health import Facts
from penstock.admin.models.lease_models import GrantedLease, LeaseEntry, NewLease
from penstock.admin.pipe_models import (
    NewPipe,
    NewRefresh,
    PipeDetail,
    PipeEntry,
    RefreshEntry,
    SentRefresh,
)
from penstock.client.cluster import Cluster
from penstock.core.errors import PenstockError
from penstock.core.metrics import Registry
from penstock.security.acls.values import Operation
from penstock.security.principal import ANONYMOUS, Principal


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of the broker; it does not change while it runs."""

    node_id: int
    cluster_id: str
    version: str
    host: str
    port: int
    started_at_ms: int


class WorkerFacts(NamedTuple):
    """One worker of the broker's supervisor."""

    worker: int
    node_id: int
    condition: str
    pid: int | None
    restarts: int
    address: str | None
    admin: str | None


class BrokerView(Protocol):
    """The state of the broker, without IO: every probe reads it on the event loop."""

    @property
    def metrics(self) -> Registry:
        """Return all metrics of the broker."""
        ...

    @property
    def identity(self) -> Identity:
        """Return the broker's identity."""
        ...

    def facts(self) -> Facts:
        """Return the present state of the broker."""
        ...

    def workers(self) -> Sequence[WorkerFacts]:
        """Return all workers of the broker's supervisor; none for a broker without one."""
        ...

    def uptime_seconds(self) -> float:
        """Return the seconds since the start."""
        ...


class Caller(NamedTuple):
    """The client of an HTTP request."""

    principal: Principal = ANONYMOUS
    address: str = ""
    mechanism: str = ""
    """How it proved its identity; empty: not at all."""


class Credentials(NamedTuple):
    """The proof of identity in an HTTP request."""

    address: str
    authorization: str | None
    """The header `Authorization`; never logged."""
    certificate: bytes | None
    """The client's certificate in DER, verified by TLS."""
    lost: asyncio.Event | None = None
    """Set when the connection is gone: no answer reaches the caller."""

    def __repr__(self) -> str:
        return f"Credentials(address={self.address!r})"


class CallerCheck(Protocol):
    """Verifies the identity of HTTP callers, and decides what they may see here."""

    @property
    def challenge(self) -> str | None:
        """The header `WWW-Authenticate` of a refusal; None if a header would not help."""
        ...

    def is_open(self, path: str) -> bool:
        """Whether callers without an identity may read this path."""
        ...

    async def identify(self, given: Credentials) -> Caller | None:
        """Return the caller; None if the proof is missing or wrong."""
        ...

    def may_describe(self, caller: Caller, api: str = "") -> bool:
        """Whether the caller may see metrics and the state of the broker.

        A denial is logged as one of `api`; without a name it only hides something.
        """
        ...


class SessionFacts(NamedTuple):
    """One connected Kafka client."""

    id: int
    principal: Principal
    address: str
    listener: str
    mechanism: str
    """Of its login with SASL; empty without one."""
    client_id: str | None
    """Of its last request."""
    since_ms: int
    expires_at_ms: int | None
    """When it ends without a new login; None: never."""


class PushSubscriptionFacts(NamedTuple):
    """One subscription of a push session."""

    topic: str
    group: str | None
    mode: str
    credit: int
    in_flight: int
    unacknowledged_bytes: int
    lag: int | None
    """None for a queue, and for a subscription that only publishes."""


class PushSessionFacts(NamedTuple):
    """One push session."""

    id: int
    principal: Principal
    address: str
    state: str
    since_ms: int
    delivered_records: int
    unsent_bytes: int
    subscriptions: Sequence[PushSubscriptionFacts]


class SessionBook(Protocol):
    """The sessions of connected clients; its methods belong to the event loop."""

    def allows(self, caller: Caller, operation: Operation) -> bool:
        """Whether access rules allow the operation on the cluster to the caller."""
        ...

    def sessions(
        self, principal: Principal | None, after: int, limit: int
    ) -> Sequence[SessionFacts]:
        """Return the sessions of Kafka clients with ids above `after`, the oldest first."""
        ...

    def push_sessions(
        self, principal: Principal | None, after: int, limit: int
    ) -> Sequence[PushSessionFacts]:
        """Return the push sessions with ids above `after`, the oldest first."""
        ...

    def end(
        self,
        caller: Caller,
        *,
        principal: Principal | None = None,
        session: int | None = None,
    ) -> tuple[int, bool]:
        """End the sessions of a principal, or one; return how many, and whether some are left."""
        ...


class RefreshDesk(Protocol):
    """The refreshes of the broker; its methods belong to the event loop."""

    def state(self, topic: str) -> RefreshEntry:
        """Return the installation in a mirror that runs, or the last one."""
        ...

    def begin(self, topic: str, wanted: NewRefresh) -> RefreshEntry:
        """Begin to install a snapshot; one installation of a topic runs at a time."""
        ...

    def send(self, topic: str, group: str | None) -> SentRefresh:
        """Refresh the push subscribers of a topic, or those of a group."""
        ...


class PipeDesk(Protocol):
    """The pipes of the broker; its methods belong to the event loop and raise `PenstockError`."""

    def allows(self, caller: Caller, operation: Operation) -> bool:
        """Whether access rules allow the operation on the cluster to the caller."""
        ...

    @property
    def refreshes(self) -> RefreshDesk:
        """The refreshes of mirrors and of push subscribers."""
        ...

    def pipes(self) -> Sequence[PipeEntry]:
        """Return all pipes."""
        ...

    def pipe(self, name: str) -> PipeDetail:
        """Return one pipe with its partitions."""
        ...

    def create(self, wanted: NewPipe) -> PipeEntry:
        """Run a pipe until the broker stops."""
        ...

    def remove(self, name: str) -> None:
        """End a pipe that is not in the settings file."""
        ...

    def pause(self, name: str) -> None:
        """Pause a pipe."""
        ...

    def resume(self, name: str) -> None:
        """Resume a pipe."""
        ...

    async def promote(self, name: str, topics: Sequence[str]) -> list[str]:
        """Let clients write these mirrors, or all; return their names."""
        ...

    async def restore(self, name: str, topics: Sequence[str]) -> list[str]:
        """Let the pipe write these topics again, or all promoted ones; return their names."""
        ...

    def reset(
        self, name: str, topics: Sequence[str], start: Literal["earliest", "latest"]
    ) -> list[str]:
        """Send topics of an up pipe from the start or the end of their logs; return their names."""
        ...


class LeaseDesk(Protocol):
    """The leases of sealed segments; its methods belong to the event loop."""

    async def grant(self, caller: Caller, wanted: NewLease) -> GrantedLease:
        """Lease sealed segments of a topic that the caller may read."""
        ...

    def leases(self, caller: Caller) -> Sequence[LeaseEntry]:
        """Return the leases that the caller may see, the oldest first."""
        ...

    async def release(self, caller: Caller, lease: str) -> bool:
        """End a lease; False if there is none that the caller may end."""
        ...

    def is_temporary(self, error: PenstockError) -> bool:
        """Whether the same request may succeed later."""
        ...


class ClusterDoor(Protocol):
    """Opens clients of the broker itself."""

    def open(self, timeout_seconds: float, caller: Caller) -> Cluster:
        """Return a client for one thread, with the identity of the caller."""
        ...
