"""Checks a saved history: `python -m tests.checker HISTORY.jsonl [--subscribe] [--ww]`."""

import argparse
import sys
from pathlib import Path

from tests.checker.check import Mode, check
from tests.checker.history import load


def main() -> int:
    """Print the report; 1 when something forbidden was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("history", type=Path)
    parser.add_argument("--subscribe", action="store_true", help="consumers were in a group")
    parser.add_argument("--ww", action="store_true", help="edges between writes as well")
    parser.add_argument("--no-final", action="store_true", help="it was not read to the end")
    arguments = parser.parse_args()
    mode = Mode(
        with_subscribe=arguments.subscribe,
        with_ww=arguments.ww,
        is_read_to_the_end=not arguments.no_final,
    )
    report = check(load(arguments.history), mode)
    print(report.text())
    return 0 if report.is_valid else 1


if __name__ == "__main__":
    sys.exit(main())
