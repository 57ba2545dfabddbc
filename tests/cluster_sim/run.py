"""`run_seed`: one simulated run; the same seed has the same trace, in every process.

A run fails with the first violation of an invariant, an anomaly of the history, a settling that
takes too long, or an exception that nothing handled. The error names the seed and the last events.

    python -m tests.cluster_sim.run 17          one seed
    python -m tests.cluster_sim.run 1 200       a range of seeds
    python -m tests.cluster_sim.run 1 20000 --processes 4
    python -m tests.cluster_sim.run 1 20000 --notes FILE     hours of work that may be interrupted
"""

import argparse
import asyncio
import gc
import hashlib
import inspect
import json
import logging
import multiprocessing
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.checker.check import Mode, check
from tests.checker.history import Name, op_to_json
from tests.cluster_sim.brokers import simulated_sockets
from tests.cluster_sim.fault_profiles import Plan, plan_of
from tests.cluster_sim.loop import SimulatedLoop
from tests.cluster_sim.threads import simulated_process
from tests.cluster_sim.world import World

EVENTS_SHOWN: Final = 40
NOT_SIMULATED: Final = frozenset({"bench", "cli", "spark"})
"""Packages of Penstock that no simulated broker or client imports."""
CLOSINGS_MAX: Final = 50
"""Awaits in the `finally` blocks of one coroutine."""


class SeedFailedError(AssertionError):
    """A seed that broke a promise."""


@dataclass
class Trace:
    """The outcome of a run."""

    seed: int
    hash: str = ""
    events: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    error: BaseException | None = None
    """Without the frames of the run: they would keep it in memory."""
    frames: str = ""

    def text(self) -> str:
        """Return the outcome for a person."""
        figures = ", ".join(f"{name} {value:g}" for name, value in self.figures.items())
        head = f"seed {self.seed}: {'FAILED' if self.error else 'ok'} {self.hash[:12]} ({figures})"
        if self.error is None:
            return head
        shown = "\n".join(self.events[-EVENTS_SHOWN:])
        return f"{head}\n{shown}\n{self.frames}{self.error!r}"


@contextmanager
def without_collector() -> Iterator[None]:
    """Let nothing be collected during a run: a collected coroutine runs its `finally`.

    The collection after the run looks at the objects of the run only: older ones stay frozen.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def run_seed(seed: int, plan: Plan | None = None) -> Trace:
    """Run one seed; the trace has the error, if there is one.

    Without a plan the seed draws one.
    """
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with without_collector():
            trace = _trace_of(seed, plan or plan_of(seed))
            # Nothing refers to the run any more, and only its objects are looked at.
            with _silence():
                gc.collect()
    finally:
        logging.disable(level)
    return trace


def _trace_of(seed: int, plan: Plan) -> Trace:
    trace = Trace(seed)
    began_seconds = time.process_time()
    loop = SimulatedLoop(seed)  # type: ignore[abstract]
    world = World(seed, loop, plan)
    with simulated_process(loop, seed), simulated_sockets(loop, world.network):
        try:
            loop.run_until_complete(world.run())
            _check_history(world)
        except Exception as error:  # noqa: BLE001 - the trace has it
            trace.frames = "".join(traceback.format_tb(error.__traceback__))
            trace.error = error.with_traceback(None)
            trace.error.__context__ = trace.error.__cause__ = None
        finally:
            loop.end()
    _dispose(world)
    trace.events = loop.events
    trace.hash = _hash(world)
    trace.figures = {
        "faults": world.nemesis.count,
        "elections": world.invariants.elections,
        "operations": len(world.recorder.operations),
        "callbacks": loop.handles_run,
        "transactions": _completed(world, "txn"),
        "commits": _completed(world, "commit"),
        "revision": world.stores.shared.revision,
        CPU: round(time.process_time() - began_seconds, 2),
    }
    return trace


def _completed(world: World, name: Name) -> int:
    return sum(one.name == name and one.type == "ok" for one in world.recorder.operations)


@contextmanager
def _silence() -> Iterator[None]:
    """Ignore what coroutines of crashed brokers do when they are freed."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.unraisablehook = hook


def _dispose(world: World) -> None:
    """End the coroutines of crashed brokers; whatever their `finally` does is ignored."""
    with _silence():
        for machine in world.loop.all_machines:
            for task in machine.tasks:
                _close(task)
            machine.tasks.clear()


def _close(task: "asyncio.Task[Any]") -> None:
    """End a coroutine, and one that it would have awaited; a `finally` that awaits is ended too."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    if not inspect.iscoroutine(coroutine):
        return
    if coroutine.cr_frame is not None:
        for value in coroutine.cr_frame.f_locals.values():
            if inspect.iscoroutine(value) and value.cr_await is None:
                value.close()
    for _ in range(CLOSINGS_MAX):
        with suppress(BaseException):
            coroutine.close()
            return


def _check_history(world: World) -> None:
    report = check(world.recorder.operations, Mode())
    if not report.is_valid:
        raise SeedFailedError(f"(10) {report.text()}")


def _hash(world: World) -> str:
    """Return the hash of everything that happened."""
    digest = hashlib.sha256()
    for event in world.loop.events:
        digest.update(event.encode())
    for operation in world.recorder.operations:
        digest.update(op_to_json(operation).encode())
    for key, pair in sorted(world.stores.shared.present.items()):
        digest.update(f"{key} {pair.mod_revision} {pair.value!r}".encode())
    digest.update(b"%d %f" % (world.loop.handles_run, world.loop.time()))
    return digest.hexdigest()


COUNTED: Final = ("faults", "elections", "operations", "transactions", "commits")
CPU: Final = "cpu_seconds"


class Outcome(NamedTuple):
    """The outcome of a seed, from another process."""

    text: str
    hash: str
    figures: dict[str, float]
    has_failed: bool


def outcome_of(seed: int) -> Outcome:
    """Run a seed and return what is printed about it."""
    trace = run_seed(seed)
    return Outcome(trace.text(), trace.hash, trace.figures, trace.error is not None)


class Notes:
    """A file of outcomes: a later run with the same source goes on behind them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.outcomes: dict[int, Outcome] = {}
        source = source_digest()
        lines = path.read_text().splitlines() if path.exists() else []
        if lines[:1] == [source]:
            self.outcomes = {seed: Outcome(*one) for seed, *one in map(json.loads, lines[1:])}
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{source}\n")

    def add(self, seed: int, outcome: Outcome) -> None:
        """Note the outcome of a seed."""
        with self._path.open("a") as file:
            file.write(f"{json.dumps([seed, *outcome])}\n")


def source_digest() -> str:
    """Return a hash of the broker and of the simulator."""
    root = Path(__file__).resolve().parents[2]
    package = root / "src" / "penstock"
    digest = hashlib.sha256()
    for folder in (package, root / "tests" / "cluster_sim", root / "tests" / "checker"):
        for path in sorted(folder.rglob("*.py")):
            is_own = path.is_relative_to(package)
            if not is_own or path.relative_to(package).parts[0] not in NOT_SIMULATED:
                digest.update(path.read_bytes())
    return digest.hexdigest()


def noted_outcomes(seeds: range, processes: int, notes: Notes) -> Iterator[tuple[int, Outcome]]:
    """Yield the outcomes that are noted, then run the other seeds and note them."""
    yield from ((seed, one) for seed, one in notes.outcomes.items() if seed in seeds)
    missing = [seed for seed in seeds if seed not in notes.outcomes]
    for seed, outcome in zip(missing, outcomes(missing, processes), strict=True):
        notes.add(seed, outcome)
        yield seed, outcome


def outcomes(seeds: Sequence[int], processes: int) -> Iterator[Outcome]:
    """Yield the outcomes of seeds in their order."""
    if processes == 1:
        yield from map(outcome_of, seeds)
        return
    # Each process is new: it shares no state with this one.
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes) as pool:
        yield from pool.imap(outcome_of, seeds, chunksize=4)


def main(words: list[str]) -> int:
    """Run one seed or a range of seeds; return the number of failures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int, nargs="?")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--hash", action="store_true", help="print only the hash of each trace")
    parser.add_argument("--notes", type=Path, help="go on behind the outcomes in this file")
    given = parser.parse_args(words)
    seeds = range(given.first, (given.last or given.first) + 1)
    if given.last is None and (error := run_seed(given.first).error) is not None:
        raise error
    failures = 0
    totals: Counter[str] = Counter()
    cpu_seconds = 0.0
    found = (
        zip(seeds, outcomes(seeds, given.processes), strict=True)
        if given.notes is None
        else noted_outcomes(seeds, given.processes, Notes(given.notes))
    )
    for seed, one in found:
        failures += one.has_failed
        totals.update({name: int(one.figures.get(name, 0)) for name in COUNTED})
        cpu_seconds += one.figures.get(CPU, 0.0)
        print(f"{seed} {one.hash}" if given.hash else one.text, flush=True)
    if not given.hash:
        counts = ", ".join(f"{totals[name]:,} {name}" for name in COUNTED)
        # Noted seeds ran earlier: the duration of this command is not theirs.
        spent = f"{cpu_seconds:,.0f} s of CPU"
        print(f"simulated clusters: {len(seeds):,} seeds, {counts}, {failures} failed, {spent}")
    return failures


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))
