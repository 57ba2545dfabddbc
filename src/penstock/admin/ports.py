"""What the front door over HTTP needs of the broker it stands before; `node` fills it.

Two things only: what is known of the broker itself, and a way to its Kafka listener. Everything
else is asked over the wire, as any client would.
"""

from dataclasses import dataclass
from typing import Protocol

from penstock.admin.health import Facts
from penstock.client.cluster import Cluster
from penstock.core.metrics import Registry


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the broker is; it does not change while it runs."""

    node_id: int
    cluster_id: str
    version: str
    host: str
    port: int
    started_at_ms: int


class BrokerView(Protocol):
    """What is known of the broker, without IO: it is asked on the event loop, by every probe."""

    @property
    def metrics(self) -> Registry:
        """All its metrics."""
        ...

    @property
    def identity(self) -> Identity:
        """Who it is."""
        ...

    def facts(self) -> Facts:
        """How it is now."""
        ...

    def uptime_seconds(self) -> float:
        """How long it runs."""
        ...


class ClusterDoor(Protocol):
    """The way to the broker's own Kafka listener."""

    def open(self, timeout_seconds: float) -> Cluster:
        """A cluster for one thread; nothing is connected until something is asked."""
        ...
