"""The same outage on Penstock, NATS, Mosquitto and MirrorMaker 2, and one table.

    python -m benchmarks.outages [--systems penstock,nats,mosquitto,mirrormaker] [--seed 1]
        [--outage 20] [--rate 100] [--bytes 200] [--folder DIR] [--json FILE]

A site and its headquarters publish to each other. The line between them is cut, the processes of
the site are killed during the outage (SIGKILL) and started again, and the line is restored. Needed:
`nats-server` and `mosquitto` (Debian packages), Java and Maven for MirrorMaker 2, confluent-kafka.
Times and memory depend on the machine; lost, doubled and kept positions should not.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from benchmarks.outages.outage_plan import plan_of, row, table
from benchmarks.outages.outage_run import System, run_plan

SYSTEMS = ("penstock", "nats", "mosquitto", "mirrormaker")


def system_named(name: str) -> System:
    """Return a system that is not started."""
    if name == "nats":
        from benchmarks.outages.nats_site import NatsSystem

        return NatsSystem()
    if name == "mosquitto":
        from benchmarks.outages.mosquitto_site import MosquittoSystem

        return MosquittoSystem()
    if name == "mirrormaker":
        from benchmarks.outages.mirror_maker_site import MirrorMakerSystem

        return MirrorMakerSystem()
    from benchmarks.outages.penstock_site import PenstockSystem

    return PenstockSystem()


def main() -> int:
    """Run the systems one after another."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outages")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--outage", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--bytes", type=int, default=200)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    plan = plan_of(options.seed, options.outage, options.rate, options.bytes)
    print(f"{plan}\n{plan.count} messages in each direction", flush=True)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        base: Path = options.folder or Path(temporary)
        for name in options.systems.split(","):
            outcome = run_plan(system_named(name), plan, base / name)
            rows.append(row(outcome))
            print(json.dumps(rows[-1]), *outcome.failures, sep="\n", flush=True)
    print(table(rows))
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
