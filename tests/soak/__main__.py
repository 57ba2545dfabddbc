"""`python -m tests.soak [--minutes 30] [--json FILE]`: prints the figures; 1 when one is broken."""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from tests.soak.run import soak
from tests.soak.verdict import Bounds, Findings, broken, figures

BOUNDS = Bounds(memory_mb_per_hour=30.0, memory_mb=400.0, times_slower=2.0, slack_ms=0.0)


def report(found: Findings) -> None:
    """Everything that a reader of the figures may want."""
    for role, told in (("produce", found.producer), ("fetch", found.reader)):
        for phase, spread in told["phases"].items():
            shown = ", ".join(f"{name} {value:.3g}" for name, value in spread.items())
            print(f"{role}, {phase}: {shown}")
    for reason, seen in found.seen.items():
        print(f"{reason}: clients saw {seen}, the broker counted {found.counted(reason)}")
    print(f"done: {found.abuse['done']}")
    print(f"librdkafka: {found.real['totals']}, errors {found.real['errors']}")
    print(f"disk full: {found.full_refusals} batches refused")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--unloaded-seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    options = parser.parse_args()
    found = soak(options.minutes, unloaded_seconds=options.unloaded_seconds)
    if options.json:
        options.json.write_text(json.dumps(dataclasses.asdict(found), indent=1) + "\n")
    report(found)
    problems = broken(found, BOUNDS)
    for problem in problems:
        print(f"BROKEN: {problem}")
    if not problems:
        print(figures(found))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
