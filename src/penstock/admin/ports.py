"""The ports of the HTTP front door to its broker; `node` fills them.

Two things only: the state of the broker itself, and a client of its Kafka listener. Everything else
is requested over the wire, as by any client.
"""

from dataclasses import dataclass
from typing import Protocol

from penstock.admin.health import Facts
from penstock.client.cluster import Cluster
from penstock.core.metrics import Registry


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of the broker; it does not change while it runs."""

    node_id: int
    cluster_id: str
    version: str
    host: str
    port: int
    started_at_ms: int


class BrokerView(Protocol):
    """The state of the broker, without IO: every probe reads it on the event loop."""

    @property
    def metrics(self) -> Registry:
        """All metrics of the broker."""
        ...

    @property
    def identity(self) -> Identity:
        """The broker's identity."""
        ...

    def facts(self) -> Facts:
        """The present state of the broker."""
        ...

    def uptime_seconds(self) -> float:
        """Seconds since the start."""
        ...


class ClusterDoor(Protocol):
    """Opens clients of the broker's own Kafka listener."""

    def open(self, timeout_seconds: float) -> Cluster:
        """A cluster client for one thread; it connects at the first request."""
        ...
