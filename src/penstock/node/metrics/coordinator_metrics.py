"""Metrics of groups and transactions: their number by state, and the lag of groups.

It reads loaded shards and loads none: before the first client requests a coordinator there are no
rows, and the code of groups is not imported. A scrape iterates over every group and every
transactional id.
"""

from collections import Counter as Multiset
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from penstock.core.metrics import Family, Registry, Row
from penstock.node.coordination.coordinators import NodeCoordinators
from penstock.replication.manager import ReplicaManager

if TYPE_CHECKING:
    from penstock.coordinator.runtime import Runtime

GROUP_LAG = "group_lag_records"


def register_coordinators(
    metrics: Registry, coordinators: NodeCoordinators, replicas: ReplicaManager
) -> None:
    """Register the metrics of groups and transactions."""

    def lag() -> Iterator[Row]:
        runtime = coordinators.runtime("group")
        if runtime is not None:
            from penstock.node.metrics.group_lag import lag_rows

            yield from lag_rows(runtime, replicas)

    def groups() -> Iterator[Row]:
        return _counted(coordinators.runtime("group"), _group_states)

    def transactions() -> Iterator[Row]:
        return _counted(coordinators.runtime("transaction"), _transaction_states)

    def skipped() -> Iterator[Row]:
        for topic, count in coordinators.skipped.counts.items():
            yield Row((topic,), count)

    labels = ("group", "topic", "partition")
    metrics.family(GROUP_LAG, Family("Records that a group has not read.", labels, lag))
    metrics.family("groups", Family("Groups by type and state.", ("type", "state"), groups))
    metrics.family(
        "coordinator_skipped_records_total",
        Family("Records of internal topics that a load could not use.", ("topic",), skipped),
    )
    metrics.family("transactions", Family("Transactional ids by state.", ("state",), transactions))


def _counted(
    runtime: "Runtime | None", states: "Callable[[Runtime], Iterator[tuple[str, ...]]]"
) -> Iterator[Row]:
    if runtime is not None:
        for labels, count in sorted(Multiset(states(runtime)).items()):
            yield Row(labels, count)


def _group_states(runtime: "Runtime") -> Iterator[tuple[str, ...]]:
    from penstock.coordinator.groups.shard import GroupShard

    for driver in tuple(runtime):
        shard = driver.shard
        assert isinstance(shard, GroupShard)
        state = shard.state
        for group in (*state.classic.values(), *state.consumer.values(), *state.share.values()):
            yield group.type_name, group.state_name


def _transaction_states(runtime: "Runtime") -> Iterator[tuple[str, ...]]:
    from penstock.coordinator.transactions.shard import TransactionShard
    from penstock.coordinator.transactions.states import STATE_NAMES

    for driver in tuple(runtime):
        shard = driver.shard
        assert isinstance(shard, TransactionShard)
        for transaction in tuple(shard.transactions.values()):
            yield (STATE_NAMES[transaction.state],)
