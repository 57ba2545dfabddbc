"""The faults of a cluster. Each one begins, lasts and is healed before it returns.

Guarantees: at most one fault at a time, so at most one broker and a minority of etcd are away,
except in the faults that take all of one kind. After a fault everything runs and is connected; how
long clients wait from then on is measured by the caller. Every choice is drawn from the dice.

They are NOT checks: nothing here looks at records.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, Literal

from tests.chaos_cluster.cluster import SESSION_SECONDS, BrokerMachine, Cluster, View
from tests.chaos_cluster.machines import Machine, cut_power_of_all
from tests.chaos_cluster.moving_faults import move_away, move_back
from tests.crash.clients import TOPIC

Role = Literal["leader", "follower", "controller"]

SHORT_SECONDS_MAX: Final = 3.0
LONG_SECONDS: Final = (SESSION_SECONDS + 2.0, SESSION_SECONDS + 5.0)
"""Longer than a broker's session."""
ROLLING_SECONDS_MAX: Final = 60.0
ETCD_DOWN_SECONDS: Final = (10.0, 20.0)


class Faults:
    """All faults of one cluster, by name."""

    def __init__(
        self,
        cluster: Cluster,
        dice: random.Random,
        *,
        etcd_down_seconds: tuple[float, float] = ETCD_DOWN_SECONDS,
    ) -> None:
        self._cluster = cluster
        self._dice = dice
        self._etcd_down_seconds = etcd_down_seconds
        self.kinds: dict[str, Callable[[], None]] = {
            **{f"kill-{role}": partial(self.kill, role) for role in ROLES},
            **{f"freeze-{role}": partial(self.freeze, role) for role in ROLES},
            **{f"isolate-{role}": partial(self.isolate, role) for role in ROLES},
            "power-cut-one": self.cut_one,
            "power-cut-all": self.cut_all,
            "power-cut-all-and-etcd": partial(self.cut_all, with_etcd=True),
            "split": self.split,
            "one-way": self.one_way,
            "cut-from-etcd": self.cut_from_etcd,
            "kill-etcd-leader": self.kill_etcd_leader,
            "freeze-etcd-leader": self.freeze_etcd_leader,
            "isolate-etcd-leader": self.isolate_etcd_leader,
            "etcd-down": self.etcd_down,
            "rolling-restart": self.rolling_restart,
            "move": partial(self.move, is_killing=False),
            "move-and-kill": partial(self.move, is_killing=True),
        }

    def order(self) -> Iterator[str]:
        """Names of faults without end: all in a drawn order, then all in another one."""
        while True:
            names = sorted(self.kinds)
            self._dice.shuffle(names)
            yield from names

    # --- Choices ---

    def _view(self) -> View:
        view = self._cluster.view()
        assert view is not None, "no broker answers between two faults"
        return view

    def _broker(self, role: Role) -> BrokerMachine:
        """The controller, or the leader or a follower of a partition of the ledger."""
        view = self._view()
        places = [one for (topic, _), one in view.partitions.items() if topic == TOPIC]
        partition = self._dice.choice(places)
        followers = [number for number in partition.replicas if number != partition.leader]
        numbers = {
            "leader": partition.leader,
            "follower": self._dice.choice(followers),
            "controller": view.controller,
        }
        any_broker = self._dice.choice(sorted(self._cluster.brokers))
        return self._cluster.brokers.get(numbers[role], self._cluster.brokers[any_broker])

    def _etcd_leader(self) -> Machine:
        return self._cluster.etcd_leader() or self._dice.choice(self._cluster.etcd)

    def _wait(self, seconds_min: float, seconds_max: float) -> None:
        time.sleep(self._dice.uniform(seconds_min, seconds_max))

    @contextmanager
    def _healed(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._cluster.heal()

    # --- Processes ---

    def kill(self, role: Role) -> None:
        """SIGKILL; the broker starts again at once or later."""
        with self._healed():
            self._broker(role).kill()
            self._wait(0, SHORT_SECONDS_MAX)

    def freeze(self, role: Role) -> None:
        """SIGSTOP for longer than the session, then it goes on with everything it had in hand."""
        with self._healed():
            self._broker(role).pause()
            self._wait(*LONG_SECONDS)

    def rolling_restart(self) -> None:
        """SIGTERM and a start, one broker after the other, each after the replicas are in sync."""
        for broker in self._cluster.brokers.values():
            code = broker.stop()
            assert code == 0, f"{broker.name} ended with {code}:\n{broker.log_text()[-2000:]}"
            broker.start()
            self._cluster.wait_until_whole(ROLLING_SECONDS_MAX)

    def move(self, *, is_killing: bool) -> None:
        """Replicas leave brokers and come back; meanwhile a broker may be killed, twice."""
        for begin in (move_away, move_back):
            with self._healed():
                begin(self._cluster, self._dice, self._view())
                self._wait(0, SHORT_SECONDS_MAX / 10)
                if is_killing:
                    self._broker(self._dice.choice(ROLES)).kill()
                    self._wait(0, SHORT_SECONDS_MAX)
            self._cluster.wait_until_whole(ROLLING_SECONDS_MAX)

    # --- Power ---

    def cut_one(self) -> None:
        """One machine loses power, for less or more than its session."""
        broker = self._broker("leader")
        with self._healed():
            broker.cut_power()
            broker.kill()
            if self._dice.random() < 0.5:
                self._wait(*LONG_SECONDS)
            broker.restore_power()

    def cut_all(self, *, with_etcd: bool = False) -> None:
        """All brokers lose power at once, and etcd too if wanted."""
        machines: list[Machine] = list(self._cluster.brokers.values())
        if with_etcd:
            machines += self._cluster.etcd
        with self._healed():
            cut_power_of_all(machines)
            for machine in machines:
                machine.restore_power()

    # --- The network ---

    def isolate(self, role: Role) -> None:
        """Nothing reaches the broker and nothing leaves it; it runs on."""
        with self._healed():
            self._broker(role).place.isolate()
            if self._dice.random() < 0.5:
                self._wait(*LONG_SECONDS)
            else:
                self._wait(1.0, SHORT_SECONDS_MAX)

    def split(self) -> None:
        """Two brokers do not reach each other; both reach all others."""
        one, other = self._dice.sample(list(self._cluster.brokers.values()), 2)
        with self._healed():
            one.place.blackhole(other.place)
            other.place.blackhole(one.place)
            self._wait(*LONG_SECONDS)

    def one_way(self) -> None:
        """Packets of one broker to another one vanish; the other way they arrive."""
        one, other = self._dice.sample(list(self._cluster.brokers.values()), 2)
        with self._healed():
            one.place.blackhole(other.place)
            self._wait(*LONG_SECONDS)

    def cut_from_etcd(self) -> None:
        """A broker reaches clients and brokers, and no member of etcd."""
        broker = self._broker(self._dice.choice(ROLES))
        with self._healed():
            for member in self._cluster.etcd:
                broker.place.blackhole(member.place)
            self._wait(*LONG_SECONDS)

    # --- etcd ---

    def kill_etcd_leader(self) -> None:
        """SIGKILL of the member that leads."""
        with self._healed():
            self._etcd_leader().kill()
            self._wait(0, SHORT_SECONDS_MAX)

    def freeze_etcd_leader(self) -> None:
        """SIGSTOP of the member that leads."""
        with self._healed():
            self._etcd_leader().pause()
            self._wait(2.0, 8.0)

    def isolate_etcd_leader(self) -> None:
        """The member that leads is off the network."""
        with self._healed():
            self._etcd_leader().place.isolate()
            self._wait(2.0, 8.0)

    def etcd_down(self) -> None:
        """No etcd at all, for longer than every session."""
        with self._healed():
            for member in self._cluster.etcd:
                member.kill()
            self._wait(*self._etcd_down_seconds)


ROLES: Final[tuple[Role, ...]] = ("leader", "follower", "controller")
