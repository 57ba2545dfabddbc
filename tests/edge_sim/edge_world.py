"""A tree of sites in virtual time, from one seed: outages, kills, retention, a restored root.

The decisions are the real ones: `DownPipe` and `BackOff` for each site, `Tree` for the parents.
The simulator replaces the rest: clock, network, disks. Sites copy from their parent, and sites on
the second level are parents themselves.

Faults: each site loses its link for a minute to seven days, several times; half of the sites lose
it together and get it back at the same moment; sites are killed and lose batches that were not
synced; calls are lost; parents are killed for five minutes; parents delete old
batches; and once the root is restored from an older backup and goes on with a new epoch.

Polls are every `POLL_SECONDS`, not every 30 s, so a week takes seconds; a parent counts as gone
after ten missed polls, as in reality.
"""

import heapq
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final
from uuid import UUID

from penstock.edge.pipes.back_off import BackOff
from penstock.edge.pipes.down_pipe import (
    Action,
    Append,
    Check,
    Compare,
    Copy,
    Cut,
    DownPipe,
    OnGap,
    ParentLog,
    Phase,
    Restart,
    asked_epoch,
)
from penstock.edge.registry.node_entry import NodeEntry
from penstock.edge.registry.node_roles import Role
from penstock.edge.registry.parent_assignment import Tree
from penstock.protocol.error_codes import ErrorCode
from tests.edge_sim.site_logs import OFFSETS, Batch, SiteLog, common_end

MINUTE: Final = 60.0
HOUR: Final = 3_600.0
DAY: Final = 86_400.0
POLL_SECONDS: Final = HOUR
TOPIC_ID: Final = UUID(int=1)
FETCH_BATCHES_MAX: Final = 64
LOSS: Final = 0.01
"""Calls that get no answer."""
ROOT: Final = "root"


@dataclass(frozen=True)
class Plan:
    """The size of a run."""

    sites: int
    seed: int
    days: float = 12.0
    write_seconds: float = HOUR
    retention_seconds: float = 5 * DAY
    is_jittered: bool = True


@dataclass
class Site:
    """One node: its log is on its disk, the rest is lost with its process."""

    id: str
    log: SiteLog
    pipe: DownPipe
    back_off: BackOff = field(default_factory=BackOff)
    is_up: bool = True
    links_down: int = 0
    parent: str | None = None
    boot: int = 0
    gaps: int = 0
    gap_offsets: int = 0
    cut_offsets: int = 0
    """Of processes that were killed; those of the present one are in its pipe."""
    is_parked: bool = False


class EdgeWorld:
    """The sites, their links, and one queue of events."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.random = random.Random(plan.seed)
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._contents = count()
        self.epoch = 0
        self.tree = Tree(gone_seconds=10 * POLL_SECONDS)
        self.nodes: dict[str, Site] = {}
        self.calls: dict[str, Counter[int]] = defaultdict(Counter)
        """Connections of each parent by second."""
        self._below: dict[str, dict[str, Site]] = defaultdict(dict)
        """The children of each parent, in the order in which they came."""
        self.history: list[Batch] = []
        """Everything that the root has written, with the batches that it has deleted since."""
        self.children_most: Counter[str] = Counter()
        self.jumped_offsets: Counter[str] = Counter()
        """Offsets that a site has not and will never have, as the simulator sees it."""
        self.lost_offsets = 0
        """Offsets that sites lost with unsynced batches; they copy them again."""
        self._create()

    # --- The scene ---

    def _create(self) -> None:
        plan = self.plan
        middle = max(2, math.ceil(plan.sites / 150))
        names = [(ROOT, Role.ROOT)]
        names += [(f"l2-{number}", Role.L2) for number in range(middle)]
        names += [(f"s-{number}", Role.POS) for number in range(plan.sites - middle - 1)]
        for name, role in names:
            addresses = {"kafka": f"{name}:9092"}
            self.tree.put(NodeEntry(name, "token:x", chosen_role=role, addresses=addresses))
            self.nodes[name] = Site(name, SiteLog(), self._new_pipe())
            self.at(self.random.uniform(0, HOUR), partial(self._poll, name))
        self._at_intervals(plan.write_seconds, self._write)
        self._at_intervals(6 * HOUR, self._retain)
        self._plan_faults([name for name, role in names if role is not Role.ROOT])

    def _new_pipe(self) -> DownPipe:
        return DownPipe(TOPIC_ID, OnGap.SKIP, is_verifying=True)

    def _plan_faults(self, names: list[str]) -> None:
        sites = [name for name in names if name.startswith("s-")]
        draw, end = self.random, self.plan.days * DAY
        for name in names:
            for _ in range(2):
                length = math.exp(draw.uniform(math.log(MINUTE), math.log(7 * DAY)))
                self._cut_link(name, draw.uniform(0, end), length)
        for name in draw.sample(sites, len(sites) // 2):
            self._cut_link(name, 2 * DAY, 2 * DAY)  # all of them return at the same moment
        for name in draw.sample(names, len(names) // 5):
            self.at(draw.uniform(0, end), partial(self._kill, name, 5 * MINUTE))
        self.at(6.5 * DAY, self._restore_root)

    def _cut_link(self, name: str, start: float, length: float) -> None:
        def change(by: int) -> None:
            node = self.nodes[name]
            node.links_down += by
            if by > 0:
                self._lose(node)
                for child in self._children(name):
                    self._lose(child)

        self.at(start, lambda: change(1))
        self.at(start + length, lambda: change(-1))

    def _children(self, name: str) -> list[Site]:
        return list(self._below[name].values())

    # --- Time ---

    def at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(time, self.now), next(self._numbers), action))

    def _at_intervals(self, seconds: float, action: Callable[[], None]) -> None:
        def again() -> None:
            action()
            self.at(self.now + seconds, again)

        self.at(seconds, again)

    def run(self) -> None:
        """Run all days, then give all links back and let the sites catch up."""
        self._until(self.plan.days * DAY)
        self._until((self.plan.days + 8) * DAY)

    def _until(self, end: float) -> None:
        while self._events and self._events[0][0] <= end:
            self.now, _, action = heapq.heappop(self._events)
            action()
        self.now = end

    # --- The root ---

    def _write(self) -> None:
        if self.now > self.plan.days * DAY:
            return
        root = self.nodes[ROOT]
        batch = Batch(root.log.end_offset, self.epoch, self.now, next(self._contents))
        root.log.append(batch)
        self.history.append(batch)
        self._wake(ROOT)

    def _retain(self) -> None:
        before = min(self.now, self.plan.days * DAY) - self.plan.retention_seconds
        for name in [name for name, children in self._below.items() if children]:
            self.nodes[name].log.delete_before(before)

    def _restore_root(self) -> None:
        """Go on from a backup of half a day ago, with a new epoch and other batches."""
        log = self.nodes[ROOT].log
        lost = int(DAY / 2 / self.plan.write_seconds) * OFFSETS
        log.truncate(max(log.start_offset, log.end_offset - lost))
        del self.history[log.end_offset // OFFSETS :]
        self.epoch += 1
        for child in self._children(ROOT):
            self._lose(child)

    # --- A node ---

    def _kill(self, name: str, off_seconds: float) -> None:
        node = self.nodes[name]
        self._lose(node)
        for child in self._children(name):
            self._lose(child)
        node.is_up = False
        node.boot += 1
        # A parent shows only synced batches to its children, so it loses none that they have.
        unsynced = min(self.random.randrange(3), max(0, len(node.log.batches) - 1))
        unsynced = 0 if self._below[name] else unsynced
        node.log.truncate(node.log.end_offset - unsynced * OFFSETS)
        self.lost_offsets += unsynced * OFFSETS
        node.gaps += node.pipe.gaps
        node.gap_offsets += node.pipe.gap_records
        node.cut_offsets += node.pipe.cut_records
        node.pipe, node.back_off = self._new_pipe(), BackOff()
        node.is_parked = False
        boot = node.boot

        def start() -> None:
            if node.boot == boot:
                node.is_up = True
                self._connect(node)

        self.at(self.now + off_seconds, start)

    def _poll(self, name: str) -> None:
        """Poll the registry, which the whole tree shares, and follow its answer."""
        node = self.nodes[name]
        share = self.random.random()
        self.at(self.now + POLL_SECONDS * (0.8 + 0.4 * share), partial(self._poll, name))
        if not node.is_up or node.links_down:
            return
        found = self.tree.get(name)
        assert found is not None
        settled, _ = self.tree.settled(found, self.now)
        self.tree.put(settled)
        self.tree.see(name, self.now)
        if settled.parent is not None:
            children = self.tree.children(settled.parent)
            self.children_most[settled.parent] = max(self.children_most[settled.parent], children)
        if settled.parent != node.parent:
            if node.parent is not None:
                del self._below[node.parent][name]
            if settled.parent is not None:
                self._below[settled.parent][name] = node
            node.parent = settled.parent
            self._lose(node)
            self._connect(node)

    # --- A pipe ---

    def _reaches(self, node: Site) -> Site | None:
        """Return the parent if a call to it is answered now."""
        if not node.is_up or self._is_cut_off(node) or self.random.random() < LOSS:
            return None
        assert node.parent is not None
        return self.nodes[node.parent]

    def _is_cut_off(self, node: Site) -> bool:
        """Whether no call of a node to its parent gets an answer."""
        if node.parent is None or node.links_down:
            return True
        parent = self.nodes[node.parent]
        return not parent.is_up or bool(parent.links_down)

    def _lose(self, node: Site) -> None:
        """The connection is gone: wait, and try again."""
        if node.pipe.phase is Phase.WAITING or node.id == ROOT:
            return
        node.is_parked = False
        node.pipe.lost()
        self._connect_later(node)

    def _connect_later(self, node: Site) -> None:
        share = self.random.random() if self.plan.is_jittered else 1.0
        boot = node.boot

        def connect() -> None:
            if node.boot == boot and node.pipe.phase is Phase.WAITING:
                self._connect(node)

        pause = node.back_off.next_pause(share)
        self.at(self.now + pause, connect)

    def _connect(self, node: Site) -> None:
        if node.parent is None or not node.is_up:
            return
        parent = self._reaches(node)
        if parent is None:
            node.pipe.lost()
            self._connect_when_possible(node)
            return
        self.calls[parent.id][int(self.now)] += 1
        node.back_off.reset()
        self._act(node, parent, node.pipe.connected())

    def _connect_when_possible(self, node: Site) -> None:
        """Skip the attempts of an outage: go to the first one after its end.

        Real sites try every minute at most. Attempts that get no answer change nothing but the
        pause, which is at its bound after seven of them.
        """
        if not self._is_cut_off(node):
            self._connect_later(node)
            return
        for _ in range(8):
            node.back_off.next_pause(1.0)
        boot = node.boot

        def look() -> None:
            if node.boot != boot or node.pipe.phase is not Phase.WAITING:
                return
            if self._is_cut_off(node):
                self.at(self.now + 10 * MINUTE, look)
            else:
                self._connect_later(node)

        self.at(self.now + 10 * MINUTE, look)

    def _act(self, node: Site, parent: Site, action: Action) -> None:
        """Carry out actions until the pipe copies or rests."""
        for _ in range(100):
            if isinstance(action, Check):
                action = self._check(node, parent)
            elif isinstance(action, Compare):
                common = common_end(node.log, parent.log)
                action = node.pipe.compared(common, node.log.view)
            elif isinstance(action, Cut):
                node.log.truncate(action.offset)
                action = node.pipe.cut()
                self._wake(node.id)
            elif isinstance(action, Restart):
                end = node.log.end_offset
                if end and action.offset > end:
                    self.jumped_offsets[node.id] += action.offset - end
                node.log.begin_anew(action.offset)
                action = node.pipe.cut()
                self._wake(node.id)
            else:
                break
            node.pipe.validate()
        if isinstance(action, Copy):
            self._fetch(node)
        elif node.pipe.phase is Phase.WAITING:
            self._connect_later(node)

    def _check(self, node: Site, parent: Site) -> Action:
        log = parent.log
        epoch = asked_epoch(node.log.view, log.latest_epoch)
        epoch_end = log.epoch_end(epoch)
        found = ParentLog(TOPIC_ID, log.start_offset, log.end_offset, epoch_end)
        return node.pipe.checked(found, node.log.view, node.log.epoch_end(epoch_end.epoch))

    def _fetch(self, node: Site) -> None:
        generation, boot = node.pipe.sent(), node.boot

        def answer() -> None:
            if node.boot != boot or node.pipe.phase is not Phase.COPYING:
                return
            if node.pipe.generation != generation:
                return
            parent = self._reaches(node)
            if parent is None:
                self._lose(node)
                return
            self._answer(node, parent, generation)

        self.at(self.now + self.random.uniform(0.02, 1.0), answer)

    def _answer(self, node: Site, parent: Site, generation: int) -> None:
        log, own = parent.log, node.log
        is_inside = log.start_offset <= own.end_offset <= log.end_offset
        found = log.epoch_end(own.latest_epoch)
        # A parent without records has no epochs to compare with.
        are_comparable = bool(own.batches and log.batches) and is_inside
        has_diverged = are_comparable and found.end_offset < own.end_offset
        action = node.pipe.answered(
            generation,
            ErrorCode.NONE if is_inside else ErrorCode.OFFSET_OUT_OF_RANGE,
            own.view,
            high_watermark=log.end_offset,
            start_offset=log.start_offset,
            has_diverged=has_diverged,
        )
        if not isinstance(action, Append):
            self._act(node, parent, action)
            return
        for batch in log.read(own.end_offset, FETCH_BATCHES_MAX):
            own.append(batch)
        self._wake(node.id)
        if own.end_offset < log.end_offset:
            self._fetch(node)
        else:
            node.is_parked = True

    def _wake(self, name: str) -> None:
        """New batches: answer the fetches that wait at this node."""
        for child in self._parked(name):
            child.is_parked = False
            if child.pipe.phase is Phase.COPYING:
                self._fetch(child)

    def _parked(self, name: str) -> list[Site]:
        return [one for one in self._children(name) if one.is_parked]
