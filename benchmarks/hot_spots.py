"""Where a broker's time goes under one workload of the comparison.

    python -m benchmarks.hot_spots WORKLOAD [--unsynced] [--sampler] [--lines 30]

By default Penstock runs under cProfile, which counts every call of the loop's thread exactly and
slows small functions down most: read it for call counts and for what should not be there. With
`--sampler`, py-spy looks at the running process from outside, all threads and native frames, and
costs little: read it for shares of time. Neither gives a figure to quote.
"""

import argparse
import collections
import dataclasses
import pstats
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.contestants import Stage, new_broker
from benchmarks.variants import PENSTOCK_DURABLE, PENSTOCK_UNSYNCED, Variant
from benchmarks.workloads import WORKLOADS, Sizes, Workload
from tests.oracle.cache import tool
from tests.oracle.running_broker import RunningBroker

SAMPLES_PER_SECOND = 500
SAMPLER_STOP_SECONDS = 60


def under_cprofile(variant: Variant, folder: Path, output: Path) -> RunningBroker:
    """A broker that writes its profile to `output` when it stops."""
    broker = new_broker(variant, folder)
    python, *rest = broker.recipe.command
    command = [python, "-m", "cProfile", "-o", str(output), *rest]
    recipe = dataclasses.replace(broker.recipe, command=command)
    return RunningBroker(recipe, folder=folder, port=broker.port)


def profile_calls(workload: Workload, variant: Variant, lines: int) -> None:
    """Run under cProfile and print the functions with the most time of their own."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "profile"

        def make(chosen: Variant, place: Path) -> RunningBroker:
            return under_cprofile(chosen, place, output)

        with Stage({variant}, make_broker=make) as stage:
            workload.run(stage, variant, Sizes())
        statistics = pstats.Stats(str(output))
        statistics.strip_dirs().sort_stats("tottime").print_stats(lines)


def leaf_shares(collapsed: str) -> collections.Counter[str]:
    """Samples by innermost frame, from lines `outer;inner;innermost COUNT`."""
    counts: collections.Counter[str] = collections.Counter()
    for line in collapsed.splitlines():
        stack, _space, count = line.rpartition(" ")
        counts[stack.rpartition(";")[2]] += int(count)
    return counts


def profile_samples(workload: Workload, variant: Variant, lines: int) -> None:
    """Sample the process with py-spy while the workload runs, and print the innermost frames."""
    sampler = tool("py-spy", "pip install py-spy")
    with tempfile.TemporaryDirectory() as folder, Stage({variant}) as stage:
        output = Path(folder) / "stacks"
        workload.run(stage, variant, Sizes.quick())
        pid = stage.contestant(variant).broker.pid
        command = [
            sampler,
            "record",
            "--native",
            "--function",
            "--format",
            "raw",
            "--output",
            str(output),
        ]
        command += ["--rate", str(SAMPLES_PER_SECOND), "--duration", "unlimited"]
        with subprocess.Popen(
            [*command, "--pid", str(pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                workload.run(stage, variant, Sizes())
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(SAMPLER_STOP_SECONDS)
        counts = leaf_shares(output.read_text())
    total = sum(counts.values())
    table = Table("share", "innermost frame", title=f"{workload.name}, {variant}")
    for frame, count in counts.most_common(lines):
        table.add_row(f"{count / total:.1%}", frame)
    Console().print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Profile one workload."""
    names = {one.name: one for one in WORKLOADS if one.warms_up}
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hot_spots")
    parser.add_argument("workload", choices=sorted(names))
    parser.add_argument("--unsynced", action="store_true", help="with serve --flush os")
    parser.add_argument("--sampler", action="store_true", help="py-spy instead of cProfile")
    parser.add_argument("--lines", type=int, default=30)
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    variant = PENSTOCK_UNSYNCED if options.unsynced else PENSTOCK_DURABLE
    run = profile_samples if options.sampler else profile_calls
    run(names[options.workload], variant, options.lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
