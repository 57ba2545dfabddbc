"""Values of `MetadataService`: a decision about a change, its basis, and the rules of a cluster."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from penstock.cluster.controller import GuardedWrites
from penstock.cluster.features.levels import SUPPORTED, Ranges
from penstock.cluster.image import MetadataImage
from penstock.cluster.keys import Keys
from penstock.cluster.moves.internal_topics import REPLICAS_MAX
from penstock.cluster.stores.port import Compare
from penstock.core.limits import BROKER_SESSION_SECONDS

Result = TypeVar("Result")


class Decision(NamedTuple, Generic[Result]):
    """The outcome of a request, decided on one image."""

    writes: Iterable[GuardedWrites] | None
    """In order, computed as they are written; None if nothing changes."""
    result: Callable[[], Result]
    """Returns the result of the request, when the writes are in the image."""


class ChangeBase(NamedTuple):
    """The state that a change is decided on."""

    image: MetadataImage
    keys: Keys
    guards: tuple[Compare, ...]
    """The compares of each transaction."""


@dataclass(frozen=True, slots=True)
class ClusterRules:
    """The rules of a broker that is one of several."""

    session_seconds: float = BROKER_SESSION_SECONDS
    """A broker that is silent for this long counts as stopped."""
    rebalance_seconds: float | None = 300.0
    """Between two checks for first replicas that can lead again; None for never."""
    features: Ranges = SUPPORTED
    """The levels of features that the broker supports."""
    internal_replicas_max: int = REPLICAS_MAX
    """Replicas that internal topics get when as many brokers run."""
