"""`siege`: a broker, its neighbours and its attackers, one attack after the other.

1. Unloaded: the neighbours, beside a process that computes as much as the attackers do.
2. Each attack in turn, or random mixes of two to four for some seconds each.
3. The neighbours compare the acknowledged records with the log. Then SIGTERM, in the middle of the
   last attack.
"""

import contextlib
import dataclasses
import json
import os
import random
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from tests.hostile.attacker import ATTACKS
from tests.hostile.attacks import create_topic
from tests.hostile.verdict import MIX, Findings, Phase
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker
from tests.soak.scene import LEDGER, LEDGER_PARTITIONS
from tests.soak.worker import Worker

ROOT: Final = Path(__file__).resolve().parents[2]
SAMPLE_SECONDS: Final = 0.1
MIX_SECONDS: Final = 8.0
STOP_SECONDS_MAX: Final = 90.0
SETTINGS: Final = """
[log]
compaction_check_interval_ms = 500

[groups]
offsets_partitions = 5
initial_rebalance_delay_ms = 0
"""


@dataclasses.dataclass(frozen=True)
class Plan:
    """How to besiege a broker."""

    attacks: Sequence[str] = tuple(ATTACKS)
    seconds: float = 10.0
    """Of each attack, or of all mixes together."""
    is_mixed: bool = False
    unloaded_seconds: float = 10.0
    scale: float = 1.0
    seed: int = 1
    without: str = ""
    """A bound that is removed (`unguarded`); the broker runs from source then."""
    from_source: bool = True
    """Whether the uncompiled source tree runs, or the installed package."""


class Siege:
    """One broker under attack."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._folder = folder
        self._plan = plan
        self._door = folder / "door"
        self._dice = random.Random(plan.seed)
        self.found = Findings()
        (folder / "penstock.toml").write_text(SETTINGS)
        self.broker = self._new_broker()

    def _new_broker(self) -> RunningBroker:
        plan = self._plan
        made = penstock_broker(
            self._folder,
            arguments=("--config", str(self._folder / "penstock.toml")),
            from_source=plan.from_source,
        )
        python, _module, _name, *rest = made.recipe.command
        inherited = made.recipe.environment["PYTHONPATH"]
        path = os.pathsep.join(part for part in (inherited, str(ROOT)) if part)
        recipe = dataclasses.replace(
            made.recipe,
            command=[python, "-m", *self._host(), str(self._door), *rest],
            environment={**made.recipe.environment, "PYTHONPATH": path},
        )
        return RunningBroker(recipe, folder=made.folder, port=made.port)

    def _host(self) -> list[str]:
        without = self._plan.without
        return ["tests.hostile.unguarded", without] if without else ["tests.hostile.host"]

    def _read(self) -> dict[str, float]:
        """Every metric, and the pauses since the last reading."""
        with socket.socket(socket.AF_UNIX) as door:
            door.settimeout(60)
            door.connect(str(self._door))
            with door.makefile("rb") as answer:
                found: dict[str, float] = json.load(answer)
        return found

    def run(self) -> Findings:
        """Everything, from the first client to the end of the broker."""
        plan = self._plan
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.broker)
            port = str(self.broker.port)
            create_topic(self.broker.port, LEDGER, LEDGER_PARTITIONS)

            def worker(name: str, *arguments: str) -> Worker:
                made = Worker(f"tests.hostile.{name}", self._folder, port, *arguments)
                stack.callback(made.close)
                return made

            neighbours = (worker("neighbour", "produce"), worker("neighbour", "fetch"))
            attacker = worker("attacker", str(plan.seed), str(plan.scale))
            attacker.ask("start burning")
            self._enter(neighbours, "unloaded")
            time.sleep(plan.unloaded_seconds)
            self._enter(neighbours, "idle")
            attacker.ask("stop burning")
            for name in plan.attacks:
                attacker.ask(f"prepare {name}", 300)
            if plan.is_mixed:
                self._mixes(neighbours, attacker)
            else:
                for name in plan.attacks:
                    self._attack(neighbours, attacker, [name], name, plan.seconds)
            self._finish(neighbours, attacker)
        return self.found

    def _enter(self, neighbours: tuple[Worker, Worker], phase: str) -> None:
        for one in neighbours:
            one.ask(f"phase {phase}")

    def _mixes(self, neighbours: tuple[Worker, Worker], attacker: Worker) -> None:
        end = time.monotonic() + self._plan.seconds
        while time.monotonic() < end:
            count = min(len(self._plan.attacks), self._dice.randint(2, 4))
            chosen = self._dice.sample(list(self._plan.attacks), count)
            self._attack(neighbours, attacker, chosen, MIX, MIX_SECONDS)

    def _attack(
        self,
        neighbours: tuple[Worker, Worker],
        attacker: Worker,
        names: Sequence[str],
        phase_name: str,
        seconds: float,
    ) -> None:
        phase = self.found.phases.setdefault(phase_name, Phase())
        self._read()
        self._enter(neighbours, phase_name)
        for name in names:
            attacker.ask(f"start {name}")
        memory_mb = 0.0
        for _ in range(round(seconds / SAMPLE_SECONDS)):
            time.sleep(SAMPLE_SECONDS)
            memory_mb = max(memory_mb, self._memory_mb())
        self._enter(neighbours, "idle")
        for name in names:
            answer = attacker.ask(f"stop {name}")
            phase.sent[name] = phase.sent.get(name, 0) + answer["sent"]
            phase.errors[name] = answer["errors"]
        # The last requests end after the phase.
        pause_ms = self._read()["loop_longest_pause_ms"]
        if phase_name == MIX and (pause_ms > phase.longest_pause_ms or memory_mb > phase.memory_mb):
            print(
                f"mix of {', '.join(names)}: longest pause {pause_ms:.0f} ms CPU, "
                f"memory {memory_mb:.0f} MB",
                flush=True,
            )
        phase.longest_pause_ms = max(phase.longest_pause_ms, pause_ms)
        phase.memory_mb = max(phase.memory_mb, memory_mb)

    def _memory_mb(self) -> float:
        return float(psutil.Process(self.broker.pid).memory_info().rss) / 1e6

    def _finish(self, neighbours: tuple[Worker, Worker], attacker: Worker) -> None:
        found, (producer, reader) = self.found, neighbours
        found.produce, found.fetch = producer.ask("stop"), reader.ask("stop")
        found.ledger = self._verified(producer)
        found.metrics = self._read()
        for name in self._plan.attacks[-4:]:
            attacker.ask(f"start {name}")
        time.sleep(1.0 + self._dice.random())
        begun = time.monotonic()
        found.exit_code = self.broker.stop(STOP_SECONDS_MAX)
        found.stop_seconds = time.monotonic() - begun

    def _verified(self, producer: Worker) -> dict[str, Any]:
        """What the producer found in the log; a log that cannot be read is a finding too."""
        try:
            return producer.ask("verify")
        except (RuntimeError, TimeoutError) as error:
            return {"acknowledged": 0, "violations": 1, "told": str(error).splitlines()[-1]}


@contextlib.contextmanager
def stage(plan: Plan) -> Iterator[Siege]:
    """A siege in a folder of its own, which is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="siege-"))
    try:
        yield Siege(folder, plan)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def besiege(plan: Plan) -> Findings:
    """Run one siege; an error carries the end of the broker's log."""
    with stage(plan) as siege:
        try:
            return siege.run()
        except Exception as error:
            error.add_note(f"the broker's log ends:\n{siege.broker.log_text()[-3000:]}")
            raise
