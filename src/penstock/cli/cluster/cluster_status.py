"""`penstock cluster status`: brokers, and partitions with problems, over Kafka's protocol.

Ordered by importance: health, its reasons with remedies, the partitions, then the brokers. The exit
code reports the health as `penstock status` does: 0 healthy, 5 degraded, 6 critical. It works with
any Kafka cluster; only Penstock's brokers can be drained.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

import click

from penstock.cli import exits
from penstock.cli.cluster.state_text import (
    broker_document,
    ids_text,
    names_text,
    open_operated,
    partition_document,
)
from penstock.cli.options import bootstrap_option, examples, json_option, timeout_option
from penstock.cli.output import print_colored, print_json, print_table
from penstock.client.operation.cluster_state import BrokerMode, ClusterState, PartitionFacts
from penstock.client.operation.state_reading import read_state
from penstock.core.quantities import count_text, size_text

PARTITIONS_SHOWN_MAX: Final = 20
"""Rows of the table of partitions; the JSON document has all of them."""


class Health(StrEnum):
    """The health of a cluster, with the words of `penstock status`."""

    HEALTHY = "Healthy"
    DEGRADED = "Degraded"
    CRITICAL = "Critical"


_CODES: Final = {
    Health.HEALTHY: exits.DONE,
    Health.DEGRADED: exits.DEGRADED,
    Health.CRITICAL: exits.CRITICAL,
}
_COLOURS: Final = {Health.HEALTHY: "green", Health.DEGRADED: "yellow", Health.CRITICAL: "red"}
_BROKER_COLUMNS: Final = (
    *("broker", "address", "rack", "state", "leaders", "replicas", "bytes", "disk used"),
)
_PARTITION_COLUMNS: Final = ("partition", "leader", "replicas", "in sync", "min in sync", "problem")


class Reason(NamedTuple):
    """A problem of a cluster with its remedy."""

    level: Health
    message: str
    remedy: str


@click.command(
    short_help="Show brokers, and partitions with problems.",
    epilog=examples(
        "penstock cluster status",
        "penstock cluster status --bootstrap-server broker1:9092,broker2:9092 --json",
    )
    + "\n\nExit codes: 0 healthy, 5 degraded (under-replicated), 6 critical (offline, or below "
    "min.insync.replicas), 3 unreachable.",
)
@bootstrap_option
@timeout_option
@json_option()
def cluster_status(bootstrap: str, timeout_seconds: float, as_json: bool) -> int:
    """Show the brokers of a cluster, and the partitions that are not as safe as they should be.

    Needs the permissions Describe and DescribeConfigs on the cluster, and both on all topics.
    """
    with open_operated(bootstrap, timeout_seconds) as cluster:
        state = read_state(cluster)
    reasons = list(find_reasons(state))
    health = _health(reasons)
    if as_json:
        print_json(_document(state, health, reasons))
    else:
        _print(state, health, reasons)
    return _CODES[health]


def find_reasons(state: ClusterState) -> Iterable[Reason]:
    """Yield the problems, the worst first."""
    if state.offline:
        yield Reason(
            Health.CRITICAL,
            f"{count_text(len(state.offline), 'partition')} without a leader: "
            f"{names_text(state.offline)}.",
            "Start the brokers that have their replicas.",
        )
    below = [one for one in state.under_min if not one.is_offline]
    if below:
        yield Reason(
            Health.CRITICAL,
            f"{count_text(len(below), 'partition')} below min.insync.replicas: "
            f"{names_text(below)}. Records with acks=all are rejected there.",
            "Start the brokers that have their replicas, or wait until these are in sync.",
        )
    down = state.in_mode(BrokerMode.DOWN)
    if down:
        yield Reason(
            Health.DEGRADED,
            f"not reached: broker {ids_text(down)}.",
            "Start it again. A broker that is lost for ever: `penstock broker remove ID`.",
        )
    behind = [one for one in state.under_replicated if not (one.is_offline or one.is_under_min)]
    if behind:
        yield Reason(
            Health.DEGRADED,
            f"{count_text(len(behind), 'partition')} under-replicated: {names_text(behind)}.",
            "Replicas of a started broker join when they have caught up.",
        )


def _health(reasons: Iterable[Reason]) -> Health:
    levels = {one.level for one in reasons}
    if Health.CRITICAL in levels:
        return Health.CRITICAL
    return Health.DEGRADED if levels else Health.HEALTHY


def _document(state: ClusterState, health: Health, reasons: Iterable[Reason]) -> dict[str, object]:
    return {
        "health": health.value,
        "cluster_id": state.cluster_id,
        "controller": state.controller_id,
        "reasons": [
            {"level": one.level.value, "message": one.message, "remedy": one.remedy}
            for one in reasons
        ],
        "brokers": [broker_document(one, state) for one in state.brokers.values()],
        "partitions": len(state.partitions),
        "offline": [partition_document(one) for one in state.offline],
        "under_min_insync_replicas": [partition_document(one) for one in state.under_min],
        "under_replicated": [partition_document(one) for one in state.under_replicated],
        "reassignments": [partition_document(one) for one in state.moving],
    }


def _print(state: ClusterState, health: Health, reasons: Iterable[Reason]) -> None:
    print_colored([(health.value, f"bold {_COLOURS[health]}"), (f"  {_counts(state)}", "")])
    for one in reasons:
        print_colored([(f"{one.level}: ", _COLOURS[one.level]), (one.message, "")])
        print_colored([(f"  {one.remedy}", "")])
    _print_partitions(state)
    print_table(list(_BROKER_COLUMNS), [_broker_row(one, state) for one in state.brokers])
    print_colored(
        [(f"cluster {state.cluster_id or '-'}, controller broker {state.controller_id}", "")]
    )


def _counts(state: ClusterState) -> str:
    moving = len(state.moving)
    return (
        f"{count_text(len(state.brokers), 'broker')}, "
        f"{count_text(len(state.partitions), 'partition')}"
        + (f", {count_text(moving, 'reassignment')} in progress" if moving else "")
    )


def _print_partitions(state: ClusterState) -> None:
    """Print the partitions with problems, and the ones that move; the worst first."""
    found: dict[PartitionFacts, str] = {}
    for word, partitions in (
        ("offline", state.offline),
        ("below min in sync", state.under_min),
        ("under-replicated", state.under_replicated),
        ("moving", state.moving),
    ):
        for one in partitions:
            found.setdefault(one, word)
    if not found:
        return
    rows = [
        [
            str(one.at),
            None if one.is_offline else one.leader,
            ids_text(one.replicas),
            ids_text(one.in_sync),
            one.min_in_sync,
            _moving_text(one) if word == "moving" else word,
        ]
        for one, word in found.items()
    ]
    print_table(list(_PARTITION_COLUMNS), rows[:PARTITIONS_SHOWN_MAX])
    if len(rows) > PARTITIONS_SHOWN_MAX:
        more = count_text(len(rows) - PARTITIONS_SHOWN_MAX, "more partition")
        print_colored([(f"{more}; --json lists all.", "")])


def _moving_text(facts: PartitionFacts) -> str:
    return f"moving: adds {ids_text(facts.adding)}, removes {ids_text(facts.removing)}"


def _broker_row(broker_id: int, state: ClusterState) -> list[object]:
    document = broker_document(state.brokers[broker_id], state)
    size, disk, free = document["bytes"], document["disk_bytes"], document["free_bytes"]
    is_known = isinstance(disk, int) and isinstance(free, int) and disk > 0
    return [
        document["id"],
        document["address"],
        document["rack"],
        f"{document['state']}, controller" if document["controller"] else document["state"],
        document["leaders"],
        document["replicas"],
        size_text(size) if isinstance(size, int) else None,
        f"{1 - free / disk:.0%}" if is_known else None,  # type: ignore[operator]
    ]
