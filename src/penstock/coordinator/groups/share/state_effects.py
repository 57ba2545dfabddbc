"""The effects of share groups: calls to the share coordinator, and reads of the ends of logs.

Each is carried out when the records before it are committed, and ends in `effect_done` with a
`StateResults`, or with a `PenstockError` when nothing is known of any partition. An effect has all
that its answer needs: no request is kept beside it. Effects do NOT survive a crash: `loaded` and
the next heartbeat begin again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from penstock.coordinator.groups.share.state_partitions import Place
from penstock.coordinator.shard import Ticket
from penstock.coordinator.shares.ports import Refusal, ShareSummary
from penstock.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsResponse
from penstock.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsResponse
from penstock.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponseGroup,
)

StateResults: TypeAlias = Mapping[Place, Refusal | None]
"""For each partition the refusal; None: done."""


class AskedPlace(NamedTuple):
    """One partition of a request."""

    topic: str
    place: Place


class OffsetSummary(NamedTuple):
    """The delivery state of a partition, and the end of its log."""

    summary: ShareSummary | Refusal
    end: int | Refusal | None
    """None: not needed."""


SummaryResults: TypeAlias = Mapping[Place, OffsetSummary]


@dataclass(frozen=True, slots=True)
class InitializeStates:
    """Create or reset the states of partitions."""

    group_id: str
    state_epoch: int
    starts: tuple[tuple[Place, int], ...]
    """Each partition with its start offset; -1: the leader chooses it at the first fetch."""
    ticket: Ticket | None = None
    """The request that waits for it."""
    answer: AlterShareGroupOffsetsResponse | None = None
    """The answer of that request if every call succeeds."""


@dataclass(frozen=True, slots=True)
class DeleteStates:
    """Delete the states of all these partitions."""

    group_id: str
    places: tuple[Place, ...]
    ticket: Ticket | None = None
    answer: DeleteShareGroupOffsetsResponse | None = None
    """The answer of that request if every call succeeds."""
    is_of_group: bool = False
    """The group is deleted afterwards: `GroupDeletion` waits for it."""


@dataclass(frozen=True, slots=True)
class ReadSummaries:
    """Read the states of partitions for DescribeShareGroupOffsets."""

    group_id: str
    asked: tuple[AskedPlace, ...]
    ticket: Ticket
    answer: DescribeShareGroupOffsetsResponseGroup
    """The topics of the answer that need no state."""
