"""A tree of sites in virtual time, from one seed: outages, kills, retention, a restored root.

The decisions are the real ones: `DownPipe` and `BackOff` for each site, and those of
`simulated_registry`. The simulator replaces the rest: clock, network, disks. Sites copy from their
parent, and sites on the second level are parents themselves. `edge_faults` chooses the faults, and
`edge_promises` checks the end; `_append` checks every copy.

Polls are every `POLL_SECONDS`, not every 30 s, so a week takes seconds; a parent counts as gone
after ten missed polls, as in reality.
"""

import heapq
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final
from uuid import UUID

from penstock.edge.pipes.back_off import BackOff
from penstock.edge.pipes.down_pipe import (
    NO_EPOCH,
    NO_OFFSET,
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
    Problem,
    Restart,
    asked_epoch,
)
from penstock.edge.registry.node_roles import Role
from penstock.protocol.error_codes import ErrorCode
from tests.edge_sim.simulated_registry import Place, SimulatedRegistry
from tests.edge_sim.site_logs import OFFSETS, Batch, SiteLog, common_end

MINUTE: Final = 60.0
HOUR: Final = 3_600.0
DAY: Final = 86_400.0
POLL_SECONDS: Final = HOUR
FETCH_BATCHES_MAX: Final = 64
LOSS: Final = 0.01
"""Calls that get no answer."""
LATE: Final = 0.3
"""Lost answers that arrive later, up to an hour: the connection was half open."""
STEP_KILL: Final = 0.002
CUT_KILL: Final = 0.2
"""Kills before or after a step of a pipe, and around a cut."""
OPERATOR_SECONDS_MAX: Final = DAY
"""Until an operator deletes a mirror whose topic was recreated."""
ROOT: Final = "root"
FULL: Final = Problem("no room", "free some")


class HistoryViolationError(AssertionError):
    """A site copied on top of records that its parent does not have."""


@dataclass(frozen=True)
class Plan:
    """The size of a run."""

    sites: int
    seed: int
    days: float = 12.0
    write_seconds: float = HOUR
    retention_seconds: float = 5 * DAY
    is_jittered: bool = True
    is_verifying: bool = True
    """False: the topic is compacted, so only leader epochs are compared."""


@dataclass
class Site:
    """One node: its log and its place are on its disk, the rest is lost with its process."""

    id: str
    log: SiteLog
    pipe: DownPipe
    place: Place
    back_off: BackOff = field(default_factory=BackOff)
    is_up: bool = True
    is_full: bool = False
    links_down: int = 0
    parent: str | None = None
    boot: int = 0
    leader_epoch: int = 0
    """At least the parent's; a cut raises it."""
    gaps: int = 0
    gap_offsets: int = 0
    cut_offsets: int = 0
    """Of processes that were killed; those of the present one are in its pipe."""
    unproven_end: int = 0
    """Declared by a pipe: below it the parent had deleted all records before a comparison."""
    clock_error_seconds: float = 0.0
    is_parked: bool = False
    has_operator: bool = False
    """An operator knows that the pipe has stopped."""


class EdgeWorld:
    """The sites, their links, and one queue of events."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.random = random.Random(plan.seed)
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._contents = count()
        self.topic_id = UUID(int=1)
        self.registry = SimulatedRegistry(self.random, gone_seconds=10 * POLL_SECONDS)
        self.nodes: dict[str, Site] = {}
        self.calls: dict[str, Counter[int]] = defaultdict(Counter)
        """Connections of each parent by second."""
        self._below: dict[str, dict[str, Site]] = defaultdict(dict)
        """The children of each parent, in the order in which they came."""
        self.histories: dict[UUID, list[Batch]] = {self.topic_id: []}
        """Everything that the root has written, with the batches that it has deleted since."""
        self.jumped_offsets: Counter[str] = Counter()
        """Offsets that a site has not and will never have, as the simulator sees it."""
        self.cut_at: dict[str, set[int]] = defaultdict(set)
        """The seconds in which a parent cut its log, which sends its children away."""
        self.seen: Counter[str] = Counter()
        """How often each kind of fault met a site."""
        self._create()

    # --- The scene ---

    def _create(self) -> None:
        plan = self.plan
        middle = max(2, math.ceil(plan.sites / 150))
        names = [(ROOT, Role.ROOT)]
        names += [(f"l2-{number}", Role.L2) for number in range(middle)]
        names += [(f"s-{number}", Role.POS) for number in range(plan.sites - middle - 1)]
        for name, role in names:
            self.add(name, SiteLog(self.topic_id), self.registry.add(name, role))
        self.at_intervals(plan.write_seconds, self._write)
        self.at_intervals(6 * HOUR, self._retain)

    def add(self, name: str, log: SiteLog, place: Place) -> Site:
        """Add a node, which polls within an hour."""
        node = self.nodes[name] = Site(name, log, self._new_pipe(log), place)
        self.at(self.now + self.random.uniform(0, HOUR), partial(self._poll, name))
        return node

    def _new_pipe(self, log: SiteLog) -> DownPipe:
        return DownPipe(log.topic_id, OnGap.SKIP, is_verifying=self.plan.is_verifying)

    def children(self, name: str) -> list[Site]:
        """Return the sites that copy from a node."""
        return list(self._below[name].values())

    # --- Time ---

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Let something happen at a time."""
        heapq.heappush(self._events, (max(time, self.now), next(self._numbers), action))

    def at_intervals(self, seconds: float, action: Callable[[], None]) -> None:
        """Let something happen again and again."""

        def again() -> None:
            action()
            self.at(self.now + seconds, again)

        self.at(seconds, again)

    def run(self) -> None:
        """Run all days, then give all links back and let the sites catch up."""
        end = (self.plan.days + 8) * DAY
        while self._events and self._events[0][0] <= end:
            self.now, _, action = heapq.heappop(self._events)
            action()
        self.now = end

    # --- The root ---

    def _write(self) -> None:
        root = self.nodes[ROOT]
        if self.now > self.plan.days * DAY or root.is_full or not root.is_up:
            return
        time = self.now + root.clock_error_seconds
        batch = Batch(root.log.end_offset, root.leader_epoch, time, next(self._contents))
        root.log.append(batch)
        self.histories[self.topic_id].append(batch)
        self._wake(ROOT)

    def _retain(self) -> None:
        before = min(self.now, self.plan.days * DAY) - self.plan.retention_seconds
        for name in [name for name, children in self._below.items() if children]:
            node = self.nodes[name]
            node.log.delete_before(before + node.clock_error_seconds)

    def restore_root(self, *, is_new_epoch: bool) -> None:
        """Go on from a backup of half a day ago, with other batches; it takes an hour."""
        self.kill(self.nodes[ROOT], HOUR)
        log = self.nodes[ROOT].log
        lost = int(DAY / 2 / self.plan.write_seconds) * OFFSETS
        log.truncate(max(log.start_offset, log.end_offset - lost))
        del self.histories[self.topic_id][log.end_offset // OFFSETS :]
        self.nodes[ROOT].leader_epoch += is_new_epoch

    def recreate_topic(self) -> None:
        """Replace the root, within an hour: another topic of the same name."""
        self.kill(self.nodes[ROOT], HOUR)
        root, self.topic_id = self.nodes[ROOT], UUID(int=self.topic_id.int + 1)
        self.histories[self.topic_id] = []
        root.log, root.leader_epoch = SiteLog(self.topic_id), 0

    # --- A node ---

    def kill(self, node: Site, off_seconds: float | None = None) -> None:
        """Kill a process; it loses batches that are not synced, and starts within ten minutes."""
        self.seen["kill"] += 1
        self.lose(node)
        self.lose_children(node.id)
        node.is_up = node.is_parked = False
        node.boot += 1
        node.place.boot += 1
        node.place.is_registered = False
        # A parent shows only synced batches to its children, so it loses none that they have.
        unsynced = min(self.random.randrange(3), max(0, len(node.log.batches) - 1))
        unsynced = 0 if self._below[node.id] else unsynced
        node.log.truncate(node.log.end_offset - unsynced * OFFSETS)
        self.seen["lost offsets"] += unsynced * OFFSETS
        self._replace_pipe(node)
        boot = node.boot
        if off_seconds is None:
            off_seconds = self.random.uniform(MINUTE, 10 * MINUTE)

        def start() -> None:
            if node.boot == boot:
                node.is_up = True
                self._connect(node)

        self.at(self.now + off_seconds, start)

    def _replace_pipe(self, node: Site) -> None:
        node.gaps += node.pipe.gaps
        node.gap_offsets += node.pipe.gap_records
        node.cut_offsets += node.pipe.cut_records
        node.pipe, node.back_off = self._new_pipe(node.log), BackOff()

    def _poll(self, name: str) -> None:
        """Poll the registry, which the whole tree shares, and follow its answer."""
        node = self.nodes[name]
        share = self.random.random()
        self.at(self.now + POLL_SECONDS * (0.8 + 0.4 * share), partial(self._poll, name))
        if not node.is_up or node.links_down:
            return
        parent = self.registry.poll(node.place, self.now)
        if parent != node.parent:
            self.follow(node, parent)

    def follow(self, node: Site, parent: str | None) -> None:
        """Copy from another parent."""
        if node.parent is not None:
            del self._below[node.parent][node.id]
        if parent is not None:
            self._below[parent][node.id] = node
        node.parent = parent
        self.lose(node)
        self._connect(node)

    def _delete_mirror(self, node: Site) -> None:
        """An operator deletes a mirror whose topic was recreated; the pipe copies the new one."""
        parent = None if node.parent is None else self.nodes[node.parent]
        if parent is None or not node.is_up or self._is_cut_off(node):
            self.at(self.now + HOUR, lambda: self._delete_mirror(node))
            return
        node.has_operator = False
        if parent.log.topic_id != node.log.topic_id:
            self.seen["deleted mirror"] += 1
            node.log, node.unproven_end = SiteLog(parent.log.topic_id), 0
            node.leader_epoch = parent.leader_epoch
            self._send_children_away(node)
        self._replace_pipe(node)
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

    def lose(self, node: Site, problem: Problem | None = None) -> None:
        """The connection is gone: wait, and try again."""
        if node.pipe.phase is Phase.WAITING or node.id == ROOT:
            return
        node.is_parked = False
        node.pipe.lost(problem)
        self._connect_later(node)

    def lose_children(self, name: str) -> None:
        """All connections to a node are gone."""
        for child in self.children(name):
            self.lose(child)

    def _send_children_away(self, node: Site) -> None:
        """A log is cut or deleted: the fetches of all children end."""
        self.cut_at[node.id].add(int(self.now))
        self.lose_children(node.id)

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
        if parent.log.topic_id == node.log.topic_id:
            node.leader_epoch = max(node.leader_epoch, parent.leader_epoch)
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
        """Carry out actions until the pipe copies or rests; a kill can come between any two."""
        for _ in range(100):
            if isinstance(action, Check | Compare | Cut | Restart) and self._kills(node, action):
                return
            following = self._step(node, parent, action)
            if following is None:
                break
            node.pipe.validate()
            if self._kills(node, action):
                return
            action = following
        node.unproven_end = max(node.unproven_end, node.pipe.unproven_end)
        if isinstance(action, Copy):
            self._fetch(node)
        elif node.pipe.phase is Phase.WAITING:
            self._connect_later(node)
        elif node.pipe.phase is Phase.STOPPED and not node.has_operator:
            node.has_operator = True
            wait = self.random.uniform(0, OPERATOR_SECONDS_MAX)
            self.at(self.now + wait, lambda: self._delete_mirror(node))

    def _kills(self, node: Site, action: Action) -> bool:
        share = CUT_KILL if isinstance(action, Cut | Restart) else STEP_KILL
        if self.random.random() >= share:
            return False
        self.seen["kill at a step"] += 1
        self.kill(node)
        return True

    def _step(self, node: Site, parent: Site, action: Action) -> Action | None:
        """Carry out one action; return the next, or None."""
        if isinstance(action, Check):
            return self._check(node, parent)
        if isinstance(action, Compare):
            return node.pipe.compared(common_end(node.log, parent.log), node.log.view)
        if isinstance(action, Cut):
            node.log.truncate(action.offset)
        elif isinstance(action, Restart):
            end = node.log.end_offset
            if end and action.offset > end:
                self.jumped_offsets[node.id] += action.offset - end
            node.log.begin_anew(action.offset)
        else:
            return None
        # While a log is cut it has no leader, and it gets a new epoch: children compare again.
        node.leader_epoch += 1
        self._send_children_away(node)
        return node.pipe.cut()

    def _check(self, node: Site, parent: Site) -> Action:
        log = parent.log
        epoch = asked_epoch(node.log.view, parent.leader_epoch)
        epoch_end = log.epoch_end(epoch)
        found = ParentLog(log.topic_id, log.start_offset, log.end_offset, epoch_end)
        return node.pipe.checked(found, node.log.view, node.log.epoch_end(epoch_end.epoch))

    def _fetch(self, node: Site) -> None:
        generation, boot = node.pipe.sent(), node.boot

        def answer() -> None:
            if node.boot != boot or node.pipe.phase is not Phase.COPYING:
                return
            if node.pipe.generation != generation:
                return
            parent = self._reaches(node)
            if parent is not None:
                self._answer(node, parent, generation)
                return
            if not self._is_cut_off(node) and self.random.random() < LATE:
                self._answer_late(node, generation)
            self.lose(node)

        self.at(self.now + self.random.uniform(0.02, 1.0), answer)

    def _answer_late(self, node: Site, generation: int) -> None:
        """Deliver an answer of now after the node has given it up."""
        assert node.parent is not None
        log, boot = self.nodes[node.parent].log, node.boot
        end, start = log.end_offset, log.start_offset
        batches = log.read(node.log.end_offset, FETCH_BATCHES_MAX) if end else []

        def deliver() -> None:
            if node.boot != boot:
                return
            self.seen["late answer"] += 1
            action = node.pipe.answered(
                generation,
                ErrorCode.NONE,
                node.log.view,
                high_watermark=end,
                start_offset=start,
                has_diverged=False,
            )
            if isinstance(action, Append) and batches:
                self._append(node, log, batches)

        self.at(self.now + self.random.uniform(1.0, HOUR), deliver)

    def _answer(self, node: Site, parent: Site, generation: int) -> None:
        log, own = parent.log, node.log
        is_inside = log.start_offset <= own.end_offset <= log.end_offset
        found = log.epoch_end(own.latest_epoch)
        has_diverged = False
        if own.latest_epoch not in (NO_EPOCH, parent.leader_epoch):
            is_inside = is_inside and found.end_offset != NO_OFFSET
            has_diverged = found.epoch < own.latest_epoch or found.end_offset < own.end_offset
        action = node.pipe.answered(
            generation,
            ErrorCode.NONE if is_inside else ErrorCode.OFFSET_OUT_OF_RANGE,
            own.view,
            high_watermark=log.end_offset,
            start_offset=log.start_offset,
            has_diverged=has_diverged and is_inside,
        )
        if not isinstance(action, Append):
            self._act(node, parent, action)
            return
        if node.is_full:
            self.seen["append without room"] += 1
            self.lose(node, FULL)
            return
        self._append(node, log, log.read(own.end_offset, FETCH_BATCHES_MAX))
        node.back_off.reset()
        if parent.unproven_end > node.unproven_end:
            node.unproven_end = min(parent.unproven_end, own.end_offset)
        self._wake(node.id)
        if self._kills(node, action):
            return
        if own.end_offset < log.end_offset:
            self._fetch(node)
        else:
            node.is_parked = True

    def _append(self, node: Site, log: SiteLog, batches: Sequence[Batch]) -> None:
        """Append, and check that the records before are the parent's too."""
        own = node.log
        if log.topic_id != own.topic_id:
            raise HistoryViolationError(f"{node.id} copies another topic")
        if own.batches and log.start_offset < own.end_offset <= log.end_offset:
            before = log.read(own.end_offset - OFFSETS, 1)
            if before != own.batches[-1:]:
                raise HistoryViolationError(f"{node.id} copies on top of {own.batches[-1]}")
        for batch in batches:
            if batch.base_offset != own.end_offset:
                raise HistoryViolationError(f"{node.id} repeats or omits {batch}")
            own.append(batch)

    def _wake(self, name: str) -> None:
        """New batches: answer the fetches that wait at this node."""
        for child in self.children(name):
            if child.is_parked:
                child.is_parked = False
                if child.pipe.phase is Phase.COPYING:
                    self._fetch(child)
