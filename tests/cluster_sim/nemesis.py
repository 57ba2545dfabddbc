"""`Nemesis`: faults at random times, a subset of the kinds in each run.

Each run draws which kinds it uses, so that some runs have many faults of few kinds. `heal` ends
every fault and starts every broker. It never destroys the only disk with an acknowledged record.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

from penstock.coordinator.kinds import KINDS_BY_TOPIC
from penstock.core.types import TopicPartition
from penstock.node.foundation import MEMORY_PATH
from penstock.storage.disk.data_directory import read_properties
from tests.cluster_sim.brokers import SimulatedBroker
from tests.cluster_sim.fault_profiles import Plan
from tests.cluster_sim.invariants import Invariants
from tests.cluster_sim.loop import SimulatedLoop
from tests.cluster_sim.network import SimulatedNetwork
from tests.cluster_sim.operators import Operator
from tests.cluster_sim.store import StoreNetwork

TOPIC: Final = "history"
MIN_ISR: Final = "min.insync.replicas"
DOWN_SECONDS: Final = (0.05, 6.0)
PAUSE_SECONDS: Final = (0.05, 14.0)
"""Longer than the time to live of a session, now and then."""
FAULT_SECONDS: Final = (0.2, 8.0)
LEFT_OVER: Final = "00000000000000000000.log.swap"
"""A file of an interrupted compaction that cannot have been: the log is not served until it is
gone."""


class Nemesis:
    """The faults of one run."""

    def __init__(
        self,
        seed: int,
        loop: SimulatedLoop,
        brokers: dict[int, SimulatedBroker],
        network: SimulatedNetwork,
        stores: StoreNetwork,
        invariants: Invariants,
        plan: Plan,
    ) -> None:
        self._random = random.Random(f"nemesis {seed}")
        self._loop = loop
        self._brokers = brokers
        self._network = network
        self._stores = stores
        self._invariants = invariants
        self._plan = plan
        self.operate: Callable[[Callable[[Operator], Coroutine[Any, Any, None]]], None]
        """Lets the operator do something; there is one from the creation of the topics on."""
        self._is_over = False
        self._on_foreign_disk: SimulatedBroker | None = None
        self._damaged = invariants.damaged
        self.count = 0
        kinds: dict[str, Callable[[], None]] = {
            "kill": self._kill,
            "power": self._power,
            "power of all": self._power_of_all,
            "clean restart": self._restart,
            "pause": self._pause,
            "cut": self._cut,
            "isolate": self._isolate,
            "slow link": self._slow_link,
            "crowded link": self._crowd,
            "reset": self._reset,
            "cut from store": self._cut_from_store,
            "lost answers": self._lose_answers,
            "late writes": self._late_writes,
            "late watch": self._late_watch,
            "expire": self._expire,
            "freeze": self._freeze,
            "store leader": self._stores.shared.prolong_sessions,
            "compact": self._compact,
            "slow disk": self._slow_disk,
            "full disk": self._full_disk,
            "failing disk": self._failing_disk,
            "wipe": self._wipe,
            "foreign disk": self._foreign_disk,
            "clock": self._jump,
            "min isr": self._change_min_isr,
            "elect": self._elect,
            "move": self._move,
            "coordinator": self._kill_coordinator,
            "dead disk": self._dead_disk,
            "quarantine": self._quarantine,
        }
        chosen = plan.kinds or self._random.sample(list(kinds), self._random.randint(2, 8))
        if "min isr" in chosen:
            # A lower min.insync.replicas after the loss of a disk would lower the promise.
            chosen = [name for name in chosen if name not in ("wipe", "quarantine")]
        self.kinds = [(name, kinds[name]) for name in chosen]

    async def run(self) -> None:
        """Cause faults until the end."""
        while not self._is_over:
            await asyncio.sleep(self._random.uniform(*self._plan.gap_seconds))
            if not self._is_over:
                name, cause = self._random.choice(self.kinds)
                self.count += 1
                self._loop.note(f"fault: {name}")
                cause()

    def heal(self) -> None:
        """End every fault; start every broker."""
        self._is_over = True
        self._network.heal()
        self._stores.heal()
        for broker in self._brokers.values():
            self._heal_disk(broker)
            self._serve_all_logs(broker)
            if broker.machine is not None:
                broker.machine.is_paused = False
            else:
                broker.start()

    def _heal_disk(self, broker: SimulatedBroker) -> None:
        disk = broker.disk
        had_failed, disk.is_failing = disk.is_failing, False
        disk.is_slow = disk.is_full = False
        if had_failed and broker.is_alive:
            # A failed sync takes the directory offline until a restart.
            broker.crash(loses_power=False)

    def _later(self, bounds: tuple[float, float], call: Callable[[], None]) -> None:
        """Call after a time, unless everything was healed before."""

        def due() -> None:
            if not self._is_over:
                call()

        self._loop.at(self._loop.world, self._random.uniform(*bounds), due)

    def _any(self) -> SimulatedBroker:
        return self._random.choice(list(self._brokers.values()))

    # --- Processes ---

    def _crash(self, broker: SimulatedBroker, *, loses_power: bool) -> None:
        if broker.is_alive:
            broker.crash(loses_power=loses_power)
        self._start_later(broker)

    def _start_later(self, broker: SimulatedBroker) -> None:
        def start() -> None:
            if not broker.is_alive:
                broker.start()

        self._later(DOWN_SECONDS, start)

    def _kill(self) -> None:
        self._crash(self._any(), loses_power=False)

    def _power(self) -> None:
        self._crash(self._any(), loses_power=True)

    def _power_of_all(self) -> None:
        for broker in self._brokers.values():
            self._crash(broker, loses_power=True)

    def _restart(self) -> None:
        broker = self._any()
        broker.ask_to_stop()
        self._start_later(broker)

    def _pause(self) -> None:
        broker = self._any()
        machine = broker.machine
        if machine is not None:
            machine.is_paused = True

            def resume() -> None:
                machine.is_paused = False

            self._later(PAUSE_SECONDS, resume)

    # --- Network ---

    def _cut(self) -> None:
        one, other = self._random.sample(list(self._brokers.values()), 2)
        self._network.cut(one.host, other.host, both_ways=self._random.random() < 0.5)
        self._later(FAULT_SECONDS, self._network.heal)

    def _isolate(self) -> None:
        broker = self._any()
        is_total = self._random.random() < 0.5
        for name in [*self._network.hosts]:
            if name != broker.host:
                if is_total:
                    self._network.cut(broker.host, name, both_ways=True)
                elif self._random.random() < 0.5:
                    self._network.cut(broker.host, name, both_ways=False)
                else:
                    self._network.cut(name, broker.host, both_ways=False)
        if is_total and self._random.random() < 0.5:
            self._stores.cut_off.add(broker.id)
            self._later(FAULT_SECONDS, self._stores.heal)
        self._later(FAULT_SECONDS, self._network.heal)

    def _slow_link(self) -> None:
        self._network.host(self._any().host).is_slow = True
        self._later(FAULT_SECONDS, self._network.heal)

    def _crowd(self) -> None:
        one, other = self._random.sample(list(self._brokers.values()), 2)
        self._network.crowd(one.host, other.host)
        self._later(FAULT_SECONDS, self._network.heal)

    def _reset(self) -> None:
        self._network.reset_some(self._random.random())

    # --- Store ---

    def _cut_from_store(self) -> None:
        self._stores.cut_off.add(self._any().id)
        self._later((0.5, 14.0), self._stores.heal)

    def _lose_answers(self) -> None:
        self._stores.lost_share = self._random.uniform(0.02, 0.5)
        self._later(FAULT_SECONDS, self._stores.heal)

    def _late_writes(self) -> None:
        self._stores.late_share = self._random.uniform(0.02, 0.5)
        self._later(FAULT_SECONDS, self._stores.heal)

    def _late_watch(self) -> None:
        self._stores.late_watches.add(self._any().id)
        self._later(FAULT_SECONDS, self._stores.heal)

    def _expire(self) -> None:
        self._stores.expire_broker(self._any().id)

    def _freeze(self) -> None:
        self._stores.freeze(self._random.uniform(0.1, 12.0))

    def _compact(self) -> None:
        self._stores.shared.compact(self._stores.shared.revision)

    # --- Disks and clocks ---

    def _slow_disk(self) -> None:
        broker = self._any()
        broker.disk.is_slow = True
        self._later(FAULT_SECONDS, lambda: self._heal_disk(broker))

    def _full_disk(self) -> None:
        broker = self._any()
        broker.disk.is_full = True
        self._later(FAULT_SECONDS, lambda: self._heal_disk(broker))

    def _failing_disk(self) -> None:
        broker = self._any()
        if not self._invariants.may_wipe(broker.id):
            return
        broker.disk.is_failing = True

        def restart() -> None:
            self._heal_disk(broker)
            self._start_later(broker)

        self._later(FAULT_SECONDS, restart)

    def _dead_disk(self) -> None:
        """Let the disk of one broker fail; the broker runs on until another fault ends it."""
        broker = self._any()
        if self._invariants.may_wipe(broker.id):
            broker.disk.is_failing = True

    def _quarantine(self) -> None:
        """Restart a broker with a log that it cannot serve; later without this damage."""
        broker, index = self._any(), self._random.randrange(self._plan.partitions)
        known = self._invariants.partition(self._invariants.topic_ids[TOPIC], index)
        if self._damaged or not self._invariants.may_lose(broker.id, known):
            return
        if broker.is_alive:
            broker.crash(loses_power=False)
        directory = broker.disk.find_directory(f"{TOPIC}-{index}")
        if directory is not None:
            self._damaged[broker.id] = f"{directory}/{LEFT_OVER}"
            broker.disk.create_file(self._damaged[broker.id]).close()
        self._start_later(broker)
        self._later(FAULT_SECONDS, lambda: self._serve_all_logs(broker))

    def _serve_all_logs(self, broker: SimulatedBroker) -> None:
        if broker is self._on_foreign_disk:
            return  # its own disk has the damage
        path = self._damaged.pop(broker.id, None)
        if path is not None:
            if broker.is_alive:
                broker.crash(loses_power=False)
            broker.disk.remove_if_present(path)
            self._start_later(broker)

    def _wipe(self) -> None:
        broker = self._any()
        # The own disk comes back after a foreign one: it must not be lost meanwhile.
        if self._on_foreign_disk is not None or not self._invariants.may_wipe(broker.id):
            return
        if broker.is_alive:
            broker.crash(loses_power=False)
        broker.replace_disk()
        self._invariants.wiped(broker.id)
        self._start_later(broker)

    def _foreign_disk(self) -> None:
        """Start a broker on a copy of another one's disk, which it must refuse; then on its own."""
        broker, other = self._random.sample(list(self._brokers.values()), 2)
        if self._on_foreign_disk is not None or not read_properties(other.disk, MEMORY_PATH):
            return  # An empty disk has no owner: a broker on it has lost its own.
        self._on_foreign_disk = broker
        if broker.is_alive:
            broker.crash(loses_power=False)
        own = broker.disk
        broker.replace_disk(other.disk.after_kill())
        broker.start()

        def restore() -> None:
            if broker.is_alive:
                broker.crash(loses_power=False)
            broker.replace_disk(own)
            path = self._damaged.pop(broker.id, None)
            if path is not None:
                own.remove_if_present(path)
            broker.start()
            self._on_foreign_disk = None

        self._loop.at(self._loop.world, self._random.uniform(*DOWN_SECONDS), restore)

    # --- Operation ---

    def _change_min_isr(self) -> None:
        value = min(self._random.randint(1, 3), self._plan.replication_factor)
        self.operate(lambda operator: operator.change_setting(TOPIC, MIN_ISR, str(value)))

    def _elect(self) -> None:
        self.operate(lambda operator: operator.elect_first_replicas())

    def _move(self) -> None:
        """Move a partition to other brokers, or cancel a move."""
        at = TopicPartition(TOPIC, self._random.randrange(self._plan.partitions))
        brokers = self._random.sample(sorted(self._brokers), self._plan.replication_factor)
        is_cancelled = self._random.random() < 0.15
        self.operate(lambda operator: operator.move(at, None if is_cancelled else brokers))

    def _kill_coordinator(self) -> None:
        """Kill the leader of a partition of an internal topic, or else any broker."""
        ids = {
            topic_id
            for topic, topic_id in self._invariants.topic_ids.items()
            if topic in KINDS_BY_TOPIC
        }
        leaders = sorted(
            known.stored.leader
            for (topic_id, _), known in self._invariants.partitions.items()
            if topic_id in ids and known.stored is not None and known.stored.leader >= 0
        )
        broker = self._brokers[self._random.choice(leaders)] if leaders else self._any()
        self._crash(broker, loses_power=self._random.random() < 0.3)

    def _jump(self) -> None:
        self._any().clock.skew_ms += self._random.randint(-3_600_000, 3_600_000)
