"""Rules of the protocol, taken out of the production code one by one: the simulator must find each.

`GUARDS` has a function for each rule; it returns the patches that remove the rule. The rules are
those of `tests.cluster.protocol_model`, of durability and of coordinators. A patch changes global
state: one run at a time, within `without`. `PROFILES_OF` names the faults that a rule exists for:
with them few seeds are enough.

`epoch_of_fetches` alone is not found, because the comparison of histories covers it. A follower
asks the broker that leads the epoch it knows. If that broker leads another epoch, it has led
without a break, or it has followed the leader between and has its records: each report that agrees
with its history is true. Without both rules a seed fails (`epoch_of_fetches_and_divergence`).

    python -m tests.cluster_sim.removed_guards            the seeds that find each removed rule
    python -m tests.cluster_sim.removed_guards NAME 500   one rule, at most this number of seeds
"""

import asyncio
import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from penstock.cluster import elections
from penstock.cluster.image import PartitionImage, Replica
from penstock.cluster.link import membership, registration
from penstock.coordinator.groups.offsets.requests import Offsets
from penstock.core.errors import NotLeaderError, PenstockError
from penstock.node.coordination.journal import PartitionJournal
from penstock.node.peers import replication_wiring
from penstock.node.peers.lost_logs import disown
from penstock.replication import isr, manager, partition_roles, replica_hosting
from penstock.replication.fetchers import Fetchers
from penstock.replication.follower import Follower, Phase
from penstock.replication.isr import InSyncReplicas
from penstock.replication.partition import PartitionState
from penstock.replication.partition_roles import RoleInEpoch
from penstock.storage import flusher
from tests.cluster_sim.fault_profiles import PROFILES
from tests.cluster_sim.run import run_seed

Patch = tuple[object, str, Any]
Removal = Callable[[], Sequence[Patch]]


def sync_before_acknowledgement() -> list[Patch]:
    """Report records as synced that are in the page cache only."""
    return [(flusher, "execute_jobs", lambda *_: None)]


def report_synced() -> list[Patch]:
    """Let a follower report records that are not synced."""

    def appended(self: Follower, *, is_synced: bool) -> None:
        del is_synced
        self._begin(Phase.FETCHING)

    return [(Follower, "appended", appended)]


def leader_syncs() -> list[Patch]:
    """Count the leader's own records before they are synced."""
    original = InSyncReplicas.committed_below

    def committed_below(self: InSyncReplicas, synced_offset: int) -> int:
        del synced_offset
        return original(self, 1 << 60)

    return [(InSyncReplicas, "committed_below", committed_below)]


def nodes() -> list[Patch]:
    """Let a wiped disk keep its place in the ISR."""
    original = registration.decide_registration

    def decide(*args: Any, node: Any, **words: Any) -> Any:  # noqa: ANN401
        writes = original(*args, node=node, **words)
        if node is None:
            return writes
        return dataclasses.replace(writes, operations=writes.operations[:1])

    return [(membership, "decide_registration", decide)]


def freeze_below_min_isr() -> list[Patch]:
    """Commit records while fewer than min.insync.replicas are in sync."""
    original = InSyncReplicas.committed_below

    def committed_below(self: InSyncReplicas, synced_offset: int) -> int:
        size, self._size_min = self._size_min, 1 << 30
        try:
            return original(self, synced_offset)
        finally:
            self._size_min = size

    return [(InSyncReplicas, "committed_below", committed_below)]


def smallest_isr() -> list[Patch]:
    """Take the new ISR for certain while it is being written, for min.insync.replicas."""
    original = InSyncReplicas._bound

    def bound(self: InSyncReplicas, one: PartitionImage, other: PartitionImage) -> None:
        original(self, one, other)
        self._size_min = max(len(one.isr), len(other.isr))

    return [(InSyncReplicas, "_bound", bound)]


def maximal_isr() -> list[Patch]:
    """Count only the new ISR while it is being written, for the high watermark."""
    original = InSyncReplicas._bound

    def bound(self: InSyncReplicas, one: PartitionImage, other: PartitionImage) -> None:
        size = min(len(one.isr), len(other.isr))
        original(self, other, other)
        self._size_min = size

    return [(InSyncReplicas, "_bound", bound)]


def elr_emptied() -> list[Patch]:
    """Keep the ELR with enough replicas in sync."""
    original = elections.joined

    def joined(state: PartitionImage, replica: Replica) -> PartitionImage:
        after = original(state, replica)
        kept = tuple(one for one in state.elr if one.broker_id not in after.isr)
        return after._replace(elr=kept)

    return [(isr, "joined", joined)]


def elr_emptied_by_min_isr() -> list[Patch]:
    """Keep the ELR at another min.insync.replicas."""
    original = elections.with_min_isr

    def with_min_isr(state: PartitionImage, min_isr: int) -> PartitionImage:
        return original(state, min_isr)._replace(elr=state.elr)

    return [(isr, "with_min_isr", with_min_isr)]


def epoch_start() -> list[Patch]:
    """Let a follower join before it has the records of earlier epochs."""
    original = InSyncReplicas.__init__

    def begin(self: InSyncReplicas, broker_id: int, state: Any, _start: int, now: float) -> None:  # noqa: ANN401
        original(self, broker_id, state, 0, now)

    return [(InSyncReplicas, "__init__", begin)]


def restart_raises_epoch() -> list[Patch]:
    """Let a broker lead with a registration that was not elected."""

    def role_in(state: PartitionImage, broker_id: int, broker_epoch: int) -> RoleInEpoch:
        return partition_roles.role_in(
            state, broker_id, state.broker_epoch if broker_epoch > 0 else broker_epoch
        )

    return [(replica_hosting, "role_in", role_in)]


def own_answer() -> list[Patch]:
    """Take answers to earlier requests."""

    def is_awaited(self: Follower, generation: int) -> bool:
        del generation
        return self.phase is Phase.FETCHING

    return [(Follower, "is_awaited", is_awaited)]


def divergence() -> list[Patch]:
    """Do not compare the histories of leader and follower."""
    return [(manager, "follower_divergence", lambda *_: None)]


def epoch_of_fetches() -> list[Patch]:
    """Serve and count fetches of other leader epochs."""
    original = PartitionState.require_leader

    def require_leader(self: PartitionState, current_leader_epoch: int) -> None:
        del current_leader_epoch
        original(self, -1)

    return [(PartitionState, "require_leader", require_leader)]


def epoch_of_fetches_and_divergence() -> list[Patch]:
    """Remove both rules: each covers a part of the other."""
    return [*epoch_of_fetches(), *divergence()]


def failed_disk_stays_out() -> list[Patch]:
    """Let a replica on a failed disk leave once, and go on to fetch: it counts as in sync again."""
    original = Fetchers.add

    def add(self: Fetchers, partition: Any, *, is_recovering: bool) -> None:  # noqa: ANN401
        shared = partition.log.shared
        failure, shared.failure = shared.failure, None
        try:
            original(self, partition, is_recovering=is_recovering)
        finally:
            shared.failure = failure

    async def disown_once(metadata: Any, broker_id: int, names: Any, is_lost: Any) -> None:  # noqa: ANN401
        del is_lost
        await disown(metadata, broker_id, names, keeps_last=True)

    return [
        (Fetchers, "abandon", lambda *_: None),
        (Fetchers, "add", add),
        (replication_wiring, "keep_disowned", disown_once),
    ]


def coordinator_waits() -> list[Patch]:
    """Let a coordinator answer before its record is committed."""

    def when_committed(
        self: PartitionJournal, end_offset: int, on_done: Callable[[PenstockError | None], None]
    ) -> None:
        del end_offset
        loop = asyncio.get_running_loop()
        loop.call_soon(on_done, None if self.partition.state.is_leader else NotLeaderError("gone"))

    return [(PartitionJournal, "when_committed", when_committed)]


def stable_positions() -> list[Patch]:
    """Show positions while a transaction that changes them is being ended."""

    def instability(*_: object, **_words: object) -> Callable[[str, int], bool]:
        return lambda _topic, _partition: False

    return [(Offsets, "_instability", instability)]


GUARDS: Final[dict[str, Removal]] = {
    one.__name__: one
    for one in (
        sync_before_acknowledgement,
        report_synced,
        leader_syncs,
        nodes,
        freeze_below_min_isr,
        smallest_isr,
        maximal_isr,
        elr_emptied,
        elr_emptied_by_min_isr,
        epoch_start,
        restart_raises_epoch,
        own_answer,
        divergence,
        epoch_of_fetches,
        epoch_of_fetches_and_divergence,
        failed_disk_stays_out,
        coordinator_waits,
        stable_positions,
    )
}

COVERED: Final = ("epoch_of_fetches",)
"""Rules that are not found alone, because another rule covers them."""

PROFILES_OF: Final = {
    "nodes": "disks",
    "maximal_isr": "doubt",
    "elr_emptied": "minimum",
    "epoch_start": "leaders",
    "restart_raises_epoch": "leaders",
    "smallest_isr": "doubt",
    "elr_emptied_by_min_isr": "minimum",
    "own_answer": "leaders",
    "failed_disk_stays_out": "disks",
    "coordinator_waits": "coordinators",
    "stable_positions": "markers",
}
"""The profile of faults that a rule exists for."""

FOUND_BY: Final = {
    "sync_before_acknowledgement": 3,
    "leader_syncs": 4,
    "nodes": 33,
    "freeze_below_min_isr": 2,
    "smallest_isr": 45,
    "maximal_isr": 2,
    "elr_emptied_by_min_isr": 4,
    "restart_raises_epoch": 3,
    "divergence": 3,
    "epoch_of_fetches_and_divergence": 3,
    "failed_disk_stays_out": 7,
    "coordinator_waits": 42,
    "stable_positions": 11,
}
"""The seed that found a removed rule before. A change of the broker or of the simulator changes the
runs, so another one may be the first."""


@contextmanager
def without(name: str) -> Iterator[None]:
    """Remove a rule until the end of the block."""
    with ExitStack() as stack:
        for place, attribute, replacement in GUARDS[name]():
            stack.enter_context(patch.object(place, attribute, replacement))
        yield


def first_failure(name: str, seeds_max: int) -> tuple[int, str] | None:
    """Return a seed with the rule's profile that fails without the rule, and its error.

    The seed that found it before is tried first; then all seeds from 1 on.
    """
    profile = PROFILES_OF.get(name)
    plan = None if profile is None else PROFILES[profile][1]
    seeds = dict.fromkeys([FOUND_BY.get(name, 1), *range(1, seeds_max + 1)])
    with without(name):
        for seed in seeds:
            trace = run_seed(seed, plan)
            if trace.error is not None:
                return seed, repr(trace.error)
    return None


def main(words: list[str]) -> int:
    """Print the first seed that finds each removed rule; return the number of unfound rules."""
    names = [word for word in words if not word.isdigit()]
    names = names or [name for name in GUARDS if name not in COVERED]
    seeds_max = next((int(word) for word in words if word.isdigit()), 200)
    missing = 0
    for name in names:
        found = first_failure(name, seeds_max)
        missing += found is None
        profile = PROFILES_OF.get(name)
        where = "" if profile is None else f" of the profile {profile}"
        text = f"not found in {seeds_max} seeds" if found is None else f"seed {found[0]}{where}"
        print(f"{name}: {text}{'' if found is None else '  ' + found[1][:160]}", flush=True)
    return missing


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))
