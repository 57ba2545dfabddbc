"""The lag of a group, partition by partition (pure).

There is a row for every partition that is assigned to a member or has a committed offset. Lag is
the end of the log minus the committed offset, as Kafka's own tool counts it. It is unknown (None)
while no offset is committed or the partition is gone. It can be below zero after a log lost its
end. A share group has no committed offsets: its rows have start offsets, and the lag that the
broker counted.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.client.groups.group_calls import Committed
from penstock.client.groups.groups import GroupMember
from penstock.client.groups.share_group_calls import ShareOffset
from penstock.core.types import TopicPartition


class LagRow(NamedTuple):
    """One partition of one group."""

    at: TopicPartition
    committed: int | None
    end_offset: int | None
    member: GroupMember | None
    share: ShareOffset | None = None
    """The position of a share group, whose start offset is in `committed` too."""

    @property
    def lag(self) -> int | None:
        """Return the records between the committed offset and the end, or the broker's count."""
        if self.share is not None:
            return self.share.lag
        if self.committed is None or self.end_offset is None:
            return None
        return self.end_offset - self.committed


def partitions_of(
    members: Iterable[GroupMember], committed: Mapping[TopicPartition, Committed]
) -> list[TopicPartition]:
    """Return every partition that has a row, in order."""
    assigned = {at for member in members for at in member.partitions or ()}
    return sorted(assigned | set(committed))


def lag_rows(
    members: Iterable[GroupMember],
    committed: Mapping[TopicPartition, Committed],
    end_offsets: Mapping[TopicPartition, int],
) -> list[LagRow]:
    """Return the rows by topic and partition; a partition of two members has two rows."""
    owners = _owners(members)
    rows = []
    for at in sorted(set(owners) | set(committed)):
        offset = committed[at].offset if at in committed else None
        rows += [
            LagRow(at, offset, end_offsets.get(at), member) for member in owners.get(at, [None])
        ]
    return rows


def share_rows(
    members: Iterable[GroupMember],
    offsets: Mapping[TopicPartition, ShareOffset],
    end_offsets: Mapping[TopicPartition, int],
) -> list[LagRow]:
    """Return the rows of a share group; a partition of two members has two rows."""
    owners = _owners(members)
    unknown = ShareOffset(None, None)
    return [
        LagRow(at, share.start_offset, end_offsets.get(at), member, share)
        for at in sorted(set(owners) | set(offsets))
        for share in (offsets.get(at, unknown),)
        for member in owners.get(at, [None])
    ]


def _owners(members: Iterable[GroupMember]) -> dict[TopicPartition, list[GroupMember | None]]:
    owners: dict[TopicPartition, list[GroupMember | None]] = {}
    for member in members:
        for at in member.partitions or ():
            owners.setdefault(at, []).append(member)
    return owners


def total_lag(rows: Iterable[LagRow]) -> int:
    """Return the sum over partitions with a known lag; each counts once."""
    return sum({row.at: row.lag or 0 for row in rows}.values())
