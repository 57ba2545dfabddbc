"""Moves of replicas as faults: partitions lose a replica and get it back, while brokers are killed.

Guarantees: after a move each partition has all its replicas again, in a drawn order, so first
replicas change too. A move goes on when a broker that it needs was killed.

They are NOT checks: nothing here looks at records.
"""

import random
from typing import Final

from penstock.cli.brokers import open_cluster
from penstock.client.reassignment_calls import alter_reassignments
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from tests.chaos_cluster.cluster import BROKERS, Cluster, View
from tests.crash.clients import TOPIC

REQUEST_SECONDS: Final = 30.0


def move_away(cluster: Cluster, dice: random.Random, view: View) -> None:
    """Begin to take a drawn replica from each partition of the ledger."""
    _move(
        cluster,
        {
            TopicPartition(topic, number): tuple(
                dice.sample(sorted(one.replicas), max(1, len(one.replicas) - 1))
            )
            for (topic, number), one in view.partitions.items()
            if topic == TOPIC
        },
    )


def move_back(cluster: Cluster, dice: random.Random, view: View) -> None:
    """Begin to give each partition of the ledger a replica on each broker, in a drawn order."""
    everywhere = range(1, BROKERS + 1)
    _move(
        cluster,
        {
            TopicPartition(topic, number): tuple(dice.sample(everywhere, BROKERS))
            for topic, number in view.partitions
            if topic == TOPIC
        },
    )


def _move(cluster: Cluster, targets: dict[TopicPartition, tuple[int, ...]]) -> None:
    with open_cluster(cluster.bootstrap, REQUEST_SECONDS, is_quiet=True) as client:
        call = alter_reassignments(targets, round(REQUEST_SECONDS * 1000))
        # The same target twice is the same reassignment.
        outcomes = client.repeat(lambda: client.anywhere(call), repeatable=True)
    refused = {at: one for at, one in outcomes.items() if one.code != ErrorCode.NONE}
    assert not refused, refused
