"""Consumers that read from a replica near them (KIP-392), as the leader of a partition sees them.

- `nearest` chooses the in-sync replica in the consumer's rack, as Kafka's RackAwareReplicaSelector
  does: the one with the most records, then the one that had all of them last. If the leader is in
  that rack, or no replica is, the consumer stays with the leader. Pure.
- `RemoteReaders` knows the partitions whose consumers were sent to a follower. Followers of these
  learn a moved high watermark at once; all others learn it with the next records. So an idle or
  plain partition costs nothing.

It reads no records, and does NOT know which racks clients have.
"""

from collections.abc import Mapping
from typing import Final

from penstock.cluster.image import BrokerImage, BrokerState
from penstock.replication.hosted_partition import HostedPartition

READER_SECONDS: Final = 900.0
"""A consumer asks the leader again after its `metadata.max.age.ms`, by default after 300 s."""


def nearest(
    partition: HostedPartition,
    brokers: Mapping[int, BrokerImage],
    *,
    rack: str,
    listener: str,
    offset: int,
) -> int | None:
    """Return the replica that a consumer at this offset should read from; None for the leader.

    A follower must be running and in sync, have an address for the consumer's listener, and have
    reported everything before the offset.
    """
    in_sync = partition.state.in_sync
    if in_sync is None:
        return None
    leader = brokers.get(in_sync.broker_id)
    if leader is None or leader.rack == rack:
        return None
    found: list[tuple[int, float, int]] = []
    for replica in in_sync.state.in_sync:
        broker, progress = brokers.get(replica.broker_id), in_sync.followers.get(replica.broker_id)
        if broker is None or progress is None or broker.rack != rack:
            continue
        is_current = broker.epoch == replica.epoch == progress.broker_epoch
        if not is_current or broker.state is not BrokerState.RUNNING:
            continue
        if progress.offset >= offset and broker.endpoint(listener) is not None:
            found.append((progress.offset, progress.caught_up_seconds, replica.broker_id))
    return max(found)[2] if found else None


class RemoteReaders:
    """The partitions that this broker leads and consumers read elsewhere."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: dict[HostedPartition, float] = {}
        """Partition to the moment when its consumers have asked the leader again."""

    def __len__(self) -> int:
        return len(self._until)

    def note(self, partition: HostedPartition, now: float) -> None:
        """A consumer was sent to a follower."""
        self._until[partition] = now + READER_SECONDS

    def has(self, partition: HostedPartition, now: float) -> bool:
        """Whether consumers may read this partition from a follower."""
        until = self._until.get(partition)
        if until is None:
            return False
        if now < until:
            return True
        del self._until[partition]
        return False

    def forget(self, partition: HostedPartition) -> None:
        """The role has ended."""
        self._until.pop(partition, None)
