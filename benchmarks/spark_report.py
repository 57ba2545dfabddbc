"""The output of the Spark benchmarks: a table on the terminal, in the README and as JSON."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.report import (
    HEADINGS,
    Sample,
    cells,
    judge_all,
    markdown,
    print_table,
    put_between_marks,
)
from benchmarks.side_by_side import README
from benchmarks.targets import Target


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """`--json` and `--markdown`."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every line")
    parser.add_argument("--markdown", action="store_true", help="write the table into the README")


def publish(
    samples: Sequence[Sample],
    targets: Sequence[Target],
    notes: Sequence[str],
    options: argparse.Namespace,
    console: Console,
    *,
    mark: str,
    headings: Sequence[str] = HEADINGS,
) -> int:
    """Print and write; the exit code is 1 when a target is missed."""
    lines = judge_all(samples, targets)
    print_table(lines, console, headings)
    table = markdown(lines, notes, headings)
    console.print(table, style="dim")
    if options.json:
        options.json.write_text(json.dumps([cells(line) for line in lines], indent=1) + "\n")
    if options.markdown:
        README.write_text(put_between_marks(README.read_text(), table, mark))
    return 1 if any(line.verdict.startswith("MISSED") for line in lines) else 0
