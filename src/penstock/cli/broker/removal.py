"""`penstock broker remove`: move all replicas off a broker, then let the cluster forget it.

The plan is `client.operation.evacuation`. Each run plans what is left, so a run that was
interrupted is continued by another one.
"""

from typing import Final

import click

from penstock.cli.cluster.moving import carry_out, print_moves
from penstock.cli.cluster.state_text import move_document, names_text
from penstock.cli.confirmation import confirm
from penstock.cli.output import note, print_json
from penstock.client.cluster import Cluster
from penstock.client.operation.broker_settings import set_drained
from penstock.client.operation.cluster_state import BrokerMode, ClusterState, PartitionFacts
from penstock.client.operation.evacuation import Evacuation, plan_evacuation
from penstock.client.operation.replica_moves import ReplicaMove, rack_count
from penstock.client.operation.state_reading import read_state
from penstock.client.reassignment_calls import unregister
from penstock.core.errors import PolicyViolationError
from penstock.core.quantities import count_text

ROUNDS_MAX: Final = 10
"""Plans of one run: while it moves, other topics may get replicas on the broker."""


class Removal:
    """One run of the command."""

    def __init__(
        self,
        cluster: Cluster,
        broker_id: int,
        *,
        at_once: int,
        bytes_per_second: int | None,
        as_json: bool,
    ) -> None:
        self._cluster = cluster
        self._broker_id = broker_id
        self._at_once = at_once
        self._bytes_per_second = bytes_per_second
        self._as_json = as_json

    def show(self) -> None:
        """Print the plan, and change nothing."""
        state = read_state(self._cluster)
        plan = self._plan(state)
        self._note_racks(state, plan)
        moves = [*plan.moves, *map(self._begun, plan.under_way)]
        if self._as_json:
            self._print_document(moves, "planned")
        elif moves:
            print_moves(moves)
        else:
            click.echo(f"broker {self._broker_id} has no replicas")

    def run(self, *, yes: bool) -> None:
        """Move the replicas; forget the broker if it does not run."""
        state = read_state(self._cluster)
        plan = self._plan(state)
        self._note_racks(state, plan)
        moved: list[ReplicaMove] = []
        if plan.moves or plan.under_way:
            count = len(plan.moves) + len(plan.under_way)
            if not self._as_json and plan.moves:
                print_moves(plan.moves)
            confirm(f"Move {count_text(count, 'partition')} off broker {self._broker_id}?", yes=yes)
            self._drain(state)
            moved = self._move(state, plan)
        if self._is_running(state):
            self._drain(state)
            self._report_empty(moved)
        else:
            call = unregister(self._broker_id)
            self._cluster.repeat(lambda: self._cluster.anywhere(call), repeatable=False)
            self._report_removed(moved)

    def _move(self, state: ClusterState, plan: Evacuation) -> list[ReplicaMove]:
        """Carry out plans until the broker has no replicas; return all moves."""
        moved: list[ReplicaMove] = []
        for _ in range(ROUNDS_MAX):
            begun = [self._begun(one) for one in plan.under_way]
            carry_out(
                self._cluster,
                state,
                plan.moves,
                begun=begun,
                at_once=self._at_once,
                bytes_per_second=self._bytes_per_second,
            )
            moved += (*plan.moves, *begun)
            state = read_state(self._cluster, wants_minimums=False)
            plan = self._plan(state)
            if not plan.moves and not plan.under_way:
                return moved
        left = state.with_replica(self._broker_id)
        raise PolicyViolationError(
            f"broker {self._broker_id} gets new replicas again and again: {names_text(left)}.",
            hint=f"Run `penstock broker remove {self._broker_id}` again.",
        )

    def _note_racks(self, state: ClusterState, plan: Evacuation) -> None:
        """Report partitions that lose a rack: no other broker is in the rack of this one."""
        fewer = sum(
            rack_count(state.brokers, one.after) < rack_count(state.brokers, one.before)
            for one in plan.moves
        )
        if fewer:
            rack = state.brokers[self._broker_id].rack
            note(
                f"note: {count_text(fewer, 'partition')} will be in fewer racks, because the other "
                f"brokers of rack {rack!r} have a replica already, or there are none."
            )

    def _plan(self, state: ClusterState) -> Evacuation:
        """Return the plan; raise an error if a replica cannot move."""
        offline = [one for one in state.with_replica(self._broker_id) if one.is_offline]
        if offline:
            raise PolicyViolationError(
                f"{count_text(len(offline), 'partition')} of broker {self._broker_id} cannot be "
                f"copied without a leader: {names_text(offline)}.",
                hint="Start the broker, or delete the topics. `penstock cluster status` shows all.",
            )
        plan = plan_evacuation(state, self._broker_id)
        if plan.stuck:
            raise PolicyViolationError(
                f"no other broker can take {count_text(len(plan.stuck), 'partition')} of broker "
                f"{self._broker_id}: {names_text(plan.stuck)}.",
                hint="Add a broker or disk space, or lower the number of replicas with "
                f"`penstock topic replicas {plan.stuck[0].at.topic} N`. Drained brokers get none.",
            )
        return plan

    def _begun(self, facts: PartitionFacts) -> ReplicaMove:
        kept = tuple(one for one in facts.replicas if one not in facts.removing)
        before = tuple(one for one in facts.replicas if one not in facts.adding)
        return ReplicaMove(facts.at, before, kept, facts.size_bytes)

    def _is_running(self, state: ClusterState) -> bool:
        broker = state.brokers.get(self._broker_id)
        return broker is not None and broker.mode is not BrokerMode.DOWN

    def _drain(self, state: ClusterState) -> None:
        """Keep new replicas and leaders away from the broker."""
        if self._is_running(state):
            set_drained(self._cluster, self._broker_id, is_drained=True)

    def _report_empty(self, moved: list[ReplicaMove]) -> None:
        if self._as_json:
            self._print_document(moved, "empty")
            return
        click.echo(
            f"broker {self._broker_id} has no replicas: stop it, then run "
            f"`penstock broker remove {self._broker_id}` again, and the cluster forgets it"
        )

    def _report_removed(self, moved: list[ReplicaMove]) -> None:
        if self._as_json:
            self._print_document(moved, "removed")
        else:
            click.echo(f"broker {self._broker_id} is removed from the cluster")

    def _print_document(self, moves: list[ReplicaMove], result: str) -> None:
        print_json(
            {
                "broker": self._broker_id,
                "result": result,
                "moves": [move_document(one) for one in moves],
                "copied_bytes": sum(one.copied_bytes for one in moves),
            }
        )
