"""The ports of the HTTP interface to its broker; `node` implements them.

There are only two ports: the state of the broker itself, and a client of its Kafka listener.
Everything else is requested over the wire, as by any client.
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
        """Return all metrics of the broker."""
        ...

    @property
    def identity(self) -> Identity:
        """Return the broker's identity."""
        ...

    def facts(self) -> Facts:
        """Return the present state of the broker."""
        ...

    def uptime_seconds(self) -> float:
        """Return the seconds since the start."""
        ...


class ClusterDoor(Protocol):
    """Opens clients of the broker's own Kafka listener."""

    def open(self, timeout_seconds: float) -> Cluster:
        """Return a cluster client for one thread; it connects at the first request."""
        ...
