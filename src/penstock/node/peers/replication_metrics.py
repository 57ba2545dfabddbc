"""Metrics of replication: leaders, replicas out of sync, changes, refused answers.

They are counted when a scraper asks; nothing is counted on a timer. A broker alone has none.
"""

from collections.abc import Callable, Iterator

from penstock.cluster.elections import NO_LEADER
from penstock.cluster.moves.reassignment import is_moving
from penstock.cluster.service import MetadataService
from penstock.core.metrics import Registry
from penstock.node.peers.crash_watch import CrashWatch
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.isr import InSyncReplicas
from penstock.replication.isr_writer import IsrWriter
from penstock.replication.manager import ReplicaManager


def register_replication(
    metrics: Registry,
    metadata: MetadataService,
    replicas: ReplicaManager,
    isr_writer: IsrWriter,
    crash_watch: CrashWatch,
) -> None:
    """Register the metrics of one broker of a cluster."""

    def led() -> Iterator[HostedPartition]:
        return (one for one in replicas if one.state.is_leader)

    def count(is_counted: Callable[[InSyncReplicas], bool]) -> int:
        found = (one.state.in_sync for one in replicas)
        return sum(one is not None and is_counted(one) for one in found)

    def without_leader() -> int:
        topics = metadata.image.topics.values()
        return sum(state.leader == NO_LEADER for topic in topics for state in topic.partitions)

    def controls() -> int:
        controller = metadata.image.controller
        return int(controller is not None and controller.broker_epoch == metadata.broker_epoch)

    for name, help_text, value in (
        ("cluster_brokers", "Registered brokers.", lambda: len(metadata.image.brokers)),
        ("controller", "1 if this broker controls the cluster.", controls),
        ("isolated", "1 if the metadata store does not answer.", lambda: int(metadata.is_isolated)),
        ("leader_partitions", "Partitions that this broker leads.", lambda: sum(1 for _ in led())),
        (
            "under_replicated_partitions",
            "Partitions led here with a replica that is not in sync.",
            lambda: count(_is_under_replicated),
        ),
        (
            "reassigning_partitions",
            "Partitions led here whose replicas move to other brokers.",
            lambda: count(lambda one: is_moving(one.state)),
        ),
        (
            "under_min_isr_partitions",
            "Partitions led here that take no records with acks=all.",
            lambda: count(lambda one: not one.has_enough),
        ),
        ("leaderless_partitions", "Partitions of the cluster without a leader.", without_leader),
        ("isr_shrinks_total", "Replicas left the in-sync replicas.", lambda: isr_writer.shrinks),
        ("isr_expands_total", "Replicas joined them.", lambda: isr_writer.expansions),
        (
            "replica_cuts_refused_total",
            "Cuts of committed records that a leader asked for and this broker refused.",
            lambda: replicas.refused_cuts,
        ),
        (
            "replica_answers_refused_total",
            "Answers of leaders whose records could not be appended.",
            lambda: replicas.refused_answers,
        ),
        (
            "crash_verdicts_total",
            "Brokers that this one removed because they refused connections.",
            lambda: crash_watch.verdict_count,
        ),
    ):
        metrics.gauge(name, help_text, value)


def _is_under_replicated(one: InSyncReplicas) -> bool:
    """New replicas of a reassignment do not count: their copy is under way."""
    state = one.state
    if len(state.isr) >= len(state.replicas):
        return False
    return not set(state.isr).issuperset(set(state.replicas) - set(state.adding))
