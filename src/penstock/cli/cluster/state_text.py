"""The state of a cluster as text and as JSON documents, for several commands."""

from collections.abc import Iterable, Sequence
from typing import Final

from penstock.cli.brokers import CommandCluster, open_cluster
from penstock.cli.client_settings import client_settings
from penstock.client.operation.cluster_state import BrokerFacts, ClusterState, PartitionFacts
from penstock.client.operation.replica_moves import ReplicaMove
from penstock.core.quantities import size_text

NAMES_SHOWN_MAX: Final = 5
"""Partitions that a sentence names."""


def open_operated(bootstrap: str, timeout_seconds: float) -> CommandCluster:
    """Return the cluster; a broker that is down is a result of these commands, not worth a note."""
    return open_cluster(bootstrap, timeout_seconds, is_quiet=True, settings=client_settings())


def ids_text(ids: Iterable[int]) -> str:
    """Return broker ids with commas; a dash for none."""
    return ",".join(map(str, ids)) or "-"


def names_text(partitions: Sequence[PartitionFacts]) -> str:
    """Return the first partitions by name, and the number of the others."""
    names = ", ".join(str(one.at) for one in partitions[:NAMES_SHOWN_MAX])
    more = len(partitions) - NAMES_SHOWN_MAX
    return f"{names} and {more} more" if more > 0 else names


def broker_document(broker: BrokerFacts, state: ClusterState) -> dict[str, object]:
    """Return a broker with the number of its leaders and replicas."""
    sizes = state.replica_bytes.get(broker.id)
    return {
        "id": broker.id,
        "address": broker.address,
        "rack": broker.rack,
        "state": broker.mode.value,
        "controller": broker.id == state.controller_id,
        "leaders": len(state.led_by(broker.id)),
        "replicas": len(state.with_replica(broker.id)),
        "bytes": None if sizes is None else sum(sizes.values()),
        "disk_bytes": broker.disk_bytes,
        "free_bytes": broker.free_bytes,
    }


def partition_document(facts: PartitionFacts) -> dict[str, object]:
    """Return a partition with its replicas."""
    return {
        "topic": facts.at.topic,
        "partition": facts.at.partition,
        "leader": facts.leader,
        "replicas": list(facts.replicas),
        "in_sync": list(facts.in_sync),
        "min_insync_replicas": facts.min_in_sync,
        "adding": list(facts.adding),
        "removing": list(facts.removing),
    }


def move_document(move: ReplicaMove) -> dict[str, object]:
    """Return a move of replicas."""
    return {
        "topic": move.at.topic,
        "partition": move.at.partition,
        "before": list(move.before),
        "after": list(move.after),
        "copied_bytes": move.copied_bytes,
    }


def move_row(move: ReplicaMove) -> list[object]:
    """Return the cells of `MOVE_COLUMNS`."""
    return [
        str(move.at),
        ids_text(move.before),
        ids_text(move.after),
        size_text(move.copied_bytes),
    ]


MOVE_COLUMNS: Final = ("partition", "replicas", "new replicas", "copied")
