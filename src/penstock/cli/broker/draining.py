"""`penstock broker drain` and `undrain`: other brokers lead the partitions of a broker."""

import time
from collections.abc import Callable
from typing import Final

from penstock.cli.cluster.state_text import names_text
from penstock.client.cluster import Cluster
from penstock.client.operation.broker_settings import set_drained
from penstock.client.operation.cluster_state import BrokerMode, ClusterState, PartitionFacts
from penstock.client.operation.move_runner import MoveRunner
from penstock.client.operation.state_reading import read_state
from penstock.core.errors import PolicyViolationError
from penstock.core.quantities import count_text

LOOK_SECONDS: Final = 0.2
AT_ONCE: Final = 1


def drain(cluster: Cluster, broker_id: int, sleep: Callable[[float], None] = time.sleep) -> None:
    """Ask that the broker leads nothing; return when it does not.

    Raises an error if it still leads partitions: no other broker can, or the time is over. The
    broker stays drained.
    """
    set_drained(cluster, broker_id, is_drained=True)
    deadline = cluster.deadline_seconds
    while True:
        state = read_state(cluster, wants_minimums=False)
        led = state.led_by(broker_id)
        if not led:
            return
        stuck = [one for one in led if not can_move(one, state, broker_id)]
        if len(stuck) == len(led):
            raise PolicyViolationError(
                f"broker {broker_id} still leads {count_text(len(stuck), 'partition')}, because no "
                f"other broker has an in-sync replica: {names_text(stuck)}.",
                hint="Add replicas with `penstock topic replicas TOPIC 3`, or end the drain with "
                f"`penstock broker undrain {broker_id}`.",
            )
        if cluster.clock.monotonic() >= deadline:
            raise PolicyViolationError(
                f"broker {broker_id} still leads {count_text(len(led), 'partition')}: "
                f"{names_text(led)}.",
                hint="The drain goes on: `penstock cluster status` shows the leaders.",
            )
        sleep(LOOK_SECONDS)


def can_move(facts: PartitionFacts, state: ClusterState, broker_id: int) -> bool:
    """Return whether another broker that may lead has an in-sync replica."""
    others = (one for one in facts.in_sync if one != broker_id)
    return any(
        (broker := state.brokers.get(one)) is not None and broker.mode is BrokerMode.RUNNING
        for one in others
    )


def undrain(cluster: Cluster, broker_id: int) -> int:
    """Let the broker lead again; return the number of partitions that it leads at once."""
    set_drained(cluster, broker_id, is_drained=False)
    state = read_state(cluster, wants_minimums=False)
    own = [
        one.at
        for one in state.partitions
        if one.replicas[0] == broker_id and one.leader != broker_id
    ]
    return MoveRunner(cluster, at_once=AT_ONCE).let_first_lead(own)
