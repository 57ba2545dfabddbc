"""`python -m tests.hostile`: each attack, then mixes; prints the figures, 1 when one is broken.

--attacks NAME,NAME    only these
--seconds 10           of each attack
--minutes 0            of random mixes, after the single attacks
--build source         or `installed`: the package of PENSTOCK_BROKER_PYTHON
"""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from tests.hostile.attacker import ATTACKS
from tests.hostile.siege import Plan, besiege
from tests.hostile.verdict import (
    Bounds,
    Findings,
    broken,
    figures,
    not_measured,
    summary,
    table,
)

MIX_MINUTES_PER_BROKER = 2.0
"""A mix of ten minutes is five brokers, so that SIGTERM arrives at five moments."""


def judge(title: str, found: Findings, bounds: Bounds) -> list[str]:
    """Print what was measured, and return what was broken."""
    problems = broken(found, bounds)
    print(f"--- {title}", flush=True)
    unknown = [f"NOT MEASURED: {text}" for text in not_measured(found, bounds)]
    for line in (*figures(found), *unknown, *(f"BROKEN: {problem}" for problem in problems)):
        print(line, flush=True)
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile")
    parser.add_argument("--attacks", default=",".join(ATTACKS))
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--build", choices=("source", "installed"), default="source")
    parser.add_argument("--slack-ms", type=float, default=Bounds().slack_ms)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    options = parser.parse_args()
    plan = Plan(
        attacks=tuple(options.attacks.split(",")),
        seconds=options.seconds,
        scale=options.scale,
        seed=options.seed,
        from_source=options.build == "source",
    )
    bounds = Bounds(slack_ms=options.slack_ms)
    measured: dict[str, Findings] = {}
    problems: list[str] = []
    if options.seconds:
        for name in plan.attacks:
            measured[name] = besiege(dataclasses.replace(plan, attacks=(name,)))
            problems += judge(f"{name}, {options.build}", measured[name], bounds)
    left, round_number = options.minutes, 0
    while left > 0:
        minutes = min(left, MIX_MINUTES_PER_BROKER)
        mixed = dataclasses.replace(
            plan, is_mixed=True, seconds=60 * minutes, seed=plan.seed + round_number
        )
        title = f"mix {round_number}, seed {mixed.seed}"
        measured[title] = besiege(mixed)
        problems += judge(f"{title}, {options.build}", measured[title], bounds)
        left, round_number = left - minutes, round_number + 1
    if options.json:
        found = {title: dataclasses.asdict(one) for title, one in measured.items()}
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    print("\n".join(table(measured, bounds)))
    print(summary(options.build, list(measured.values()), bounds))
    print(f"{len(problems)} promises broken")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
