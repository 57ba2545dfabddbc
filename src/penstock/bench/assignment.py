"""Messages between the measuring process and its clients, as values (pure).

to a client     Assignment (as an argument), then Go, then Until for readers
from a client   Ready, Progress again and again, then ClientResult or Failed
"""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.bench.workload import Workload
from penstock.client.security.options import NO_SECURITY, Security

PRODUCER = "producer"
READER = "reader"
FOLLOWER = "follower"
FINDER = "finder"
MEMBERS = "members"


@dataclass(frozen=True, slots=True)
class Assignment:
    """The work of one client."""

    role: str
    workload: Workload
    bootstrap: str
    topic: str
    partitions: tuple[int, ...]
    client: int
    clients: int
    run: int
    """The number that marks the records of this run."""
    group_id: str = ""
    security: Security = NO_SECURITY
    """With secrets that survive the way into the client's process."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The client is connected and has prepared everything."""


@dataclass(frozen=True, slots=True)
class Go:
    """All clients are ready: begin at this time."""

    begin_ns: int


@dataclass(frozen=True, slots=True)
class Until:
    """The writers have finished: end when all records before these offsets are read."""

    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Progress:
    """The work that a client has done so far, warm-up included."""

    records: int
    bytes: int
    p99_us: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The client failed; `kind` is the name of the error's class."""

    kind: str
    text: str
