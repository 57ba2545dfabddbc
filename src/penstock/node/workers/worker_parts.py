"""`WorkerParts`: the parts that a worker gets from its supervisor. Values only."""

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.cluster.stores.port import MetadataStore
from penstock.security.secret import Secret

Condition = Literal["starting", "running", "restarting", "stopping"]


@dataclass(frozen=True, slots=True)
class WorkerState:
    """One worker, as the supervisor knows it."""

    worker: int
    node_id: int
    condition: Condition
    pid: int | None = None
    """None while no process runs."""
    restarts: int = 0
    address: str | None = None
    """The advertised address, since it first answered."""
    admin: str | None = None
    """The URL of its admin port; None without one."""


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """The supervisor's parts in one worker."""

    number: int
    store: MetadataStore
    """The metadata of all workers."""
    shared: Mapping[str, Sequence[socket.socket]]
    """By listener: the sockets of the bootstrap address, which all workers accept from."""
    secret: Secret
    """Proves to other workers that a connection is one of a worker."""
    states: Callable[[], Sequence[WorkerState]]
    """Returns all workers, as the supervisor last reported them."""
