"""The faults, one after the other, chosen by a seed; at the end everything is healed.

The mix of faults changes a few times in a run, and a quarter of the periods is quiet, so that a
fault also meets a system at rest. `zombie` stops a client in the middle of an operation, gives its
transactional id to a successor, and wakes it up afterwards.
"""

import random
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial

from tests.crash.loop_disk import LoopDisk, stop_processor
from tests.histories.plan import Plan
from tests.histories.recorder import Recorder, SupervisedWorker, highest_offsets
from tests.histories.upheaval import Upheaval
from tests.oracle.running_broker import RunningBroker

QUIET_CHANCE = 0.25
PERIODS_OF_A_MIX = 4
BROKER_STOP_SECONDS_MAX = 3.0
NO_POWER_SECONDS_MAX = 0.3


class Nemesis:
    """Makes the faults of one run."""

    def __init__(
        self, plan: Plan, broker: RunningBroker, recorder: Recorder, disk: LoopDisk | None
    ) -> None:
        self._plan = plan
        self._broker = broker
        self._recorder = recorder
        self._disk = disk
        self._dice = random.Random(f"{plan.seed}/nemesis")
        self._asleep: list[tuple[float, SupervisedWorker]] = []
        """Stopped clients, with the moment they wake up."""
        self.made: list[str] = []
        faults: dict[str, Callable[[], None]] = {
            "kill-broker": self.kill_broker,
            "stop-broker": self.stop_broker,
            "power-cut": self.cut_power,
            "kill-client": self.kill_client,
            "stop-client": self.stop_client,
            "zombie": self.make_zombie,
        }
        self._faults = {name: faults[name] for name in plan.faults}
        self._upheaval: Upheaval | None = None
        if plan.upheavals:
            self._upheaval = Upheaval(plan, broker.bootstrap)
            recorder.entries_of_others = self._upheaval.entries
            for name in plan.upheavals:
                self._faults[name] = partial(self._upset, self._upheaval.kinds[name])
        cuts = "power-cut" in plan.faults or plan.ends_with_power_cut
        assert not cuts or disk is not None, "a power cut needs a LoopDisk"

    def run(self) -> None:
        """Faults until the plan's time is over; then nothing is stopped or dead any more."""
        deadline = time.monotonic() + self._plan.seconds
        mix: list[str] = []
        period = 0
        while (left := deadline - time.monotonic()) > 0:
            pause = self._plan.pause_seconds * self._dice.uniform(0.5, 1.5)
            self._sleep(min(left, pause))
            if period % PERIODS_OF_A_MIX == 0:
                names = sorted(self._faults)
                mix = (
                    self._dice.sample(names, self._dice.randrange(1, len(names) + 1))
                    if names
                    else []
                )
            period += 1
            if mix and self._dice.random() >= QUIET_CHANCE and time.monotonic() < deadline:
                name = self._dice.choice(mix)
                self.made.append(name)
                self._faults[name]()
        if self._plan.ends_with_power_cut:
            self.made.append("power-cut")
            self.cut_power(self._recorder.abandon)
        self.heal()

    def _upset(self, work: Callable[[Mapping[int, int]], None]) -> None:
        work(highest_offsets(self._recorder.history()))

    def end_upheaval(self) -> None:
        """From now on operators change nothing."""
        if self._upheaval is not None:
            self._upheaval.heal()

    def heal(self) -> None:
        """Wake up everybody; the broker is up again after each of its faults."""
        for _, worker in self._asleep:
            worker.signal(signal.SIGCONT)
        self._asleep.clear()

    def _sleep(self, seconds: float) -> None:
        """Wait, and wake up those whose time has come."""
        deadline = time.monotonic() + seconds
        while (now := time.monotonic()) < deadline:
            due = [one for one in self._asleep if one[0] <= now]
            for one in due:
                one[1].signal(signal.SIGCONT)
                self._asleep.remove(one)
            time.sleep(min(0.05, deadline - now))

    # --- The broker ---

    def kill_broker(self) -> None:
        """SIGKILL, and a new start."""
        self._broker.kill()
        self._broker.start()

    def stop_broker(self) -> None:
        """SIGSTOP for a while: nothing is answered, no connection is closed."""
        self._broker.process.send_signal(signal.SIGSTOP)
        try:
            self._sleep(self._dice.uniform(0.3, BROKER_STOP_SECONDS_MAX))
        finally:
            self._broker.process.send_signal(signal.SIGCONT)

    def cut_power(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """The disk loses what was not synced."""
        assert self._disk is not None
        stop_processor(self._broker.pid)
        self._disk.cut()
        meanwhile()
        self._sleep(self._dice.uniform(0, NO_POWER_SECONDS_MAX))
        self._broker.kill()
        self._disk.restore()
        self._broker.start()

    # --- Clients ---

    def _someone(self) -> SupervisedWorker:
        return self._dice.choice(list(self._recorder.live.values()))

    def kill_client(self) -> None:
        """SIGKILL; its successor takes over the transactional id."""
        worker = self._someone()
        worker.kill()
        self._recorder.start(worker.slot)

    def stop_client(self) -> None:
        """SIGSTOP; the group and the coordinator lose it, and it does not know."""
        worker = self._someone()
        worker.signal(signal.SIGSTOP)
        seconds = self._dice.uniform(0.5, self._plan.client_stop_seconds)
        self._asleep.append((time.monotonic() + seconds, worker))

    def make_zombie(self) -> None:
        """SIGSTOP, a successor, and then it goes on with what it had in hand."""
        worker = self._someone()
        worker.signal(signal.SIGSTOP)
        self._recorder.start(worker.slot)
        worker.ask_to_end()
        self._asleep.append((time.monotonic() + self._dice.uniform(1.0, 3.0), worker))
