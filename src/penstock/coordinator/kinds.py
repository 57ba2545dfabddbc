"""The kinds of coordinators, one row each: the key type and the internal topic. Pure.

The record format and the shards of a kind are in `node.coordination.coordinator_kinds`, which is
imported when the first client asks for a coordinator.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from penstock.core.types import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC

CoordinatorKind: TypeAlias = Literal["group", "transaction", "share"]
"""The coordinator of a group id, of a transactional id, or of a share-partition's state."""


@dataclass(frozen=True, slots=True)
class KindRow:
    """One kind of coordinator."""

    kind: CoordinatorKind
    key_type: int
    """Its number in FindCoordinator."""
    topic: str
    """The internal topic in which its shards keep their state."""


ROWS: Final = (
    KindRow("group", 0, OFFSETS_TOPIC),
    KindRow("transaction", 1, TRANSACTIONS_TOPIC),
    KindRow("share", 2, SHARE_STATE_TOPIC),
)
TOPICS: Final[Mapping[CoordinatorKind, str]] = {row.kind: row.topic for row in ROWS}
KINDS_BY_TOPIC: Final[Mapping[str, CoordinatorKind]] = {row.topic: row.kind for row in ROWS}
KINDS_BY_KEY_TYPE: Final[Mapping[int, CoordinatorKind]] = {row.key_type: row.kind for row in ROWS}
