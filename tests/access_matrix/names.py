"""The resources that the requests of the matrix touch, and the class of one case.

Rules of a cell name the resources that start with `t-matrix`, `g-matrix` and `x-matrix`: each name
with LITERAL, the common beginning with PREFIXED. The resources called `other` are allowed by rules
for `*` only. `arrangement` creates the resources that exist.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message

NODE_ID: Final = 1

TOPIC: Final = "t-matrix"
MISSING_TOPIC: Final = "t-matrix-missing"
"""Does not exist."""
DOOMED_TOPIC: Final = "t-matrix-doomed"
DOOMED_BY_NAME: Final = "t-matrix-doomed-by-name"
"""Both are deleted by cells that may, and created again."""
INVALID_TOPIC: Final = "t-matrix$"
"""Not a valid name: a client that may create it learns that, and nothing is created."""
OTHER_TOPIC: Final = "t-other"
OTHER_MISSING_TOPIC: Final = "t-other-missing"

GROUP: Final = "g-matrix"
"""A classic group without members that has committed offsets."""
CONSUMER_GROUP: Final = "g-matrix-consumer"
"""A KIP-848 group with one member that reads `TOPIC`."""
MISSING_GROUP: Final = "g-matrix-missing"
OTHER_GROUP: Final = "g-other"
OTHER_MISSING_GROUP: Final = "g-other-missing"

TRANSACTION: Final = "x-matrix"
"""Its transaction is open, in `TOPIC` and `OTHER_TOPIC`."""
FRESH_TRANSACTION: Final = "x-matrix-fresh"
"""Initialized by each cell that may."""
MISSING_TRANSACTION: Final = "x-matrix-missing"
OTHER_TRANSACTION: Final = "x-other"

UNKNOWN_TOPIC_ID: Final = UUID("00000000-0000-4000-8000-000000000001")
UNKNOWN_PRODUCER_ID: Final = 999_999
MISSING_USER: Final = "missing-user"

TOPICS: Final = (TOPIC, MISSING_TOPIC, DOOMED_TOPIC, DOOMED_BY_NAME, INVALID_TOPIC)
GROUPS: Final = (GROUP, CONSUMER_GROUP, MISSING_GROUP)
TRANSACTIONS: Final = (TRANSACTION, FRESH_TRANSACTION, MISSING_TRANSACTION)
"""The names that LITERAL rules of a cell have."""


@dataclass
class World:
    """The values of requests that each broker chooses itself."""

    topic_ids: dict[str, UUID] = field(default_factory=dict)

    def topic_name(self, topic_id: UUID) -> str:
        """Return the name of an id; a question mark for an unknown one."""
        return next((name for name, one in self.topic_ids.items() if one == topic_id), "?")


Build = Callable[[World], Message]


class Case(NamedTuple):
    """One request, and the version that it is sent in."""

    api: ApiKey
    version: int
    note: str
    build: Build
    is_silent: bool
    """The request has no answer (acks=0); the outcome is whether the connection stays open."""

    @property
    def name(self) -> str:
        """Its key in the recorded file."""
        return f"{self.api.name} v{self.version} {self.note}".rstrip()


class CaseList:
    """The cases of one module, in order; its method `add` is a decorator."""

    def __init__(self) -> None:
        self.cases: list[Case] = []

    def add(
        self, api: ApiKey, version: int, note: str = "", *, is_silent: bool = False
    ) -> Callable[[Build], Build]:
        """Add a function that builds a request."""

        def decorate(build: Build) -> Build:
            self.cases.append(Case(api, version, note, build, is_silent))
            return build

        return decorate
