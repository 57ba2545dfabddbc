"""How many bytes come below the last stable offset when a high watermark moves. Pure.

The last stable offset is where the first undecided transaction begins. While none is open, it is
the high watermark, and nothing is computed.
"""

from typing import Final

from penstock.replication.hosted_partition import HostedPartition

ALL_DECIDED: Final = -1
"""No transaction is open."""


def stable_offset(partition: HostedPartition) -> int:
    """The last stable offset before the high watermark moves; `ALL_DECIDED` for most."""
    if partition.log.producers.transactions.is_all_decided:
        return ALL_DECIDED
    return partition.last_stable_offset


def stable_bytes(partition: HostedPartition, stable_before: int, new_bytes: int) -> int:
    """At most how many bytes came below the last stable offset as the high watermark moved.

    Too many wake a fetch that then waits on; too few would leave one waiting. When the last stable
    offset moves and does not catch up, the bytes between are not subtracted.
    """
    if stable_before == ALL_DECIDED:
        return new_bytes
    partition.unstable_bytes += new_bytes
    stable_now = partition.last_stable_offset
    if stable_now == stable_before:
        return 0
    came_bytes = partition.unstable_bytes
    if stable_now == partition.state.high_watermark:
        partition.unstable_bytes = 0
    return came_bytes
