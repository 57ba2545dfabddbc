"""The faults of a run, drawn from its seed.

| fault | when |
| --- | --- |
| link cut, a minute to seven days | each node twice, at any time |
| links of half of the sites | cut on day 2, back at the same moment on day 4 |
| kill | a fifth of the nodes at any time; before and after each step of a pipe |
| disk full | a twentieth of the nodes for up to ten hours; the root for ten hours |
| clock wrong by a year | some nodes for an hour or for good, forward and back; the root for a day |
| root restored from a backup | day 4.5 in the same epoch, days 6.5 and 6.7 with new ones |
| topic recreated, root replaced | day 8.5: another topic id |
| registry unreachable | a week, from day 5 |
| registry answers nonsense | days 3 to 4, and 12.5 to 13.5 |
| disks cloned | on day 1: two machines with one identity |
"""

import math
from typing import Final

from tests.edge_sim.edge_world import DAY, HOUR, MINUTE, ROOT, EdgeWorld, Site

YEAR: Final = 365 * DAY


def plan_faults(world: EdgeWorld) -> None:
    """Plan all faults of a run."""
    names = [name for name in world.nodes if name != ROOT]
    sites = [name for name in names if name.startswith("s-")]
    draw, end = world.random, world.plan.days * DAY
    for name in names:
        for _ in range(2):
            length = math.exp(draw.uniform(math.log(MINUTE), math.log(7 * DAY)))
            _cut_link(world, name, draw.uniform(0, end), length)
    for name in draw.sample(sites, len(sites) // 2):
        _cut_link(world, name, 2 * DAY, 2 * DAY)  # all of them return at the same moment
    for name in draw.sample(names, len(names) // 5):
        world.at(draw.uniform(0, end), lambda name=name: world.kill(world.nodes[name]))  # type: ignore[misc]
    _plan_disks(world, names)
    _plan_clocks(world, names)
    _plan_root(world)
    _plan_registry(world)
    for name in draw.sample(sites, max(1, len(sites) // 100)):
        world.at(DAY + draw.uniform(0, HOUR), lambda name=name: clone_disk(world, name))  # type: ignore[misc]


def _cut_link(world: EdgeWorld, name: str, start: float, length: float) -> None:
    def change(by: int) -> None:
        node = world.nodes[name]
        node.links_down += by
        if by > 0:
            world.lose(node)
            world.lose_children(name)

    world.at(start, lambda: change(1))
    world.at(start + length, lambda: change(-1))


def _plan_disks(world: EdgeWorld, names: list[str]) -> None:
    draw, end = world.random, world.plan.days * DAY

    def fill(node: Site, *, is_full: bool) -> None:
        node.is_full = is_full

    chosen = [(name, draw.uniform(0, end)) for name in draw.sample(names, len(names) // 20)]
    for name, start in [*chosen, (ROOT, draw.uniform(0, end))]:
        node = world.nodes[name]
        length = 10 * HOUR if name == ROOT else draw.uniform(MINUTE, 10 * HOUR)
        world.at(start, lambda node=node: fill(node, is_full=True))  # type: ignore[misc]
        world.at(start + length, lambda node=node: fill(node, is_full=False))  # type: ignore[misc]


def _plan_clocks(world: EdgeWorld, names: list[str]) -> None:
    draw, end = world.random, world.plan.days * DAY

    def jump(node: Site, seconds: float) -> None:
        node.clock_error_seconds = seconds
        world.seen["clock jump"] += 1

    for name in [ROOT, *draw.sample(names, max(1, len(names) // 50))]:
        node, start = world.nodes[name], draw.uniform(0, end)
        seconds = -YEAR if name == ROOT else draw.choice([-YEAR, YEAR])
        world.at(start, lambda node=node, seconds=seconds: jump(node, seconds))  # type: ignore[misc]
        if name == ROOT or draw.random() < 0.5:
            length = DAY if name == ROOT else HOUR
            world.at(start + length, lambda node=node: jump(node, 0.0))  # type: ignore[misc]


def _plan_root(world: EdgeWorld) -> None:
    if world.plan.is_verifying:
        # Leader epochs alone do not show it: only the comparison of batches does.
        world.at(4.5 * DAY, lambda: world.restore_root(is_new_epoch=False))
    world.at(6.5 * DAY, lambda: world.restore_root(is_new_epoch=True))
    # The batches of the epoch before are lost too: sites have an epoch that the root never wrote.
    world.at(6.7 * DAY, lambda: world.restore_root(is_new_epoch=True))
    world.at(8.5 * DAY, world.recreate_topic)


def _plan_registry(world: EdgeWorld) -> None:
    registry = world.registry

    def reach(*, is_reachable: bool) -> None:
        registry.is_reachable = is_reachable

    def talk(*, is_nonsense: bool) -> None:
        registry.is_nonsense = is_nonsense

    world.at(5 * DAY, lambda: reach(is_reachable=False))
    world.at(12 * DAY, lambda: reach(is_reachable=True))
    for start in (3 * DAY, 12.5 * DAY):
        world.at(start, lambda: talk(is_nonsense=True))
        world.at(start + DAY, lambda: talk(is_nonsense=False))


def clone_disk(world: EdgeWorld, name: str) -> None:
    """Start a second machine with a copy of the disk of a site."""
    first = world.nodes[name]
    last = first.place.follower.last
    if last is None or last.parent is None:
        return  # a new machine: it has nothing that is worth a copy
    world.seen["cloned disk"] += 1
    second = world.add(f"{name}~2", first.log.copy(), first.place.copy())
    world.follow(second, last.parent.id)
