"""The JSON of the registry's REST interface, with its bounds (pure).

Registry and nodes use the same models, so each side refuses the same nonsense: unknown and missing
fields, wrong types, and values above a bound. Fields are added, never removed. `extra` is `forbid`
for requests, and `ignore` for answers: an older node reads the answer of a newer registry.
"""

import hashlib
import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from penstock.edge.registry.instances import INSTANCE_MAX
from penstock.edge.registry.node_entry import KAFKA
from penstock.edge.registry.node_roles import Role
from penstock.edge.registry.topic_patterns import PATTERNS_MAX, pattern_problem

ID_CHARACTERS_MAX: Final = 128
LABELS_MAX: Final = 32
ADDRESSES_MAX: Final = 8
REVISION_MAX: Final = 2**43
"""Revisions begin with the clock's milliseconds: this is the year 2248. A higher one is nonsense,
and a node that stored it would refuse all later answers."""
TEXT_CHARACTERS_MAX: Final = 500

_ID: Final = rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{ID_CHARACTERS_MAX - 1}}}"
_LABEL: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_TRANSPORT: Final = r"[a-z][a-z0-9_]{0,15}"
_HOST_AND_PORT: Final = re.compile(
    r"(?P<host>[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):(?P<port>[0-9]{1,5})"
)
_PORT_MAX: Final = 65_535


def address_problem(address: str) -> str | None:
    """Return why a text is not `host:port`; None if it is."""
    found = _HOST_AND_PORT.fullmatch(address)
    if found is None or not 1 <= int(found["port"]) <= _PORT_MAX:
        return "is not host:port"
    return None


def _checked_pattern(pattern: str) -> str:
    if (problem := pattern_problem(pattern)) is not None:
        raise ValueError(problem)
    return pattern


def _checked_addresses(addresses: dict[str, str]) -> dict[str, str]:
    if KAFKA not in addresses:
        raise ValueError(f"has no address for {KAFKA}")
    if (problem := address_problem(addresses[KAFKA])) is not None:
        raise ValueError(f"{KAFKA} {problem}")
    return addresses


NodeId = Annotated[str, Field(pattern=f"^{_ID}$", max_length=ID_CHARACTERS_MAX)]
Addresses = Annotated[
    dict[
        Annotated[str, Field(pattern=f"^{_TRANSPORT}$")],
        Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[!-~]+$")],
    ],
    Field(max_length=ADDRESSES_MAX),
    AfterValidator(_checked_addresses),
]
Labels = Annotated[
    dict[Annotated[str, Field(pattern=f"^{_LABEL}$")], Annotated[str, Field(max_length=255)]],
    Field(max_length=LABELS_MAX),
]
Patterns = Annotated[
    tuple[Annotated[str, AfterValidator(_checked_pattern)], ...], Field(max_length=PATTERNS_MAX)
]
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Instance = Annotated[int, Field(ge=0, le=INSTANCE_MAX)]


class Request(BaseModel):
    """Base of all requests."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Answer(BaseModel):
    """Base of all answers."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Disk(Request):
    """The disk of a node."""

    free_bytes: Count
    total_bytes: Count


class Health(Request):
    """The health of a node's pipes, as the node reports it."""

    state: Literal["HEALTHY", "DEGRADED", "UNHEALTHY"]
    reason: Annotated[str, Field(max_length=TEXT_CHARACTERS_MAX)] = ""
    lag_records: Count | None = None
    lag_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class Registration(Request):
    """The body of `PUT /registry/v1/nodes/{id}`."""

    addresses: Addresses
    labels: Labels = {}
    version: Annotated[str, Field(max_length=100)] = ""
    disk: Disk | None = None
    health: Health | None = None
    wanted_role: Role | None = None
    instance: Instance = 0
    boot: Annotated[str, Field(pattern=r"^[0-9a-f]{16,64}$")]


class NodePatch(Request):
    """The body of `PATCH /registry/v1/nodes/{id}`; a missing field stays as it is."""

    role: Role | None = None
    parent: NodeId | None = None
    new_instance: bool = False


class LevelPatch(Request):
    """The body of `PATCH /registry/v1/levels/{role}`."""

    down: Patterns | None = None
    up: Patterns | None = None


class ParentDocument(Answer):
    """The parent in an answer."""

    id: NodeId
    addresses: Addresses


class TopologyDocument(Answer):
    """The answer to a node: `TopologyResponse`."""

    registry: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    id: NodeId
    role: Role
    parent: ParentDocument | None
    reason: Annotated[str, Field(max_length=TEXT_CHARACTERS_MAX)] = ""
    """Why there is no parent."""
    down: Patterns
    up: Patterns
    revision: Annotated[int, Field(ge=1, le=REVISION_MAX)]
    instance: Instance


def entity_tag(document: TopologyDocument) -> str:
    """Return the ETag of a topology: its revision and a digest of its content.

    The content counts too: two copies of a registry can give one revision to different answers.
    """
    content = document.model_dump_json(include={"role", "parent", "down", "up"})
    return f'"{document.revision}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"'


class LevelDocument(Answer):
    """The topics of one level."""

    role: Role
    down: Patterns
    up: Patterns


class ConflictDocument(Answer):
    """A process that was refused because of its instance number."""

    address: str
    instance: int
    reason: str
    seconds_ago: float
    times: int


class NodeDocument(Answer):
    """A node, as operators see it."""

    id: NodeId
    role: Role
    chosen_role: Role | None
    parent: str | None
    pinned_parent: str | None
    children: int
    addresses: dict[str, str]
    labels: dict[str, str]
    version: str
    instance: int
    revision: int
    state: Literal["HEALTHY", "DEGRADED", "UNHEALTHY", "NEW"]
    reason: str
    seen_seconds_ago: float | None
    """None: not since the start of the registry."""
    disk: Disk | None = None
    lag_records: int | None = None
    lag_seconds: float | None = None
    conflict: ConflictDocument | None = None


class TreeDocument(Answer):
    """All nodes."""

    registry: str
    revision: int
    nodes: tuple[NodeDocument, ...]
    levels: tuple[LevelDocument, ...] = ()


class TokenDocument(Answer):
    """A new token; the registry stores only its digest."""

    id: NodeId
    token: str
