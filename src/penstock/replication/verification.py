"""The verification of transactions in one partition, before their first records (KIP-890).

A guard is a number that an append presents. It exists from the question to the transaction's
coordinator until the append, and other records of the producer end it.
"""

from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.partition import NO_EPOCH
from penstock.storage.log.open_transactions import NO_GUARD


def begin_verification(
    partition: HostedPartition,
    producer: tuple[int, int],
    base_sequence: int,
    now_ms: int,
    *,
    adds: bool,
) -> int:
    """Before a transaction's coordinator is asked about a producer (id, epoch): the guard.

    `NO_GUARD` means that the transaction is open here already and the coordinator need not be
    asked. `adds` says that the coordinator adds the partition instead of checking whether it is
    added.
    """
    partition.state.require_leader(NO_EPOCH)
    producer_id, epoch = producer
    producers = partition.log.producers
    entry = producers.entries.get(producer_id)
    if entry is not None and entry.epoch == epoch and entry.open_offset >= 0:
        return NO_GUARD
    return producers.verifications.begin(producer_id, base_sequence, epoch, now_ms, adds=adds)


def is_pending(partition: HostedPartition, producer_id: int, guard: int) -> bool:
    """Whether the question with this guard still counts: no marker came after it."""
    known = partition.log.producers.verifications.get(producer_id)
    return known is not None and known.guard == guard


def confirm_verification(partition: HostedPartition, producer_id: int, guard: int) -> None:
    """The coordinator confirmed: a coordinator of this node may append its next batch."""
    partition.log.producers.verifications.confirm(producer_id, guard)
