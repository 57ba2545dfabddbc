"""Rules of pipes and of the registry, taken out one by one: the simulator must find each.

`GUARDS` has a function for each rule; it returns the patches that remove it. A patch changes global
state: one run at a time, within `without`.

`unknown_epochs` is not found: no node of these runs has records of an older epoch behind those of a
newer one. The test of `DownPipe` finds it.

    python -m tests.edge_sim.removed_edge_guards            the seed that finds each removed rule
    python -m tests.edge_sim.removed_edge_guards NAME 50    one rule, at most this number of seeds
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from penstock.edge.pipes import down_pipe
from penstock.edge.pipes.down_pipe import Action, DownPipe, OwnLog, ParentLog, Phase
from penstock.edge.registry import parent_assignment, topology_follower
from penstock.edge.registry.topology_follower import TopologyFollower
from tests.edge_sim import edge_world, simulated_registry
from tests.edge_sim.edge_promises import check, run
from tests.edge_sim.edge_world import DAY, EdgeWorld, Plan

Patch = tuple[object, str, Any]
Removal = Callable[[], Sequence[Patch]]
PLAN: Final = Plan(sites=100, seed=0, write_seconds=DAY / 8)


def topic_id() -> list[Patch]:
    """Copy a topic of the same name with another id."""
    original = DownPipe.checked

    def checked(self: DownPipe, parent: ParentLog, *words: Any) -> Action:  # noqa: ANN401
        return original(self, parent._replace(topic_id=self._topic_id), *words)

    return [(DownPipe, "checked", checked)]


def check_at_resume() -> list[Patch]:
    """Copy as soon as the parent answers."""

    def connected(self: DownPipe) -> Action:
        return down_pipe.Rest() if self.phase is Phase.STOPPED else self._copy()

    return [(DownPipe, "connected", connected), (edge_world.EdgeWorld, "_answer", _unchecked())]


def _unchecked() -> Callable[[EdgeWorld, Any, Any, int], None]:
    """The parent does not compare epochs either: an Apache Kafka of before KIP-595."""
    original = EdgeWorld._answer

    def answer(self: EdgeWorld, node: Any, parent: Any, generation: int) -> None:  # noqa: ANN401
        epoch, parent.leader_epoch = parent.leader_epoch, node.log.latest_epoch
        try:
            original(self, node, parent, generation)
        finally:
            parent.leader_epoch = epoch

    return answer


def epochs_at_resume() -> list[Patch]:
    """Do not compare leader epochs; batches of a compacted topic are not compared anyway."""

    def common_end(parent: ParentLog, own: OwnLog, _shared: object) -> int:
        return min(parent.end_offset, own.end_offset)

    return [(down_pipe, "_common_end", common_end), (EdgeWorld, "_answer", _unchecked())]


def unknown_epochs() -> list[Patch]:
    """Trust a parent that does not know the newest epoch of the own log."""
    original = DownPipe.checked

    def checked(self: DownPipe, parent: ParentLog, own: OwnLog, shared: Any) -> Action:  # noqa: ANN401
        action = original(self, parent, own, shared)
        is_unknown = parent.epoch_end.end_offset == down_pipe.NO_OFFSET
        if isinstance(action, down_pipe.Compare) and is_unknown and not self.is_verifying:
            return self._copy()
        return action

    return [(DownPipe, "checked", checked), (EdgeWorld, "_answer", _unchecked())]


def last_batch() -> list[Patch]:
    """Do not compare batches: a restored parent writes others in the same epoch."""
    original = DownPipe.checked

    def checked(self: DownPipe, *words: Any) -> Action:  # noqa: ANN401
        action = original(self, *words)
        return self._copy() if isinstance(action, down_pipe.Compare) else action

    return [(DownPipe, "checked", checked)]


def own_answer() -> list[Patch]:
    """Take answers to earlier requests."""
    original = DownPipe.answered

    def answered(self: DownPipe, _generation: int, *words: Any, **named: Any) -> Action:  # noqa: ANN401
        return original(self, self.generation, *words, **named)

    return [(DownPipe, "answered", answered)]


def declared_gaps() -> list[Patch]:
    """Skip a gap without a word."""
    original = DownPipe._gap

    def gap(self: DownPipe, parent: ParentLog, own: OwnLog) -> Action:
        gaps, offsets = self.gaps, self.gap_records
        action = original(self, parent, own)
        self.gaps, self.gap_records = gaps, offsets
        return action

    return [(DownPipe, "_gap", gap)]


def cut_sends_children_away() -> list[Patch]:
    """Keep the leader epoch and the connections of children when a log is cut."""

    def stay(self: EdgeWorld, node: Any) -> None:  # noqa: ANN401
        self._wake(node.id)

    return [(EdgeWorld, "_send_children_away", stay)]


def jitter() -> list[Patch]:
    """Return all at the same moment after an outage."""
    original = EdgeWorld.__init__

    def begin(self: EdgeWorld, plan: Plan) -> None:
        original(self, replace(plan, is_jittered=False))

    return [(EdgeWorld, "__init__", begin)]


def children_bound() -> list[Patch]:
    """Let a parent have any number of children."""
    original = parent_assignment.Tree.__init__

    def begin(self: Any, *words: Any, **named: Any) -> None:  # noqa: ANN401
        original(self, *words, **named, children_max=1 << 30)

    return [(parent_assignment.Tree, "__init__", begin)]


def good_answers() -> list[Patch]:
    """Follow each answer of the registry that is a topology."""
    return [(TopologyFollower, "_problem", lambda *_: None)]


def newest_answer() -> list[Patch]:
    """Follow older answers."""
    return [(TopologyFollower, "_is_believed", lambda *_: True)]


def wrong_revision_ends() -> list[Patch]:
    """Refuse older answers for ever: a wrong revision cuts a node off from the registry."""
    return [(topology_follower, "OLDER_ANSWERS_MAX", 1 << 30)]


def parent_is_kept() -> list[Patch]:
    """Follow an answer without a parent."""
    original = TopologyFollower.judge

    def judge(self: TopologyFollower, data: bytes) -> Any:  # noqa: ANN401
        last, self.last = self.last, None
        try:
            found = original(self, data)
        finally:
            self.last = last
        return found

    return [(TopologyFollower, "judge", judge)]


def instances() -> list[Patch]:
    """Accept both machines of a copied disk."""
    return [(simulated_registry, "use_instance", lambda entry, _shown: entry)]


GUARDS: Final[dict[str, Removal]] = {
    one.__name__: one
    for one in (
        topic_id,
        check_at_resume,
        epochs_at_resume,
        unknown_epochs,
        last_batch,
        own_answer,
        declared_gaps,
        cut_sends_children_away,
        jitter,
        children_bound,
        good_answers,
        newest_answer,
        wrong_revision_ends,
        parent_is_kept,
        instances,
    )
}
COVERED: Final = ("unknown_epochs",)
"""Rules that these runs do not find; other tests do."""
PLANS: Final = {
    "epochs_at_resume": replace(PLAN, is_verifying=False),
    "unknown_epochs": replace(PLAN, is_verifying=False),
    "jitter": replace(PLAN, sites=300),
    "children_bound": replace(PLAN, sites=600),
}
"""The runs for which a rule exists."""
FOUND_BY: Final = {"cut_sends_children_away": 32}
"""The seed that found a removed rule before; a change of the simulator changes the runs."""


@contextmanager
def without(name: str) -> Iterator[None]:
    """Remove a rule until the end of the block."""
    with ExitStack() as stack:
        for place, attribute, replacement in GUARDS[name]():
            stack.enter_context(patch.object(place, attribute, replacement))
        yield


def first_failure(name: str, seeds_max: int) -> tuple[int, str] | None:
    """Return a seed that fails without the rule, and its error."""
    plan = PLANS.get(name, PLAN)
    seeds = dict.fromkeys([FOUND_BY.get(name, 1), *range(1, seeds_max + 1)])
    with without(name):
        for seed in seeds:
            try:
                check(run(replace(plan, seed=seed)))
            except AssertionError as error:
                return seed, str(error).partition("\n")[0]
    return None


def main(words: list[str]) -> int:
    """Print the first seed that finds each removed rule; return the number of unfound rules."""
    names = [word for word in words if not word.isdigit()]
    names = names or [name for name in GUARDS if name not in COVERED]
    seeds_max = next((int(word) for word in words if word.isdigit()), 20)
    missing = 0
    for name in names:
        found = first_failure(name, seeds_max)
        missing += found is None
        text = f"not found in {seeds_max} seeds" if found is None else f"seed {found[0]}"
        print(f"{name}: {text}{'' if found is None else '  ' + found[1][:160]}", flush=True)
    return missing


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))
