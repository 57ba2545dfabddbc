"""One run by hand: `python -m tests.histories --broker penstock --via subscribe --transactions`."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.crash.loop_disk import LoopDisk
from tests.histories.brokers import history_kafka, history_penstock
from tests.histories.plan import Plan
from tests.histories.run import KEPT, run_history


def main() -> int:
    """Run, print the report, keep the history."""
    usual = Plan()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=("penstock", "kafka"), default="penstock")
    parser.add_argument("--seed", type=int, default=usual.seed)
    parser.add_argument("--seconds", type=float, default=usual.seconds)
    parser.add_argument("--via", choices=("assign", "subscribe"), default=usual.via)
    parser.add_argument("--transactions", action="store_true")
    parser.add_argument("--protocol", choices=("classic", "consumer"), default=usual.protocol)
    parser.add_argument("--libraries", default=",".join(usual.libraries))
    parser.add_argument("--faults", default=",".join(usual.faults))
    parser.add_argument("--pause", type=float, default=usual.pause_seconds)
    parser.add_argument("--changes", default="", help="guards to take out (`unguarded`)")
    parser.add_argument("--keep", type=Path, default=KEPT)
    arguments = parser.parse_args()
    plan = Plan(
        seed=arguments.seed,
        seconds=arguments.seconds,
        via=arguments.via,
        in_transactions=arguments.transactions,
        protocol=arguments.protocol,
        libraries=tuple(arguments.libraries.split(",")),
        faults=tuple(filter(None, arguments.faults.split(","))),
        pause_seconds=arguments.pause,
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        disk = LoopDisk(folder) if "power-cut" in plan.faults else None
        try:
            data_dir = disk.path / "data" if disk else None
            if arguments.broker == "kafka":
                made = history_kafka(folder / "broker")
            else:
                place = folder / "broker"
                made = history_penstock(place, data_dir=data_dir, changes=arguments.changes)
            with made as broker:
                result = run_history(broker, plan, arguments.keep, disk)
                print(result.report.text())
                print(f"faults: {', '.join(result.faults)}\nhistory: {result.saved}")
                print(result.line())
        finally:
            if disk is not None:
                disk.close()
    return 0 if result.is_valid else 1


if __name__ == "__main__":
    sys.exit(main())
